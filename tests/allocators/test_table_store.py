"""allocators/table_store.py, core/machine.py: tables take what they hold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagesim.allocators import Paged
from pagesim.allocators.table_store import SMALLEST, give_region, make_store, move, room, size_of, take_region
from pagesim.core import machine
from pagesim.engine.durations import Linear
from pagesim.engine.run import Run
from pagesim.engine.scheduling import Scheduling
from pagesim.engine.setup import Setup
from pagesim.errors import InputError
from pagesim.trace import Trace


@given(rows=st.integers(1, 6), longest=st.integers(1, 200), steps=st.lists(st.tuples(
    st.integers(0, 5), st.integers(0, 90)), max_size=60))
def test_tables_keep_what_they_hold_and_never_need_more_than_the_room(rows, longest, steps):
    in_all = 200
    store, held = make_store(rows, longest, in_all), {}
    for row, more in steps:
        row %= rows
        if row in held and more == 0:
            at, size, ids = held.pop(row)
            np.testing.assert_array_equal(store.entries[at:at + len(ids)], ids)
            give_region(store, at, size)
            continue
        at, size, ids = held.get(row, (0, 0, []))
        more = min(more, longest - len(ids), in_all - sum(len(each[2]) for each in held.values()))
        if more <= 0:
            continue
        new = size_of(len(ids) + more)
        if not ids:
            at = take_region(store, new)
        elif new > size:
            at = move(store, at, size, new)
        ids = [*ids, *(1000 * row + k for k in range(len(ids), len(ids) + more))]
        store.entries[at:at + len(ids)] = ids
        held[row] = at, max(size, new), ids
        assert at % 2**SMALLEST == 0 and at + 2 ** held[row][1] <= len(store.entries)
    for at, _, ids in held.values():
        np.testing.assert_array_equal(store.entries[at:at + len(ids)], ids)


def test_regions_of_each_size_need_at_most_twice_the_pool_however_long_a_table_may_be():
    rows, longest, pool = 400_000, 8010, 3_500_000
    sizes = size_of(longest) - SMALLEST
    assert room(rows, longest, pool) <= sizes * 2 * pool + (rows << SMALLEST) < rows * longest / 40


def run_of(prompt, output, capacity_slots, max_model_len, seqs, block_size=1):
    trace = Trace(np.zeros(len(prompt), np.int64), np.array(prompt, np.int32), np.array(output, np.int32))
    return Run(Setup(trace, Paged(block_size), capacity_slots, max_model_len, Scheduling(seqs, 2 * max_model_len), Linear(0.03)))


def test_four_hundred_thousand_short_requests_beside_a_long_one_can_begin():
    run_of([5] * 400_000 + [8000], [3] * 400_000 + [11], 10_000_000, 9000, 10**6)


@pytest.mark.parametrize(("prompt", "output", "block_size", "advice"), [
    (2 * 10**9, 2, 1, "keeping the tables of 2,000,000,001 blocks can take 37.25 GiB .* a larger block_size"),
    (5, 2 * 10**9, 64, "looking 2,000,000,002 steps ahead can take 32.00 GiB .* a lower max_model_len")])
def test_what_the_machine_cannot_hold_is_refused_with_what_helps(monkeypatch, prompt, output, block_size, advice):
    monkeypatch.setattr(machine, "available_bytes", lambda: 30 * 2**30)
    with pytest.raises(InputError, match=advice):
        run_of([prompt], [output], 2_100_000_000, 2_100_000_000, 1, block_size)


def test_a_system_that_does_not_tell_its_memory_refuses_nothing(monkeypatch):
    monkeypatch.setattr(machine, "available_bytes", lambda: None)
    machine.refuse_more_than_there_is(2**60, "this", "that")
