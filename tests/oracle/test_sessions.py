"""Turns of a conversation: when they join, and what they share."""

import pytest
from strategies import setup

from oracle.run import OracleRun
from pagesim.allocators import Paged
from pagesim.engine.durations import Linear
from pagesim.engine.scheduling import Scheduling

SECOND = 10**9


def chat(requests, parent, think_ns=None, cache: str = "vllm", block_size: int = 4, num_blocks: int = 60,
         closed_users=None, **columns) -> OracleRun:
    prompts, outputs, arrivals = zip(*requests)
    return OracleRun(setup(
        prompts, outputs, None if closed_users else arrivals, session_parent=parent, think_ns=think_ns, **columns,
        allocator=Paged(block_size, prefix_cache=cache), capacity_slots=num_blocks * block_size, max_model_len=256,
        scheduling=Scheduling(), durations=Linear(1.0), closed_users=closed_users))


def started(run) -> list[float]:
    return [time_ns / SECOND for time_ns in run.first_scheduled_ns]


def arrived(run) -> list[float]:
    return [time_ns / SECOND for time_ns in run.arrival_ns]


def test_a_turn_joins_when_it_has_arrived_and_the_one_before_has_ended():
    run = chat([(4, 5, 0), (12, 2, 1), (16, 1, 30)], [-1, 0, 1])
    assert started(run) == [0, 5, 30]
    assert arrived(run) == [0, 1, 30]


def test_with_think_time_it_arrives_so_long_after_that_end_whatever_the_trace_says():
    run = chat([(4, 5, 0), (12, 2, 90)], [-1, 0], [-1, 3 * SECOND])
    assert started(run) == arrived(run) == [0, 8]


def test_a_user_of_a_closed_loop_thinks_too():
    run = chat([(4, 5, 0), (12, 2, 0), (4, 1, 0)], [-1, 0, -1], [-1, 3 * SECOND, -1], closed_users=1)
    assert started(run) == [0, 8, 10]


def test_who_may_join_at_the_same_step_joins_by_time_and_then_by_row():
    """Turns 2 and 5 may join when turn 0 has ended, at 3; row 4 arrived half a second before."""
    run = chat([(4, 3, 0), (4, 1, 0), (9, 1, 0), (9, 1, 0), (4, 1, 2.5), (9, 1, 3)], [-1, -1, 0, 1, -1, 0])
    assert [key for step in run.steps for key in step.admitted] == [(0, 0), (1, 0), (3, 0), (4, 0), (2, 0), (5, 0)]


def test_a_turn_hits_the_whole_history_as_far_as_it_was_stored():
    """Prompt 5 and output 8 know 13 tokens and store 12: three full blocks."""
    run = chat([(5, 8, 0), (14, 1, 0)], [-1, 0])
    assert run.hit_tokens == [0, 12]
    assert run.steps[-1].tables[1, 0][:3] == run.steps[-2].tables[0, 0][:3]


def test_a_turn_shorter_than_its_history_shares_what_it_has():
    assert chat([(5, 8, 0), (9, 1, 0)], [-1, 0]).hit_tokens == [0, 8]


def test_what_is_new_in_a_turn_is_called_by_its_ids():
    """Two turns continue the same one and begin their new part alike; the id covers the rest of the history's block."""
    run = chat([(4, 5, 0), (17, 1, 0), (17, 1, 20)], [-1, 0, 0], prefix_ids=[[1], [1, 2, 3, 4], [1, 2, 3, 4]],
               hash_block_tokens=4)
    assert run.hit_tokens == [0, 8, 16]


def test_the_first_sample_is_the_one_that_is_continued():
    run = chat([(4, 5, 0), (12, 1, 0)], [-1, 0], num_samples=[3, 1])
    assert run.hit_tokens == [0, 8]
    assert run.steps[-1].tables[1, 0][:2] == run.steps[-2].tables[0, 0][:2]


@pytest.mark.parametrize("think_ns", [None, [-1, 0, -1]])
def test_a_turn_after_a_rejected_one_does_not_wait_for_it(think_ns):
    run = chat([(300, 5, 0), (20, 1, 0), (4, 1, 0)], [-1, 0, -1], think_ns)
    assert run.status == ["exceeds_max_model_len", "completed", "completed"]
    assert run.steps[0].admitted == [(1, 0), (2, 0)]
