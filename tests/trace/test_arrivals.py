import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_files import write

from pagesim.errors import InputError, TraceError
from pagesim.trace import Trace, read_trace
from pagesim.trace.arrivals import with_arrivals

ONES = np.ones(20_000, dtype=np.int32)
LENGTHS = Trace(None, ONES, ONES)


def test_speedup_2_is_twice_the_rate_and_halves_the_intervals(tmp_path):
    trace = read_trace(write(tmp_path, "arrival_s,prompt_tokens,output_tokens\n100,1,2\n110,1,2\n130,1,2\n"))
    assert with_arrivals(trace, "trace", speedup=2).arrival_s.tolist() == [0, 5, 15]
    assert with_arrivals(trace, "trace").arrival_s.tolist() == [0, 10, 30]


@pytest.mark.parametrize(("kind", "cv", "expected"), [("poisson", None, 1), ("gamma", 3, 3), ("gamma", 0.5, 0.5), ("gamma", 1, 1)])
def test_drawn_arrivals_start_at_0_and_have_the_rate_and_the_spread_asked_for(kind, cv, expected):
    arrival_s = with_arrivals(LENGTHS, kind, rate=4, cv=cv).arrival_s
    intervals_s = np.diff(arrival_s)
    assert arrival_s[0] == 0 and (intervals_s >= 0).all()
    assert 1 / intervals_s.mean() == pytest.approx(4, rel=0.1)
    assert intervals_s.std() / intervals_s.mean() == pytest.approx(expected, rel=0.1)


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_the_seed_alone_decides_what_is_drawn(seed, other):
    few = Trace(None, ONES[:9], ONES[:9])
    def draw(seed):
        return with_arrivals(few, "poisson", rate=2, seed=seed).arrival_s.tolist()
    assert draw(seed) == draw(seed)
    assert (draw(seed) == draw(other)) == (seed == other)


@pytest.mark.parametrize("kind", ["saturate", "closed"])
def test_all_requests_are_there_at_0(kind):
    assert not with_arrivals(LENGTHS, kind).arrival_s.any()


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 99)), min_size=1, max_size=9))
def test_users_of_a_closed_loop_take_rows_in_the_order_of_the_file(tmp_path_factory, rows):
    text = "".join(f"{arrival},{prompt},2\n" for arrival, prompt in rows)
    trace = read_trace(write(tmp_path_factory.mktemp("t"), "arrival_s,prompt_tokens,output_tokens\n" + text))
    assert with_arrivals(trace, "closed").prompt_tokens.tolist() == [prompt for _, prompt in rows]
    assert with_arrivals(trace, "trace").prompt_tokens.tolist() == [prompt for _, prompt in sorted(rows, key=lambda row: row[0])]


def test_prefix_ids_and_turns_go_with_their_rows_into_the_order_of_the_file(tmp_path):
    text = "".join(f'{{"arrival_s": {at}, "prompt_tokens": 4, "output_tokens": {at + 1}, "session": "{name}", "prefix_ids": {ids}, '
                   f'"prefix_block_tokens": 2}}\n' for at, name, ids in ((5, "a", [7, 1]), (0, "b", [8, 9]), (6, "a", [7, 8])))
    closed = with_arrivals(read_trace(write(tmp_path, text, "trace.jsonl")), "closed")
    assert closed.output_tokens.tolist() == [6, 1, 7]
    assert closed.session_parent.tolist() == [-1, -1, 0]
    assert np.diff(closed.prefix_offsets).tolist() == [2, 2, 2]
    assert closed.prefix_ids[0] == closed.prefix_ids[4] and closed.prefix_ids[2] == closed.prefix_ids[5]


def test_a_turn_that_stands_above_the_one_before_it_has_no_place_in_a_closed_loop(tmp_path):
    text = "arrival_s,prompt_tokens,output_tokens,session\n5,4,1,a\n0,4,1,a\n"
    trace = read_trace(write(tmp_path, text))
    with pytest.raises(TraceError, match="row 1 comes before the turn before it.*sort the file"):
        with_arrivals(trace, "closed")


def test_one_request_arrives_at_0():
    assert with_arrivals(Trace(None, ONES[:1], ONES[:1]), "poisson", rate=1).arrival_s.tolist() == [0]


def test_lengths_only_are_refused_with_a_hint_where_no_process_is_drawn(tmp_path):
    path = write(tmp_path, "prompt_tokens,output_tokens\n1,2\n")
    with pytest.raises(TraceError) as raised:
        with_arrivals(read_trace(path), "trace")
    assert str(raised.value) == (f"{path}: the file has lengths only and no arrival times; draw them: arrivals poisson with a rate (requests/s) and "
                                 "a seed, or use saturate or closed; as in --set 'trace.arrivals={kind: saturate}'")
    assert with_arrivals(read_trace(path), "poisson", rate=2, seed=1).arrival_s.tolist() == [0]


@pytest.mark.parametrize(("kind", "options", "message"), [
    ("uniform", {}, "arrivals must be one of trace, poisson, gamma, closed, saturate, got 'uniform'"),
    ("poisson", {}, "these arrivals need a rate"), ("gamma", {"rate": 1}, "these arrivals need a cv"),
    ("poisson", {"rate": 0}, "rate must be finite and above 0, got 0"), ("poisson", {"rate": float("nan")}, "got nan"),
    ("gamma", {"rate": 1, "cv": -1}, "cv must be finite and above 0, got -1"),
    ("poisson", {"rate": 5e-324}, "drawn arrivals need a rate from 1e-9 to 1e9"),
    ("gamma", {"rate": 1, "cv": 1e300}, "variation from 1e-6 to 1e6, got 1 and 1e+300"),
    ("trace", {"rate": 2}, "rate is of arrivals poisson and gamma, not of trace; remove it or change the kind"),
    ("poisson", {"rate": 2, "cv": 2}, "cv is of arrivals gamma, not of poisson"),
    ("saturate", {"speedup": 2}, "speedup is of arrivals trace, not of saturate")])
def test_what_makes_no_arrivals_is_refused(kind, options, message):
    with pytest.raises(InputError) as raised:
        with_arrivals(LENGTHS, kind, **options)
    assert message in str(raised.value)


def test_a_speedup_rounds_each_arrival_once(tmp_path):
    trace = read_trace(write(tmp_path, "arrival_ns,prompt_tokens,output_tokens\n0,1,2\n10,1,2\n20,1,2\n"))
    assert with_arrivals(trace, "trace", speedup=3).arrival_ns.tolist() == [0, 3, 7]


def test_a_speedup_that_stretches_a_trace_over_centuries_is_refused(tmp_path):
    trace = read_trace(write(tmp_path, "arrival_s,prompt_tokens,output_tokens\n0,1,2\n100,1,2\n"))
    with pytest.raises(InputError, match="a speedup of 1e-09 stretches the arrivals over more than 292 years"):
        with_arrivals(trace, "trace", speedup=1e-9)


@pytest.mark.parametrize("speedup", [0, -1, float("inf")])
def test_speedup_is_above_0(speedup):
    with pytest.raises(InputError, match="speedup must be finite and above 0"):
        with_arrivals(with_arrivals(LENGTHS, "saturate"), "trace", speedup=speedup)
