"""Ownership: any recorded step can be redrawn from the changes."""

import numpy as np
import pytest

from strategies import setup

from pagesim.allocators import Contiguous, Paged
from pagesim.core.ledger import CACHED
from pagesim.engine.ownership import ownership
from pagesim.engine.durations import Linear
from pagesim.engine.scheduling import Scheduling
from pagesim.engine.run import Run
from pagesim.engine.setup import Setup
from pagesim.trace import Trace
from pagesim.trace.instants import whole_ns


def busy_run(allocator):
    if getattr(allocator, "prefix_cache", "none") != "none":
        return sharing_run(allocator)
    rng = np.random.default_rng(7)
    trace = Trace(whole_ns(np.sort(rng.uniform(0, 3, 60))), rng.integers(1, 30, 60).astype(np.int32),
                  rng.integers(1, 40, 60).astype(np.int32))
    return Run(Setup(trace, allocator, 200, 128, Scheduling(16, 128), Linear(0.05)))


def sharing_run(allocator):
    """Three system prompts of 16 tokens, questions of their own behind them."""
    rng = np.random.default_rng(7)
    ids = [[each % 3, 10 + each] for each in range(60)]
    return Run(setup([16 + k for k in rng.integers(8, 14, 60)], rng.integers(1, 30, 60), np.sort(rng.uniform(0, 3, 60)),
                     prefix_ids=[[2 * k for k in row] for row in ids], hash_block_tokens=16, allocator=allocator,
                     capacity_slots=200, max_model_len=128, scheduling=Scheduling(16, 128), durations=Linear(0.05)))


def test_a_block_is_shared_then_cached_then_evicted():
    allocator = Paged(8, prefix_cache="vllm")
    finished, seen = sharing_run(allocator), set()
    finished.advance()
    recorded = ownership(lambda: sharing_run(allocator), finished, 10_000)
    for step in range(recorded.last_step + 1):
        owners, count = recorded.owners_at(step), recorded.num_owners_at(step)
        assert ((owners >= 0) == (count > 0)).all()
        seen |= {"shared"} if count.max() > 2 else set()
        seen |= {"cached"} if CACHED in owners else set()
    assert seen == {"shared", "cached"} and finished.result().sharing.evicted_blocks > 0


ALLOCATORS = [Paged(8), Paged(1, "fifo"), Paged(8, prefix_cache="vllm"), Contiguous("exact"),
              Contiguous("grow", "buddy")]


@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize("most_steps", [10_000, 25])
def test_every_recorded_step_is_redrawn_as_it_was(allocator, most_steps):
    finished = busy_run(allocator)
    finished.advance()
    recorded = ownership(lambda: busy_run(allocator), finished, most_steps)
    assert recorded.last_step - recorded.first_step + 1 == min(most_steps, finished.position().steps)
    run = busy_run(allocator)
    for step in range(recorded.last_step + 1):
        run.advance(1)
        if step >= recorded.first_step:
            np.testing.assert_array_equal(recorded.owners_at(step), run.owners())
            np.testing.assert_array_equal(recorded.num_owners_at(step), run.num_owners())
            assert recorded.start_s[step - recorded.first_step] == run.step_start_s()


def test_a_long_run_is_recorded_around_its_peak():
    finished = busy_run(Paged(8))
    finished.advance()
    recorded = ownership(lambda: busy_run(Paged(8)), finished, 11)
    assert recorded.first_step <= finished.result().peaks.step <= recorded.last_step


def test_neighbouring_units_that_change_alike_are_one_change():
    trace = Trace(np.zeros(2, np.int64), np.array([20, 9], np.int32), np.array([1, 1], np.int32))
    make = lambda: Run(Setup(trace, Paged(4), 40, 64, Scheduling(), Linear(1.0)))
    finished = make()
    finished.advance()
    assert ownership(make, finished, 5).changes.tolist() == [[0, 0, 5, 0, 1], [0, 5, 3, 1, 1]]


@pytest.mark.parametrize("allocator", [Paged(4), Paged(4, "fifo")])
def test_a_sample_admitted_again_into_its_siblings_row_takes_other_blocks(allocator):
    rng = np.random.default_rng(1)
    lengths = [rng.integers(1, 25, 40).astype(np.int32) for _ in range(2)]
    trace = Trace(np.zeros(40, np.int64), *lengths, num_samples=rng.integers(1, 4, 40).astype(np.int32))
    make = lambda: Run(Setup(trace, allocator, 100, 64, Scheduling(6, 64), Linear(0.05)))
    finished, run = make(), make()
    finished.advance()
    assert finished.result().counters.preemptions > 20
    recorded = ownership(make, finished, 10_000)
    while run.advance(1):
        step = run.position().steps - 1
        np.testing.assert_array_equal(recorded.owners_at(step), run.owners())
