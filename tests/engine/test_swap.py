"""Preemption that keeps what is stored: victims move to host memory and come back."""

from examples import blocks_of, regions_of
from simulators import by_engine

from pagesim.engine.durations import Linear

STORM = [(8, 4), (8, 4)]      # each ends with 11 tokens: 3 blocks of 4, and both together have 5


def test_a_victim_keeps_its_tokens_and_goes_on_where_it_was(play):
    outcome = play(blocks_of(STORM, 5, 4, preemption="swap"))
    assert [view.stored for view in outcome.views] == [
        {0: 8, 1: 8}, {0: 9}, {0: 10}, {0: 11}, {1: 9}, {1: 10}, {1: 11}]
    assert outcome.counters["swapped_blocks"] == 4, "two out and two in"
    assert outcome.counters["recomputed_tokens"] == 0
    assert outcome.counters["prefill_tokens"] == 16
    assert outcome.counters["decode_tokens"] == 6


def test_a_victim_without_swap_computes_its_tokens_again(play):
    outcome = play(blocks_of(STORM, 5, 4))
    assert outcome.views[4].stored == {1: 9}
    assert outcome.counters["recomputed_tokens"] == 8
    assert outcome.counters["prefill_tokens"] == 16 + 9
    assert outcome.counters["decode_tokens"] == 5


def test_the_steps_of_a_swap_last_longer_by_the_slots_moved(play):
    outcome = play(blocks_of(STORM, 5, 4, preemption="swap", swap_s_per_slot=0.25))
    assert [view.duration_s for view in outcome.views] == [1, 3, 1, 1, 3, 1, 1]


def test_used_blocks_after_swapping_out_and_in_are_what_they_were(play):
    outcome = play(blocks_of([(8, 4), (20, 2)], 7, 4, preemption="swap"))
    assert outcome.views[0].memory[1] == [2, 3, 4, 5, 6]
    assert outcome.views[1].memory == {0: [0, 1, 6]}, "5 blocks went out, last block first"
    back = next(view for view in outcome.views if view.stored.get(1) == 21)
    assert len(back.memory[1]) == 6 and outcome.counters["swapped_blocks"] == 10


def test_a_victim_that_the_host_has_no_room_for_recomputes(play):
    outcome = play(blocks_of(STORM, 5, 4, preemption="swap", swap_slots=7))
    assert outcome.counters["swap_fallbacks"] == 1
    assert outcome.counters["swapped_blocks"] == 0
    assert outcome.counters["recomputed_tokens"] == 8


def test_a_region_moves_slot_by_slot_and_comes_back_with_what_it_knows(play):
    outcome = play(regions_of([(4, 2), (4, 2)], "first_fit", 8, reserve="grow", preemption="swap", durations=Linear(1.0),
                              swap_s_per_slot=0.5))
    assert outcome.counters["swapped_blocks"] == 8
    assert [view.duration_s for view in outcome.views] == [1, 3, 3]
    assert outcome.views[2].memory == {1: [0, 1, 2, 3, 4]}
    assert outcome.counters["decode_tokens"] == 2


def test_a_victim_that_holds_nothing_yet_is_no_fallback():
    """The second sample got no token of the first chunk: it has no block to move when it is preempted.

    So far the engine alone takes samples for sequences of their own; the oracle preempts them together.
    """
    outcome = by_engine(blocks_of([(1, 4), (1, 3)], 4, 1, num_samples=[1, 2], max_num_batched_tokens=2, preemption="swap"))
    assert outcome.views[2].preemptions == 2
    assert outcome.counters["swap_fallbacks"] == outcome.counters["recomputed_tokens"] == 0
    assert outcome.status == ["completed"] * 2


def test_the_last_token_of_a_prompt_is_prefill_even_where_it_comes_after_a_swap(play):
    outcome = play(blocks_of([(1, 3), (3, 1)], 3, 1, max_num_batched_tokens=3, reserve_full_isl=False, preemption="swap"))
    assert [view.stored for view in outcome.views] == [{0: 1, 1: 2}, {0: 2}, {0: 3}, {1: 3}]
    assert (outcome.counters["prefill_tokens"], outcome.counters["decode_tokens"]) == (4, 2)
