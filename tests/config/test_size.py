"""Sizing without a trace: how many requests each rule lets in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagesim.config.load import empty
from pagesim.config.overrides import assignment, overridden
from pagesim.config.size import Request, size
from pagesim.errors import ConfigError, InputError


def sized(*assignments, request=None):
    return size(overridden(empty("here"), map(assignment, assignments)), "", request)


def at_once(answer):
    return {row.rule: row.at_once for row in answer.reservations}


@pytest.mark.parametrize(("max_model_len", "requests"), [(32768, 1), (16384, 2), (8192, 5), (4096, 10), (2048, 20)])
def test_slots_of_full_length_in_the_real_runs_memory(max_model_len, requests):
    answer = sized("memory.num_gpu_blocks_override=2587", f"max_model_len={max_model_len}")
    assert answer.arena.capacity.slots == 41_392
    assert at_once(answer)["contiguous max_model_len"] == requests


def test_orca_max_holds_seven_and_its_buddy_too():
    row = sized("memory.kv_tokens=15728", "max_model_len=2048").reservations[0]
    assert (row.slots_each, row.at_once, row.at_once_buddy) == (2048, 7, 7)


def test_capacity_over_length_is_the_concurrency_and_says_when_not_one_fits():
    answer = sized("memory.num_gpu_blocks_override=1478", "max_model_len=29000")
    (pool,) = answer.pools
    assert (pool.capacity.usable_slots, round(pool.max_concurrency, 3)) == (23_648, 0.815)
    (pool,) = sized("memory.num_gpu_blocks_override=1952", "max_model_len=20000").pools
    assert (pool.capacity.usable_slots, round(pool.max_concurrency, 2)) == (31_232, 1.56)


def test_each_rule_takes_what_it_asks_for():
    answer = sized("memory.kv_tokens=10000", "max_model_len=2048", request=Request(50, 25, max_tokens=100))
    assert {row.rule: row.slots_each for row in answer.reservations} == {
        "contiguous max_model_len": 2048,
        "contiguous max_tokens": 150,
        "contiguous pow2": 82,
        "contiguous exact": 74,
        "contiguous grow, at first": 50,
        "contiguous grow, at its end": 74,
        "paged 16, at first": 64,
        "paged 16, at its end": 80,
    }
    assert at_once(answer) == {
        "contiguous max_model_len": 4,
        "contiguous max_tokens": 66,
        "contiguous pow2": 121,
        "contiguous exact": 135,
        "contiguous grow, at first": 200,
        "contiguous grow, at its end": 135,
        "paged 16, at first": 625 // 4,
        "paged 16, at its end": 125,
    }


def test_reservations_never_exceed_the_longest_sequence():
    answer = sized("memory.kv_tokens=10000", "max_model_len=100", request=Request(60, 40, max_tokens=900))
    assert max(row.slots_each for row in answer.reservations if row.rule.startswith("contiguous")) == 100


@given(st.integers(1, 10**6), st.integers(1, 2000), st.integers(1, 2000), st.integers(1, 64))
def test_what_is_let_in_fits_and_one_more_does_not(slots, prompt_tokens, output_tokens, block_size):
    if slots < block_size:
        return
    answer = sized(f"memory.kv_tokens={slots}", "max_model_len=4000", f"allocators.1.block_size={block_size}",
                   request=Request(prompt_tokens, output_tokens))
    for row in answer.reservations:
        room = answer.pools[0].capacity.usable_slots if row.rule.startswith("paged") else slots
        assert row.at_once * row.slots_each <= room < (row.at_once + 1) * row.slots_each
        if row.at_once_buddy is not None:
            assert row.at_once_buddy == buddy_regions(slots, row.slots_each)


def buddy_regions(slots, needed):
    """Regions that a buddy arena has for requests of ``needed`` slots, counted over its descending powers of two."""
    size = 1
    while size < needed:
        size *= 2
    return sum(2**bit // size for bit in range(slots.bit_length()) if slots >> bit & 1)


def test_a_typical_request_is_assumed_within_the_longest_sequence():
    assert sized("memory.kv_tokens=9999", "max_model_len=8192").request == Request(1024, 256)
    assert sized("memory.kv_tokens=9999", "max_model_len=300").request == Request(150, 150)


def test_weights_and_kv_memory_are_told_where_a_gpu_gives_them():
    answer = sized("memory.gpu=h200", "model=llama-3.1-8b")
    assert answer.weights_bytes == 16_060_522_496
    assert answer.kv_memory_bytes == 143_771 * 2**20 * 92 // 100 - 16_060_522_496
    assert sized("memory.kv_memory=12GiB", "model=opt-13b").kv_memory_bytes == 12 * 2**30


def test_a_request_longer_than_max_model_len_is_an_error():
    with pytest.raises(InputError, match="a request of 90 \\+ 11 tokens is longer than max_model_len 100"):
        sized("memory.kv_tokens=9999", "max_model_len=100", request=Request(90, 11))


def test_what_is_wrong_is_told_by_the_flag_that_says_it():
    with pytest.raises(ConfigError) as error:
        sized("memory.gpu=h20", "max_model_len=x")
    assert str(error.value) == (
        "--set max_model_len=x: max_model_len: a count must be a whole number, 16k (16,000) or 16K (16,384), got 'x'\n"
        "--set memory.gpu=h20: unknown GPU 'h20'; did you mean 'h200'?")
