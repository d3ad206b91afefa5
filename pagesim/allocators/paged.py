"""The paged allocator: a pool of equal blocks and one table of block ids for each running sequence."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np

from pagesim.allocators.table_store import TableStore, give_region, make_store, move, size_of, take_region
from pagesim.core.choices import one_of
from pagesim.core.histogram import BINS, PLACES, bin_of, binned, place_of
from pagesim.core.jit import COLD, HOT
from pagesim.core.lazy import lazy
from pagesim.core.ledger import NOBODY
from pagesim.core.machine import refuse_large_tables
from pagesim.core.units import ceil_div, final_tokens
from pagesim.errors import InputError
from pagesim.trace.trace import Trace

Reuse = Literal["lifo", "fifo"]
PrefixCache = Literal["none", "vllm", "radix"]
Eviction = Literal["lru", "lfu", "fifo"]


@dataclass(frozen=True)
class Paged:
    """Blocks of ``block_size`` slots, handed out as a sequence grows."""

    block_size: int = 16
    """Slots in a block; 1 is a token pool."""
    reuse: Reuse = "lifo"
    """Freed blocks are handed out next (lifo, vLLM without prefix caching) or last (fifo); not of a radix cache."""
    watermark: float = 0.0
    """Share of the blocks kept free at an admission while something runs."""
    prefix_cache: PrefixCache = "none"
    """Blocks of equal prefixes are found again as vLLM does, or as SGLang's radix tree does."""
    eviction: Eviction = "lru"
    """Whom the radix tree evicts first."""

    def __post_init__(self) -> None:
        one_of("reuse", self.reuse, get_args(Reuse))
        one_of("prefix_cache", self.prefix_cache, get_args(PrefixCache))
        one_of("eviction", self.eviction, get_args(Eviction))
        if self.eviction != "lru" and self.prefix_cache != "radix":
            raise InputError(f"eviction {self.eviction} needs prefix_cache radix, got {self.prefix_cache}")
        if self.reuse != "lifo" and self.prefix_cache == "radix":
            raise InputError("with prefix_cache radix the block size decides in which order blocks are reused; leave "
                             f"out reuse: {self.reuse}")
        if self.block_size < 1:
            raise InputError(f"block_size must be at least 1, got {self.block_size}")
        if not 0 <= self.watermark < 1:
            raise InputError(f"watermark must be a share in [0, 1), got {self.watermark}")


# Blocks from ``fresh`` on were never handed out; ``freed`` blocks were given back, the ring of fifo begins at ``head``.
COUNT = np.dtype([(field, np.int64) for field in ("fresh", "head", "freed", "used")], align=True)
# What a row holds: its blocks, whose ids are in the region of ``room`` entries from ``at`` on; entries in ``taken``;
# and the blocks taken since the last entry, one every ``block_size`` steps as a decode step takes them, the next of
# them in step ``due``.
HOLD = np.dtype([(field, np.int64) for field in ("blocks", "at", "room", "entries", "since", "due")], align=True)


class PagedMemory(NamedTuple):
    """State of the pool.

    ``freed`` holds the blocks that were given back: a stack for lifo, a ring for fifo; a pool of billions of blocks
    costs no memory until it is used.
    """

    num_blocks: int
    block_size: int
    fifo: bool
    watermark_blocks: int
    tables: TableStore  # of each row: logical → physical block
    hold: np.recarray  # HOLD (rows,)
    taken: np.ndarray  # int32 (entries of the tables, 3): (blocks, step that took the last, steps between)
    freed: np.ndarray  # int32
    count: np.record  # COUNT
    lifetimes: np.ndarray  # int64 (64,): histogram of steps from taking a block to giving it back
    runs: np.ndarray  # int64 (PLACES,): runs of adjacent ids in the tables given back, by their length


EXAMPLE = Paged()


def serves(spec):
    return spec.prefix_cache == "none"


def swaps(spec):
    return True


def make(spec, capacity_slots, demand, trace):
    num_blocks = capacity_slots // spec.block_size
    width = min(ceil_div(demand.longest_tokens, spec.block_size), num_blocks)
    total = demand.total_tokens // spec.block_size + demand.sequences
    live = min(num_blocks, total if spec.reuse == "fifo" else demand.rows * width)
    most = min(num_blocks, demand.rows * width, total)  # blocks that are ever used
    refuse_large_tables(20 * most, most)
    tables = make_store(demand.rows, width, num_blocks)
    return PagedMemory(
        num_blocks=num_blocks, block_size=spec.block_size, fifo=spec.reuse == "fifo",
        watermark_blocks=math.floor(spec.watermark * (num_blocks + 1)), tables=tables,
        hold=np.zeros(demand.rows, HOLD).view(np.recarray), taken=lazy((len(tables.entries), 3), np.int32),
        freed=lazy(max(live, 1), np.int32), count=np.zeros(1, COUNT).view(np.recarray)[0],
        lifetimes=np.zeros(BINS, np.int64), runs=np.zeros(PLACES, np.int64))


def name(spec):
    fifo = ["fifo"] if spec.reuse == "fifo" else []
    watermark = [f"watermark={spec.watermark}"] if spec.watermark else []
    cache = [f"prefix_cache={spec.prefix_cache}"] if spec.prefix_cache != "none" else []
    eviction = [f"eviction={spec.eviction}"] if spec.eviction != "lru" else []
    return " ".join(["paged", str(spec.block_size), *cache, *eviction, *fifo, *watermark])


def slots_of_a_unit(spec):
    return spec.block_size


def check(spec: Paged, trace: Trace) -> None:
    granularity = trace.source.hash_block_tokens
    if spec.prefix_cache != "vllm" or trace.prefix_ids is None or not granularity:
        return
    if spec.block_size % granularity and granularity % spec.block_size:
        raise InputError(f"block_size {spec.block_size} and the trace's prefix ids, one for each {granularity} tokens, "
                         "do not divide one another, so that no block is known to equal another; choose a block_size "
                         "that divides the other or is a multiple of it, or prefix_cache: none")


@HOT
def _blocks(memory, tokens):
    return (tokens + memory.block_size - 1) // memory.block_size


@HOT
def _take(memory, row, need, step):
    """Append ``need`` blocks to the row's table; they are free."""
    count, hold = memory.count, memory.hold[row]
    if hold.blocks + need > hold.room:
        _find_room(memory, row, hold.blocks + need)
    at = hold.at + hold.blocks
    if need == 1 and count.freed > 0 and not memory.fifo:  # what most decode steps do, without the loops
        count.freed -= 1
        memory.tables.entries[at] = memory.freed[count.freed]
    else:
        _take_many(memory, memory.tables.entries[at:at + need])
    count.used += need
    hold.blocks += need
    if need == 1 and step == hold.due:
        hold.since += 1
    else:
        _close_entry(memory, row)
        _add_entry(memory, row, need, step, 0)
    hold.due = step + memory.block_size


@COLD
def _find_room(memory, row, blocks):
    """Let the row's table have a region that is large enough for so many blocks."""
    hold, size = memory.hold[row], size_of(blocks)
    if hold.room == 0:
        hold.at = take_region(memory.tables, size)
    else:
        before = hold.at
        hold.at = move(memory.tables, before, size_of(hold.room), size)
        for k in range(hold.entries):
            for i in range(3):
                memory.taken[hold.at + k, i] = memory.taken[before + k, i]
    hold.room = 1 << size


@HOT
def _take_many(memory, ids):
    """Fill ``ids`` with the blocks that the reuse order hands out next.

    Loops run over slices, and one index is unsigned, because an index that may be negative, as far as the compiler
    knows, costs twice as much.
    """
    count, need = memory.count, len(ids)
    if memory.fifo:
        fresh = min(need, memory.num_blocks - count.fresh)
        for i in range(fresh):
            ids[i] = count.fresh + i
        for i in range(fresh, need):
            ids[i] = memory.freed[count.head]
            count.head = (count.head + 1) % len(memory.freed)
    else:
        old = min(need, count.freed)
        fresh = need - old
        newest_last = memory.freed[count.freed - old:count.freed]
        for i in range(old):
            ids[i] = newest_last[np.uint64(old - 1 - i)]
        for i in range(fresh):
            ids[old + i] = count.fresh + i
    count.fresh += fresh
    count.freed -= need - fresh


@HOT
def _add_entry(memory, row, blocks, step, between):
    entry = memory.taken[memory.hold.at[row] + memory.hold.entries[row]]
    entry[0], entry[1], entry[2] = blocks, step, between
    memory.hold.entries[row] += 1


@HOT
def _close_entry(memory, row):
    """Write down the blocks taken since the last entry, at equal intervals."""
    if memory.hold.since[row] > 0:
        _add_entry(memory, row, memory.hold.since[row], memory.hold.due[row] - memory.block_size, memory.block_size)
        memory.hold.since[row] = 0


@HOT
def _needed(memory, ask):
    """Blocks of all that the ask's sequences know, or of what they compute at once."""
    todo = ask.known - ask.stored
    if ask.budget >= ask.copies * todo:
        return ask.copies * _blocks(memory, ask.known)
    return ask.budget // todo * _blocks(memory, ask.known) + _blocks(memory, ask.budget % todo)


@HOT
def _free_blocks(memory):
    return memory.num_blocks - memory.count.used


def stored_already(memory, ask):
    return ask.stored


def reservation(memory, ask):
    return ask.known


def fits(memory, ask, running):
    spare = memory.watermark_blocks if running > 0 else 0
    return _needed(memory, ask) + spare <= _free_blocks(memory)


def fits_empty(memory, ask):
    return ask.copies * _blocks(memory, ask.known) <= memory.num_blocks and (
        _blocks(memory, final_tokens(ask.prompt, ask.output)) <= memory.num_blocks)


def admit(memory, row, ask, tokens, step):
    _take(memory, row, _blocks(memory, tokens), step)


def extend(memory, row, stored, tokens, step):
    need = _blocks(memory, tokens) - memory.hold.blocks[row]
    if need > _free_blocks(memory):
        return -1
    if need > 0:
        _take(memory, row, need, step)
    return 0


def release(memory, row, stored, is_over, step):
    hold, count = memory.hold[row], memory.count
    held, at = hold.blocks, hold.at
    ids = memory.tables.entries[at:at + held]
    _close_entry(memory, row)
    _measure(memory, ids, memory.taken[at:at + hold.entries], step)
    if memory.fifo:
        end = count.head + count.freed
        for i in range(held):
            memory.freed[(end + i) % len(memory.freed)] = ids[held - 1 - i]
    else:
        top = memory.freed[count.freed:count.freed + held]
        for i in range(held):
            top[i] = ids[i]
    count.freed += held
    count.used -= held
    if hold.room > 0:
        give_region(memory.tables, at, size_of(hold.room))
    hold.blocks = hold.room = hold.entries = hold.due = 0


@HOT
def add_runs(runs, ids):
    """Count the runs of adjacent ids in a table."""
    run, single = 0, 0  # most runs have one block: these are counted in a register
    expected = -1
    for i in range(len(ids)):
        if ids[i] == expected:
            run += 1
        elif run == 1:
            single += 1
        else:
            runs[place_of(run)] += 1
            run = 1
        expected = ids[i] + 1
    runs[place_of(run)] += 1
    runs[1] += single
    runs[0] = 0  # the run before the first


@HOT
def _measure(memory, ids, taken, step):
    """Add a table that is given back to the histograms."""
    add_runs(memory.runs, ids)
    for k in range(len(taken)):
        blocks, last, between = taken[k, 0], taken[k, 1], taken[k, 2]
        if between == 0:
            memory.lifetimes[bin_of(step - last)] += blocks
        else:
            for i in range(blocks):
                memory.lifetimes[bin_of(step - last + i * between)] += 1


def keeps_chunks(memory):
    return False


def keep_chunk(memory, row, stored, step):
    pass


def room_tokens(memory, row):
    return memory.hold.blocks[row] * memory.block_size


def asked_slots(memory, row):
    return memory.hold.blocks[row] * memory.block_size


def allocated_slots(memory, row):
    return memory.hold.blocks[row] * memory.block_size


def units(memory, row):
    return memory.hold.blocks[row]


def unit_slots(memory):
    return memory.block_size


def free_slots(memory):
    return _free_blocks(memory) * memory.block_size


def cached_slots(memory):
    return 0


def doubled_slots(memory):
    return 0


def shares(memory):
    return False


def has_holes(memory):
    return False


def hole_stats(memory, asked):
    return 0, 0, 0


def age_holes(memory, seconds):
    pass


def forget(memory):
    memory.lifetimes[:] = 0
    memory.runs[:] = 0


def num_units(memory):
    return memory.num_blocks


def ids(memory, row):
    at = memory.hold.at[row]
    return memory.tables.entries[at:at + memory.hold.blocks[row]]


def moves(memory, seen, serial, owner):
    """A sequence only adds to its table; another serial in its row is another sequence, or the same admitted again."""
    now, at, entries = memory.hold.blocks.copy(), memory.hold.at.copy(), memory.tables.entries
    if seen is None:
        seen = serial, np.zeros_like(now), at, lazy(len(entries), np.int32)
    before_serial, before, before_at, copy = seen
    kept = np.where((before_serial == serial) & (now > 0), before, 0)
    left, grown = before > kept, now > kept
    gone = copy[_ranges(before_at[left], before[left])]
    moved = (kept > 0) & (at != before_at)
    for places in (_ranges(at[moved], kept[moved]), came := _ranges(at[grown] + kept[grown], now[grown] - kept[grown])):
        copy[places] = entries[places]
    return (
        np.stack([gone, np.ones_like(gone), np.full(len(gone), NOBODY)], axis=1),
        np.stack([entries[came], np.ones_like(came), np.repeat(owner[grown], now[grown] - kept[grown])], axis=1),
        (serial, now, at, copy),
    )


def _ranges(begin, counts):
    """``begin``, ``begin`` + 1, … of each, as many as ``counts``, all in a row."""
    return np.arange(counts.sum()) + np.repeat(begin - np.cumsum(counts) + counts, counts)


def histograms(memory):
    return {"block_lifetime_steps": memory.lifetimes, "table_run_blocks": binned(memory.runs)}


def counters(memory):
    return {}
