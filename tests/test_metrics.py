"""metrics.py: laws of the figures, then worked examples."""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagesim.allocators import Contiguous, Paged
from pagesim.engine.result import (
    PARTS,
    STATUSES,
    WAIT_CAUSES,
    WINDOWS,
    Column,
    Counters,
    Histograms,
    Peaks,
    Requests,
    Result,
    Timeline,
)
from pagesim.errors import PagesimError
from pagesim.metrics import latencies, metrics, summary
from pagesim.trace.trace import Trace

COMPLETED, UNFINISHED = STATUSES.index("completed"), STATUSES.index("unfinished")


def window(time_s=0.0, *, capacity=100, **columns):
    """Columns over ``time_s``; what no part has of the capacity is idle."""
    row = np.zeros(len(Column))
    row[Column.TIME] = time_s
    for name, value in columns.items():
        row[Column[name.upper()]] = value
    row[Column.IDLE] += max(0.0, capacity * time_s - row[Column.TOKEN_STATES:Column.RUNNING].sum())
    return row


def requests_of(rows):
    """Rows of (arrival, first scheduled, first token, finish in seconds or None, status)."""
    arrival, scheduled, first, finish = (
        np.array([-1 if row[k] is None else row[k] * 10**9 for row in rows]) for k in range(4))
    return Requests(arrival, scheduled, first, finish, np.array([row[4] for row in rows], dtype=np.int8),
                    np.zeros(len(rows), dtype=np.int32))


def timeline():
    empty, counts = np.zeros(0), np.zeros(0, dtype=np.int64)
    return Timeline(1, counts, empty, empty, np.zeros((0, len(PARTS))), empty, empty, *[counts] * 10)


def run_of(rows, busy=None, *, end_s=10.0, warmup_s=0.0, run=None, counters=Counters()):  # noqa: B008
    integrals = np.zeros((len(WINDOWS), len(Column)))
    integrals[WINDOWS.index("run")] = window(end_s - warmup_s) if run is None else run
    if busy is not None:
        integrals[WINDOWS.index("busy")] = busy
    empty = np.zeros(64, dtype=np.int64)
    return Result(100, None, None, end_s, warmup_s, integrals, np.zeros(len(WAIT_CAUSES)), counters, Peaks(),
                  Histograms(None, empty, empty, None), requests_of(rows), timeline())


def trace_of(output_tokens):
    output = np.array(output_tokens, dtype=np.int32)
    return Trace(None, np.ones(len(output), dtype=np.int32), output)


ONE_ROW = [(0, 1, 2, 4, COMPLETED)]


@given(st.lists(st.integers(0, 1000), min_size=len(PARTS), max_size=len(PARTS)).filter(any), st.floats(1e-3, 1e6))
def test_the_shares_of_a_window_sum_to_one_in_both_conventions(parts, time_s):
    row = window(time_s, capacity=sum(parts), **{part: value * time_s for part, value in zip(PARTS, parts)})
    result = dataclasses.replace(run_of(ONE_ROW, row, run=row), capacity_slots=sum(parts))
    figures = metrics(result, trace_of([3]), Paged())
    assert math.isclose(sum(figures["ledger"]["busy"].values()), 1)
    assert math.isclose(sum(figures["sosp23"]["busy"].values()), 1)


@given(st.lists(st.integers(0, 25), min_size=4, max_size=4).filter(any))
def test_internal_fragmentation_and_block_use_follow_from_the_printed_ledger(owned):
    row = window(2.0, **{part: value * 2.0 for part, value in zip(PARTS, owned)})
    figures = metrics(run_of(ONE_ROW, row), trace_of([3]), Contiguous())
    shares = [figures["ledger"]["busy"][part] for part in PARTS[:4]]
    assert math.isclose(figures["internal_fragmentation"], sum(shares[1:]) / sum(shares), abs_tol=1e-12)
    assert math.isclose(figures["block_use"], sum(shares))
    assert figures["utilization"] == shares[0]


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200))
def test_percentiles_are_nearest_rank(values):
    ordered = sorted(values)
    got = summary(np.array(values))
    assert [got["p50"], got["p90"], got["p99"]] == [ordered[math.ceil(q * len(values) / 100) - 1] for q in (50, 90, 99)]


def test_rounding_is_internal_in_the_textbook_and_external_in_figure_2():
    row = window(1.0, token_states=20, reserved=10, overreserved=5, rounding=15, stranded=30, idle=18, remainder=2)
    figures = metrics(run_of(ONE_ROW, row), trace_of([3]), Contiguous())
    assert figures["sosp23"]["busy"] == {
        "token_states": 0.2,
        "reserved": 0.1,
        "internal": 0.05,
        "external_and_others": pytest.approx(0.65),
    }
    assert figures["internal_fragmentation"] == 30 / 50


def test_a_window_without_time_is_null_and_the_whole_is_strict_json():
    figures = metrics(run_of([(0, None, None, None, STATUSES.index("exceeds_memory"))], end_s=0.0),
                      trace_of([3]), Paged())
    assert figures["ledger"] == dict.fromkeys(WINDOWS) and figures["sosp23"] == dict.fromkeys(WINDOWS)
    assert figures["utilization"] is figures["internal_fragmentation"] is figures["mean"]["running"] is None
    assert set(figures["external_fragmentation"].values()) == {None}
    assert set(figures["throughput"].values()) == {None}
    assert all(value is None for latency in figures["latency"].values() for value in latency.values())
    json.dumps(figures, allow_nan=False)


def test_external_fragmentation_is_weighted_by_time():
    row = window(10.0, largest_hole=4.0, unusable=2.5, blocked_time=5.0, extfrag_time=2.0, extfrag=668.0)
    assert metrics(run_of(ONE_ROW, row), trace_of([3]), Contiguous())["external_fragmentation"] == {
        "largest_hole": 0.4,
        "unusable": 0.25,
        "extfrag_index": 334.0,
        "blocked_by_fragmentation": 0.5,
    }


def test_latencies_are_those_of_completed_requests():
    rows = [(0, 1, 2, 6, COMPLETED), (1, 1, 3, 3, COMPLETED), (2, 4, None, None, UNFINISHED)]
    got = latencies(requests_of(rows), np.array([5, 1, 9], dtype=np.int32), 0.0)
    assert list(got) == ["queue", "ttft", "tpot", "e2e"]
    assert got["queue"] == {"mean": 0.5, "p50": 0.0, "p90": 1.0, "p99": 1.0}
    assert got["ttft"]["mean"] == 2.0
    assert got["tpot"] == dict.fromkeys(("mean", "p50", "p90", "p99"), 1.0)  # the request of one token has none
    assert got["e2e"]["p50"] == 2.0


def test_an_output_of_one_token_has_no_time_per_output_token():
    got = latencies(requests_of([(0, 1, 2, 2, COMPLETED)]), np.array([1], dtype=np.int32), 0.0)
    assert set(got["tpot"].values()) == {None} and got["ttft"]["mean"] == 2.0


def test_after_a_warm_up_latency_counts_later_arrivals_and_throughput_later_finishes():
    rows = [(0, 1, 2, 4, COMPLETED), (0, 1, 2, 9, COMPLETED), (5, 6, 7, 8, COMPLETED)]
    figures = metrics(run_of(rows, warmup_s=4.0, counters=Counters(output_tokens=30)), trace_of([3, 3, 3]), Paged())
    assert figures["latency"]["e2e"]["mean"] == 3.0
    assert figures["throughput"] == {"requests_per_s": 2 / 6, "output_tokens_per_s": 5.0}
    assert figures["requests"]["completed"] == 3


def test_every_kept_request_is_completed_rejected_or_unfinished():
    rows = [*ONE_ROW, (0, None, None, None, UNFINISHED)] + [
        (0, None, None, None, STATUSES.index("exceeds_max_model_len"))] * 2
    assert metrics(run_of(rows), trace_of([3] * 4), Paged())["requests"] == {
        "completed": 1,
        "rejected": 2,
        "unfinished": 1,
        "rejected_by_reason": {"exceeds_max_model_len": 2, "exceeds_memory": 0, "exceeds_scheduling": 0},
    }
    with pytest.raises(PagesimError, match="requests were lost: 5 kept, but 1 completed . 2 rejected . 1 unfinished"):
        metrics(run_of(rows), trace_of([3] * 5), Paged())


def test_a_ledger_that_has_lost_slots_is_refused():
    row = window(2.0, token_states=40.0)
    row[Column.IDLE] -= 2.0
    with pytest.raises(PagesimError, match="slots were lost: .* 198 slot-seconds of 200"):
        metrics(run_of(ONE_ROW, row), trace_of([3]), Paged())


def test_a_histogram_lists_its_filled_bins_as_half_open_intervals():
    bins = np.zeros(64, dtype=np.int64)
    bins[[0, 1, 5]] = 7, 8, 9
    result = dataclasses.replace(run_of(ONE_ROW), histograms=Histograms(waste_slots=bins))
    assert metrics(result, trace_of([3]), Paged())["histograms"] == {
        "hole_slots_s": None,
        "waste_slots": [[0, 1, 7], [1, 2, 8], [16, 32, 9]],
        "block_lifetime_steps": None, "eviction_age_steps": None,
        "table_run_blocks": None,
    }
