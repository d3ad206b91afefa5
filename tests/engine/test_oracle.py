"""The engine equals the oracle: every table, time, ledger integer, counter, peak and histogram of every random run."""

import pytest
from comparison import assert_engine_equals_oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import contiguous, paged, setups

from pagesim.allocators.spec import PLACEMENTS, Contiguous, Paged


@settings(max_examples=1500)
@given(setups(paged()))
def test_engine_and_oracle_are_equal_on_blocks(made):
    assert_engine_equals_oracle(made)


@settings(max_examples=1500)
@given(setups(contiguous()))
def test_engine_and_oracle_are_equal_on_regions(made):
    assert_engine_equals_oracle(made)


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
