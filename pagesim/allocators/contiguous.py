"""The contiguous allocator: one region of adjacent slots for each sequence, placed in an arena."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple, get_args

import numpy as np

from pagesim.allocators.holes import (
    PLACEMENTS, Holes, Placement, age, extend_in_place, give_back, largest_and_usable, make_holes, place, placed_size,
    regions_that_fit)
from pagesim.core.choices import one_of
from pagesim.core.jit import COLD, HOT
from pagesim.core.ledger import NOBODY
from pagesim.core.units import final_tokens
from pagesim.errors import InputError
from pagesim.trace.trace import Trace

Reserve = Literal["max_model_len", "pow2", "exact", "max_tokens", "grow"]
RESERVES = get_args(Reserve)
MAX_MODEL_LEN, POW2, EXACT, MAX_TOKENS, GROW = range(len(RESERVES))


@dataclass(frozen=True)
class Contiguous:
    """One region of adjacent slots for each sequence."""

    reserve: Reserve = "max_model_len"
    """Slots that a sequence asks for: the model's maximum (Orca Max), prompt + output rounded up to a power of two
    (Orca Pow2), exactly what it will store (Orca Oracle), prompt + its max_tokens, or what it knows, growing."""
    placement: Placement = "first_fit"
    """The hole that it gets."""
    growth: float = 1.5
    """Factor by which reserve: grow extends a region, as the decimal that was written."""

    def __post_init__(self) -> None:
        one_of("reserve", self.reserve, RESERVES)
        one_of("placement", self.placement, PLACEMENTS)
        if not 1 < self.growth < float("inf"):
            raise InputError(f"growth must be a number above 1, got {self.growth}")
        if self.exact_growth().numerator >= 2**31:  # times as many tokens as an int32 holds it stays within int64
            raise InputError(f"growth must have at most nine digits, such as 1.5 or 1.333333, got {self.growth}")

    def exact_growth(self) -> Fraction:
        return Fraction(str(self.growth))


class ContiguousMemory(NamedTuple):
    """State of the arena; all sizes and addresses are in slots."""

    capacity: int
    reserve: int
    growth_numerator: int
    growth_denominator: int
    max_model_len: int
    start: np.ndarray  # int64 (rows,): address of the row's region
    asked: np.ndarray  # int64 (rows,): before rounding
    allocated: np.ndarray  # int64 (rows,): after rounding
    holes: Holes
    failed_growths: np.ndarray  # int64 (1,)


EXAMPLE = Contiguous()


def serves(spec):
    return True


def swaps(spec):
    return True


def make(spec, capacity_slots, demand, trace):
    return ContiguousMemory(
        capacity_slots, RESERVES.index(spec.reserve), *spec.exact_growth().as_integer_ratio(), demand.max_model_len,
        *np.zeros((3, demand.rows), np.int64), make_holes(spec.placement, capacity_slots, demand.rows),
        np.zeros(1, np.int64))


def name(spec):
    grows = [f"growth={spec.growth}"] if spec.reserve == "grow" and spec.growth != Contiguous.growth else []
    return " ".join(["contiguous", spec.reserve, spec.placement, *grows])


def slots_of_a_unit(spec):
    return 1


def check(spec: Contiguous, trace: Trace) -> None:
    if spec.reserve != "max_tokens" or trace.max_tokens is None:
        return
    bad = np.flatnonzero((trace.max_tokens > 0) & (trace.max_tokens < trace.output_tokens))
    if len(bad):
        raise InputError(f"request {bad[0]} of the trace has max_tokens {trace.max_tokens[bad[0]]}, less than the "
                         f"{trace.output_tokens[bad[0]]} output tokens that it is said to have made")


@HOT
def reservation(memory, ask):
    if memory.reserve == GROW:
        return ask.known
    if memory.reserve == EXACT:
        return final_tokens(ask.prompt, ask.output)
    if memory.reserve == POW2:
        rounded = 1
        while rounded < ask.output:
            rounded *= 2
        return min(memory.max_model_len, ask.prompt + rounded)
    if memory.reserve == MAX_TOKENS and ask.limit > 0:
        return min(memory.max_model_len, ask.prompt + ask.limit)
    return memory.max_model_len


def stored_already(memory, ask):
    return ask.stored


def fits(memory, ask, running):
    size = placed_size(memory.holes, reservation(memory, ask))
    return regions_that_fit(memory.holes, size, ask.copies) >= ask.copies


def fits_empty(memory, ask):
    # The same with buddy: chunks of at least the size are multiples of it; the smaller ones together are less than it.
    return memory.capacity // placed_size(memory.holes, reservation(memory, ask)) >= ask.copies and (
        memory.capacity // placed_size(memory.holes, final_tokens(ask.prompt, ask.output)) >= 1)


def admit(memory, row, ask, tokens, step):
    asked = reservation(memory, ask)
    size = placed_size(memory.holes, asked)
    memory.start[row] = place(memory.holes, size)
    memory.asked[row] = asked
    memory.allocated[row] = size


def extend(memory, row, stored, tokens, step):
    if tokens <= memory.asked[row]:
        return 0
    least = stored + 1
    grown = (stored * memory.growth_numerator + memory.growth_denominator - 1) // memory.growth_denominator
    target = min(memory.max_model_len, max(least, grown))
    copied = _grow_to(memory, row, stored, target)
    if copied < 0 and target > least:
        copied = _grow_to(memory, row, stored, least)
    if copied < 0:
        memory.failed_growths[0] += 1
    return copied


@COLD
def _grow_to(memory, row, stored, target):
    """Give the row ``target`` slots, in place or by a copy; returns tokens copied, or -1 if neither fits."""
    start, size = memory.start[row], memory.allocated[row]
    if extend_in_place(memory.holes, start, size, target):
        memory.asked[row] = memory.allocated[row] = target
        return 0
    placed = placed_size(memory.holes, target)
    address = place(memory.holes, placed)
    if address < 0:
        return -1
    give_back(memory.holes, start, size)
    memory.start[row], memory.asked[row], memory.allocated[row] = address, target, placed
    return stored


def release(memory, row, stored, is_over, step):
    give_back(memory.holes, memory.start[row], memory.allocated[row])
    memory.asked[row] = memory.allocated[row] = 0


def keeps_chunks(memory):
    return False


def keep_chunk(memory, row, stored, step):
    pass


def room_tokens(memory, row):
    return memory.asked[row]


def asked_slots(memory, row):
    return memory.asked[row]


def allocated_slots(memory, row):
    return memory.allocated[row]


def units(memory, row):
    return memory.allocated[row]


def unit_slots(memory):
    return 1


def free_slots(memory):
    return memory.holes.count.free


def cached_slots(memory):
    return 0


def doubled_slots(memory):
    return 0


def shares(memory):
    return False


def has_holes(memory):
    return True


def hole_stats(memory, asked):
    largest, usable = largest_and_usable(memory.holes, asked)
    return memory.holes.count.holes, largest, usable


def age_holes(memory, seconds):
    age(memory.holes, seconds)


def forget(memory):
    memory.holes.seconds[:] = 0
    memory.failed_growths[0] = 0


def num_units(memory):
    return memory.capacity


def ids(memory, row):
    return np.arange(memory.start[row], memory.start[row] + memory.allocated[row])


def moves(memory, seen, serial, owner):
    now = np.stack([serial, memory.start, memory.allocated])
    before = now * [[1], [1], [0]] if seen is None else seen
    moved = (before != now).any(axis=0)
    gone, came = moved & (before[2] > 0), moved & (now[2] > 0)
    return (
        np.stack([*before[1:, gone], np.full(gone.sum(), NOBODY)], axis=1),
        np.stack([*now[1:, came], owner[came]], axis=1),
        now,
    )


def histograms(memory):
    return {"hole_slots_s": memory.holes.seconds}


def counters(memory):
    return {"failed_growths": int(memory.failed_growths[0])}
