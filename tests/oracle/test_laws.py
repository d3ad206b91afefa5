"""Laws that hold in every run of the oracle, whatever is chosen."""

import itertools
import math

from hypothesis import given, settings
from strategies import setups

from oracle.run import OracleRun
from pagesim.engine.result import STATUSES

settings.register_profile("laws", settings(), max_examples=150)
laws = settings(settings.get_profile("laws"))


@laws
@given(setups())
def test_the_ledger_sums_to_the_capacity_at_every_step(made):
    for step in OracleRun(made).steps:
        assert sum(step.parts) == made.capacity_slots
        assert step.instant.allocated == sum(step.parts[:4])


@laws
@given(setups())
def test_no_request_vanishes_and_without_an_end_none_stays_unfinished(made):
    run = OracleRun(made)
    assert all(status in STATUSES for status in run.status)
    if made.until_s is None:
        assert "unfinished" not in run.status
        assert not run.running and not run.queue


@laws
@given(setups())
def test_at_the_end_all_memory_is_free_again(made):
    run = OracleRun(made)
    if made.until_s is None:
        assert run.memory.free_slots() == made.capacity_slots - run.memory.remainder
        assert run.host_free == (math.inf if made.scheduling.swap_slots is None
                                 else made.scheduling.swap_slots // run.memory.block_size)


@laws
@given(setups())
def test_the_oldest_running_sequence_is_preempted_only_when_it_is_alone(made):
    before = []
    for step in OracleRun(made).steps:
        if before and before[0] in step.preempted:
            assert step.preempted[-1] == before[0] and len(step.preempted) == len(before)
        assert step.preempted == before[::-1][:len(step.preempted)], "victims go from the last of the running order"
        before = [key for key in step.stored if key not in step.finished]


@laws
@given(setups())
def test_a_request_of_one_sample_computes_its_final_tokens_and_what_was_recomputed(made):
    run = OracleRun(made)
    if made.warmup_s or made.until_s is not None:
        return
    finals = sum(s.final for samples in run.requests for s in samples if run.status[s.request] == "completed")
    counters = run.sums.counters
    assert counters["prefill_tokens"] + counters["decode_tokens"] == finals + counters["recomputed_tokens"]


@laws
@given(setups())
def test_no_output_token_is_made_twice(made):
    run = OracleRun(made)
    if made.warmup_s == 0:
        assert run.sums.counters["output_tokens"] == sum(s.sampled for samples in run.requests for s in samples)


@laws
@given(setups())
def test_time_never_runs_backwards_and_steps_do_not_overlap(made):
    steps = OracleRun(made).steps
    for step, following in itertools.pairwise(steps):
        assert step.start_ns + step.duration_ns <= following.start_ns
    for step in steps:
        assert step.duration_ns > 0 or step.prefill_tokens + step.decode_tokens == 0


@laws
@given(setups())
def test_the_same_run_twice_gives_the_same_steps(made):
    first, second = OracleRun(made), OracleRun(made)
    assert first.steps == second.steps
    assert vars(first.sums) == vars(second.sums)


@laws
@given(setups())
def test_the_queue_is_served_in_order_and_a_preempted_sequence_before_one_that_never_ran(made):
    run = OracleRun(made)
    seen, waiting_again = set(), set()
    for step in run.steps:
        waiting_again |= set(step.preempted)
        for key in step.admitted:
            if key not in seen:
                assert not waiting_again, f"{key} overtook {waiting_again}"
            seen.add(key)
            waiting_again.discard(key)
    firsts = [key for step in run.steps for key in step.admitted]
    fresh = [key for i, key in enumerate(firsts) if key not in firsts[:i]]
    assert fresh == sorted(fresh)


@laws
@given(setups())
def test_only_a_sequence_that_stores_nothing_yet_can_be_left_out_of_a_step(made):
    """Who computes takes a token of the budget to get there, so the next step's budget reaches all of them."""
    for step in OracleRun(made).steps:
        computing = len(step.chunks) + len(step.decoded)
        assert len([stored for stored in step.stored.values() if stored > 0]) <= computing
