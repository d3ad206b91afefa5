import gzip
import json

import numpy as np
import pytest
from strategies import setup

from pagesim.allocators import Contiguous, Paged
from pagesim.core.ledger import PARTS
from pagesim.engine.durations import Linear
from pagesim.engine.scheduling import Scheduling
from pagesim.engine.run import Run, simulate
from pagesim.engine.setup import Setup
from pagesim.report.perfetto import MOST_REQUESTS, Preemption, case_events, shown_requests, write
from pagesim.trace import Trace
from pagesim.trace.instants import whole_ns

# Two requests, then nothing for a while, then one more; and one that is too long for the model.
TRACE = Trace(whole_ns(np.array([0.0, 0.0, 9.0, 9.0])), np.array([20, 7, 30, 500], np.int32), np.array([3, 1, 2, 5], np.int32))
PHASES = {"X": {"dur", "ts", "tid", "pid", "name"}, "C": {"ts", "pid", "name", "args"},
          "i": {"ts", "s", "tid", "pid", "name"}, "M": {"pid", "name", "args"}}


def finished(allocator=None, trace=TRACE, **options):
    run = Run(Setup(trace, allocator or Paged(16), 100, 64, Scheduling(), Linear(0.5), **options))
    run.advance()
    return run.result()


def events_of(result, trace=TRACE, preemptions=()):
    return list(case_events(1, "case", trace, result, preemptions))


@pytest.mark.parametrize("allocator", [Paged(16), Contiguous("exact")])
def test_every_event_has_what_its_phase_needs_and_finite_times(allocator):
    for event in events_of(finished(allocator), preemptions=[Preemption(1.0, 0)]):
        assert PHASES[event["ph"]] <= event.keys()
        assert event.get("ts", 0) >= 0 and event.get("dur", 0) >= 0
    json.dumps(events_of(finished(allocator)), allow_nan=False)


def test_a_request_is_a_track_of_three_slices_without_gaps():
    result = finished()
    slices = [event for event in events_of(result) if event["ph"] == "X" and event["args"]["request"] == 0]
    assert [event["name"] for event in slices] == ["queued", "prefill", "decode"]
    assert [(event["ts"], event["ts"] + event["dur"]) for event in slices] == [(0, 0), (0, 5e5), (5e5, 15e5)]
    assert len({(event["pid"], event["tid"]) for event in slices}) == 1
    assert slices[0]["args"] == {
        "request": 0, "prompt_tokens": 20, "output_tokens": 3, "preemptions": 0, "status": "completed"}


def test_with_a_prefix_cache_requests_say_what_they_found_and_idle_memory_that_it_may_be_cached():
    made = setup([20, 20, 20], [3, 3, 3], [0, 1, 9], prefix_ids=[[0]] * 3, hash_block_tokens=16,
                 allocator=Paged(8, prefix_cache="vllm"), capacity_slots=100, max_model_len=64,
                 scheduling=Scheduling(), durations=Linear(0.5))
    result = simulate(made)
    events = events_of(result, made.trace)
    assert [event["args"]["hit_tokens"] for event in events if event.get("name") == "decode"] == [0, 16, 16]
    memory = [event["args"] for event in events if event["name"] == "KV memory, slots"]
    assert all(sum(parts.values()) == 100 and parts.keys() == {*PARTS, "cached_or_idle"} for parts in memory)
    assert [parts["cached_or_idle"] for parts in memory if parts["cached_or_idle"]] == [96, 96]


def test_tracks_stand_in_the_order_of_arrival():
    events = [event for event in events_of(finished()) if event["name"] == "thread_sort_index"]
    assert [(event["tid"], event["args"]["sort_index"]) for event in events] == [(1, 0), (2, 1), (3, 2), (4, 3)]


def test_a_rejected_request_is_an_instant_with_its_reason():
    own = [event for event in events_of(finished()) if event["ph"] != "M" and event.get("tid") == 4]
    (event,) = own
    assert (event["ph"], event["name"], event["ts"]) == ("i", "rejected: exceeds_max_model_len", 9e6)


def test_an_unfinished_request_ends_with_the_run():
    result = finished(until_s=0.7)
    slices = [event for event in events_of(result) if event["ph"] == "X" and event["args"]["request"] == 0]
    assert slices[-1]["args"]["status"] == "unfinished"
    assert slices[-1]["ts"] + slices[-1]["dur"] == pytest.approx(1e6 * result.end_s)


@pytest.mark.parametrize("allocator", [Paged(16), Contiguous("exact")])
def test_the_ledger_counter_sums_to_the_capacity_and_is_empty_between_requests(allocator):
    events = events_of(finished(allocator))
    counters = [event for event in events if event["ph"] == "C" and event["name"].startswith("KV")]
    assert all(tuple(event["args"]) == PARTS and sum(event["args"].values()) == 100 for event in counters)
    by_time = {event["ts"]: event["args"] for event in counters}
    assert list(by_time) == sorted(by_time), "in order of time"
    assert by_time[0]["token_states"] == 27
    assert by_time[15e5]["token_states"] == 0, "the last of the first two ended at 1.5 s"
    assert by_time[9e6]["token_states"] == 30
    assert by_time[10e6]["token_states"] == 0, "the end of the run"


def test_as_many_requests_are_shown_as_the_bound_says_around_the_peak():
    count = 3 * MOST_REQUESTS
    trace = Trace(whole_ns(np.arange(count) * 0.5), np.full(count, 5, np.int32), np.ones(count, np.int32))
    big = 2 * MOST_REQUESTS
    trace.prompt_tokens[big] = 60
    result = finished(trace=trace)
    shown = shown_requests(result)
    assert (shown.start, shown.stop) == (big - MOST_REQUESTS // 2, big + MOST_REQUESTS // 2)
    events = events_of(result, trace)
    assert len({event["tid"] for event in events if event["ph"] == "X"}) == MOST_REQUESTS
    assert events[0]["args"]["name"] == "case (requests 1,500 to 2,499 of 3,000)"


def test_a_gz_file_is_compressed_and_the_same_each_time(tmp_path):
    plain, packed, again = tmp_path / "a.json", tmp_path / "a.json.gz", tmp_path / "b.json.gz"
    for path in (plain, packed, again):
        write(path, events_of(finished()))
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert packed.read_bytes() == again.read_bytes()
    assert list(json.loads(plain.read_text())) == ["displayTimeUnit", "traceEvents"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.json.gz", "b.json.gz"]
