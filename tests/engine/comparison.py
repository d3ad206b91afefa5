"""Lays a run of the engine beside the oracle's, number by number."""

from dataclasses import asdict

import numpy as np
import pytest
from oracle.run import OracleRun

from pagesim.engine.result import STATUSES, WAIT_CAUSES, WINDOWS, Column, Result
from pagesim.engine.run import Run


def assert_engine_equals_oracle(made) -> None:
    oracle, engine = made.make(OracleRun), made.make(Run)
    for step in oracle.steps:
        engine.advance(max_steps=1)
        assert_same_memory(engine.tables(), step)
    while engine.advance(max_steps=1):      # what is left must be no step
        pass
    assert engine.progress().steps == len(oracle.steps)
    assert_same_result(engine.result(), oracle)


def assert_same_memory(tables, step) -> None:
    """Who stores how many tokens where, in running order."""
    assert tables.seq_ids.tolist() == [request for request, _ in step.stored], f"running in step {step.index}"
    assert tables.lengths.tolist() == list(step.stored.values()), f"stored tokens in step {step.index}"
    made = [tables.table(i).tolist() for i in range(tables.num_seqs)]
    if step.regions:
        owned = [list(range(start, start + stored))
                 for (start, _, _), stored in zip(step.regions.values(), step.stored.values())]
    else:
        owned = list(step.tables.values())
    assert made == owned, f"memory in step {step.index}"


def assert_same_result(result: Result, oracle: OracleRun) -> None:
    sums = oracle.sums
    requests = result.requests
    assert [STATUSES[status] for status in requests.status] == oracle.status
    for name in ("arrival_s", "first_scheduled_s", "first_token_s", "finish_s", "preemptions"):
        np.testing.assert_array_equal(getattr(requests, name), getattr(oracle, name), err_msg=name)
    assert asdict(result.counters) == sums.counters
    assert asdict(result.peaks) == sums.peaks
    assert result.end_s == oracle.end_s
    assert_same_timeline(result.timeline, oracle.steps)
    for w, window in enumerate(WINDOWS):
        for column in Column:
            assert result.integrals[w, column] == close(sums.integrals[w][column]), f"{column.name} over {window}"
    for c, cause in enumerate(WAIT_CAUSES):
        assert result.wait_s[c] == close(sums.wait_s[cause]), f"waiting for {cause}"
    histograms = result.histograms
    assert histograms.waste_slots.tolist() == sums.waste_slots
    if oracle.memory.contiguous:
        assert result.num_blocks is None and result.block_size is None
        assert histograms.block_lifetime_steps is None and histograms.table_run_blocks is None
        assert histograms.hole_slots_s == close(sums.hole_slots_s)
    else:
        assert (result.num_blocks, result.block_size) == (oracle.memory.num_blocks, oracle.memory.block_size)
        assert histograms.hole_slots_s is None
        assert histograms.block_lifetime_steps.tolist() == sums.block_lifetime_steps
        assert histograms.table_run_blocks.tolist() == sums.table_run_blocks


def assert_same_timeline(timeline, steps) -> None:
    assert timeline.stride == 1
    assert len(timeline.first_step) == len(steps)
    expected = {
        "first_step": [s.index for s in steps], "start_s": [s.start_s for s in steps],
        "duration_s": [s.duration_s for s in steps], "mean_running": [s.running for s in steps],
        "mean_waiting": [s.waiting for s in steps], "mean_parts": [s.parts for s in steps],
        "max_token_states": [s.parts[0] for s in steps], "max_allocated": [s.instant.allocated for s in steps],
        "max_running": [s.running for s in steps], "max_waiting": [s.waiting for s in steps],
        "prefill_tokens": [s.prefill_tokens for s in steps], "decode_tokens": [s.decode_tokens for s in steps],
        "preemptions": [len(s.preempted) for s in steps], "admissions": [len(s.admitted) for s in steps],
        "completions": [len(s.finished) for s in steps],
    }
    for name, values in expected.items():
        values = np.array(values).reshape(getattr(timeline, name).shape)
        np.testing.assert_array_equal(getattr(timeline, name), values, err_msg=f"timeline {name}")


def close(values):
    """Sums of floats in another order: equal to nine digits."""
    return pytest.approx(values, rel=1e-9, abs=1e-12)
