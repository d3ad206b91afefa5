"""Room for the block tables of all rows in one array: what they take follows what they hold, not the longest possible.

A table has a region of a power of two entries, and moves into one twice as large when that is full.  Regions that were
given back are found again by their size, in a list through their first entries.
"""

from typing import NamedTuple

import numpy as np

from pagesim.core.jit import COLD, HOT
from pagesim.core.lazy import lazy

SMALLEST = 4  # a region has at least 2^SMALLEST entries: a cache line of ids
_SIZES, _NONE = 48, -1


class TableStore(NamedTuple):
    entries: np.ndarray  # int32 (entries,): the ids of the tables, or where the next free region of the same size is
    freed: np.ndarray  # int64 (sizes + 1,): first free region by the exponent of its size; last, where nothing lay yet


def make_store(rows: int, longest: int, in_all: int) -> TableStore:
    """For at most ``rows`` tables of at most ``longest`` entries, which have ``in_all`` at most together."""
    freed = np.full(_SIZES + 1, _NONE)
    freed[_SIZES] = 0
    return TableStore(lazy(room(rows, longest, in_all), np.int32), freed)


def room(rows: int, longest: int, in_all: int) -> int:
    """Entries that suffice: a region of one size stands for a table of more than half of it."""
    top = max(SMALLEST, (longest - 1).bit_length())
    larger = sum(min(rows, in_all // (2 ** (size - 1) + 1)) << size for size in range(SMALLEST + 1, top + 1))
    return (min(rows, in_all) << SMALLEST) + larger


@HOT
def size_of(entries):
    """Exponent of the smallest region for so many entries."""
    size = SMALLEST
    while entries > 1 << size:
        size += 1
    return size


@COLD
def take_region(store, size):
    """First entry of a region of ``2^size`` entries."""
    freed = store.freed
    at = freed[size]
    if at == _NONE:
        at = freed[_SIZES]
        freed[_SIZES] += 1 << size
    else:
        following = np.int64(store.entries[at])
        freed[size] = _NONE if following == _NONE else following << SMALLEST
    return at


@COLD
def give_region(store, at, size):
    following = store.freed[size]
    store.entries[at] = _NONE if following == _NONE else following >> SMALLEST
    store.freed[size] = at


@COLD
def move(store, at, size, larger):
    """Move a table into a region of ``2^larger`` entries, which begins where this returns."""
    new = take_region(store, larger)
    old, fresh = store.entries[at:at + (1 << size)], store.entries[new:new + (1 << size)]
    for i in range(len(old)):
        fresh[i] = old[i]
    give_region(store, at, size)
    return new
