"""Conversations: which row is the turn before, and when a turn comes that waits for it."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_files import public, write

from pagesim.errors import TraceError
from pagesim.trace import Trace, read_trace
from pagesim.trace.arrivals import with_arrivals
from pagesim.trace.sessions import permuted
from pagesim.trace.write import write_trace

NS = 10**9


def lines(*rows: dict) -> str:
    return "".join(json.dumps({"prompt_tokens": 10, "output_tokens": 2} | row) + "\n" for row in rows)


def chat(name, parent=-1, at=0.0, **more) -> dict:
    return {"chat_id": name, "parent_chat_id": parent, "arrival_s": at, **more}


def complaint(path, **options) -> str:
    with pytest.raises(TraceError) as raised:
        read_trace(path, **options)
    return str(raised.value).removeprefix(str(path))


def test_turns_of_a_session_follow_one_another_in_order_of_arrival(tmp_path):
    text = "arrival_s,prompt_tokens,output_tokens,session\n9,1,1,a\n0,2,1,a\n3,3,1,b\n5,4,1,\n7,5,1,b\n4,6,1,a\n"
    trace = read_trace(write(tmp_path, text))
    assert trace.prompt_tokens.tolist() == [2, 3, 6, 4, 5, 1]
    assert trace.session.tolist() == [0, 1, 0, -1, 1, 0] and trace.session_parent.tolist() == [-1, -1, 0, -1, 1, 2]
    assert trace.think_ns is None


def test_turns_are_ordered_by_their_numbers_where_they_have_some(tmp_path):
    text = "prompt_tokens,output_tokens,session,turn\n1,1,a,1\n2,1,b,5\n3,1,a,2\n4,1,b,7\n"
    assert read_trace(write(tmp_path, text)).session_parent.tolist() == [-1, -1, 0, 1]


@pytest.mark.parametrize(("rows", "message"), [
    ("0,1,1,a,2\n1,1,1,a,1\n", ":2: arrives before the turn before it, which is line 3; turns of a session arrive one after the other"),
    ("0,1,1,a,1\n1,1,1,b,1\n2,1,1,a,1\n", ":4: turn 1 of its session, as line 2; number the turns"),
    ("0,1,1,a,one\n", ":2: turn must be a whole number, got 'one'")])
def test_turns_whose_order_makes_no_sense_are_refused(tmp_path, rows, message):
    assert complaint(write(tmp_path, "arrival_s,prompt_tokens,output_tokens,session,turn\n" + rows)) == message


def test_bailians_chats_follow_their_parents_also_where_a_conversation_branches(tmp_path):
    rows = [{"chat_id": chat, "parent_chat_id": parent, "timestamp": at, "input_length": 5, "output_length": 1, "turn": 1, "hash_ids": [chat]}
            for chat, parent, at in ((7, -1, 0.5), (9, -1, 1), (8, 7, 2), (4, 7, 3), (5, 8, 4))]
    trace = read_trace(write(tmp_path, "".join(json.dumps(row) + "\n" for row in rows)))
    assert trace.source.format == "bailian"
    assert trace.session.tolist() == [0, 1, 0, 0, 0] and trace.session_parent.tolist() == [-1, -1, 0, 0, 2]


@pytest.mark.parametrize(("rows", "message"), [
    ([chat(1), chat(2, parent=5)], ":2: chat '2' follows chat '5', which is in no row; put the turn before it above, or give it parent -1 if it "
                                   "begins a conversation"),
    ([chat(1, parent=2), chat(2)], ":1: chat '1' follows chat '2', which comes below it; "),
    ([chat(1, parent=1)], ":1: chat '1' follows chat '1', which comes below it; "),
    ([chat(1), chat(2), chat(1)], ":3: chat '1' is there twice; give every row an id of its own"),
    ([chat("a", at=5), chat("b", parent="a", at=3)], ":2: arrives before the turn before it, which is line 1; ")])
def test_a_parent_that_is_not_there_or_comes_later_is_an_error_with_its_row(tmp_path, rows, message):
    assert complaint(write(tmp_path, lines(*rows))).startswith(message)


def test_a_turn_without_an_id_follows_its_parent_and_nobody_follows_it(tmp_path):
    rows = [chat(1), chat(None, parent=1), chat(None), chat(2, parent=1)]
    trace = read_trace(write(tmp_path, lines(*rows)))
    assert trace.session.tolist() == [0, 0, -1, 0] and trace.session_parent.tolist() == [-1, 0, -1, 0]


def test_a_turn_after_a_failed_one_follows_the_one_before_that(tmp_path):
    rows = [chat(1), chat(2, parent=1, output_tokens=0), chat(3, parent=2), chat(4, output_tokens=0), chat(5, parent=4)]
    trace = read_trace(write(tmp_path, lines(*rows)))
    assert trace.session_parent.tolist() == [-1, 0, -1] and trace.session.tolist() == [0, 0, 1]
    text = "prompt_tokens,output_tokens,session\n9,1,a\n9,0,a\n9,1,a\n"
    assert read_trace(write(tmp_path, text)).session_parent.tolist() == [-1, 0]


def test_a_parent_beyond_the_limit_is_none(tmp_path):
    assert read_trace(write(tmp_path, lines(chat(1), chat(2, parent=1), chat(3, parent=9))), limit=2).session_parent.tolist() == [-1, 0]


MULTI_TURN = [{"session_id": "a", "timestamp": 1000, "input_length": 10, "output_length": 5},
              {"session_id": "a", "delay": 500, "input_length": 30, "output_length": 5},
              {"session_id": "b", "timestamp": 1200, "input_length": 11, "output_length": 5},
              {"session_id": "a", "delay": 20.5, "input_length": 50, "output_length": 5},
              {"session_id": "b", "delay": 0, "input_length": 31, "output_length": 5}]


@pytest.mark.parametrize("ids", [False, True])
def test_multi_turn_files_have_the_first_turns_time_and_then_delays_in_milliseconds(tmp_path, ids):
    rows = [row | ({"hash_ids": [i]} if ids else {}) for i, row in enumerate(MULTI_TURN)]
    trace = read_trace(write(tmp_path, "".join(json.dumps(row) + "\n" for row in rows)))
    assert trace.source.format == ("mooncake" if ids else "turns")
    assert trace.prompt_tokens.tolist() == [10, 11, 31, 30, 50] and trace.session_parent.tolist() == [-1, -1, 1, 0, 3]
    assert trace.think_ns.tolist() == [-1, -1, 0, NS // 2, 20_500_000]
    assert trace.arrival_ns.tolist() == [0, 200_000_000, 200_000_000, 500_000_000, 520_500_000]  # the earliest there can be
    assert not ids or trace.prefix_offsets.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("column", "cell"), [("think_s", "0.5"), ("think_ms", "500"), ("delay", "500"), ("delay_ms", "500.0")])
def test_the_name_of_a_think_time_states_its_unit(tmp_path, column, cell):
    trace = read_trace(write(tmp_path, f"arrival_s,prompt_tokens,output_tokens,session,{column}\n3,1,1,x,\n,9,1,x,{cell}\n"))
    assert trace.think_ns.tolist() == [-1, NS // 2] and trace.arrival_ns.tolist() == [0, NS // 2]


def test_sessions_may_wait_in_a_file_of_lengths_only(tmp_path):
    trace = read_trace(write(tmp_path, "prompt_tokens,output_tokens,session,think_s\n1,1,x,\n2,1,y,\n3,1,x,2\n"))
    assert trace.arrival_ns is None and trace.think_ns.tolist() == [-1, -1, 2 * NS] and trace.session_parent.tolist() == [-1, -1, 0]


@pytest.mark.parametrize(("rows", "message"), [
    ("0,1,1,x,1\n", ":2: a turn arrives at its arrival_s or so long after the one before it, not both, got '0'"),
    ("0,1,1,x,\n,1,1,x,-1\n", ":3: think_s must be a time of at least 0 and less than ten years, got '-1'"),
    ("0,1,1,x,\n,1,1,x,soon\n", ":3: think_s must be a time of at least 0 and less than ten years, got 'soon'"),
    ("0,1,1,x,\n,1,1,x,1e9\n", ":3: think_s must be a time of at least 0 and less than ten years, got '1e9'"),
    ("0,1,1,x,\n,1,1,y,1\n", ":3: a delay, and no turn of the session before it; give the first turn an arrival"),
    ("0,1,1,x,\n,1,1,,1\n", ":3: a delay, and no turn of the session before it; give the first turn an arrival"),
    ("0,1,1,x,\n,1,1,x,\n", ":3: arrival must be a finite number, got ''")])
def test_a_turn_that_says_twice_or_not_at_all_when_it_comes_is_refused(tmp_path, rows, message):
    assert complaint(write(tmp_path, "arrival_s,prompt_tokens,output_tokens,session,think_s\n" + rows)) == message


def test_a_delay_without_sessions_is_nobodys(tmp_path):
    assert read_trace(write(tmp_path, "arrival_s,prompt_tokens,output_tokens,delay\n0,1,1,x\n")).think_ns is None


def test_a_key_that_the_first_rows_lack_is_not_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr("pagesim.trace.source_file._CHUNK_BYTES", 64)
    few = [{"arrival_s": i, "colour": 3} for i in range(9)]
    assert complaint(write(tmp_path, lines(*few, {"arrival_s": 9, "max_tokens": 5}))) == (
        ":10: key 'max_tokens' is in no row above; give it to the first row too, as null")
    assert len(read_trace(write(tmp_path, lines(*few, {"arrival_s": 9, "weight": 5})))) == 10


def test_beams_are_a_column_and_no_samples_beside_them(tmp_path):
    text = "prompt_tokens,output_tokens,beam_width,num_samples\n1,1,4,\n1,1,,3\n1,1,1,1\n"
    trace = read_trace(write(tmp_path, text))
    assert trace.beam_width.tolist() == [4, 1, 1] and trace.num_samples.tolist() == [1, 3, 1]
    assert complaint(write(tmp_path, text + "1,1,2,2\n")) == (
        ":5: a request samples in parallel or searches with beams: one of num_samples and beam_width must be 1, got '2'")
    assert complaint(write(tmp_path, "prompt_tokens,output_tokens,beam_width\n1,1,0\n")) == ":2: beam_width must be at least 1, got '0'"


@st.composite
def conversations(draw) -> Trace:
    num = draw(st.integers(1, 9))
    parent = [draw(st.integers(-1, row - 1)) for row in range(num)]
    waits = [above >= 0 and draw(st.booleans()) for above in parent]
    think = [draw(st.integers(0, 5 * NS)) if wait else -1 for wait in waits]
    arrival = []
    for row in range(num):
        before = arrival[parent[row]] if parent[row] >= 0 else 0
        arrival.append(before + think[row] if waits[row] else before + draw(st.integers(0, 5 * NS)))
    root = []
    for row, above in enumerate(parent):
        root.append(row if above < 0 else root[above])
    number = {row: i for i, row in enumerate(dict.fromkeys(root))}
    column = np.array
    offsets = np.cumsum([0, *(draw(st.integers(0, 3)) for _ in range(num))])
    columns = {"arrival_ns": column(arrival), "prompt_tokens": np.arange(1, num + 1, dtype=np.int32),
               "output_tokens": np.ones(num, np.int32), "session": column([number[row] for row in root]), "session_parent": column(parent),
               "think_ns": column(think), "prefix_ids": np.arange(offsets[-1]), "prefix_offsets": offsets}
    return Trace(**permuted(columns, np.argsort(arrival, kind="stable")))


@given(conversations(), st.sampled_from([".csv", ".jsonl"]))
def test_conversations_are_written_and_read_back_the_same(tmp_path_factory, trace, ending):
    path = tmp_path_factory.getbasetemp() / f"chats{ending}"
    first = trace.arrival_ns[0]
    write_trace(replace(trace, prefix_ids=None, prefix_offsets=None), path)
    back = read_trace(path)
    assert back.arrival_ns.tolist() == (trace.arrival_ns - first).tolist() and back.prompt_tokens.tolist() == trace.prompt_tokens.tolist()
    assert back.session_parent.tolist() == trace.session_parent.tolist()
    assert (trace.think_ns == (-1 if back.think_ns is None else back.think_ns)).all()
    names = {}
    assert back.session.tolist() == [names.setdefault(name, len(names)) for name in trace.session.tolist()]


@given(conversations(), st.sampled_from(["trace", "poisson", "saturate"]))
def test_with_other_arrivals_a_turn_keeps_its_own_columns_and_comes_after_the_one_before(trace, kind):
    options = {"trace": {"speedup": 2}, "poisson": {"rate": 0.5, "seed": 1}, "saturate": {}}[kind]
    other = with_arrivals(trace, kind, **options)
    was, now = (trace.prompt_tokens.tolist(), other.prompt_tokens.tolist())  # each row's name
    for row, name in enumerate(now):
        before = was.index(name)
        own = [t.prefix_ids[t.prefix_offsets[i]:t.prefix_offsets[i + 1]].tolist() for t, i in ((other, row), (trace, before))]
        assert own[0] == own[1]
        parent, parent_before = other.session_parent[row], trace.session_parent[before]
        assert parent == parent_before == -1 or now[parent] == was[parent_before]
        if other.think_ns[row] >= 0:
            assert other.arrival_ns[row] == other.arrival_ns[parent] + other.think_ns[row]
            assert other.think_ns[row] == (np.rint(trace.think_ns[before] / 2) if kind == "trace" else trace.think_ns[before])


@pytest.mark.parametrize(("columns", "message"), [
    ({"session_parent": [-1, 1]}, "session_parent must be an earlier row or -1, request 1 has 1"),
    ({"session_parent": [-2, 0]}, "session_parent must be an earlier row or -1, request 0 has -2"),
    ({"think_ns": [-1, 5]}, "think_ns needs session_parent"),
    ({"session_parent": [-1, -1], "think_ns": [-1, 5]}, "think_ns must be -1, or at least 0 in a row with session_parent, request 1 has 5"),
    ({"session_parent": [-1]}, "session_parent has shape (1,), expected (2,)")])
def test_a_trace_in_memory_is_held_to_the_same(columns, message):
    ones = np.ones(2, dtype=np.int32)
    with pytest.raises(TraceError) as raised:
        Trace(None, ones, ones, **{name: np.array(column) for name, column in columns.items()})
    assert message in str(raised.value)


def test_burstgpts_sessions_are_chains_of_turns():
    trace = read_trace(public("burstgpt_3_head400.csv"))
    follows = trace.session_parent >= 0
    assert follows.any() and (trace.session[follows] == trace.session[trace.session_parent[follows]]).all()
