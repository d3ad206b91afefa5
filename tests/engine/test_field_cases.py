"""What went wrong in other KV managers and simulators, each with the right answer.  The law first, then the example."""

import math

import pytest
from examples import blocks_of, region, regions_of
from hypothesis import given, settings
from strategies import paged, setups

from pagesim.engine.result import Column
from pagesim.engine.run import Run, simulate

# ------------------------------------------------------------------------------------------------------- block arithmetic


@pytest.mark.parametrize("block_size", [1, 2, 3, 16, 63, 64])
def test_a_prompt_takes_the_fewest_blocks_that_hold_it(play, block_size):
    for tokens in {1, block_size - 1, block_size, block_size + 1, 3 * block_size} - {0}:
        view = play(blocks_of([(tokens, 1)], 4, block_size)).views[0]
        assert len(view.memory[0]) == math.ceil(tokens / block_size)


def test_at_every_step_a_sequence_owns_the_blocks_of_its_stored_tokens(play):
    for view in play(blocks_of([(10, 30), (3, 5), (40, 2)], 8, max_num_batched_tokens=16)).views:
        assert {r: len(table) for r, table in view.memory.items()} == {
            r: math.ceil(stored / 16) for r, stored in view.stored.items()}


def test_filling_the_last_slot_of_a_block_does_not_take_the_next(play):
    outcome = play(blocks_of([(10, 8)], 2))
    assert [(view.stored[0], len(view.memory[0])) for view in outcome.views] == [
        (10, 1), (11, 1), (12, 1), (13, 1), (14, 1), (15, 1), (16, 1), (17, 2)]


@pytest.mark.parametrize(("requests", "budget", "tables"), [
    ([(19, 1)], 15, [1, 2]),              # 15, then 4 more: one new block
    ([(1, 1), (33, 1)], 17, [1, 3]),      # 16, then 17 more: two
    ([(32, 1)], 16, [1, 2]),              # 16, then 16 more: one
])
def test_a_step_that_adds_several_tokens_takes_all_their_blocks(play, requests, budget, tables):
    outcome = play(blocks_of(requests, 8, max_num_batched_tokens=budget))
    assert [len(view.memory[len(requests) - 1]) for view in outcome.views] == tables


def test_a_request_never_takes_more_blocks_than_the_model_length_allows(play):
    outcome = play(blocks_of([(2000, 50)], 200, max_model_len=2050))
    assert outcome.peaks["allocated"] == 129 * 16


def test_seventeen_tokens_in_blocks_of_eight_are_three_blocks(play):
    assert len(play(blocks_of([(17, 1)], 9, 8)).views[0].memory[0]) == 3


def test_a_pool_of_two_to_the_31_blocks_costs_no_list_of_that_size():
    result = simulate(blocks_of([(100, 3)], 2**31))
    assert result.num_blocks == 2**31
    assert result.integrals[0, Column.IDLE] == pytest.approx(3 * (2**35 - 7 * 16), rel=1e-15)


# --------------------------------------------------------------------------------------------------- never fits, never ends


def test_a_prompt_larger_than_the_pool_is_rejected_and_holds_nobody_up(play):
    outcome = play(blocks_of([(912 - 15, 4), (16, 4)], 50))
    assert outcome.status == ["exceeds_memory", "completed"]
    assert outcome.first_scheduled_s[1] == 0


def test_a_request_that_could_start_but_never_end_is_rejected(play):
    outcome = play(blocks_of([(8, 4)], 2, 4))
    assert outcome.status == ["exceeds_memory"]
    assert outcome.views == []


def test_a_watermark_of_one_block_keeps_a_request_of_the_whole_pool_until_nothing_runs(play):
    outcome = play(blocks_of([(16, 3), (1600, 1)], 100, watermark=0.01))
    assert outcome.first_scheduled_s[1] == 3
    assert outcome.status[1] == "completed"


@pytest.mark.parametrize(("num_blocks", "kept_back"), [(50, 0), (99, 1), (100, 1)])
def test_the_watermark_is_a_share_of_the_blocks_and_one_rounded_down(play, num_blocks, kept_back):
    fits = 16 * (num_blocks - 1 - kept_back)
    made = [(16, 1), (fits, 1), (1, 1)]
    outcome = play(blocks_of(made, num_blocks, watermark=0.01))
    assert outcome.first_scheduled_s == [0, 0, 1]
    larger = play(blocks_of([(16, 1), (fits + 1, 1)], num_blocks, watermark=0.01))
    assert larger.first_scheduled_s == [0, 1]


def test_a_running_sequence_may_take_the_last_block_below_the_watermark(play):
    outcome = play(blocks_of([(16 * 99, 17)], 100, watermark=0.01))
    assert outcome.peaks["allocated"] == 1600
    assert outcome.counters["preemptions"] == 0


def test_a_victim_is_not_served_in_the_step_that_evicted_it(play):
    outcome = play(blocks_of([(300, 100)] * 5, 60))
    assert outcome.status == ["completed"] * 5
    assert outcome.counters["preemptions"] > 0
    for before, view in zip(outcome.views, outcome.views[1:]):
        gone = set(before.stored) - set(view.stored)
        assert len(view.stored) + view.waiting <= 5
        if view.preemptions:
            assert len(gone) >= view.preemptions and not set(view.stored) - set(before.stored)


def test_the_oldest_running_request_ends_without_being_preempted(play):
    outcome = play(blocks_of([(24, 40)] * 5, 5))
    assert outcome.status == ["completed"] * 5
    assert outcome.finish_s[0] == 40


def test_a_request_that_does_not_fit_stops_the_smaller_one_behind_it(play):
    outcome = play(blocks_of([(7 * 16, 3), (5 * 16, 1), (1, 1)], 10))
    assert outcome.first_scheduled_s == [0, 3, 3]
    assert [view.waiting for view in outcome.views] == [2, 2, 2, 0]


# -------------------------------------------------------------------------------------------- preemption, taking, freeing


def test_a_batch_of_one_whose_prompt_fills_its_block_completes(play):
    outcome = play(blocks_of([(16, 5)], 2))
    assert outcome.status == ["completed"]
    assert outcome.peaks["allocated"] == 2 * 16


def test_a_preempted_request_comes_back_before_one_that_never_ran(play):
    outcome = play(blocks_of([(8, 6), (8, 6), (4, 1, 1)], 5, 4))
    back = next(k for k, view in enumerate(outcome.views) if k > 1 and 1 in view.stored)
    assert outcome.first_scheduled_s[2] >= outcome.views[back].start_s


def test_a_refusal_takes_nothing(play):
    outcome = play(blocks_of([(4 * 16, 2), (5 * 16, 1)], 8))
    assert outcome.views[0].memory == {0: [0, 1, 2, 3]}
    assert outcome.views[0].parts["idle"] == 4 * 16
    assert outcome.views[1].memory == {0: [0, 1, 2, 3, 4]}


@settings(max_examples=100)
@given(setups(paged()))
def test_used_and_free_blocks_make_up_the_pool_at_every_instant(made):
    run = Run(made)
    while run.advance(max_steps=1):
        tables = run.tables()
        assert len(set(tables.block_ids.tolist())) == len(tables.block_ids), "no block has two owners"
        tables.validate()
    line = run.result().timeline
    unit = made.allocator.block_size
    assert (line.mean_parts.sum(axis=1) == made.capacity_slots).all()
    assert (line.max_allocated % unit == 0).all()


@pytest.mark.parametrize("block_size", [1, 2, 16, 256])
def test_when_a_run_is_over_the_next_one_in_the_pool_finds_all_of_it(play, block_size):
    """The last request takes the whole pool: a block that leaked would be missing."""
    crowd = [(30, 40), (200, 3), (7, 90), (256, 1), (1, 1)] * 3
    num_blocks = math.ceil(300 / block_size)
    outcome = play(blocks_of([*crowd, (num_blocks * block_size, 1)], num_blocks, block_size))
    assert set(outcome.status) == {"completed"}
    assert sorted(outcome.views[-1].memory[len(crowd)]) == list(range(num_blocks))


@settings(max_examples=100)
@given(setups())
def test_what_was_read_is_rejected_completed_or_unfinished(made):
    result = simulate(made)
    assert len(result.requests.status) == len(made.trace)
    if made.until_s is None:
        assert (result.requests.status != 0).all()


# ----------------------------------------------------------------------------------------------------------- contiguous


@pytest.mark.parametrize(("make", "allocated", "unused"), [
    (lambda rows: regions_of(rows, "first_fit", 200, reserve="max_model_len", max_model_len=100), 100, 0.81),
    (lambda rows: regions_of(rows, "first_fit", 200), 19, 0.0),
    (lambda rows: blocks_of(rows, 8), 32, 0.40625),
])
def test_at_its_end_a_request_of_10_and_10_stores_19_of_what_it_holds(play, make, allocated, unused):
    last = play(make([(10, 10)])).views[-1]
    assert (last.parts["token_states"], last.allocated) == (19, allocated)
    assert 1 - 19 / allocated == unused


@pytest.mark.parametrize(("max_model_len", "held"), [(32768, 1), (16384, 2), (8192, 5), (4096, 10), (2048, 20)])
def test_a_real_engines_memory_holds_so_many_requests_of_the_models_maximum(play, max_model_len, held):
    outcome = play(regions_of([(1, 1)] * 30, "first_fit", 2587 * 16, reserve="max_model_len", max_model_len=max_model_len))
    assert outcome.peaks["running"] == held


def test_a_region_of_exactly_the_arena_completes(play):
    assert play(regions_of([region(8, 3), region(8, 8)], "best_fit", 8)).finish_s == [3, 11]
