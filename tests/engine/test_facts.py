"""The worked examples of textbooks and papers, in block ids and addresses."""

import pytest
from examples import blocks_of, region, regions_of

from pagesim.engine.result import Column


def test_fifty_tokens_take_four_blocks_of_sixteen(play):
    view = play(blocks_of([(50, 1)], 8)).views[0]
    assert view.memory == {0: [0, 1, 2, 3]}
    assert view.parts["token_states"] == 50
    assert view.parts["overreserved"] == 4 * 16 - 50


def test_2048_tokens_take_128_blocks_of_sixteen(play):
    assert len(play(blocks_of([(2048, 1)], 200)).views[0].memory[0]) == 128


def test_a_table_is_in_logical_order_however_scattered_its_blocks_are(play):
    outcome = play(blocks_of([(5, 1), (4, 2), (8, 1), (3, 4), (16, 1, 1)], 9, 4, reuse="lifo"))
    assert outcome.views[0].memory == {0: [0, 1], 1: [2], 2: [3, 4], 3: [5]}
    assert outcome.views[1].memory == {1: [2, 4], 3: [5], 4: [3, 1, 0, 6]}, "the last block of the last to end comes first"


def test_fifo_hands_freed_blocks_out_last(play):
    outcome = play(blocks_of([(5, 1), (4, 2), (8, 1), (3, 4), (16, 1, 1)], 9, 4, reuse="fifo"))
    assert outcome.views[1].memory == {1: [2, 6], 3: [5], 4: [7, 8, 1, 0]}


HOLES = (512, 256, 1024, 768, 1024)


def around_holes(placement: str = "first_fit"):
    """Regions of 512, 256, 1024, 768 and 1024 slots end after one step; those between them stay; 1536 slots are wanted."""
    rows = []
    for slots in HOLES:
        rows += [region(slots, 1), region(2, 2)]
    return regions_of([*rows, region(1536, 1, 1)], placement, sum(HOLES) + 2 * len(HOLES))


def test_enough_free_memory_in_holes_too_small_is_external_fragmentation(play):
    outcome = play(around_holes())
    view = outcome.views[1]
    assert (view.waiting, view.parts["stranded"], view.parts["idle"]) == (1, 3584, 0)
    assert outcome.mean(Column.LARGEST_HOLE, "saturated") == pytest.approx(1 - 1024 / 3584)
    assert round(outcome.mean(Column.LARGEST_HOLE, "saturated"), 3) == 0.714
    assert outcome.mean(Column.UNUSABLE, "saturated") == 1.0
    assert outcome.integrals["busy", Column.EXTFRAG] / outcome.integrals["busy", Column.EXTFRAG_TIME] == 334
    assert outcome.integrals["busy", Column.BLOCKED_TIME] == 1
    assert outcome.first_scheduled_s[-1] == 2, "as soon as the regions between are gone"


def test_paging_places_the_same_request_at_once(play):
    rows = []
    for slots in HOLES:
        rows += [region(slots, 1), region(2, 2)]
    outcome = play(blocks_of([*rows, region(1536, 1, 1)], sum(HOLES) // 16 + len(HOLES)))
    assert outcome.first_scheduled_s[-1] == 1
    assert all(view.parts["stranded"] == 0 for view in outcome.views)


def test_2048_slots_reserved_for_200_tokens_leave_1848_unused(play):
    last = play(regions_of([(191, 10)], "first_fit", 2048, reserve="max_model_len", max_model_len=2048)).views[-1]
    assert (last.parts["token_states"], last.parts["overreserved"]) == (200, 1848)
    assert last.parts["overreserved"] / last.allocated == pytest.approx(0.9, abs=0.01)


def test_scattered_free_blocks_serve_where_scattered_free_slots_fail(play):
    """A, B, C and D fill the memory; A and C end, and E wants what both had."""
    rows = [region(16, 1), region(16, 9), region(16, 1), region(16, 9), region(32, 1, 1)]
    paged = play(blocks_of(rows, 4))
    assert paged.views[1].memory == {1: [1], 3: [3], 4: [2, 0]}
    contiguous = play(regions_of(rows, "first_fit", 64))
    assert contiguous.views[1].parts["stranded"] == 32
    assert contiguous.first_scheduled_s[4] == 9


def test_orca_with_the_models_maximum_holds_seven_and_strands_the_rest(play):
    outcome = play(regions_of([(161, 338)] * 8, "buddy", 15728, reserve="max_model_len", max_model_len=2048))
    view = outcome.views[0]
    assert len(view.memory) == 7
    assert view.parts["idle"] == 15728 - 7 * 2048, "all of it is less than one request asks for: nothing is stranded"
    assert round(100 * view.parts["idle"] / 15728, 2) == 8.85


def test_orca_with_powers_of_two_reserves_32_for_an_output_of_25(play):
    view = play(regions_of([(10, 25)], "first_fit", 64, reserve="pow2")).views[0]
    assert view.allocated == 10 + 32
    assert (view.parts["token_states"], view.parts["reserved"], view.parts["overreserved"]) == (10, 24, 8)
