"""Which sequences of simulated steps are taken, and that their tables stay what they were but for the blocks' numbers."""

import numpy as np

from pagesim.core.blocktables import from_rows
from pagesim.kernels.harness.choice import choose

ROWS = [[7, 2], [5], [9, 1, 0], [3], [8, 4]]
LENGTHS = [6, 4, 11, 2, 8]


def test_few_sequences_are_taken_as_they_are():
    step = from_rows(ROWS, LENGTHS, 4, 10)
    chosen, places = choose([step], 5)
    assert chosen == [step] and places == [[0, 1, 2, 3, 4]]


def test_of_one_step_they_are_spread_evenly_in_a_pool_no_larger_than_they_need():
    (taken,), places = choose([from_rows(ROWS, LENGTHS, 4, 10)], 3)
    assert places == [[0, 2, 4]] and taken.lengths.tolist() == [6, 11, 8]
    assert taken.num_blocks == len(set(taken.block_ids.tolist())) == 7
    # Renumbered in order: a table's blocks lie to each other as before.
    before = np.concatenate([ROWS[place] for place in (0, 2, 4)])
    assert (np.argsort(before) == np.argsort(taken.block_ids)).all()


def test_the_sequence_of_an_entry_and_its_neighbour_are_among_them():
    _, places = choose([from_rows(ROWS, LENGTHS, 4, 10)], 2, entry=(3, 0))
    assert places == [[0, 3, 4]]


def test_of_several_steps_the_first_of_each_are_taken():
    steps = [from_rows(ROWS, LENGTHS, 4, 10), from_rows(ROWS[:2], LENGTHS[:2], 4, 10)]
    taken, places = choose(steps, 3)
    assert places == [[0, 1, 2], [0, 1]] and [step.num_seqs for step in taken] == [3, 2]
    assert (taken[0].table(0) == taken[1].table(0)).all()
