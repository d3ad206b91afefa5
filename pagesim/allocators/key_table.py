"""Which block has a key: a hash table, and for each key the blocks that have it, first come first found.

At most one entry a block of the pool.  Keys that fall to one place form a chain; blocks of one key are in a ring.
"""

from typing import NamedTuple

import numpy as np

from pagesim.core.jit import COLD, HOT

NONE = -1


class KeyTable(NamedTuple):
    place: np.ndarray  # int32: the first block of the first key of the chain, plus 1; 0 for none
    key: np.ndarray  # int64 (blocks,)
    other: np.ndarray  # int32 (blocks,): of a key's first block, that of the next key in its chain
    after: np.ndarray  # int32 (blocks,): the blocks of a key in a ring, in the order in which they got it
    before: np.ndarray  # int32 (blocks,)


def make_key_table(num_blocks: int) -> KeyTable:
    places = 1 << (2 * num_blocks - 1).bit_length()
    return KeyTable(np.zeros(places, np.int32), np.empty(num_blocks, np.int64), np.empty(num_blocks, np.int32),
                    np.empty(num_blocks, np.int32), np.empty(num_blocks, np.int32))


@HOT
def _at(table, key):
    return np.uint64(key & (len(table.place) - 1))


@HOT
def find(table, key):
    """The block that got ``key`` first of those that have it, or NONE."""
    block = np.int64(table.place[_at(table, key)]) - 1
    while block != NONE and table.key[block] != key:
        block = np.int64(table.other[block])
    return block


@HOT
def add(table, block, key):
    first = find(table, key)
    table.key[block] = key
    if first != NONE:
        _join_ring(table, block, first)
        return
    at = _at(table, key)
    table.after[block] = table.before[block] = block
    table.other[block] = table.place[at] - 1
    table.place[at] = block + 1


@COLD
def _join_ring(table, block, first):
    last = table.before[first]
    table.after[last], table.before[block] = block, last
    table.after[block], table.before[first] = first, block


@HOT
def drop(table, block):
    """The block loses its key."""
    after, before = np.int64(table.after[block]), np.int64(table.before[block])
    table.after[before], table.before[after] = after, before
    if after == block:
        _replace_in_chain(table, block, np.int64(table.other[block]))
    else:
        _leave_ring(table, block, after)


@COLD
def _leave_ring(table, block, after):
    if find(table, table.key[block]) == block:
        table.other[after] = table.other[block]
        _replace_in_chain(table, block, after)


@HOT
def _replace_in_chain(table, block, follower):
    at = _at(table, table.key[block])
    one = np.int64(table.place[at]) - 1
    if one == block:
        table.place[at] = follower + 1
        return
    while table.other[one] != block:
        one = np.int64(table.other[one])
    table.other[one] = follower
