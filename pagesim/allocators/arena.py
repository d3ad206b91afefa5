"""The contiguous allocator: one region of adjacent slots for each sequence, placed in an arena.

Holes are kept sorted by address.  With ``buddy`` a hole is a free buddy block; the arena is cut from address 0 into
descending powers of two and blocks never merge above these, because the buddy of such a block would have another size.
"""

import math
from typing import NamedTuple

import numpy as np

from pagesim.allocators.pool import bin_of
from pagesim.allocators.spec import PLACEMENTS, RESERVES, Contiguous
from pagesim.core.jit import COLD, HOT

FIRST_FIT, NEXT_FIT, BEST_FIT, WORST_FIT, BUDDY = range(len(PLACEMENTS))
MAX_MODEL_LEN, POW2, EXACT, MAX_TOKENS, GROW = range(len(RESERVES))

# Columns of ``Arena.count``; CURSOR is the end of the last placement.
HOLES, FREE, CURSOR, FAILED_GROWTHS = range(4)


class Arena(NamedTuple):
    """State of the arena; all sizes and addresses are in slots."""

    capacity: int
    placement: int
    reserve: int
    growth: float
    max_model_len: int
    start: np.ndarray  # int64 (rows,): address of the row's region
    asked: np.ndarray  # int64 (rows,): before rounding
    allocated: np.ndarray  # int64 (rows,): after rounding
    hole_start: np.ndarray  # int64, sorted
    hole_size: np.ndarray  # int64
    count: np.ndarray  # int64 (4,)
    bins: np.ndarray  # int64 (64,): holes now, by size
    hole_seconds: np.ndarray  # float64 (64,): the same integrated over time


def make_arena(spec: Contiguous, capacity_slots: int, max_model_len: int, rows: int) -> Arena:
    """An empty arena of ``capacity_slots`` for at most ``rows`` regions."""
    buddy = spec.placement == "buddy"
    most_holes = (rows + 2) * (capacity_slots.bit_length() + 1 if buddy else 1) + 64
    arena = Arena(capacity=capacity_slots, placement=PLACEMENTS.index(spec.placement),
                  reserve=RESERVES.index(spec.reserve), growth=spec.growth, max_model_len=max_model_len,
                  start=np.zeros(rows, np.int64), asked=np.zeros(rows, np.int64), allocated=np.zeros(rows, np.int64),
                  hole_start=np.zeros(most_holes, np.int64), hole_size=np.zeros(most_holes, np.int64),
                  count=np.zeros(4, np.int64), bins=np.zeros(64, np.int64), hole_seconds=np.zeros(64))
    address = 0
    sizes = [1 << k for k in reversed(range(capacity_slots.bit_length())) if capacity_slots >> k & 1]
    for size in sizes if buddy else [capacity_slots]:
        _insert_hole(arena, int(arena.count[HOLES]), address, size)
        address += size
    arena.count[FREE] = capacity_slots
    return arena


@COLD
def _insert_hole(arena, i, start, size):
    starts, sizes, last = arena.hole_start, arena.hole_size, arena.count[HOLES]
    for k in range(last, i, -1):
        starts[k] = starts[k - 1]
        sizes[k] = sizes[k - 1]
    starts[i] = start
    sizes[i] = size
    arena.count[HOLES] = last + 1
    arena.bins[bin_of(size)] += 1


@COLD
def _remove_hole(arena, i):
    starts, sizes, last = arena.hole_start, arena.hole_size, arena.count[HOLES] - 1
    arena.bins[bin_of(sizes[i])] -= 1
    for k in range(i, last):
        starts[k] = starts[k + 1]
        sizes[k] = sizes[k + 1]
    arena.count[HOLES] = last


@COLD
def _change_hole(arena, i, start, size):
    arena.bins[bin_of(arena.hole_size[i])] -= 1
    arena.bins[bin_of(size)] += 1
    arena.hole_start[i] = start
    arena.hole_size[i] = size


@HOT
def _first_hole_from(arena, address):
    """Index of the first hole that starts at or after ``address``."""
    low, high = 0, arena.count[HOLES]
    while low < high:
        middle = (low + high) // 2
        if arena.hole_start[middle] < address:
            low = middle + 1
        else:
            high = middle
    return low


@HOT
def _placed_size(arena, asked):
    """Slots that a region of ``asked`` slots takes: with ``buddy`` the next power of two."""
    if arena.placement != BUDDY:
        return asked
    size = 1
    while size < asked:
        size *= 2
    return size


@COLD
def _find_hole(arena, size):
    """Index of the hole that the placement chooses, or -1.  Ties go to the lowest address."""
    sizes, holes = arena.hole_size, arena.count[HOLES]
    if arena.placement == FIRST_FIT or arena.placement == NEXT_FIT:
        begin = _first_hole_from(arena, arena.count[CURSOR]) if arena.placement == NEXT_FIT else 0
        for i in range(begin, holes):
            if sizes[i] >= size:
                return i
        for i in range(begin):
            if sizes[i] >= size:
                return i
        return -1
    best = -1
    for i in range(holes):
        if sizes[i] >= size and (best < 0 or (
                sizes[i] > sizes[best] if arena.placement == WORST_FIT else sizes[i] < sizes[best])):
            best = i
    return best


@COLD
def _place(arena, size):
    """Take ``size`` slots at the low end of the chosen hole; returns the address, or -1 if no hole suffices."""
    i = _find_hole(arena, size)
    if i < 0:
        return -1
    start, left = arena.hole_start[i], arena.hole_size[i] - size
    if left == 0:
        _remove_hole(arena, i)
    elif arena.placement != BUDDY:
        _change_hole(arena, i, start + size, left)
    else:
        half = size  # the lower half is split again and again; the upper halves become free blocks, smallest first
        _change_hole(arena, i, start + half, half)
        while half * 2 < size + left:
            half *= 2
            i += 1
            _insert_hole(arena, i, start + half, half)
    arena.count[FREE] -= size
    arena.count[CURSOR] = start + size
    return start


@COLD
def _give_back(arena, start, size):
    """Make the region a hole and merge it with its free neighbours, or with its free buddies."""
    i = _first_hole_from(arena, start)
    starts, sizes = arena.hole_start, arena.hole_size
    arena.count[FREE] += size
    if arena.placement == BUDDY:
        while True:
            buddy = start ^ size
            if i < arena.count[HOLES] and starts[i] == buddy and sizes[i] == size:
                _remove_hole(arena, i)
            elif i > 0 and starts[i - 1] == buddy and sizes[i - 1] == size:
                i -= 1
                _remove_hole(arena, i)
            else:
                break
            start = min(start, buddy)
            size *= 2
        _insert_hole(arena, i, start, size)
        return
    after = i < arena.count[HOLES] and starts[i] == start + size
    before = i > 0 and starts[i - 1] + sizes[i - 1] == start
    if before and after:
        _change_hole(arena, i - 1, starts[i - 1], sizes[i - 1] + size + sizes[i])
        _remove_hole(arena, i)
    elif before:
        _change_hole(arena, i - 1, starts[i - 1], sizes[i - 1] + size)
    elif after:
        _change_hole(arena, i, start, sizes[i] + size)
    else:
        _insert_hole(arena, i, start, size)


@COLD
def _grow_to(arena, row, stored, target):
    """Give the row ``target`` slots, in place or by a copy; returns tokens copied, or -1 if neither fits."""
    start, size = arena.start[row], arena.allocated[row]
    if arena.placement != BUDDY:
        i, more = _first_hole_from(arena, start), target - size
        if i < arena.count[HOLES] and arena.hole_start[i] == start + size and arena.hole_size[i] >= more:
            if arena.hole_size[i] == more:
                _remove_hole(arena, i)
            else:
                _change_hole(arena, i, start + target, arena.hole_size[i] - more)
            arena.count[FREE] -= more
            arena.asked[row] = arena.allocated[row] = target
            return 0
    placed = _placed_size(arena, target)
    address = _place(arena, placed)
    if address < 0:
        return -1
    _give_back(arena, start, size)
    arena.start[row], arena.asked[row], arena.allocated[row] = address, target, placed
    return stored


def reservation(arena, prompt, output, limit, known):
    if arena.reserve == GROW:
        return known
    if arena.reserve == EXACT:
        return prompt + output - 1
    if arena.reserve == POW2:
        rounded = 1
        while rounded < output:
            rounded *= 2
        return min(arena.max_model_len, prompt + rounded)
    if arena.reserve == MAX_TOKENS and limit > 0:
        return min(arena.max_model_len, prompt + limit)
    return arena.max_model_len


def fits(arena, asked, copies, running):
    size = _placed_size(arena, asked)
    room = 0
    for i in range(arena.count[HOLES]):
        if arena.hole_size[i] >= size:
            room += arena.hole_size[i] // size
            if room >= copies:
                return True
    return False


def fits_empty(arena, asked, copies):
    size = _placed_size(arena, asked)
    # The same with buddy: chunks of at least ``size`` are multiples of it; the smaller ones together are less than it.
    return arena.capacity // size >= copies


def admit(arena, row, asked, tokens, step):
    size = _placed_size(arena, asked)
    arena.start[row] = _place(arena, size)
    arena.asked[row] = asked
    arena.allocated[row] = size


def extend(arena, row, stored, tokens, step):
    if tokens <= arena.asked[row]:
        return 0
    least = stored + 1
    target = min(arena.max_model_len, max(least, int(math.ceil(stored * arena.growth))))
    copied = _grow_to(arena, row, stored, target)
    if copied < 0 and target > least:
        copied = _grow_to(arena, row, stored, least)
    if copied < 0:
        arena.count[FAILED_GROWTHS] += 1
    return copied


def release(arena, row, step):
    _give_back(arena, arena.start[row], arena.allocated[row])
    arena.asked[row] = arena.allocated[row] = 0


def asked_slots(arena, row):
    return arena.asked[row]


def allocated_slots(arena, row):
    return arena.allocated[row]


def units(arena, row):
    return arena.allocated[row]


def free_slots(arena):
    return arena.count[FREE]


def hole_stats(arena, asked):
    largest, usable = 0, 0
    for i in range(arena.count[HOLES]):
        size = arena.hole_size[i]
        if size > largest:
            largest = size
        if size >= asked:
            usable += size // asked * asked
    return arena.count[HOLES], largest, usable


def age_holes(arena, seconds):
    for k in range(64):
        arena.hole_seconds[k] += arena.bins[k] * seconds


def forget(arena):
    arena.hole_seconds[:] = 0
    arena.count[FAILED_GROWTHS] = 0
