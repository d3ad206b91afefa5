"""report/notes.py: the sentences before and after the tables."""

import pytest
from tiny import write_experiment

from pagesim import simulate
from pagesim.config import load
from pagesim.report.notes import capacity_lines, count_lines, memory_notes, result_warnings, size_warnings

PAGED = "[{kind: paged, block_size: 16}]"


def cases_of(tmp_path, **options):
    return load(write_experiment(tmp_path, **options)).cases


def test_the_first_line_has_tokens_blocks_and_the_concurrency_that_follows_from_them(tmp_path):
    cases = cases_of(tmp_path, kv_tokens=41_392, max_model_len=32_768, allocators=PAGED)
    assert capacity_lines(cases) == [
        "KV cache: 41,392 tokens, 2,587 blocks of 16; maximum concurrency at 32,768 tokens per request: 1.26x"]


def test_bytes_are_named_in_gib_where_the_model_is_known(tmp_path):
    cases = cases_of(tmp_path, kv_tokens=41_392, max_model_len=32_768, allocators=PAGED,
                     keys="model: {kv_bytes_per_token: 131072}")
    assert capacity_lines(cases)[0].startswith("KV cache: 41,392 tokens, 5.05 GiB, 2,587 blocks of 16;")


def test_a_sweep_of_block_sizes_is_one_line(tmp_path):
    lines = capacity_lines(cases_of(tmp_path, allocators=PAGED, keys="sweep: {allocators.0.block_size: [1, 16, 32]}"))
    assert len(lines) == 1 and "160 blocks of 1 or 10 blocks of 16 or 5 blocks of 32" in lines[0]


@pytest.mark.parametrize(("memory", "told"), [
    ("gpu: h200", True), ("gpu_memory: 20GiB", True), ("gpu: h200, other: 2GiB", False), ("kv_memory: 2GiB", False)])
def test_memory_that_a_gpu_leaves_is_an_upper_bound_until_the_rest_is_given(tmp_path, memory, told):
    config = write_experiment(tmp_path, allocators=PAGED, keys="model: llama-3.2-1b")
    lines = memory_notes(load(config, [f"memory={{{memory}}}"]).cases)
    assert len(lines) == told
    assert all(line.startswith("note: KV memory is an upper bound: activations, CUDA graphs") for line in lines)


def test_memory_below_one_full_length_request_is_flagged(tmp_path):
    cases = cases_of(tmp_path, kv_tokens=1478 * 16, max_model_len=29_000, allocators=PAGED)
    assert "concurrency at 29,000 tokens per request: 0.81x" in capacity_lines(cases)[0]
    assert size_warnings(cases) == [
        "warning: not even one full-length request fits: max_model_len is 29,000 tokens, the KV cache holds 23,648; "
        "give it more memory or lower max_model_len"]
    assert size_warnings(cases_of(tmp_path, kv_tokens=1952 * 16, max_model_len=20_000, allocators=PAGED)) == []


def test_counts_add_up_and_name_their_reasons(tmp_path):
    config = write_experiment(tmp_path, rows=((0, 20, 5), (0, 0, 3), (1, 70, 1), (1, 9, 0), (2, 10, 2)),
                              allocators=PAGED)
    (line,) = count_lines(simulate(config).metrics)
    assert line.startswith("trace: plain, 5 rows read = 2 dropped (") and line.endswith(
        ") + 3 kept = 2 completed + 1 rejected (prompt + output exceeds max_model_len) + 0 unfinished")


def test_cases_with_other_counts_have_lines_of_their_own(tmp_path):
    config = write_experiment(tmp_path, kv_tokens=48, rows=((0, 20, 5),))  # a region of max_model_len does not fit
    lines = count_lines(simulate(config).metrics)
    assert len(lines) == 2
    assert "1 rejected (does not fit the empty KV memory)" in lines[0] and "1 completed + 0 rejected" in lines[1]


def test_where_all_are_rejected_the_smallest_and_the_largest_length_are_named(tmp_path):
    config = write_experiment(tmp_path, rows=((0, 20, 5), (1, 300, 12)), max_model_len=16, allocators=PAGED)
    (warning,) = result_warnings(simulate(config).metrics)
    assert (
        "all 2 requests were rejected; prompt + output is 25 tokens in the smallest and 312 in the largest" in warning)
    assert "max_model_len is 16" in warning


@pytest.mark.parametrize("rows, options, overrides, said", [
    (((0, 20, 5, 1),), {"max_model_len": 16}, (),
     "its only request was rejected; prompt + output is 25 tokens, max_model_len is 16"),
    (((0, 20, 5, 8),) * 2, {}, (), "all 2 requests were rejected; prompt + output is 25 tokens, and the 16 samples of 2 "
                                   "requests count each, the KV cache holds 160"),
    (((0, 20, 5, 3),), {}, ("scheduling.max_num_seqs=2",), "a request's samples must be at most scheduling.max_num_seqs"),
])
def test_a_rejection_is_explained_by_its_reason(tmp_path, rows, options, overrides, said):
    config = write_experiment(tmp_path, rows=rows, columns="arrival_s,prompt_tokens,output_tokens,num_samples",
                              allocators=PAGED, **options)
    warning = result_warnings(simulate(config, overrides).metrics)[0]
    assert said in warning and ("max_model_len" in said) == ("max_model_len" in warning)


def test_a_run_ended_by_until_s_says_so(tmp_path):
    config = write_experiment(tmp_path, rows=((0, 20, 40),), allocators=PAGED)
    (warning,) = result_warnings(simulate(config, ("trace.until_s=0.1",)).metrics)
    assert "nothing completed: 1 unfinished when the run ended; raise trace.until_s" in warning


def test_a_run_that_ends_in_its_warmup_says_so(tmp_path):
    (warning,) = result_warnings(simulate(write_experiment(tmp_path, allocators=PAGED), ("trace.warmup_s=1e9",)).metrics)
    assert "paged 16: nothing was counted, no step starts after trace.warmup_s; lower it" in warning


def test_a_turn_shorter_than_its_history_is_said(tmp_path):
    config = write_experiment(tmp_path, rows=((0, 20, 5, "a"), (1, 24, 5, "a"), (2, 40, 5, "a")), allocators=PAGED,
                              columns="arrival_s,prompt_tokens,output_tokens,session")
    (note,) = result_warnings(simulate(config).metrics)
    assert note.startswith("note: turns of conversations shorter than the turn before and its output: 1;")


@pytest.mark.parametrize("column, value, sentence", [
    ("num_samples", 2, "parallel samples (num_samples) are independent sequences here"),
    ("prefix_ids", "7 8", "prefix ids are not used"),
])
def test_what_is_read_but_not_simulated_is_said(tmp_path, column, value, sentence):
    config = write_experiment(tmp_path, rows=((0, 20, 5, value),),
                              columns=f"arrival_s,prompt_tokens,output_tokens,{column}", allocators=PAGED)
    (note,) = result_warnings(simulate(config).metrics)
    assert note.startswith("note:") and sentence in note
