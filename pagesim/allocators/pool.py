"""The paged allocator: a pool of equal blocks and one table of block ids for each running sequence.

A *row* is the place of a running sequence in the engine's arrays.  The functions below are the allocator contract of
``contract.py``; they are compiled into the engine and also run as plain Python.
"""

import math
from typing import NamedTuple

import numpy as np
from pagesim.core.jit import COLD, HOT

from pagesim.allocators.spec import Paged

# Columns of ``Pool.count``: blocks never handed out yet start at FRESH; HEAD and FREED describe ``Pool.freed``.
FRESH, HEAD, FREED, USED = range(4)


class Pool(NamedTuple):
    """State of the pool.

    ``freed`` holds the blocks that were given back: a stack for lifo, a ring for fifo.  Blocks from ``count[FRESH]`` on
    were never handed out, so a pool of billions of blocks costs no memory until it is used.
    """

    num_blocks: int
    block_size: int
    fifo: bool
    watermark_blocks: int
    table: np.ndarray       # int32 (rows, max blocks): logical → physical block
    taken_at: np.ndarray    # int32, same shape: step in which the block was taken
    held: np.ndarray        # int64 (rows,): blocks of the row
    freed: np.ndarray       # int32
    count: np.ndarray       # int64 (4,)
    lifetimes: np.ndarray   # int64 (64,): histogram of steps from taking a block to giving it back
    runs: np.ndarray        # int64 (64,): histogram of runs of adjacent ids in the tables given back


def make_pool(spec: Paged, capacity_slots: int, rows: int, longest_tokens: int, total_blocks: int) -> Pool:
    """An empty pool.

    Args:
        rows: sequences that run at once.
        longest_tokens: no sequence stores more.
        total_blocks: no run takes more blocks in all while the pool is not full.
    """
    num_blocks = capacity_slots // spec.block_size
    width = min(-(-longest_tokens // spec.block_size), num_blocks)
    live = min(num_blocks, total_blocks if spec.reuse == "fifo" else rows * width)
    return Pool(
        num_blocks=num_blocks, block_size=spec.block_size, fifo=spec.reuse == "fifo",
        watermark_blocks=math.floor(spec.watermark * (num_blocks + 1)),
        table=np.empty((rows, width), np.int32), taken_at=np.empty((rows, width), np.int32), held=np.zeros(rows, np.int64),
        freed=np.empty(max(live, 1), np.int32), count=np.zeros(4, np.int64),
        lifetimes=np.zeros(64, np.int64), runs=np.zeros(64, np.int64))


_BITS = np.array([value.bit_length() for value in range(1024)])


@HOT
def bin_of(value):
    """Bin of a histogram in powers of two: 0 for 0, else the number of bits of ``value``."""
    bits = 0
    while value >= 1024:
        value >>= 10
        bits += 10
    return bits + _BITS[value]


@HOT
def _blocks(pool, tokens):
    return (tokens + pool.block_size - 1) // pool.block_size


@HOT
def _take(pool, row, need, step):
    """Append ``need`` blocks to the row's table; they are free."""
    count, table, taken_at = pool.count, pool.table[row], pool.taken_at[row]
    at = pool.held[row]
    old = min(need, count[FREED])
    if pool.fifo:
        old = max(0, need - (pool.num_blocks - count[FRESH]))
        for i in range(need - old):
            table[at + i] = count[FRESH] + i
        count[FRESH] += need - old
        for i in range(need - old, need):
            table[at + i] = pool.freed[count[HEAD]]
            count[HEAD] = (count[HEAD] + 1) % len(pool.freed)
    else:
        top = count[FREED] - 1
        for i in range(old):
            table[at + i] = pool.freed[top - i]
        for i in range(old, need):
            table[at + i] = count[FRESH] + i - old
        count[FRESH] += need - old
    for i in range(need):
        taken_at[at + i] = step
    count[FREED] -= old
    count[USED] += need
    pool.held[row] = at + need


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
    pool.held[row] = 0
    _take(pool, row, _blocks(pool, tokens), step)


def extend(pool, row, stored, tokens, step):
    need = _blocks(pool, tokens) - pool.held[row]
    if need > pool.num_blocks - pool.count[USED]:
        return -1
    if need > 0:
        _take(pool, row, need, step)
    return 0


def release(pool, row, step):
    held, count, table = pool.held[row], pool.count, pool.table[row]
    _measure_table(pool, row, step)
    if pool.fifo:
        end = count[HEAD] + count[FREED]
        for i in range(held):
            pool.freed[(end + i) % len(pool.freed)] = table[held - 1 - i]
    else:
        for i in range(held):
            pool.freed[count[FREED] + i] = table[i]
    count[FREED] += held
    count[USED] -= held
    pool.held[row] = 0


@HOT
def _measure_table(pool, row, step):
    table, taken_at = pool.table[row], pool.taken_at[row]
    run, same = 0, 0
    for i in range(pool.held[row]):
        run += 1
        same += 1
        last = i + 1 == pool.held[row]
        if last or table[i + 1] != table[i] + 1:
            pool.runs[bin_of(run)] += 1
            run = 0
        if last or taken_at[i + 1] != taken_at[i]:
            pool.lifetimes[bin_of(step - taken_at[i])] += same
            same = 0


def asked_slots(pool, row):
    return pool.held[row] * pool.block_size


def allocated_slots(pool, row):
    return pool.held[row] * pool.block_size


def units(pool, row):
    return pool.held[row]


def free_slots(pool):
    return (pool.num_blocks - pool.count[USED]) * pool.block_size


def hole_stats(pool, asked):
    return 0, 0, 0


def age_holes(pool, seconds):
    pass


def forget(pool):
    pool.lifetimes[:] = 0
    pool.runs[:] = 0
