"""Conversations: a turn waits for the one before it, in every kind of memory and every kind of arrivals."""

from dataclasses import replace

import numpy as np
import pytest
from comparison import assert_engine_equals_oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import contiguous, setup, setups

from pagesim.allocators import Contiguous, Paged
from pagesim.engine.durations import Linear
from pagesim.engine.run import Run, simulate
from pagesim.engine.scheduling import Scheduling

SECOND = 10**9
POOL = Paged(4)
THINK_NS = (-1, -1, 0, 50_000_000, 2 * SECOND)


@st.composite
def conversations(draw, allocators=None):
    """A run whose requests follow one another: a few long conversations, or many that branch."""
    made = draw(setups(allocators))
    num = len(made.trace)
    back = draw(st.sampled_from((1, 3, num)))
    parent = np.array([draw(st.integers(max(-1, row - back), row - 1)) for row in range(num)], np.int64)
    think_ns = np.where(parent < 0, -1, draw(st.lists(st.sampled_from(THINK_NS), min_size=num, max_size=num)))
    return replace(made, trace=replace(made.trace, session_parent=parent, think_ns=think_ns))


@settings(max_examples=150)
@given(conversations())
def test_engine_and_oracle_are_equal_on_conversations(made):
    assert_engine_equals_oracle(made)


@settings(max_examples=60)
@given(conversations(contiguous()))
def test_engine_and_oracle_are_equal_on_conversations_in_regions(made):
    assert_engine_equals_oracle(made)


def chat(requests, parent, think_ns=None, allocator=POOL, closed_users=None, **columns):
    prompts, outputs, arrivals = zip(*requests)
    return setup(prompts, outputs, None if closed_users else arrivals, session_parent=parent, think_ns=think_ns, **columns,
                 allocator=allocator, capacity_slots=240, max_model_len=256, scheduling=Scheduling(),
                 durations=Linear(1.0), closed_users=closed_users)


@pytest.mark.parametrize("allocator", (Paged(4), Paged(4, prefix_cache="vllm"), Contiguous("exact")))
def test_a_turn_starts_when_the_one_before_has_ended_and_its_think_time_is_over(play, allocator):
    played = play(chat([(4, 5, 0), (12, 2, 1), (4, 1, 1), (16, 1, 1)], [-1, 0, 0, 1], [-1, 3 * SECOND, -1, -1], allocator))
    assert played.first_scheduled_s == [0, 8, 5, 10]
    assert played.finish_s == [5, 10, 6, 11]


def test_a_user_of_a_closed_loop_waits_for_the_turn_before(play):
    played = play(chat([(4, 5, 0), (12, 2, 0), (4, 1, 0), (4, 1, 0)], [-1, 0, -1, 2], [-1, 3 * SECOND, -1, -1],
                       closed_users=2))
    assert played.first_scheduled_s == [0, 8, 5, 6]


def test_a_turn_whose_time_never_comes_is_unfinished():
    made = replace(chat([(4, 5, 0), (12, 2, 1), (16, 1, 2)], [-1, 0, 1]), until_s=6.0)
    assert simulate(made).requests.status.tolist() == [1, 0, 0]


def test_a_run_leaves_its_trace_as_it_was():
    made = chat([(4, 5, 0), (12, 2, 90)], [-1, 0], [-1, 3 * SECOND])
    one, other = simulate(made), simulate(made)
    assert made.trace.arrival_s.tolist() == [0, 90]
    assert one.requests.arrival_s.tolist() == other.requests.arrival_s.tolist() == [0, 8]


def test_a_turn_with_a_think_time_has_arrived_where_it_has_joined():
    run = Run(chat([(4, 5, 0), (12, 2, 1), (4, 1, 2)], [-1, 0, -1], [-1, 3 * SECOND, -1]))
    run.advance(4)
    assert run.have_arrived(4.0).tolist() == [True, False, True]
    run.advance(2)
    assert run.have_arrived(8.0).tolist() == [True, True, True]
