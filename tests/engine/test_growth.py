"""How a growing region gets larger, in addresses: in place, by a copy, by one slot, or not at all."""

import pytest
from examples import regions_of, run_of

from pagesim.allocators import Contiguous
from pagesim.engine.run import simulate
from pagesim.errors import InputError

FITS = ("first_fit", "next_fit", "best_fit", "worst_fit")


def grow(requests, placement, capacity_slots, **rest):
    return regions_of(requests, placement, capacity_slots, reserve="grow", **rest)


@pytest.mark.parametrize("placement", FITS)
def test_a_region_grows_in_place_by_half_where_the_hole_behind_suffices(play, placement):
    outcome = play(grow([(4, 7)], placement, 20))
    assert [view.allocated for view in outcome.views] == [4, 6, 6, 9, 9, 9, 14]
    assert {view.starts[0] for view in outcome.views} == {0}
    assert outcome.counters["copied_tokens"] == 0


def test_what_a_region_has_grown_beyond_its_end_is_overreserved(play):
    last = play(grow([(4, 7)], "first_fit", 20)).views[-1]
    assert last.parts == {"token_states": 10, "reserved": 0, "overreserved": 4, "rounding": 0, "cached": 0, "stranded": 0,
                          "idle": 6, "remainder": 0}


@pytest.mark.parametrize(("growth", "prompt", "slots"), [
    (1.1, 50, 55), (1.1, 10, 11), (1.1, 51, 57), (1.4, 5, 7), (1.15, 100, 115), (2.3, 10, 23), (1.000001, 1_000_000, 1_000_001),
    (1.99999999, 100_000_000, 199_999_999), (2, 7, 14)])
def test_a_region_grows_by_the_decimal_that_was_written_not_by_its_float(play, growth, prompt, slots):
    made = run_of([(prompt, 2)], Contiguous("grow", "first_fit", growth), 3 * prompt, 3 * prompt, max_num_batched_tokens=prompt)
    result = simulate(made)
    assert result.peaks.allocated == slots
    if prompt < 1000:
        assert play(made).peaks["allocated"] == slots


@pytest.mark.parametrize("growth", [1.3333333333333333, 1e300, 3e9, 1.0000000001])
def test_a_growth_of_too_many_digits_to_be_exact_is_refused(growth):
    with pytest.raises(InputError, match="growth must have at most nine digits"):
        Contiguous("grow", growth=growth)


def test_growth_stops_at_the_model_length(play):
    outcome = play(grow([(4, 7)], "first_fit", 20, max_model_len=11))
    assert [view.allocated for view in outcome.views] == [4, 6, 6, 9, 9, 9, 11]


@pytest.mark.parametrize("placement", FITS)
def test_a_region_that_cannot_grow_in_place_is_copied_and_its_old_slots_serve_at_once(play, placement):
    outcome = play(grow([(4, 2), (4, 2)], placement, 20))
    assert outcome.views[0].starts == {0: 0, 1: 4}
    assert outcome.views[1].starts == {0: 8, 1: 14}, "6 slots fit neither [0, 4) nor behind"
    assert outcome.views[1].allocated == 12
    assert outcome.counters["copied_tokens"] == 8


def test_a_region_that_was_freed_by_a_copy_serves_the_next_sequence_of_the_step(play):
    outcome = play(grow([(4, 2), (2, 2)], "best_fit", 12))
    assert outcome.views[0].starts == {0: 0, 1: 4}
    assert outcome.views[1].starts == {0: 6, 1: 0}, "request 1 asks for 3 slots and finds the 4 that request 0 left"


def test_where_half_more_does_not_fit_one_slot_more_may(play):
    outcome = play(grow([(4, 2)], "first_fit", 5))
    assert [view.allocated for view in outcome.views] == [4, 5]
    assert outcome.counters["failed_growths"] == 0
    assert outcome.status == ["completed"]


def test_a_failed_growth_is_counted_and_the_last_of_the_running_list_goes(play):
    outcome = play(grow([(4, 2), (4, 2)], "first_fit", 8))
    second = outcome.views[1]
    assert (second.preemptions, second.memory, second.waiting) == (1, {0: [0, 1, 2, 3, 4]}, 1)
    assert second.allocated == 6
    assert outcome.counters["failed_growths"] == 1
    assert outcome.counters["recomputed_tokens"] == 4
    assert outcome.views[2].memory == {1: [0, 1, 2, 3, 4]}, "a victim comes back asking for what it knows"
    assert outcome.finish_s == [2, 3]


def test_buddy_slack_is_not_grown_into(play):
    outcome = play(grow([(5, 2)], "buddy", 16))
    assert [view.starts[0] for view in outcome.views] == [0, 8]
    assert [view.allocated for view in outcome.views] == [8, 8]
    assert outcome.counters["copied_tokens"] == 5


def test_a_sequence_that_fails_alone_gives_itself_up_and_goes_on_after_an_empty_step(play):
    outcome = play(grow([(3, 4)], "buddy", 8, max_model_len=8))
    assert [view.memory for view in outcome.views] == [
        {0: [0, 1, 2]}, {0: [4, 5, 6, 7]}, {}, {0: [0, 1, 2, 3, 4]}, {}, {0: [0, 1, 2, 3, 4, 5]}]
    assert [view.waiting for view in outcome.views] == [0, 0, 1, 0, 1, 0]
    assert outcome.counters["failed_growths"] == outcome.counters["preemptions"] == 2
    assert outcome.status == ["completed"]
