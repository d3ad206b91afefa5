"""Where regions lie, in addresses."""

import pytest
from examples import region, regions_of

from pagesim.engine.result import Column

# Regions of 5, 2, 3, 2, 4 and 2 slots; those of 5, 3 and 4 end after the first step.  From second 1 on the holes are
# [0, 5) [7, 10) [12, 16) and the tail [18, 24).
HOLES = [region(5, 1), region(2, 2), region(3, 1), region(2, 2), region(4, 1), region(2, 2)]
LINEAR_PLACEMENTS = ("first_fit", "next_fit", "best_fit", "worst_fit")


def starts(outcome, step: int, *requests: int) -> list[int]:
    return [outcome.views[step].starts[request] for request in requests]


@pytest.mark.parametrize("placement", LINEAR_PLACEMENTS)
def test_an_empty_arena_is_filled_from_address_zero(play, placement):
    outcome = play(regions_of(HOLES, placement, 24))
    assert starts(outcome, 0, 0, 1, 2, 3, 4, 5) == [0, 5, 7, 10, 12, 16]


@pytest.mark.parametrize(("placement", "slots", "start"), [
    ("first_fit", 3, 0), ("best_fit", 3, 7), ("worst_fit", 3, 18), ("next_fit", 3, 18),
    ("first_fit", 4, 0), ("best_fit", 4, 12), ("worst_fit", 4, 18), ("next_fit", 4, 18),
    ("first_fit", 6, 18), ("best_fit", 6, 18), ("worst_fit", 6, 18), ("next_fit", 6, 18),
])
def test_each_placement_takes_the_low_end_of_its_hole(play, placement, slots, start):
    outcome = play(regions_of([*HOLES, region(slots, 1, 1)], placement, 24))
    assert starts(outcome, 1, 6) == [start]


@pytest.mark.parametrize("placement", LINEAR_PLACEMENTS)
def test_a_hole_of_exactly_the_size_is_accepted(play, placement):
    outcome = play(regions_of([region(5, 1), region(3, 3), region(5, 1, 1)], placement, 8))
    assert starts(outcome, 1, 1, 2) == [5, 0]
    assert outcome.finish_s[2] == 2


def test_best_fit_takes_the_lower_of_two_holes_of_one_size(play):
    made = [region(3, 1), region(2, 2), region(3, 1), region(2, 2), region(3, 1, 1)]
    assert starts(play(regions_of(made, "best_fit", 14)), 1, 4) == [0]


def test_worst_fit_takes_the_lower_of_two_holes_of_one_size(play):
    made = [region(4, 1), region(2, 2), region(4, 1), region(2, 2), region(3, 1, 1)]
    assert starts(play(regions_of(made, "worst_fit", 12)), 1, 4) == [0]


def test_next_fit_goes_on_where_it_placed_last_and_wraps(play):
    made = [*HOLES, region(3, 1, 1), region(4, 1, 1), region(3, 1, 1)]
    assert starts(play(regions_of(made, "next_fit", 24)), 1, 6, 7, 8) == [18, 0, 7]


def test_next_fit_comes_to_a_hole_that_began_before_its_mark_only_by_wrapping(play):
    made = [region(4, 1), region(4, 2), region(2, 1, 1), region(3, 1, 2)]
    outcome = play(regions_of(made, "next_fit", 12))
    assert starts(outcome, 1, 1, 2) == [4, 8]
    assert starts(outcome, 2, 3) == [0], "all is one hole now; it begins before address 10"


@pytest.mark.parametrize("placement", LINEAR_PLACEMENTS)
@pytest.mark.parametrize("lives", [(1, 2, 1), (2, 1, 1), (1, 1, 2), (1, 1, 1)])
def test_neighbours_that_become_free_are_one_hole_in_whatever_order(play, placement, lives):
    made = [region(3, life) for life in lives] + [region(4, 4), region(9, 1, 2)]
    outcome = play(regions_of(made, placement, 13))
    assert starts(outcome, 2, 4) == [0]


# ----------------------------------------------------------------------------------------------------------------- buddy


def test_buddy_cuts_the_arena_into_descending_powers_of_two(play):
    asked = [5000, 3000, 2000, 1000, 250, 60, 30, 16]
    outcome = play(regions_of([region(slots, 1) for slots in asked], "buddy", 15728, max_model_len=8192))
    view = outcome.views[0]
    assert list(view.starts.values()) == [0, 8192, 12288, 14336, 15360, 15616, 15680, 15712]
    assert view.allocated == 15728
    assert view.parts["rounding"] == 15728 - sum(asked)
    assert view.parts["idle"] == 0


def test_buddy_never_merges_above_the_pieces_it_was_cut_into(play):
    outcome = play(regions_of([region(4096, 1), region(4097, 1), region(8193, 1)], "buddy", 15728, max_model_len=9000))
    assert outcome.status == ["completed", "completed", "exceeds_memory"]


def test_buddy_takes_the_smallest_piece_and_splits_off_the_lower_half(play):
    outcome = play(regions_of([region(3, 1), region(2, 1), region(1, 1), region(4, 1)], "buddy", 16))
    assert list(outcome.views[0].starts.values()) == [0, 4, 6, 8]
    assert outcome.views[0].allocated == 4 + 2 + 1 + 4
    assert outcome.views[0].parts["rounding"] == 1


def test_buddy_prefers_a_small_piece_at_a_high_address_over_splitting(play):
    outcome = play(regions_of([region(2, 1), region(4, 1)], "buddy", 14))
    assert list(outcome.views[0].starts.values()) == [12, 8]


def test_buddies_merge_when_both_are_free(play):
    made = [region(4, 1), region(4, 2), region(4, 2), region(4, 1), region(8, 1, 1), region(16, 1, 2)]
    outcome = play(regions_of(made, "buddy", 16))
    assert outcome.views[1].waiting == 1, "[0, 4) and [12, 16) are free, and are no buddies"
    assert outcome.views[1].parts["stranded"] == 8
    assert starts(outcome, 2, 4) == [0]
    assert starts(outcome, 3, 5) == [0]


def test_two_free_neighbours_that_are_no_buddies_stay_two_holes(play):
    made = [region(4, 2), region(4, 1), region(4, 1), region(4, 2), region(8, 1, 1)]
    outcome = play(regions_of(made, "buddy", 16))
    assert outcome.views[1].parts["stranded"] == 8
    assert outcome.integrals["saturated", Column.TIME] == 1
    assert outcome.mean(Column.LARGEST_HOLE, "saturated") == 0.5
    assert outcome.mean(Column.UNUSABLE, "saturated") == 1


def test_a_sequence_alone_that_rounds_beyond_the_arena_is_rejected(play):
    outcome = play(regions_of([region(5, 1), region(8, 1)], "buddy", 7))
    assert outcome.status == ["exceeds_memory", "exceeds_memory"]
    assert play(regions_of([region(5, 1)], "first_fit", 7)).status == ["completed"]
