"""The numbers of a trace: by hand on small ones, and as published on the public ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_files import public, write

from pagesim.trace import Source, Trace, read_trace
from pagesim.trace.instants import whole_ns
from pagesim.trace.inspect import Sessions, num_accepted, num_blocks, prefix_reuse, summarize


def with_ids(ids: list[list[int]], block_tokens: int = 4, prompt_tokens: list[int] | None = None) -> Trace:
    prompts = np.array(prompt_tokens or [len(own) * block_tokens for own in ids], dtype=np.int32)
    return Trace(None, prompts, np.ones_like(prompts), prefix_ids=np.array(sum(ids, []), dtype=np.int64),
                 prefix_offsets=np.cumsum([0, *map(len, ids)]), source=Source("test", "test", hash_block_tokens=block_tokens))


def test_a_summary_by_hand(tmp_path):
    summary = summarize(read_trace(write(tmp_path, "arrival_s,prompt_tokens,output_tokens\n10,16,1\n12,17,2\n0,0,5\n16,40,9\n")))
    assert (summary.format, summary.read, summary.kept, summary.dropped) == ("plain", 4, 3, {"0 prompt tokens": 1})
    assert (summary.span_s, summary.rate_per_s) == (6, pytest.approx(1 / 3)) and summary.arrival_cv == pytest.approx(1 / 3)
    assert (summary.prompt_tokens.mean, summary.prompt_tokens.p50, summary.prompt_tokens.max) == (pytest.approx(73 / 3), 17, 40)
    assert (summary.total_tokens.min, summary.total_tokens.max) == (17, 49)
    assert (summary.prompt_blocks, summary.final_blocks) == (1 + 2 + 3, 1 + 2 + 3)
    assert summary.last_block_waste == pytest.approx(1 - (16 + 18 + 48) / 96)
    assert summary.prefix_reuse is None


def test_sessions_by_hand(tmp_path):
    text = ("arrival_s,prompt_tokens,output_tokens,session,think_s,num_samples,beam_width\n0,10,5,a,,1,\n,20,5,a,2,4,\n,24,5,a,4,1,3\n"
            "1,7,5,b,,,\n2,1,1,,,,\n")
    summary = summarize(read_trace(write(tmp_path, text)))
    assert (summary.sequences, summary.num_samples, summary.beam_width) == (1 + 4 + 3 + 1 + 1, {1: 4, 4: 1}, {1: 4, 3: 1})
    assert summary.sessions == Sessions(sessions=2, requests=4, next_turns=2, waiting_turns=2, mean_think_s=3.0,
                                        history_share_of_prompt_tokens=(15 + 24) / 62, shorter_than_history=1)


def test_requests_that_hit_are_counted():
    assert prefix_reuse(with_ids([[1, 2], [1, 3], [4, 5], [1, 2, 6]])).requests_that_hit == 2


@given(st.lists(st.integers(1, 50), min_size=1, max_size=200))
def test_percentiles_are_nearest_rank(tokens):
    lengths = np.array(tokens, dtype=np.int32)
    spread = summarize(Trace(None, lengths, lengths)).prompt_tokens
    ordered = sorted(tokens)
    assert spread.p50 == ordered[-(-50 * len(tokens) // 100) - 1] and spread.p99 == ordered[-(-99 * len(tokens) // 100) - 1]


@pytest.mark.parametrize("arrival_s", [[0.0], [0.0, 0.0, 0.0]])
def test_a_rate_without_time_is_null(arrival_s):
    ones = np.ones(len(arrival_s), dtype=np.int32)
    summary = summarize(Trace(whole_ns(np.array(arrival_s)), ones, ones))
    assert (summary.span_s, summary.rate_per_s, summary.arrival_cv) == (0, None, None)


def test_reuse_without_prefix_ids_is_null_and_not_0():
    ones = np.ones(3, dtype=np.int32)
    assert prefix_reuse(Trace(None, ones, ones)) is None


def test_a_full_hit_leaves_a_token_to_compute():
    for prompt_tokens, hits in ((16, 3), (15, 3), (13, 3), (17, 4), (12, 2), (4, 0)):
        ids = list(range(-(-prompt_tokens // 4)))
        assert prefix_reuse(with_ids([list(range(5)), ids], prompt_tokens=[20, prompt_tokens])).hits == hits


def test_hits_end_at_the_first_new_block_and_a_prompt_does_not_hit_itself():
    assert prefix_reuse(with_ids([[1, 2, 3], [1, 9, 3], [9, 9]])).hits == 1 + 1  # [9, 9]: the second 9 leaves nothing to compute


@given(st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=5), min_size=1, max_size=20))
def test_reuse_is_what_a_set_of_seen_ids_says(ids):
    seen, hits = set(), 0
    for own in ids:
        leading = next((i for i, block in enumerate(own) if block not in seen), len(own))
        hits += min(leading, len(own) - 1)
        seen |= set(own)
    reuse = prefix_reuse(with_ids(ids))
    assert (reuse.hits, reuse.ids, reuse.distinct_ids) == (hits, sum(map(len, ids)), len(seen))


PUBLISHED = [  # file, requests, rate/s, arrival CV, prompt and output mean/p50/p99/max
    ("AzureLLMInferenceTrace_conv.csv", 19366, 5.53, 1.09, (1155, 1020, 4142, 14050), (211, 129, 601, 1000)),
    ("AzureLLMInferenceTrace_code.csv", 8819, 2.57, 13.15, (2048, 1469, 7436, 7437), (28, 13, 252, 1899)),
    ("mooncake_conversation_trace.jsonl.gz", 12031, 3.40, 3.03, (12035, 6909, 85401, 126195), (343, 350, 1120, 2000)),
    ("mooncake_synthetic_trace.jsonl.gz", 3993, 3.91, 1.01, (15325, 11587, 66458, 191378), (149, 69, 769, 893)),
    ("burstgpt_1_head400.csv", 383, None, 4.46, (544, 353, 1960, 2126), (289, 238, 1442, 2019))]


@pytest.mark.parametrize(("name", "kept", "rate", "cv", "prompt", "output"), PUBLISHED, ids=[row[0] for row in PUBLISHED])
def test_the_public_traces_have_their_known_rates_and_lengths(name, kept, rate, cv, prompt, output):
    summary = summarize(read_trace(public(name)))
    assert summary.kept == kept and round(summary.arrival_cv, 2) == cv
    assert rate is None or round(summary.rate_per_s, 2) == rate
    for spread, expected in ((summary.prompt_tokens, prompt), (summary.output_tokens, output)):
        assert (round(spread.mean), spread.p50, spread.p99, spread.max) == expected


BLOCKS = [("AzureLLMInferenceTrace_conv.csv", 1_406_937, 1_660_963), ("AzureLLMInferenceTrace_code.csv", 1_132_803, 1_147_791),
          ("mooncake_conversation_trace.jsonl.gz", 9_055_233, 9_312_127), ("mooncake_synthetic_trace.jsonl.gz", 3_826_521, 3_863_520)]


@pytest.mark.parametrize(("name", "prompt_blocks", "final_blocks"), BLOCKS, ids=[row[0] for row in BLOCKS])
def test_the_public_traces_take_their_known_numbers_of_blocks(name, prompt_blocks, final_blocks):
    summary = summarize(read_trace(public(name)), block_size=16)
    assert (summary.prompt_blocks, summary.final_blocks) == (prompt_blocks, final_blocks)


def test_azure_conv_has_its_known_acceptance_and_waste():
    trace = read_trace(public("AzureLLMInferenceTrace_conv.csv"))
    assert [num_accepted(trace, length) for length in (2048, 4096, 8192)] == [16_528, 17_754, 19_365]
    tokens = trace.prompt_tokens.astype(np.int64) + trace.output_tokens
    waste = [round(100 * (1 - tokens.sum() / (size * num_blocks(tokens, size))), 3) for size in (8, 16, 32, 64, 128, 256)]
    assert waste == [0.255, 0.544, 1.122, 2.206, 4.376, 8.017]


@pytest.mark.parametrize(("name", "ids", "distinct", "hits", "share"), [
    ("mooncake_conversation_trace.jsonl.gz", 288_500, 182_790, 105_592, 37.338),
    ("mooncake_synthetic_trace.jsonl.gz", 121_877, 43_924, 77_740, 65.043)])
def test_mooncakes_prompts_repeat_as_known(name, ids, distinct, hits, share):
    reuse = prefix_reuse(read_trace(public(name)))
    assert (reuse.ids, reuse.distinct_ids, reuse.hits) == (ids, distinct, hits)
    assert round(100 * reuse.hit_share_of_prompt_tokens, 3) == share


def test_sums_over_a_long_trace_stay_exact_where_32_bits_overflow():
    lengths = np.full(3, 2**30, dtype=np.int32)
    summary = summarize(Trace(None, lengths, lengths), block_size=1)
    assert summary.final_blocks == 3 * (2**31 - 1) and summary.total_tokens.max == 2**31 and summary.prompt_tokens.mean == 2**30


def test_mooncake_tokens_times_bytes_are_exact():
    trace = read_trace(public("mooncake_conversation_trace.jsonl.gz"))
    tokens = int(trace.prompt_tokens.sum(dtype=np.int64) + trace.output_tokens.sum(dtype=np.int64))
    assert (tokens, tokens * 131_072) == (148_915_871, 148_915_871 * 2**17)
