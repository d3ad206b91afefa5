"""Beams that continue one another, and the numbers that say so."""

import math

from strategies import setup

from oracle.beams import Sharing, mixed, parent_of, word
from oracle.run import OracleRun
from pagesim.allocators import Paged
from pagesim.engine.durations import Linear
from pagesim.engine.result import Column
from pagesim.engine.scheduling import Scheduling


def beams_run(prompt: int, output: int, width: int, sharing: Sharing, num_blocks: int = 60, rows: int = 1, **scheduling):
    return OracleRun(setup(
        [prompt] * rows, [output] * rows, beam_width=[width] * rows, allocator=Paged(4), capacity_slots=num_blocks * 4,
        max_model_len=256, scheduling=Scheduling(**scheduling), durations=Linear(1.0)), sharing)


def test_the_mixer_is_splitmix64():
    """The first outputs of the published generator from state 0."""
    assert mixed(0) == 0xE220A8397B1DCDAF
    assert mixed(0x9E3779B97F4A7C15) == 0x6E789E6AA1B965F4


def test_a_draw_depends_on_every_part_of_its_key_and_on_their_order():
    keys = [(1, 2, 3, 4, 0), (2, 2, 3, 4, 0), (1, 3, 3, 4, 0), (1, 2, 4, 4, 0), (1, 2, 3, 5, 0), (1, 2, 3, 4, 1),
            (2, 1, 3, 4, 0)]
    assert len({word(*key) for key in keys}) == len(keys)


def test_beams_are_replaced_as_often_as_the_rate_says_and_by_each_other_beam_alike():
    width, rate, steps = 4, 0.3, 20_000
    counts = [0] * width
    for step in range(steps):
        counts[parent_of(Sharing(rate, 7), 5, step, 1, width)] += 1
    deviation = math.sqrt(steps * rate * (1 - rate))
    assert abs(steps - counts[1] - steps * rate) < 4 * deviation
    assert all(abs(counts[other] - steps * rate / 3) < 4 * deviation for other in (0, 2, 3))


def test_no_beam_is_replaced_at_rate_0_and_every_one_at_rate_1():
    assert all(parent_of(Sharing(0.0, s), 1, s, 2, 4) == 2 for s in range(500))
    assert all(parent_of(Sharing(1.0, s), 1, s, 2, 4) != 2 for s in range(500))
    assert parent_of(Sharing(1.0), 0, 1, 0, 1) == 0


def test_beams_that_never_fork_are_parallel_samples():
    beams = beams_run(6, 9, 3, Sharing(0.0, 3))
    samples = OracleRun(setup([6], [9], num_samples=[3], allocator=Paged(4), capacity_slots=240, max_model_len=256,
                              scheduling=Scheduling(), durations=Linear(1.0)))
    assert beams.steps == samples.steps


def test_two_beams_that_always_fork_swap_their_histories():
    """Each continues the other: all tokens stay, the tables change sides, and nothing is copied but the prompt's end."""
    run = beams_run(6, 6, 2, Sharing(1.0))
    tables = [list(step.tables.values()) for step in run.steps[1:4]]
    assert tables == [[[0, 2], [0, 1]], [[0, 1], [0, 2]], [[0, 2, 3], [0, 1, 4]]]
    assert run.sums.sharing["copy_on_write"] == 1


def test_a_beam_that_dies_gives_back_what_no_other_owns_and_shares_its_parent_s_last_block_until_one_writes():
    """The seed is such that beam 1 is continued by both in the first step that can tell."""
    seed = next(s for s in range(1000)
                if [parent_of(Sharing(0.5, s), 0, step, beam, 2) for step in (1, 2) for beam in (0, 1)] == [0, 1, 1, 1])
    run = beams_run(6, 4, 2, Sharing(0.5, seed))
    assert run.steps[1].tables == {(0, 0): [0, 2], (0, 1): [0, 1]}
    # Beam 0 lets go of block 2, and gets it again for its copy of block 1.
    assert run.steps[2].tables == {(0, 0): [0, 2], (0, 1): [0, 1]}
    assert run.sums.counters["copied_tokens"] == 2 + 3
    first, second = run.requests[0]
    assert first.tokens[:8] == second.tokens[:8] and first.tokens[8] != second.tokens[8]


def test_more_forks_save_more_memory():
    saved = []
    for rate in (0.0, 0.1, 0.5):
        run = beams_run(20, 60, 4, Sharing(rate, 1), num_blocks=80)
        physical = sum(run.sums.integrals[1][Column.TOKEN_STATES:Column.ROUNDING])
        saved.append(1 - physical / 4 / run.sums.integrals[1][Column.LOGICAL_BLOCKS])
    assert saved[0] < saved[1] < saved[2]


def test_who_continues_whom_does_not_depend_on_what_else_runs():
    """The first group lives through the same forks in a memory for both and in one that preempts the second."""
    roomy, tight = beams_run(8, 12, 2, Sharing(0.4, 2), 40, rows=2), beams_run(8, 12, 2, Sharing(0.4, 2), 11, rows=2)
    assert roomy.preemptions == [0, 0] and tight.preemptions[0] == 0 < tight.preemptions[1]
    assert [s.tokens for s in roomy.requests[0]] == [s.tokens for s in tight.requests[0]]
