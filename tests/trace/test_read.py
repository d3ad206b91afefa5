"""Every form is told by its header or keys and read with its own units."""

import gzip
import hashlib
import json

import numpy as np
import pytest
from trace_files import public, write
from hypothesis import given
from hypothesis import strategies as st

from pagesim.trace import read_trace

AZURE_2023 = ("TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n"
              "2023-11-16 18:17:04.0319600,3180,8")
AZURE_2024 = ("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n"
              "2024-05-10 00:00:01+00:00,2399,6\n")
BURSTGPT_1 = ("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n"
              "45,ChatGPT,1087,230,1317,Conversation log\n")
BURSTGPT_3 = ("Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
              "19440110.0,1722ac82,43,GPT-4,906,446,1352,Conversation log\n19440161.0,,2,ChatGPT,36,29,65,API log\n"
              "19440170.0,1722ac82,2,GPT-4,40,30,70,Conversation log\n")
MOONCAKE = ('{"timestamp": 0, "input_length": 1024, "output_length": 5, "hash_ids": [7, 9]}\n'
            '{"timestamp": 1500, "input_length": 1025, "output_length": 6, "hash_ids": [7, 9, 4]}\n')
BAILIAN = ('{"chat_id": 159, "parent_chat_id": -1, "timestamp": 61.114, "input_length": 33, "output_length": 132, "type": "text", '
           '"turn": 1, "hash_ids": [1089, 1090, 6326]}\n'
           '{"chat_id": 160, "parent_chat_id": -1, "timestamp": 61.2, "input_length": 16, "output_length": 2, "type": "text", '
           '"turn": 1, "hash_ids": [5]}\n'
           '{"chat_id": 161, "parent_chat_id": 159, "timestamp": 62.114, "input_length": 48, "output_length": 9, "type": "text", '
           '"turn": 2, "hash_ids": [1089, 1090, 8]}\n')
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n4.314579,396,109\n"
VIDUR_LENGTHS = "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n24560,390,24950,62.97435897\n23338,433,23771,53.89"
SPLITWISE = ("request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n0,2,0,1,1,4096,32\n"
             "1,2,0,3,1,2048,8\n")
ENGINE_RUN = ('{"request_id": "bench-0", "input_toks": 2358, "output_toks": 531, "arrival_time": 1787267980.0, "queued_ts": 27536.66, '
              '"scheduled_ts": 27536.66, "first_token_ts": 27537.35, "last_token_ts": 27554.23}\n'
              '{"request_id": "bench-1", "input_toks": 1034, "output_toks": 769, "arrival_time": 1787267980.5, "queued_ts": 27537.04, '
              '"scheduled_ts": 27537.04, "first_token_ts": 27537.35, "last_token_ts": 27562.27}\n')
PLAIN = "arrival_s,prompt_tokens,output_tokens\n0.5,10,20\n2.0,30,40\n"

FORMS = [
    (AZURE_2023, "azure", [0, 0.052], [4808, 3180], [10, 8]),
    (AZURE_2024, "azure", [0, 0.99007], [2162, 2399], [5, 6]),
    (BURSTGPT_1, "burstgpt-v1", [0, 40], [472, 1087], [18, 230]),
    (BURSTGPT_3, "burstgpt-v3", [0, 51, 60], [906, 36, 40], [446, 29, 30]),
    (MOONCAKE, "mooncake", [0, 1.5], [1024, 1025], [5, 6]),
    (BAILIAN, "bailian", [0, 0.086, 1], [33, 16, 48], [132, 2, 9]),
    (VIDUR, "vidur", [0, 4.314579], [374, 396], [44, 109]),
    (VIDUR_LENGTHS, "vidur-lengths", None, [24560, 23338], [390, 433]),
    (SPLITWISE, "splitwise-sim", [0, 2], [4096, 2048], [32, 8]),
    (ENGINE_RUN, "llmservingsim", [0, 0.5], [2358, 1034], [531, 769]),
    (PLAIN, "plain", [0, 1.5], [10, 30], [20, 40]),
]


@pytest.mark.parametrize("zipped", [False, True], ids=["text", "gzip"])
@pytest.mark.parametrize(("text", "form", "arrival_s", "prompt", "output"), FORMS, ids=[f"{i}-{row[1]}" for i, row in enumerate(FORMS)])
def test_a_form_is_told_by_its_columns_and_never_by_the_files_name(tmp_path, text, form, arrival_s, prompt, output, zipped):
    data = gzip.compress(text.encode()) if zipped else text.encode()
    trace = read_trace(write(tmp_path, data, "no-ending"))
    assert trace.source.format == form
    if arrival_s is None:
        assert trace.arrival_s is None
    else:
        np.testing.assert_allclose(trace.arrival_s, arrival_s, rtol=0, atol=1e-9)
    assert trace.prompt_tokens.tolist() == prompt and trace.output_tokens.tolist() == output
    assert trace.prompt_tokens.dtype == trace.output_tokens.dtype == np.int32
    assert trace.source.sha256 == hashlib.sha256(data).hexdigest()
    assert trace.source.read == len(prompt) and trace.source.dropped == {}


@pytest.mark.parametrize(("text", "block_tokens"), [(MOONCAKE, 512), (BAILIAN, 16), (PLAIN, None)])
def test_the_size_of_a_hash_block_is_part_of_the_form(tmp_path, text, block_tokens):
    assert read_trace(write(tmp_path, text)).source.hash_block_tokens == block_tokens


def test_prefix_ids_are_numbered_in_order_of_appearance(tmp_path):
    trace = read_trace(write(tmp_path, MOONCAKE))
    assert trace.prefix_ids.tolist() == [0, 1, 0, 1, 2] and trace.prefix_offsets.tolist() == [0, 2, 5]


def test_ids_of_any_size_or_text_are_kept_apart(tmp_path):
    ids = [2**63 + 1, 2**63, -1, 2**70]
    lines = "".join(json.dumps({"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [id]}) + "\n" for id in [*ids, "a", "a"])
    assert read_trace(write(tmp_path, lines)).prefix_ids.tolist() == [0, 1, 2, 3, 4, 4]


def test_a_chat_belongs_to_the_session_of_its_first_parent(tmp_path):
    assert read_trace(write(tmp_path, BAILIAN)).session.tolist() == [0, 1, 0]


def test_a_request_outside_a_session_has_none(tmp_path):
    assert read_trace(write(tmp_path, BURSTGPT_3)).session.tolist() == [0, -1, 0]


@pytest.mark.parametrize(("column", "value", "unit_s"), [
    ("arrival_s", 3, 1), ("arrival_ms", 3, 1e-3), ("timestamp_us", 3, 1e-6), ("arrival_time_ns", 3, 1e-9), ("timestamp", 3, 1),
    ("Arrival Time", 3, 1), ("arrived_at", 3, 1)])
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_the_name_of_an_arrival_column_states_its_unit(tmp_path, column, value, unit_s, form):
    rows = [{column: 0, "input_tokens": 1, "completion_tokens": 2}, {column: value, "input_tokens": 3, "completion_tokens": 4}]
    text = "\n".join(map(json.dumps, rows)) if form == "jsonl" else f"{column},input_tokens,completion_tokens\n0,1,2\n{value},3,4"
    trace = read_trace(write(tmp_path, text))
    assert trace.arrival_s.tolist() == [0, pytest.approx(value * unit_s)] and trace.source.format == "plain"


@pytest.mark.parametrize("text", ["timestamp,prompt_tokens,output_tokens\n2024-05-10T00:00:00Z,1,2\n2024-05-10T02:00:01.5+02:00,3,4\n",
                                  '{"timestamp": "2024-05-10 00:00:00", "prompt_tokens": 1, "output_tokens": 2}\n'
                                  '{"timestamp": "2024-05-10 00:00:01.5", "prompt_tokens": 3, "output_tokens": 4}\n'])
def test_plain_files_may_have_dates_and_times(tmp_path, text):
    assert read_trace(write(tmp_path, text)).arrival_s.tolist() == [0, 1.5]


def test_all_plain_columns_are_read(tmp_path):
    text = ("arrival_s,prompt_tokens,output_tokens,max_tokens,num_samples,prefix_ids,session\n"
            "0,17,2,8,4,5 6,a\n1,16,2,,,5,\n2,1,2,0,1,9,a\n")
    trace = read_trace(write(tmp_path, text))
    assert trace.max_tokens.tolist() == [8, 0, 0] and trace.num_samples.tolist() == [4, 1, 1]
    assert trace.prefix_ids.tolist() == [0, 1, 0, 2] and trace.prefix_offsets.tolist() == [0, 2, 3, 4]
    assert trace.session.tolist() == [0, -1, 0] and trace.source.hash_block_tokens == 16


@pytest.mark.parametrize("cell", ["5 6", '"5,6"', '"5, 6"', '"[5, 6]"', "[5 6]"])
def test_ids_in_a_cell_are_read_as_a_list_in_any_dress(tmp_path, cell):
    trace = read_trace(write(tmp_path, f"prompt_tokens,output_tokens,prefix_ids\n17,2,5 6\n17,2,{cell}\n"))
    assert trace.prefix_ids.tolist() == [0, 1, 0, 1]


def test_a_plain_file_may_state_another_prefix_block(tmp_path):
    text = "arrival_s,prompt_tokens,output_tokens,prefix_ids,prefix_block_tokens\n0,1024,2,5 6,512\n"
    assert read_trace(write(tmp_path, text)).source.hash_block_tokens == 512


def test_a_limit_of_output_added_to_a_public_form_is_read(tmp_path):
    assert read_trace(write(tmp_path, VIDUR.replace("num_decode_tokens\n", "num_decode_tokens,max_tokens\n").replace("44\n", "44,99\n")
                            .replace("109\n", "109,\n"))).max_tokens.tolist() == [99, 0]


@pytest.mark.parametrize("text", [
    b"\xef\xbb\xbf" + PLAIN.encode(), PLAIN.replace("\n", "\r\n").encode(), PLAIN.replace("\n", "\r").encode(), b"\n\n" + PLAIN.encode(),
    PLAIN.replace("0\n", "0\n\n").encode(), PLAIN.strip().encode(), PLAIN.replace(",", " , ").encode(),
    b'"arrival_s","prompt_tokens","output_tokens"\n"0.5","10","20"\n"2.0","30","40"\n',
    b'note,arrival_s,prompt_tokens,output_tokens\n"a, b\nc",0.5,10,20\nd,2.0,30,40\n',
    b"arrival_s,prompt_tokens,output_tokens\n0.5,10.0,20.0\n2e0,3e1,40\n", PLAIN.replace(",", "\t").encode(),
    b'note\tarrival_s\tprompt_tokens\toutput_tokens\n"a\tb"\t0.5\t10\t20\n"c, d"\t2.0\t30\t40\n',
    PLAIN.replace(",", "\t").replace("\n", "\r\n").encode()],
    ids=["byte order mark", "CRLF", "CR", "blank lines first", "blank lines between", "no final newline", "blanks", "quotes",
         "comma and newline in quotes", "whole decimals", "tabs", "tab in quotes", "tabs and CRLF"])
def test_the_same_rows_in_other_dress_are_the_same_trace(tmp_path, text):
    trace = read_trace(write(tmp_path, text))
    assert (trace.arrival_s.tolist(), trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([0, 1.5], [10, 30], [20, 40])
    assert trace.source.read == 2


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_arrivals_are_sorted_and_ties_keep_the_order_of_the_file(tmp_path_factory, arrivals):
    rows = "".join(f"{arrival},{i + 1},1,s{i}\n" for i, arrival in enumerate(arrivals))
    path = write(tmp_path_factory.mktemp("sort"), "arrival_s,prompt_tokens,output_tokens,session\n" + rows)
    trace = read_trace(path)
    expected = sorted(range(len(arrivals)), key=lambda i: arrivals[i])
    assert trace.prompt_tokens.tolist() == [i + 1 for i in expected]
    assert trace.arrival_s.tolist() == [arrivals[i] - min(arrivals) for i in expected]
    assert trace.session.tolist() == list(range(len(arrivals)))


def test_prefix_ids_follow_their_request_when_it_is_sorted(tmp_path):
    text = "arrival_s,prompt_tokens,output_tokens,prefix_ids\n5,17,1,7 8\n1,16,1,9\n"
    trace = read_trace(write(tmp_path, text))
    assert trace.prompt_tokens.tolist() == [16, 17] and trace.prefix_offsets.tolist() == [0, 1, 3]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=30), st.integers(1, 10))
def test_what_is_read_is_kept_or_dropped_with_its_reason_and_limit_counts_kept_rows(tmp_path_factory, lengths, limit):
    path = write(tmp_path_factory.mktemp("drop"), "prompt_tokens,output_tokens\n" + "".join(f"{p},{o}\n" for p, o in lengths))
    kept = [(p, o) for p, o in lengths if p and o]
    if not kept:
        return
    trace, limited = read_trace(path), read_trace(path, limit=limit)
    assert list(zip(trace.prompt_tokens, trace.output_tokens)) == kept
    assert trace.source.read == len(lengths) == len(trace) + sum(trace.source.dropped.values())
    expected = {"0 prompt and 0 output tokens": lengths.count((0, 0)), "0 prompt tokens": sum(p == 0 < o for p, o in lengths),
                "0 output tokens": sum(o == 0 < p for p, o in lengths)}
    assert trace.source.dropped == {reason: count for reason, count in expected.items() if count}
    assert list(zip(limited.prompt_tokens, limited.output_tokens)) == kept[:limit]
    assert limited.source.read == len(limited) + sum(limited.source.dropped.values())


def test_rows_after_the_limit_are_not_read(tmp_path):
    assert len(read_trace(write(tmp_path, PLAIN + "x,y,z\n1\n"), limit=2)) == 2


def test_no_output_is_cut_at_a_default(tmp_path):
    assert read_trace(write(tmp_path, "prompt_tokens,output_tokens\n100,5000\n5,20\n")).output_tokens.tolist() == [5000, 20]


def test_a_file_longer_than_a_chunk_is_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("pagesim.trace.source_file._CHUNK_BYTES", 64)
    rows = "".join(f'{i},{i + 1},{i + 2},"s, {i % 3}\n"\n' for i in range(200))
    trace = read_trace(write(tmp_path, "arrival_s,prompt_tokens,output_tokens,session\n" + rows))
    assert trace.arrival_s.tolist() == list(range(200)) and trace.output_tokens.tolist() == list(range(2, 202))
    assert trace.session.tolist() == [i % 3 for i in range(200)]


def test_vidurs_copies_of_the_azure_traces_agree_with_them_row_for_row():
    for kind in ("conv", "code"):
        azure, vidur = read_trace(public(f"AzureLLMInferenceTrace_{kind}.csv")), read_trace(public(f"vidur_splitwise_{kind}.csv"))
        np.testing.assert_allclose(azure.arrival_s, vidur.arrival_s, rtol=0, atol=1e-6)
        assert (azure.prompt_tokens == vidur.prompt_tokens).all() and (azure.output_tokens == vidur.output_tokens).all()


def test_the_engine_run_is_timed_by_the_clock_of_its_arrivals():
    trace = read_trace(public("vllm_rtx4090_llama31_8b_requests.jsonl"))
    assert len(trace) == 300 and 29 < trace.arrival_s[-1] < 30 and trace.prompt_tokens[0] == 2358


def test_lengths_only_files_have_no_arrivals():
    for name, rows in (("vidur_arxiv_summarization_llama2.csv.gz", 28257), ("vattention_arxiv_long_online.csv", 10111)):
        trace = read_trace(public(name))
        assert trace.arrival_s is None and len(trace) == rows
