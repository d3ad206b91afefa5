"""What ``allocators.contract`` asks is answered by every row of the table, under any order of calls."""

import ast
import copy
import inspect
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagesim.allocators import KINDS, contiguous, contract, paged
from pagesim.allocators.ask import Ask, Demand
from pagesim.core.ledger import NOBODY
from pagesim.trace import Trace

ROWS, MAX_MODEL_LEN, NO_LIMIT = 6, 40, 2**62
OF_A_SPEC = {"serves": ["spec"], "make": ["spec", "capacity_slots", "demand", "trace"], "name": ["spec"],
             "slots_of_a_unit": ["spec"], "swaps": ["spec"], "check": ["spec", "trace"]}
OF_ONE_THAT_SHARES, OF_ONE_THAT_DOES_NOT = {"evicted_blocks", "cached_units", "found"}, {"moves"}
TRACE = Trace(None, np.full(10_000, 20, np.int32), np.full(10_000, 20, np.int32))

SPECS = {
    "contiguous": st.builds(
        contiguous.Contiguous, st.sampled_from(contiguous.RESERVES), st.sampled_from(contiguous.PLACEMENTS),
        st.sampled_from([1.1, 1.5, 2.0])),
    "paged": st.builds(paged.Paged, st.sampled_from([1, 3, 4, 16]), st.sampled_from(get_args(paged.Reuse)),
                       st.sampled_from([0.0, 0.1])),
    "cached": st.builds(paged.Paged, st.sampled_from([1, 3, 4, 16]), st.sampled_from(get_args(paged.Reuse)),
                        st.sampled_from([0.0, 0.1]), st.just("vllm")),
    "radix": st.builds(paged.Paged, st.sampled_from([1, 3, 4, 16]), st.just("lifo"), st.sampled_from([0.0, 0.1]),
                       st.just("radix"), st.sampled_from(get_args(paged.Eviction))),
}


def test_every_row_of_the_table_is_tried_here():
    assert {kind.name for kind in KINDS} == SPECS.keys()


def asked_of_a_memory():
    tree = ast.parse(Path(contract.__file__).read_text())
    return {node.name: [each.arg for each in node.args.args] for node in tree.body
            if isinstance(node, ast.FunctionDef) and node.name not in ("tell_numba", "_choice")}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_module_answers_every_question_by_the_same_arguments(kind):
    for name, arguments in (asked_of_a_memory() | OF_A_SPEC).items():
        if name in (OF_ONE_THAT_DOES_NOT if kind.module.shares(None) else OF_ONE_THAT_SHARES):
            continue
        assert list(inspect.signature(getattr(kind.module, name)).parameters) == arguments, name


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_is_compiled_and_what_is_asked_from_python_are_all_that_is_asked(kind):
    compiled = {function.__name__ for function in contract._COMPILED}
    from_python = {"num_units", "ids", "histograms", "counters", *OF_ONE_THAT_SHARES, *OF_ONE_THAT_DOES_NOT}
    assert asked_of_a_memory().keys() == compiled | from_python and not compiled & from_python


class Rows:
    """A memory under the engine's rules: it is asked before it admits, and each request stores a token at a time."""

    def __init__(self, kind, spec, capacity_slots):
        self.capacity, self.memory = capacity_slots, kind.module.make(spec, capacity_slots, Demand(
            ROWS, MAX_MODEL_LEN, MAX_MODEL_LEN, 10_000 * MAX_MODEL_LEN, 10_000), TRACE)
        self.stored, self.final = {}, {}
        self.serial, self.owner = np.zeros(ROWS, np.int64), np.zeros(ROWS, np.int64)
        self.step = self.admissions = 0
        self.seen, self.owners = None, np.full(contract.num_units(self.memory), NOBODY)

    def admit(self, prompt, output, limit, copies):
        output = min(output, MAX_MODEL_LEN - prompt)
        ask = Ask(self.admissions, prompt, output, 0 if limit == 0 else max(limit, output), prompt, 0, 0, copies,
                  NO_LIMIT)
        unused = [row for row in range(ROWS) if row not in self.stored]
        if len(unused) < copies:
            return
        assert contract.stored_already(self.memory, ask) == 0  # nothing is equal in this trace
        before = copy.deepcopy(self.memory)
        fits, empty = contract.fits(self.memory, ask, len(self.stored)), contract.fits_empty(self.memory, ask)
        assert_same(self.memory, before)  # a question changes nothing
        if not empty:
            return  # the engine rejects it when it arrives, and never asks again
        assert fits or self.stored
        if not fits:
            return
        for row in unused[:copies]:
            contract.admit(self.memory, row, ask, prompt, self.step)
            self.admissions += 1
            self.serial[row], self.owner[row] = self.admissions, self.admissions
            self.stored[row], self.final[row] = prompt, prompt + output - 1
            least = contract.reservation(self.memory, ask)
            assert contract.asked_slots(self.memory, row) >= least >= prompt

    def grow(self, row, tokens):
        for _ in range(tokens):
            if self.stored.get(row, NO_LIMIT) < self.final.get(row, 0):
                self.store_one(row)

    def store_one(self, row):
        stored, room = self.stored[row], contract.room_tokens(self.memory, row)
        before = copy.deepcopy(self.memory)
        copied = contract.extend(self.memory, row, stored, stored + 1, self.step)
        if copied < 0:
            assert stored + 1 > room  # what it has room for is never refused
            without_counters(before), without_counters(self.memory)
            assert_same(self.memory, before)
            return
        assert copied in (0, stored)
        if stored + 1 <= room:
            assert copied == 0
            assert_same(self.memory, before)
        self.stored[row] += 1

    def release(self, row):
        if row in self.stored:
            contract.release(self.memory, row, self.stored[row], True, self.step)
            del self.stored[row], self.final[row]

    def check(self):
        memory, size = self.memory, contract.unit_slots(self.memory)
        allocated = {row: int(contract.allocated_slots(memory, row)) for row in range(ROWS)}
        assert contract.free_slots(memory) + sum(allocated.values()) + self.capacity % size == self.capacity
        held = [np.asarray(contract.ids(memory, row)) for row in range(ROWS)]
        assert [len(ids) * size for ids in held] == list(allocated.values())
        every = np.concatenate(held)
        assert len(np.unique(every)) == len(every)
        assert every.min(initial=0) >= 0 and every.max(initial=0) < contract.num_units(memory)
        for row in range(ROWS):
            asked, room = contract.asked_slots(memory, row), contract.room_tokens(memory, row)
            assert contract.units(memory, row) * size == allocated[row] >= asked
            assert self.stored.get(row, 0) <= room <= allocated[row]
            assert (allocated[row] > 0) == (row in self.stored)
        if contract.has_holes(memory):
            holes, largest, usable = contract.hole_stats(memory, 3)
            assert largest <= holes * largest and usable <= contract.free_slots(memory)

    def look(self):
        """``moves`` since the last look, applied to what was known then, is what is held now."""
        if contract.shares(self.memory):
            return
        gone, came, self.seen = contract.moves(self.memory, self.seen, self.serial.copy(), self.owner.copy())
        for first, count, owner in np.concatenate([gone, came]):
            self.owners[first:first + count] = owner
        expected = np.full(len(self.owners), NOBODY)
        for row in range(ROWS):
            expected[contract.ids(self.memory, row)] = self.owner[row]
        np.testing.assert_array_equal(self.owners, expected)


def without_counters(memory):
    contract.forget(memory)  # a refusal may be counted


def assert_same(memory, other):
    for one, two in zip(leaves(memory), leaves(other), strict=True):
        np.testing.assert_array_equal(one, two)


def leaves(value):
    return [leaf for each in value for leaf in leaves(each)] if isinstance(value, tuple) else [np.asarray(value)]


OPERATIONS = st.lists(st.one_of(
    st.tuples(st.just("admit"), st.integers(1, 20), st.integers(1, 20), st.integers(0, 20), st.integers(1, 3)),
    st.tuples(st.just("grow"), st.integers(0, 2), st.integers(1, 20)),
    st.tuples(st.just("release"), st.integers(0, 2)), st.tuples(st.just("look"))), min_size=5, max_size=40)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@given(data=st.data(), capacity=st.integers(16, 90), operations=OPERATIONS)
def test_whatever_is_asked_in_whatever_order_memory_is_neither_lost_nor_owned_twice(kind, data, capacity, operations):
    rows = Rows(kind, data.draw(SPECS[kind.name]), capacity)
    for name, *arguments in operations:
        getattr(rows, name)(*arguments)
        rows.step += 1
        rows.check()
    for row in list(rows.stored):
        rows.release(row)
    rows.check()
    rows.look()
    usable = capacity // contract.unit_slots(rows.memory) * contract.unit_slots(rows.memory)
    assert contract.free_slots(rows.memory) == usable
