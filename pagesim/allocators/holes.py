"""The free holes of an arena of slots, sorted by address.

With ``buddy`` a hole is a free buddy block; the arena is cut from address 0 into descending powers of two and blocks
never merge above these, because the buddy of such a block would have another size.
"""

from typing import Literal, NamedTuple, get_args

import numpy as np

from pagesim.core.histogram import BINS, bin_of
from pagesim.core.jit import COLD, HOT

Placement = Literal["first_fit", "next_fit", "best_fit", "worst_fit", "buddy"]
PLACEMENTS = get_args(Placement)
FIRST_FIT, NEXT_FIT, BEST_FIT, WORST_FIT, BUDDY = range(len(PLACEMENTS))

# Number of holes, free slots in all, end of the last placement.
COUNT = np.dtype([(name, np.int64) for name in ("holes", "free", "cursor")], align=True)


class Holes(NamedTuple):
    """All sizes and addresses are in slots."""

    placement: int
    start: np.ndarray  # int64, sorted
    size: np.ndarray  # int64
    count: np.record  # COUNT
    bins: np.ndarray  # int64 (64,): holes now, by size
    seconds: np.ndarray  # float64 (64,): the same integrated over time


def make_holes(placement: str, capacity_slots: int, most_regions: int) -> Holes:
    """An arena of ``capacity_slots`` in which all is free."""
    buddy = placement == "buddy"
    most_holes = (most_regions + 2) * (capacity_slots.bit_length() + 1 if buddy else 1) + 64
    holes = Holes(PLACEMENTS.index(placement), np.zeros(most_holes, np.int64), np.zeros(most_holes, np.int64),
                  np.zeros(1, COUNT).view(np.recarray)[0], np.zeros(BINS, np.int64), np.zeros(BINS))
    address = 0
    sizes = [1 << k for k in reversed(range(capacity_slots.bit_length())) if capacity_slots >> k & 1]
    for size in sizes if buddy else [capacity_slots]:
        _insert(holes, int(holes.count.holes), address, size)
        address += size
    holes.count.free = capacity_slots
    return holes


@COLD
def _insert(holes, i, start, size):
    starts, sizes, last = holes.start, holes.size, holes.count.holes
    for k in range(last, i, -1):
        starts[k] = starts[k - 1]
        sizes[k] = sizes[k - 1]
    starts[i] = start
    sizes[i] = size
    holes.count.holes = last + 1
    holes.bins[bin_of(size)] += 1


@COLD
def _remove(holes, i):
    starts, sizes, last = holes.start, holes.size, holes.count.holes - 1
    holes.bins[bin_of(sizes[i])] -= 1
    for k in range(i, last):
        starts[k] = starts[k + 1]
        sizes[k] = sizes[k + 1]
    holes.count.holes = last


@COLD
def _change(holes, i, start, size):
    holes.bins[bin_of(holes.size[i])] -= 1
    holes.bins[bin_of(size)] += 1
    holes.start[i] = start
    holes.size[i] = size


@HOT
def _first_from(holes, address):
    """Index of the first hole that starts at or after ``address``."""
    low, high = 0, holes.count.holes
    while low < high:
        middle = (low + high) // 2
        if holes.start[middle] < address:
            low = middle + 1
        else:
            high = middle
    return low


@HOT
def placed_size(holes, asked):
    """Slots that a region of ``asked`` slots takes: with ``buddy`` the next power of two."""
    if holes.placement != BUDDY:
        return asked
    size = 1
    while size < asked:
        size *= 2
    return size


@COLD
def _chosen(holes, size):
    """Index of the hole that the placement chooses, or -1.  Ties go to the lowest address."""
    sizes, count = holes.size, holes.count.holes
    if holes.placement == FIRST_FIT or holes.placement == NEXT_FIT:
        begin = _first_from(holes, holes.count.cursor) if holes.placement == NEXT_FIT else 0
        for i in range(begin, count):
            if sizes[i] >= size:
                return i
        for i in range(begin):
            if sizes[i] >= size:
                return i
        return -1
    best = -1
    for i in range(count):
        if sizes[i] >= size and (best < 0 or (
                sizes[i] > sizes[best] if holes.placement == WORST_FIT else sizes[i] < sizes[best])):
            best = i
    return best


@COLD
def place(holes, size):
    """Take ``size`` slots at the low end of the chosen hole; returns the address, or -1 if no hole suffices."""
    i = _chosen(holes, size)
    if i < 0:
        return -1
    start, left = holes.start[i], holes.size[i] - size
    if left == 0:
        _remove(holes, i)
    elif holes.placement != BUDDY:
        _change(holes, i, start + size, left)
    else:
        half = size  # the lower half is split again and again; the upper halves become free blocks, smallest first
        _change(holes, i, start + half, half)
        while half * 2 < size + left:
            half *= 2
            i += 1
            _insert(holes, i, start + half, half)
    holes.count.free -= size
    holes.count.cursor = start + size
    return start


@COLD
def extend_in_place(holes, start, size, target):
    """Grow the region of ``size`` slots at ``start`` to ``target``; returns whether the hole behind it sufficed."""
    if holes.placement == BUDDY:
        return False
    i, more = _first_from(holes, start), target - size
    if i >= holes.count.holes or holes.start[i] != start + size or holes.size[i] < more:
        return False
    if holes.size[i] == more:
        _remove(holes, i)
    else:
        _change(holes, i, start + target, holes.size[i] - more)
    holes.count.free -= more
    return True


@COLD
def give_back(holes, start, size):
    """Make the region a hole and merge it with its free neighbours, or with its free buddies."""
    i = _first_from(holes, start)
    starts, sizes, count = holes.start, holes.size, holes.count
    count.free += size
    if holes.placement == BUDDY:
        while True:
            buddy = start ^ size
            if i < count.holes and starts[i] == buddy and sizes[i] == size:
                _remove(holes, i)
            elif i > 0 and starts[i - 1] == buddy and sizes[i - 1] == size:
                i -= 1
                _remove(holes, i)
            else:
                break
            start = min(start, buddy)
            size *= 2
        _insert(holes, i, start, size)
        return
    after = i < count.holes and starts[i] == start + size
    before = i > 0 and starts[i - 1] + sizes[i - 1] == start
    if before and after:
        _change(holes, i - 1, starts[i - 1], sizes[i - 1] + size + sizes[i])
        _remove(holes, i)
    elif before:
        _change(holes, i - 1, starts[i - 1], sizes[i - 1] + size)
    elif after:
        _change(holes, i, start, sizes[i] + size)
    else:
        _insert(holes, i, start, size)


@HOT
def regions_that_fit(holes, size, enough):
    """Regions of ``size`` slots for which there is room; counting ends at ``enough``."""
    room = 0
    for i in range(holes.count.holes):
        if holes.size[i] >= size:
            room += holes.size[i] // size
            if room >= enough:
                return room
    return room


@HOT
def largest_and_usable(holes, size):
    """Slots of the largest hole, and slots that regions of ``size`` slots could use."""
    largest, usable = 0, 0
    for i in range(holes.count.holes):
        free = holes.size[i]
        if free > largest:
            largest = free
        if free >= size:
            usable += free // size * size
    return largest, usable


@HOT
def age(holes, seconds):
    """Let ``seconds`` pass over the holes as they are, for their histogram."""
    for k in range(BINS):
        holes.seconds[k] += holes.bins[k] * seconds
