"""report/compare.py: relative differences, and a measured timeline beside a run's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagesim.errors import InputError
from pagesim.report.better import is_better
from pagesim.report.compare import (
    Gauges,
    at_moments,
    beside_measured,
    compare_cases,
    most_moved,
    read_measured,
    simulated_gauges,
    relative,
)
from pagesim.report.pairing import Side, changed, pair_cases

HEADER = "first_step,start_s,duration_s,mean_running,mean_waiting,block_use_share\n"


@given(st.floats(0.1, 10), st.floats(0.1, 10))
def test_the_relative_difference_leads_from_a_to_b(a, b):
    assert a * (1 + relative(a, b)) == pytest.approx(b)


@pytest.mark.parametrize("a, b, expected",
                         [(None, 1, None), (1, None, None), (0, 1, None), (0, 0, 0.0), (2, 3, 0.5), (-2, -3, -0.5)])
def test_a_relative_difference_exists_only_where_it_means_something(a, b, expected):
    assert relative(a, b) == expected


def test_every_number_is_compared_and_no_text():
    rows = compare_cases({"name": "x", "utilization": 0.5, "allocator": {"kind": "paged", "block_size": 16}},
                         {"name": "y", "utilization": 0.25, "allocator": {"kind": "paged", "block_size": 32}})
    assert [(row["figure"], row["relative"]) for row in rows] == [
        ("utilization_share", -0.5),
        ("allocator.block_size", 1.0),
    ]


def side(name, kind="paged", **settings):
    return Side({"name": name, "allocator": {"kind": kind}}, settings)


def test_cases_pair_by_name_then_by_the_fewest_changes_and_what_is_left_is_named():
    a = [side("p", size=16, seqs=1), side("q", size=32, seqs=1), side("c", kind="contiguous", seqs=1)]
    b = [side("r", size=32, seqs=2), side("p", size=16, seqs=1), side("s", size=64, seqs=2)]
    pairing = pair_cases(a, b)
    assert [(mine.name, other.name) for mine, other in pairing.pairs] == [("p", "p"), ("q", "r")]
    assert (pairing.only_in_a, pairing.only_in_b) == (("c",), ("s",))
    assert changed(a[1], b[0]) == [{"key": "seqs", "a": 1, "b": 2}]


def test_two_runs_of_one_case_are_a_pair_and_two_of_other_kinds_are_none():
    assert pair_cases([side("p")], [side("c", kind="contiguous")]).pairs
    with pytest.raises(InputError, match="no case in common: A has p, q; B has c"):
        pair_cases([side("p"), side("q")], [side("c", kind="contiguous")])


@pytest.mark.parametrize("figure, a, b, expected", [
    ("latency.ttft.p99_s", 1.0, 2.0, False), ("throughput.requests_per_s", 1.0, 2.0, True), ("peak.running", 1, 2, None),
    ("external_fragmentation.extfrag_index", 1, 2, None), ("preemptions", 5, 0, True), ("preemptions", 5, 5, None),
    ("latency.ttft.p99_s", None, 2.0, None)])
def test_better_is_said_where_it_has_a_meaning(figure, a, b, expected):
    assert is_better(figure, a, b) is expected


def test_what_moved_most_comes_first_and_what_did_not_move_is_left_out():
    rows = [{"figure": name, "a": a, "b": b, "relative": relative(a, b)}
            for name, a, b in (("small", 10, 11), ("same", 3, 3), ("gone", 3, None), ("large", 10, 1),
                               ("from 0", 0, 4))]
    assert [row["figure"] for row in most_moved(rows)] == ["from 0", "large", "small", "gone"]


def test_a_measured_timeline_is_read_by_its_usual_names_in_its_units(tmp_path):
    path = tmp_path / "measured.csv"
    path.write_bytes(b"t,prompt_throughput,running,waiting,kv_cache_pct\r\n1.0,9,5,2,13.22\r\n2.0,9,16,0,39.7\r\n")
    measured = read_measured(path)
    assert measured.running.tolist() == [5, 16] and measured.block_use == pytest.approx([0.1322, 0.397])
    path.write_text(
        "time_ms,vllm:num_requests_running,vllm:num_requests_waiting,vllm:kv_cache_usage_perc\n500,1,0,0.25\n")
    assert read_measured(path) == Gauges(*[pytest.approx(value) for value in (0.5, 1, 0, 0.25)])


@pytest.mark.parametrize("text, message", [
    (
        "t,running,waiting\n1,2,3\n",
        "measured.csv:1: no column for KV cache use: found t, running, waiting; it may be named kv_cache_pct",
    ),
    ("t,running,waiting,kv_pct\n1,2,3,4\n2,x,3,4\n", "measured.csv:3: column 2 must be a finite number, got 'x'"),
    ("t,running,waiting,kv_pct\n1,2,nan,4\n", "measured.csv:2: column 3 must be a finite number, got 'nan'"),
    ("t,running,waiting,kv_pct\n1,2\n", "measured.csv:2: column 3 must be a finite number, got ''"),
    ("t,running,waiting,kv_pct\n", "measured.csv: no rows below the header"),
    ("", "measured.csv:1: no column for time: found nothing"),
])
def test_a_bad_measured_timeline_is_refused_with_its_place(tmp_path, text, message):
    path = tmp_path / "measured.csv"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_measured(path)
    assert message in str(error.value)


def test_a_run_is_empty_before_its_first_step_in_its_gaps_and_after_its_end(tmp_path):
    path = tmp_path / "timeline.csv"
    path.write_text(HEADER + "0,1.0,1.0,2,3,0.5\n1,2.0,1.0,4,1,0.75\n2,5.0,1.0,1,0,0.25\n")
    seen = at_moments(simulated_gauges(path), np.array([0.5, 1.0, 1.9, 2.0, 2.9, 3.0, 4.9, 5.5, 6.0]))
    assert seen.running.tolist() == [0, 2, 2, 4, 4, 0, 0, 1, 0]
    assert seen.block_use.tolist() == [0, 0.5, 0.5, 0.75, 0.75, 0, 0, 0.25, 0]


def test_a_run_without_steps_has_an_empty_timeline(tmp_path):
    path = tmp_path / "timeline.csv"
    path.write_text(HEADER)
    assert at_moments(simulated_gauges(path), np.array([0.0, 1.0])).running.tolist() == [0, 0]


def test_means_peaks_and_differences_are_over_the_measured_moments():
    measured = Gauges(np.array([0.0, 1.0]), np.array([1.0, 3.0]), np.array([0.0, 2.0]), np.array([0.5, 1.0]))
    run = Gauges(np.array([-1.0, 0.5]), np.array([1.0, 1.0]), np.array([0.0, 4.0]), np.array([0.5, 0.5]))
    both = beside_measured(measured, run)
    assert both["summary"]["running"] == {
        "measured_mean": 2.0,
        "run_mean": 1.0,
        "measured_peak": 3.0,
        "run_peak": 1.0,
        "mean_absolute_difference": 1.0,
    }
    assert both["moments"][1] == {
        "time_s": 1.0,
        "measured_running": 3.0,
        "run_running": 1.0,
        "measured_waiting": 2.0,
        "run_waiting": 4.0,
        "measured_block_use": 1.0,
        "run_block_use": 0.5,
    }
