"""Lays a run of the engine beside the oracle's, number by number."""

from dataclasses import asdict

import numpy as np
import pytest
from oracle.run import OracleRun

from pagesim.engine.result import STATUSES, WAIT_CAUSES, WINDOWS, Column, Result
from pagesim.engine.run import Run


def assert_engine_equals_oracle(made) -> None:
    oracle, engine = OracleRun(made), Run(made)
    for step in oracle.steps:
        engine.advance(max_steps=1)
        assert_same_memory(engine.tables(), step)
        assert_same_instant(engine.instant(), step)
    while engine.advance(max_steps=1):      # what is left must be no step
        pass
    assert engine.position().steps == len(oracle.steps)
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


def assert_same_instant(instant, step) -> None:
    assert tuple(instant.parts_slots.tolist()) == step.parts, f"ledger of step {step.index}"
    times = step.start_ns / 1e9, (step.start_ns + step.duration_ns) / 1e9
    assert (instant.step, instant.start_s, instant.end_s) == (step.index, *times)
    assert (instant.running, instant.waiting) == (step.running, step.waiting), f"queues of step {step.index}"


def assert_same_result(result: Result, oracle: OracleRun) -> None:
    sums = oracle.sums
    requests = result.requests
    assert [STATUSES[status] for status in requests.status] == oracle.status
    for name in ("arrival_ns", "first_scheduled_ns", "first_token_ns", "finish_ns", "preemptions"):
        np.testing.assert_array_equal(getattr(requests, name), getattr(oracle, name), err_msg=name)
    assert asdict(result.counters) == sums.counters
    assert asdict(result.peaks) == sums.peaks
    assert result.end_s == oracle.end_ns / 1e9
    assert_same_timeline(result.timeline, oracle.steps)
    assert_same_sharing(result, sums)
    for w, window in enumerate(WINDOWS):
        for column in set(Column) - {Column.LOGICAL_BLOCKS, Column.LOGICAL_TOKENS}:
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


def assert_same_sharing(result: Result, sums) -> None:
    made, expected = result.sharing, sums.sharing
    if made is None:
        return
    assert {"hit_tokens": made.hit_tokens, "readmission_hit_tokens": made.readmission_hit_tokens,
            "admitted_prompt_tokens": made.prompt_tokens, "full_prompt_blocks": made.prompt_blocks,
            "evicted_blocks": made.evicted_blocks} == {name: expected[name] for name in (
                "hit_tokens", "readmission_hit_tokens", "admitted_prompt_tokens", "full_prompt_blocks",
                "evicted_blocks")}
    assert result.histograms.eviction_age_steps.tolist() == sums.eviction_age_steps
    for w, window in enumerate(WINDOWS):
        for column in (Column.LOGICAL_BLOCKS, Column.LOGICAL_TOKENS):
            assert result.integrals[w, column] == close(sums.integrals[w][column]), window


def assert_same_timeline(timeline, steps) -> None:
    """A row is ``stride`` steps: means weighted by time, the largest values, and sums."""
    groups = [steps[first:first + timeline.stride] for first in range(0, len(steps), timeline.stride)]
    assert timeline.first_step.tolist() == [group[0].index for group in groups]
    assert timeline.start_s.tolist() == [group[0].start_s for group in groups]
    exactly = np.testing.assert_array_equal if timeline.stride == 1 else np.testing.assert_allclose
    exactly(timeline.duration_s, [sum(s.duration_s for s in group) for group in groups])
    for name, value in (("mean_parts", lambda s: s.parts), ("mean_running", lambda s: s.running),
                        ("mean_waiting", lambda s: s.waiting)):
        made = getattr(timeline, name)
        expected = [weighted_mean([value(s) for s in group], [s.duration_s for s in group]) for group in groups]
        exactly(made, np.array(expected).reshape(made.shape), err_msg=name)
    for name, value in (("max_token_states", lambda s: s.parts[0]), ("max_allocated", lambda s: s.instant.allocated),
                        ("max_running", lambda s: s.running), ("max_waiting", lambda s: s.waiting)):
        assert getattr(timeline, name).tolist() == [max(map(value, group)) for group in groups], name
    for name, value in (("prefill_tokens", lambda s: s.prefill_tokens), ("decode_tokens", lambda s: s.decode_tokens),
                        ("preemptions", lambda s: len(s.preempted)), ("admissions", lambda s: len(s.admitted)),
                        ("completions", lambda s: len(s.finished))):
        assert getattr(timeline, name).tolist() == [sum(map(value, group)) for group in groups], name


def weighted_mean(values, weights):
    return values[0] if len(values) == 1 else np.average(np.array(values, float), axis=0, weights=weights)


def close(values):
    """Sums of floats in another order: equal to nine digits."""
    return pytest.approx(values, rel=1e-9, abs=1e-12)
