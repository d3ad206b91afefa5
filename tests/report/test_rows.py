"""report/requests_csv.py, report/timeline_csv.py: the request and timeline files of a run."""

import csv

import numpy as np

from strategies import setup

from pagesim.allocators import Paged
from pagesim.core.ledger import PARTS
from pagesim.engine.durations import Linear
from pagesim.engine.scheduling import Scheduling
from pagesim.engine.run import simulate
from pagesim.engine.setup import Setup
from pagesim.report.requests_csv import request_text
from pagesim.report.timeline_csv import timeline_lines
from pagesim.trace import Trace
from pagesim.trace.instants import whole_ns


def run_of(arrival_s, prompt, output):
    trace = Trace(whole_ns(np.array(arrival_s, dtype=np.float64)), np.array(prompt, dtype=np.int32),
                  np.array(output, dtype=np.int32))
    return trace, simulate(Setup(trace, Paged(16), 96, 64, Scheduling(), Linear(0.25)))


def test_a_row_says_when_each_thing_happened_and_leaves_out_what_did_not():
    trace, result = run_of([0, 0, 9], [16, 63, 20], [3, 4, 1])
    rows = list(csv.DictReader("".join(request_text(trace, result)).splitlines()))
    assert rows[0] == {
        "request": "0",
        "status": "completed",
        "prompt_tokens": "16",
        "output_tokens": "3",
        "preemptions": "0",
        "arrival_s": "0.0",
        "first_scheduled_s": "0.0",
        "first_token_s": "0.25",
        "finish_s": "0.75",
        "queue_s": "0.0",
        "ttft_s": "0.25",
        "tpot_s": "0.25",
        "e2e_s": "0.75",
    }
    assert rows[1]["status"] == "exceeds_max_model_len"
    assert {
        rows[1][name]
        for name in ("first_scheduled_s", "first_token_s", "finish_s", "queue_s", "ttft_s", "tpot_s", "e2e_s")
    } == {""}
    assert rows[2]["tpot_s"] == "" and rows[2]["e2e_s"] == "0.25"  # one token has no time between tokens


def test_hit_tokens_are_those_of_the_first_admission_and_none_where_there_was_none():
    made = setup([16, 20, 63, 4], [1, 2, 9, 1], [0, 1, 2, 3], prefix_ids=[[0], [0], [0, 1, 2], []],
                 hash_block_tokens=16, allocator=Paged(8, prefix_cache="vllm"), capacity_slots=96, max_model_len=64,
                 scheduling=Scheduling(), durations=Linear(0.25))
    rows = list(csv.DictReader("".join(request_text(made.trace, simulate(made))).splitlines()))
    assert [row["hit_tokens"] for row in rows] == ["0", "16", "", "0"]


def test_every_request_has_its_row_also_beyond_one_chunk():
    trace, result = run_of(np.zeros(50_003), np.full(50_003, 80), np.ones(50_003))  # all rejected: quick
    lines = "".join(request_text(trace, result)).splitlines()
    assert len(lines) == 50_004 and lines[-1].startswith("50002,exceeds_max_model_len,80,1,")


def test_the_parts_of_a_timeline_row_sum_to_the_capacity_and_its_duration_is_covered():
    _, result = run_of([0, 0.1, 5], [16, 30, 20], [30, 4, 9])
    rows = [{key: float(value) for key, value in row.items()}
            for row in csv.DictReader(timeline_lines(result.timeline, 96))]
    assert rows and all(abs(sum(row[f"mean_{part}_slots"] for part in PARTS) - 96) < 1e-9 for row in rows)
    assert all(abs(row["block_use_share"] * 96 - sum(row[f"mean_{part}_slots"] for part in PARTS[:4])) < 1e-9
               for row in rows)
    assert abs(sum(row["duration_s"] for row in rows) - 0.25 * result.counters.steps) < 1e-9
