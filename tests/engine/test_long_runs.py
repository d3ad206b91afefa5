"""Engine and oracle on runs of thousands of steps, in which rings wrap, tables are reused and the timeline is thinned."""

import itertools
import tracemalloc

import numpy as np
import pytest
from comparison import assert_engine_equals_oracle, assert_same_timeline
from oracle.run import OracleRun
from strategies import setup

from pagesim.allocators import Contiguous, Paged
from pagesim.allocators.holes import PLACEMENTS
from pagesim.engine.durations import Linear
from pagesim.engine.scheduling import Scheduling
from pagesim.engine.run import Run

ALLOCATORS = [Paged(1), Paged(16, "fifo"), Paged(5, watermark=0.02),
              *(Contiguous(reserve, placement) for reserve, placement in itertools.product(("grow", "exact"), PLACEMENTS))]


def long_run(allocator, num_requests: int, capacity_slots: int, seed: int, longest: int = 120, **scheduling):
    """Requests of very different lengths; they arrive about as fast as they can be served."""
    rng = np.random.default_rng(seed)
    prompts = 1 + rng.geometric(4 / longest, num_requests) % longest
    outputs = 1 + rng.geometric(4 / longest, num_requests) % longest
    gap_s = 0.01 * (prompts + outputs).mean() ** 2 / capacity_slots
    arrivals = np.cumsum(np.round(rng.exponential(gap_s, num_requests), 2))
    return setup(prompts, outputs, arrivals - arrivals[0], allocator=allocator, capacity_slots=capacity_slots,
                 max_model_len=2 * longest + 3, scheduling=Scheduling(**scheduling), durations=Linear(0.01, 0.0001, 0.0, 0.00001))


@pytest.mark.parametrize("allocator", ALLOCATORS, ids=repr)
@pytest.mark.parametrize("preemption", ("recompute", "swap"))
def test_engine_and_oracle_are_equal_over_hundreds_of_requests(allocator, preemption):
    made = long_run(allocator, 200, 457, seed=7, preemption=preemption, swap_slots=200, swap_s_per_slot=0.001,
                    max_num_batched_tokens=64)
    assert_engine_equals_oracle(made)


def test_a_request_that_is_rejected_for_its_length_takes_no_memory():
    made = setup([5, 4], [2_000_000_000, 3], allocator=Paged(16), capacity_slots=64, max_model_len=50,
                 scheduling=Scheduling(), durations=Linear(1.0))
    assert_engine_equals_oracle(made)
    tracemalloc.start()
    Run(made)
    assert tracemalloc.get_traced_memory()[1] < 10**7
    tracemalloc.stop()


@pytest.mark.parametrize("allocator", ALLOCATORS[:6], ids=repr)
def test_engine_and_oracle_are_equal_where_the_running_sequences_use_up_the_budget(allocator):
    assert_engine_equals_oracle(long_run(allocator, 150, 457, seed=3, longest=60, max_num_batched_tokens=6))


@pytest.mark.parametrize("num_requests", (300, 10_000))
def test_a_thinned_timeline_keeps_means_extremes_and_sums_of_all_steps(num_requests):
    made = long_run(Paged(4), num_requests, 40, seed=1, longest=15)
    oracle, engine = OracleRun(made), Run(made)
    engine.advance()
    timeline = engine.result().timeline
    assert timeline.stride == 1 if num_requests == 300 else timeline.stride > 1
    assert_same_timeline(timeline, oracle.steps)
