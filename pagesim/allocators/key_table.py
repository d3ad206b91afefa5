"""Which block has a key: a hash table, and for each key the blocks that have it, first come first found.

At most one entry a block of the pool, so a table of twice as many places stays half empty.  Linear probing; an entry
that goes lets those behind it move up.
"""

from typing import NamedTuple

import numpy as np

from pagesim.core.jit import COLD, HOT

NONE = -1


class KeyTable(NamedTuple):
    place: np.ndarray  # int32: the first block of the key whose place it is, plus 1; 0 for none
    key: np.ndarray  # int64 (blocks,)
    after: np.ndarray  # int32 (blocks,): the blocks of a key in a ring, in the order in which they got it
    before: np.ndarray  # int32 (blocks,)


def make_key_table(num_blocks: int) -> KeyTable:
    places = 1 << (2 * num_blocks - 1).bit_length()
    return KeyTable(np.zeros(places, np.int32), np.empty(num_blocks, np.int64), np.empty(num_blocks, np.int32),
                    np.empty(num_blocks, np.int32))


@HOT
def _place_of(table, key):
    """The place of ``key``, or the empty one where it would be."""
    mask = len(table.place) - 1
    at = key & mask
    while table.place[at] != 0 and table.key[table.place[at] - 1] != key:
        at = (at + 1) & mask
    return at


@HOT
def find(table, key):
    """The block that got ``key`` first of those that have it, or NONE."""
    return np.int64(table.place[_place_of(table, key)]) - 1


@HOT
def add(table, block, key):
    at = _place_of(table, key)
    table.key[block] = key
    first = np.int64(table.place[at]) - 1
    if first == NONE:
        table.place[at] = block + 1
        table.after[block] = table.before[block] = block
        return
    last = table.before[first]
    table.after[last], table.before[block] = block, last
    table.after[block], table.before[first] = first, block


@HOT
def drop(table, block):
    """The block loses its key."""
    at = _place_of(table, table.key[block])
    after, before = np.int64(table.after[block]), np.int64(table.before[block])
    if after != block:
        table.after[before], table.before[after] = after, before
        if table.place[at] == block + 1:
            table.place[at] = after + 1
        return
    _close_gap(table, at)


@COLD
def _close_gap(table, gap):
    mask = len(table.place) - 1
    at = gap
    while True:
        at = (at + 1) & mask
        entry = table.place[at]
        if entry == 0:
            break
        home = table.key[entry - 1] & mask
        if (at - home) & mask >= (at - gap) & mask:  # its home is not behind the gap
            table.place[gap] = entry
            gap = at
    table.place[gap] = 0
