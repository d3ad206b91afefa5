"""The paged allocator: a pool of equal blocks and one table of block ids for each running sequence.

A *row* is the place of a running sequence in the engine's arrays.  The functions below are the allocator contract of
``contract.py``; they are compiled into the engine and also run as plain Python.
"""

import math
from typing import NamedTuple

import numpy as np

from pagesim.allocators.spec import Paged
from pagesim.core.jit import HOT
from pagesim.core.units import ceil_div

# Columns of ``Pool.count``: blocks never handed out yet start at FRESH; HEAD and FREED describe ``Pool.freed``.
FRESH, HEAD, FREED, USED = range(4)


# What a row holds: its blocks; entries in ``taken``; and the blocks taken since the last entry, one every
# ``block_size`` steps as a decode step takes them, the next of them in step ``due``.
HOLD = np.dtype([(name, np.int64) for name in ("blocks", "entries", "since", "due")], align=True)


class Pool(NamedTuple):
    """State of the pool.

    ``freed`` holds the blocks that were given back: a stack for lifo, a ring for fifo.  Blocks from ``count[FRESH]`` on
    were never handed out, so a pool of billions of blocks costs no memory until it is used.
    """

    num_blocks: int
    block_size: int
    fifo: bool
    watermark_blocks: int
    table: np.ndarray  # int32 (rows, max blocks): logical → physical block
    hold: np.recarray  # HOLD (rows,)
    taken: np.ndarray  # int32 (rows, max blocks, 3): entries of (blocks, step that took the last, steps between)
    freed: np.ndarray  # int32
    count: np.ndarray  # int64 (4,)
    lifetimes: np.ndarray  # int64 (64,): histogram of steps from taking a block to giving it back
    runs: np.ndarray  # int64 (max blocks + 1,): runs of so many adjacent ids in the tables given back


def make_pool(spec: Paged, capacity_slots: int, rows: int, longest_tokens: int, total_blocks: int) -> Pool:
    """An empty pool.

    Args:
        rows: sequences that run at once.
        longest_tokens: no sequence stores more.
        total_blocks: no run takes more blocks in all while the pool is not full.
    """
    num_blocks = capacity_slots // spec.block_size
    width = min(ceil_div(longest_tokens, spec.block_size), num_blocks)
    stride = 16 * (ceil_div(width, 16) | 1)  # an odd number of cache lines, lest rows share their places in the cache
    live = min(num_blocks, total_blocks if spec.reuse == "fifo" else rows * width)
    return Pool(num_blocks=num_blocks, block_size=spec.block_size, fifo=spec.reuse == "fifo",
                watermark_blocks=math.floor(spec.watermark * (num_blocks + 1)),
                table=np.empty((rows, stride), np.int32), hold=np.zeros(rows, HOLD).view(np.recarray),
                taken=np.empty((rows, stride, 3), np.int32), freed=np.empty(max(live, 1), np.int32),
                count=np.zeros(4, np.int64), lifetimes=np.zeros(64, np.int64), runs=np.zeros(width + 1, np.int64))


_BITS = np.array([value.bit_length() for value in range(1024)])


@HOT
def bin_of(value):
    """Bin of a histogram in powers of two: 0 for 0, else the number of bits of ``value``."""
    bits = 0
    while value >= 1024:
        value >>= 10
        bits += 10
    return bits + _BITS[value]


def in_bins(counts: np.ndarray) -> np.ndarray:
    """A histogram of exact values (``counts[v]`` of value v) in bins of powers of two, int64 (64,)."""
    bits = np.frexp(np.arange(len(counts)))[1]
    return np.bincount(bits, weights=counts, minlength=64).astype(np.int64)


@HOT
def _blocks(pool, tokens):
    return (tokens + pool.block_size - 1) // pool.block_size


@HOT
def _take(pool, row, need, step):
    """Append ``need`` blocks to the row's table; they are free."""
    count, at = pool.count, pool.hold.blocks[row]
    if need == 1 and count[FREED] > 0 and not pool.fifo:  # what most decode steps do, without the loops
        count[FREED] -= 1
        pool.table[row, at] = pool.freed[count[FREED]]
    else:
        _take_many(pool, pool.table[row, at:at + need])
    count[USED] += need
    pool.hold.blocks[row] = at + need
    if need == 1 and step == pool.hold.due[row]:
        pool.hold.since[row] += 1
    else:
        _close_entry(pool, row)
        _add_entry(pool, row, need, step, 0)
    pool.hold.due[row] = step + pool.block_size


@HOT
def _take_many(pool, ids):
    """Fill ``ids`` with the blocks that the reuse order hands out next.

    Loops run over slices, and one index is unsigned, because an index that may be negative, as far as the compiler
    knows, costs twice as much.
    """
    count, need = pool.count, len(ids)
    if pool.fifo:
        fresh = min(need, pool.num_blocks - count[FRESH])
        for i in range(fresh):
            ids[i] = count[FRESH] + i
        for i in range(fresh, need):
            ids[i] = pool.freed[count[HEAD]]
            count[HEAD] = (count[HEAD] + 1) % len(pool.freed)
    else:
        old = min(need, count[FREED])
        fresh = need - old
        newest_last = pool.freed[count[FREED] - old:count[FREED]]
        for i in range(old):
            ids[i] = newest_last[np.uint64(old - 1 - i)]
        for i in range(fresh):
            ids[old + i] = count[FRESH] + i
    count[FRESH] += fresh
    count[FREED] -= need - fresh


@HOT
def _add_entry(pool, row, blocks, step, between):
    entry = pool.taken[row, pool.hold.entries[row]]
    entry[0], entry[1], entry[2] = blocks, step, between
    pool.hold.entries[row] += 1


@HOT
def _close_entry(pool, row):
    """Write down the blocks taken since the last entry, at equal intervals."""
    if pool.hold.since[row] > 0:
        _add_entry(pool, row, pool.hold.since[row], pool.hold.due[row] - pool.block_size, pool.block_size)
        pool.hold.since[row] = 0


def reservation(pool, prompt, output, limit, known):
    return known


def fits(pool, asked, copies, running):
    need = copies * _blocks(pool, asked)
    if running > 0:
        need += pool.watermark_blocks
    return need <= pool.num_blocks - pool.count[USED]


def fits_empty(pool, asked, copies):
    return copies * _blocks(pool, asked) <= pool.num_blocks


def admit(pool, row, asked, tokens, step):
    _take(pool, row, _blocks(pool, tokens), step)


def extend(pool, row, stored, tokens, step):
    need = _blocks(pool, tokens) - pool.hold.blocks[row]
    if need > pool.num_blocks - pool.count[USED]:
        return -1
    if need > 0:
        _take(pool, row, need, step)
    return 0


def release(pool, row, step):
    held, count = pool.hold.blocks[row], pool.count
    ids = pool.table[row, :held]
    _close_entry(pool, row)
    _measure(pool, ids, pool.taken[row, :pool.hold.entries[row]], step)
    if pool.fifo:
        end = count[HEAD] + count[FREED]
        for i in range(held):
            pool.freed[(end + i) % len(pool.freed)] = ids[held - 1 - i]
    else:
        top = pool.freed[count[FREED]:count[FREED] + held]
        for i in range(held):
            top[i] = ids[i]
    count[FREED] += held
    count[USED] -= held
    pool.hold.blocks[row] = pool.hold.entries[row] = pool.hold.due[row] = 0


@HOT
def _measure(pool, ids, taken, step):
    """Add a table that is given back to the histograms."""
    run, single = 0, 0  # most runs have one block: these are counted in a register
    expected = -1
    for i in range(len(ids)):
        if ids[i] == expected:
            run += 1
        elif run == 1:
            single += 1
        else:
            pool.runs[run] += 1
            run = 1
        expected = ids[i] + 1
    pool.runs[run] += 1
    pool.runs[1] += single
    pool.runs[0] = 0  # the run before the first
    for k in range(len(taken)):
        blocks, last, between = taken[k, 0], taken[k, 1], taken[k, 2]
        if between == 0:
            pool.lifetimes[bin_of(step - last)] += blocks
        else:
            for i in range(blocks):
                pool.lifetimes[bin_of(step - last + i * between)] += 1


def asked_slots(pool, row):
    return pool.hold.blocks[row] * pool.block_size


def allocated_slots(pool, row):
    return pool.hold.blocks[row] * pool.block_size


def units(pool, row):
    return pool.hold.blocks[row]


def free_slots(pool):
    return (pool.num_blocks - pool.count[USED]) * pool.block_size


def hole_stats(pool, asked):
    return 0, 0, 0


def age_holes(pool, seconds):
    pass


def forget(pool):
    pool.lifetimes[:] = 0
    pool.runs[:] = 0
