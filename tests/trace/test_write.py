import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_files import public, write

from pagesim.errors import InputError, TraceError
from pagesim.trace import Source, Trace, read_trace
from pagesim.trace.write import write_trace

COLUMNS = ("arrival_ns", "prompt_tokens", "output_tokens", "max_tokens", "num_samples", "beam_width", "prefix_ids", "prefix_offsets", "session")


def assert_same(one: Trace, other: Trace) -> None:
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert one.source.hash_block_tokens == other.source.hash_block_tokens


@st.composite
def traces(draw) -> Trace:
    num = draw(st.integers(1, 8))
    def column(low, high, dtype=np.int32):
        return np.array(draw(st.lists(st.integers(low, high), min_size=num, max_size=num)), dtype=dtype)
    prompt, output = column(1, 40), column(1, 40)
    intervals_ns = draw(st.lists(st.integers(0, 10**16), min_size=num, max_size=num))
    ids = [list(range(-(-int(tokens) // 4))) for tokens in prompt]
    has = draw(st.sets(st.sampled_from(["arrival_ns", "max_tokens", "num_samples", "beam_width", "prefix_ids", "session"])))
    return Trace(np.cumsum([0, *intervals_ns[1:]]) if "arrival_ns" in has else None, prompt, output,
                 max_tokens=np.where(column(0, 1) > 0, output + 3, 0).astype(np.int32) if "max_tokens" in has else None,
                 num_samples=column(1, 4) if "num_samples" in has else None,
                 beam_width=column(1, 4) if {"beam_width", "num_samples"} & has == {"beam_width"} else None,
                 prefix_ids=np.array(sum(ids, []), dtype=np.int64) if "prefix_ids" in has else None,
                 prefix_offsets=np.cumsum([0, *map(len, ids)]) if "prefix_ids" in has else None,
                 session=np.where(np.arange(num) % 2, -1, np.arange(num) // 2) if "session" in has else None,
                 source=Source("made", "made", hash_block_tokens=4 if "prefix_ids" in has else None))


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".csv.gz", ".jsonl.gz"])
@given(trace=traces())
def test_what_is_written_reads_back_the_same(tmp_path_factory, ending, trace):
    path = tmp_path_factory.mktemp("write") / f"trace{ending}"
    write_trace(trace, path)
    assert_same(read_trace(path), trace)


@pytest.mark.parametrize("name", ["AzureLLMInferenceTrace_code.csv", "burstgpt_3_head400.csv", "mooncake_conversation_head400.jsonl",
                                  "vllm_rtx4090_llama31_8b_requests.jsonl", "vattention_arxiv_long_online.csv"])
@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_a_public_trace_is_the_same_in_the_plain_form(tmp_path, name, ending):
    trace = read_trace(public(name))
    write_trace(trace, tmp_path / f"plain{ending}")
    plain = read_trace(tmp_path / f"plain{ending}")
    assert_same(plain, trace)
    assert plain.source.format == "plain"


def test_the_plain_form_has_the_columns_it_promises(tmp_path):
    ones = np.ones(1, dtype=np.int32)
    trace = Trace(np.zeros(1, np.int64), 17 * ones, ones, max_tokens=0 * ones, num_samples=2 * ones, prefix_ids=np.array([0, 1]),
                  prefix_offsets=np.array([0, 2]), session=np.array([-1]), source=Source("made", "made", hash_block_tokens=16))
    write_trace(trace, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == (
        "arrival_s,prompt_tokens,output_tokens,max_tokens,num_samples,session,prefix_block_tokens,prefix_ids\n0.0,17,1,,2,,16,0 1\n")
    write_trace(trace, tmp_path / "t.jsonl")
    assert json.loads((tmp_path / "t.jsonl").read_text()) == {
        "arrival_s": 0.0, "prompt_tokens": 17, "output_tokens": 1, "max_tokens": None, "num_samples": 2, "session": None,
        "prefix_block_tokens": 16, "prefix_ids": [0, 1]}


def test_equal_traces_give_equal_bytes_also_gzipped(tmp_path):
    trace = Trace(None, np.ones(3, dtype=np.int32), np.ones(3, dtype=np.int32))
    for name in ("a.csv.gz", "b.csv.gz"):
        write_trace(trace, tmp_path / name)
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()


def test_the_file_that_was_read_is_never_overwritten(tmp_path):
    path = write(tmp_path, "prompt_tokens,output_tokens\n1,2\n")
    (tmp_path / "link.csv").symlink_to(path)
    for other in (path, tmp_path / "link.csv"):
        with pytest.raises(TraceError, match="this is the file the trace was read from; give the output another name"):
            write_trace(read_trace(path), other)
    assert path.read_text() == "prompt_tokens,output_tokens\n1,2\n"


def test_a_file_that_cannot_be_written_is_an_error_and_leaves_nothing_behind(tmp_path):
    trace = Trace(None, np.ones(3, dtype=np.int32), np.ones(3, dtype=np.int32))
    with pytest.raises(TraceError, match=r"t.csv: cannot be written: No such file or directory"):
        write_trace(trace, tmp_path / "nowhere" / "t.csv")
    (tmp_path / "dir.csv").mkdir()
    with pytest.raises(TraceError, match="cannot be written"):
        write_trace(trace, tmp_path / "dir.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["dir.csv"]


def test_another_ending_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"a trace is written as \.csv, \.jsonl, \.csv\.gz, \.jsonl\.gz"):
        write_trace(Trace(None, np.ones(3, dtype=np.int32), np.ones(3, dtype=np.int32)), tmp_path / "t.parquet")
