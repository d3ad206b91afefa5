"""The engine equals the oracle: every table, time, ledger integer, counter, peak and histogram of every random run."""

import itertools

import numpy as np
import pytest
from comparison import assert_engine_equals_oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import contiguous, long_prefixes, paged, setup, setups, sharing_setups

from pagesim.allocators import Contiguous, Paged
from pagesim.allocators.holes import PLACEMENTS
from pagesim.engine.durations import Linear
from pagesim.engine.run import Run
from pagesim.engine.scheduling import Scheduling


@settings(max_examples=1000)
@given(setups(paged()))
def test_engine_and_oracle_are_equal_on_blocks(made):
    assert_engine_equals_oracle(made)


@settings(max_examples=1000)
@given(setups(contiguous()))
def test_engine_and_oracle_are_equal_on_regions(made):
    assert_engine_equals_oracle(made)


@settings(max_examples=1000)
@given(sharing_setups(("none", "vllm"), alone=True))
def test_engine_and_oracle_are_equal_on_sessions_and_a_prefix_cache(drawn):
    made, _ = drawn
    assert_engine_equals_oracle(made)


def test_a_chunk_of_one_token_that_fills_a_block_of_the_history_can_be_hit_by_another_turn():
    assert_engine_equals_oracle(setup(
        [1, 11, 12, 13], [1, 1, 1, 1], session_parent=[-1, 0, 1, 1], think_ns=[-1] * 4, closed_users=1,
        allocator=Paged(2, prefix_cache="vllm"), capacity_slots=14, max_model_len=14,
        scheduling=Scheduling(max_num_batched_tokens=1), durations=Linear(0.1)))


@settings(max_examples=300)
@given(sharing_setups(("radix",), alone=True))
def test_engine_and_oracle_are_equal_on_sessions_and_a_radix_cache(drawn):
    made, _ = drawn
    assert_engine_equals_oracle(made)


@pytest.mark.parametrize("block_size", (1, 16))
@settings(max_examples=40)
@given(data=st.data())
def test_engine_and_oracle_are_equal_on_long_prefixes_in_a_radix_cache(block_size, data):
    assert_engine_equals_oracle(data.draw(long_prefixes(block_size)))


@pytest.mark.parametrize("block_size", (1, 2, 3))
@settings(max_examples=100)
@given(data=st.data())
def test_engine_and_oracle_are_equal_on_a_small_block(block_size, data):
    assert_engine_equals_oracle(data.draw(setups(st.just(Paged(block_size)))))


@pytest.mark.parametrize("placement", PLACEMENTS)
@settings(max_examples=100)
@given(data=st.data())
def test_engine_and_oracle_are_equal_on_growing_regions(placement, data):
    assert_engine_equals_oracle(data.draw(setups(st.just(Contiguous("grow", placement)))))


@settings(max_examples=200)
@given(setups(), st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_a_run_made_in_pieces_equals_a_run_made_at_once(made, pieces):
    at_once, in_pieces = Run(made), Run(made)
    at_once.advance()
    for piece in itertools.cycle(pieces):
        if not in_pieces.advance(max_steps=piece):
            break
    one, other = at_once.result(), in_pieces.result()
    np.testing.assert_array_equal(one.integrals, other.integrals)
    assert (one.counters, one.peaks, one.end_s) == (other.counters, other.peaks, other.end_s)
    np.testing.assert_array_equal(one.requests.finish_s, other.requests.finish_s)
    assert one.timeline.start_s.tolist() == other.timeline.start_s.tolist()
