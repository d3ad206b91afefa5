"""When a run begins to count, when it ends, and what lies between its steps."""

import pytest
from examples import blocks_of, regions_of

from pagesim.engine.result import Column


def test_no_step_starts_at_the_end_that_was_given(play):
    outcome = play(blocks_of([(4, 9)], 4, until_s=3.0))
    assert [view.start_s for view in outcome.views] == [0, 1, 2]
    assert outcome.status == ["unfinished"]
    assert len(play(blocks_of([(4, 9)], 4, until_s=3.5)).views) == 4


def test_a_request_that_arrives_at_the_end_or_later_is_unfinished_and_is_not_rejected(play):
    outcome = play(blocks_of([(4, 1), (4000, 1, 3)], 4, until_s=3.0))
    assert outcome.status == ["completed", "unfinished"]
    outcome = play(blocks_of([(4, 1), (4000, 1, 3)], 4, until_s=3.5))
    assert outcome.status == ["completed", "exceeds_memory"]


def test_sums_begin_with_the_first_step_at_or_after_the_warm_up(play):
    outcome = play(blocks_of([(4, 5)], 4, warmup_s=3.0))
    assert outcome.counters["steps"] == 2
    assert outcome.integrals["run", Column.TIME] == 2
    assert (outcome.counters["prefill_tokens"], outcome.counters["decode_tokens"]) == (0, 2)
    assert (outcome.peaks["step"], outcome.peaks["time_s"]) == (4, 4)


def test_a_run_shorter_than_its_warm_up_has_counted_nothing(play):
    outcome = play(blocks_of([(4, 5)], 4, warmup_s=5.0))
    assert outcome.status == ["completed"]
    assert set(outcome.counters.values()) == {0}
    assert outcome.integrals["run", Column.TIME] == 0
    assert outcome.peaks["step"] == -1


def test_the_time_between_steps_is_idle_and_belongs_to_the_run_alone(play):
    outcome = play(blocks_of([(4, 1), (4, 1, 5)], 4))
    assert [view.start_s for view in outcome.views] == [0, 5]
    assert outcome.integrals["run", Column.TIME] == 6
    assert outcome.integrals["busy", Column.TIME] == 2
    assert outcome.integrals["run", Column.IDLE] == 2 * 48 + 4 * 64


def test_the_gap_before_the_first_step_after_the_warm_up_is_not_counted(play):
    outcome = play(blocks_of([(4, 1), (4, 1, 5)], 4, warmup_s=3.0))
    assert outcome.integrals["run", Column.TIME] == 1


def test_a_request_that_is_rejected_after_the_last_step_adds_no_time(play):
    outcome = play(blocks_of([(4, 1), (4000, 1, 9)], 4))
    assert outcome.status == ["completed", "exceeds_memory"]
    assert outcome.integrals["run", Column.TIME] == 1


def test_the_run_begins_with_the_first_arrival_also_where_that_is_rejected(play):
    outcome = play(regions_of([(4096, 1), (4, 1, 100)], "first_fit", 16))
    assert outcome.status == ["exceeds_max_model_len", "completed"]
    assert outcome.integrals["run", Column.TIME] == 101
    assert outcome.integrals["run", Column.IDLE] == 100 * 16 + 12
    assert outcome.integrals["busy", Column.TIME] == 1
    outcome = play(blocks_of([(4000, 1), (4000, 1, 3), (4, 2, 7)], 4, warmup_s=1.0))
    assert outcome.integrals["run", Column.TIME] == 2, "after a warm-up it begins with a step"


def test_a_run_without_a_step_lasts_no_time(play):
    assert play(blocks_of([(4000, 1), (4000, 1, 9)], 4)).integrals["run", Column.TIME] == 0
    assert play(blocks_of([(4000, 1), (4, 1, 9)], 4, until_s=5.0)).integrals["run", Column.TIME] == 0


def test_requests_that_arrive_together_keep_the_order_of_the_file(play):
    outcome = play(blocks_of([(4, 2, 1), (8, 2, 1), (2, 2, 1)], 9, max_num_seqs=2))
    assert list(outcome.views[0].stored) == [0, 1]
    assert outcome.first_scheduled_s == [1, 1, 3]


def test_a_request_that_arrives_within_a_step_joins_at_the_next(play):
    outcome = play(blocks_of([(4, 3), (4, 1, 0.5), (4, 1, 1), (4, 1, 1.0001)], 9))
    assert outcome.first_scheduled_s == [0, 1, 1, 2]


def test_in_a_closed_loop_the_next_row_comes_when_one_leaves(play):
    outcome = play(blocks_of([(4, 3), (4, 1), (4000, 1), (4, 1)], 9, closed_users=2))
    assert outcome.first_scheduled_s[:2] == [0, 0]
    assert outcome.status[2] == "exceeds_memory"
    assert outcome.first_scheduled_s[3] == 2, "row 2 is rejected in the step from 1 to 2"


@pytest.mark.parametrize("allocator", ("paged", "contiguous"))
def test_the_saturated_window_is_where_the_head_is_refused_not_where_the_batch_is_full(play, allocator):
    rows = [(4, 3), (4, 3), (4, 3)]
    make = (lambda **rest: blocks_of(rows, 20, 4, **rest)) if allocator == "paged" else (
        lambda **rest: regions_of(rows, "first_fit", 80, **rest))
    outcome = play(make(max_num_seqs=2))
    assert outcome.integrals["queued", Column.TIME] == 3
    assert outcome.integrals["saturated", Column.TIME] == 0


def test_a_head_that_needs_only_its_first_chunk_is_tried_for_that_alone(play):
    rows = [(1, 4), (5, 1)]
    whole = play(blocks_of(rows, 6, 1, max_num_seqs=1, max_num_batched_tokens=2))
    chunk = play(blocks_of(rows, 6, 1, max_num_seqs=1, max_num_batched_tokens=2, reserve_full_isl=False))
    assert whole.integrals["queued", Column.TIME] == chunk.integrals["queued", Column.TIME] == 4
    assert whole.integrals["saturated", Column.TIME] == 3, "5 blocks are free in the first step only"
    assert chunk.integrals["saturated", Column.TIME] == 0
