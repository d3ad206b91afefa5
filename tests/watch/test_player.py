import numpy as np
import pytest
from games import player, seen_at

from pagesim.allocators import Contiguous, Paged
from pagesim.core.ledger import PARTS


def parts(view) -> dict[str, int]:
    return dict(zip(PARTS, view.parts_slots.tolist()))


@pytest.mark.parametrize("allocator", [Contiguous("exact"), Paged(16), Paged(5)])
def test_at_any_time_the_ledger_sums_to_the_capacity_and_tells_of_the_same_memory(allocator):
    play = player(allocator)
    for time_s in np.arange(0, 40, 0.7):
        view = seen_at(play, time_s)
        assert view.parts_slots.sum() == 64
        assert view.stored.sum() == parts(view)["token_states"]
        allocated = np.count_nonzero(view.owners >= 0) * view.unit_slots
        assert allocated == sum(view.parts_slots[:4])
        assert (view.stored[view.owners < 0] == 0).all()


def test_a_step_is_seen_until_it_ends():
    play = player()
    assert seen_at(play, 0.0).running == 4
    assert seen_at(play, 0.99).running == 4
    assert seen_at(play, 1.0).running == 2


def test_a_request_that_fits_no_hole_strands_the_free_memory():
    view = seen_at(player(), 1.0)
    assert (view.waiting, parts(view)["stranded"], parts(view)["idle"]) == (1, 32, 0)
    paged = seen_at(player(Paged(16)), 1.0)
    assert (paged.waiting, paged.running) == (0, 3)


def test_between_requests_memory_is_empty_and_the_next_step_is_announced():
    play = player()
    view = seen_at(play, 20.0)
    assert view.idle_until_s == 30.0 and not view.over
    assert parts(view)["idle"] == 64 and (view.owners == -1).all() and view.running == 0
    assert play.next_s() == 30.0
    assert seen_at(play, 30.0).idle_until_s is None


def test_a_run_that_is_over_stays_as_it_ended():
    view = seen_at(player(), 1e9)
    assert view.over and parts(view)["idle"] == 64
    assert (view.completed, view.rejected, view.arrived, view.num_requests) == (6, 1, 7, 7)


def test_a_run_in_which_every_request_is_rejected_is_over_at_once():
    view = seen_at(player(rows=((0, 90, 1), (2, 90, 1))), 5.0)
    assert view.over and view.rejected == 2 and parts(view)["idle"] == 64


def test_a_run_cut_off_in_time_ends_with_its_memory_in_use():
    view = seen_at(player(rows=((0, 16, 9),), until_s=2.5), 50.0)
    assert view.over and view.running == 1 and parts(view)["token_states"] == 18


def test_slots_outside_any_block_are_the_remainder_also_when_nothing_runs():
    assert parts(seen_at(player(Paged(5)), 20.0)) == dict.fromkeys(PARTS, 0) | {"idle": 60, "remainder": 4}


def test_events_name_who_came_and_went():
    play = player()
    seen_at(play, 0.0)
    assert seen_at(play, 1.0).events == (
        "↓ 4 requests arrived at 0.00 s", "+ 4 requests admitted at 0.00 s",
        "↓ request 4 arrived at 1.00 s", "✓ requests 0, 2 done at 1.00 s")


def test_a_preempted_request_is_told_from_one_that_is_done():
    play = player(Paged(16), rows=((0, 20, 21), (0, 20, 21), (1, 20, 21)), slots=96)
    events = []
    for time_s in range(60):
        events += [event for event in seen_at(play, float(time_s)).events if event not in events]
    assert any(event.startswith("↺ request 2 preempted") for event in events)
    assert seen_at(play, 60.0).preempted == sum(event.startswith("↺") for event in events)


def test_too_few_steps_for_the_time_are_admitted_and_leave_the_clock_behind():
    play = player()
    assert not play.advance_to(9.5, most_steps=3)
    assert play.reached_s() < 9.5
    assert play.advance_to(9.5, most_steps=20)
    assert play.reached_s() == 9.5
