"""The paged allocator with vLLM's prefix cache: full blocks are kept under their keys after their last owner let go.

A block gets its key when the tokens that fill it are scheduled.  Free blocks form one queue: those without a key in
front, as a stack; then those never handed out; then those with a key, least recently used first, which lose it when
they are handed out.  A block that nobody else can ever ask for gets no entry in the table of keys, only a mark.
"""

import math
from typing import NamedTuple

import numpy as np

from pagesim.allocators.block_keys import (
    Prefixes, is_continued, make_prefixes, next_key, shareable_blocks, start_of_chain)
from pagesim.allocators.key_table import NONE, KeyTable, add, drop, find, make_key_table
from pagesim.allocators.table_store import TableStore, give_region, make_store, move, size_of, take_region
from pagesim.allocators.paged import (  # noqa: F401 - answers that are the same
    Paged, _blocks, _free_blocks, add_runs, age_holes, allocated_slots, asked_slots, check, free_slots, has_holes,
    hole_stats, ids, keep_chunk, keeps_chunks, name, num_units, reservation, room_tokens, slots_of_a_unit, swaps,
    unit_slots, units)
from pagesim.core.histogram import BINS, PLACES, bin_of, binned
from pagesim.core.jit import COLD, HOT
from pagesim.core.machine import refuse_large_tables
from pagesim.core.units import ceil_div
from pagesim.errors import InputError

# Blocks from ``fresh`` on were never handed out; ``freed`` ones are on the stack; ``used`` ones have an owner;
# ``cached`` ones are in the list from ``oldest`` to ``newest``; ``doubled`` counts owners beyond a block's first.
# What was looked up last is kept up to date: for ``known`` tokens of ``request`` there are ``hits`` blocks, of which
# ``free_hits`` have no owner; ``missing`` is the key of the first that was not there.
COUNT = np.dtype([(field, np.int64) for field in (
    "fresh", "freed", "used", "cached", "oldest", "newest", "doubled", "request", "known", "hits", "free_hits",
    "missing", "evicted")], align=True)
# What a row holds: its blocks, whose ids are in the region of ``room`` entries from ``at`` on; those of them that went
# through the chain of keys, and the key of the last of these.
HOLD = np.dtype([(field, np.int64) for field in ("blocks", "at", "room", "keyed", "chain", "request")], align=True)
UNKEYED, MARKED, KEYED = range(3)


class CachedMemory(NamedTuple):
    num_blocks: int
    block_size: int
    fifo: bool
    watermark_blocks: int
    prefixes: Prefixes
    tables: TableStore  # of each row: logical → physical block
    hold: np.recarray  # HOLD (rows,)
    owners: np.ndarray  # int32 (blocks,)
    state: np.ndarray  # int8 (blocks,): UNKEYED, MARKED, KEYED
    keys: KeyTable
    newer: np.ndarray  # int32 (blocks,): neighbours in the list of cached blocks
    older: np.ndarray  # int32 (blocks,)
    since: np.ndarray  # int32 (blocks,): step of the first owner, or after its last owner let go, that step
    freed: np.ndarray  # int32, a stack
    found: np.ndarray  # int32: the blocks found last
    found_at: np.ndarray  # int32 (blocks,): where in ``found`` it is, if it is there
    count: np.record  # COUNT
    lifetimes: np.ndarray  # int64 (64,): steps from a block's first owner to its last
    ages: np.ndarray  # int64 (64,): steps from a block's last owner to its eviction
    runs: np.ndarray  # int64 (PLACES,): runs of adjacent ids in the tables given back, by their length


EXAMPLE = Paged(prefix_cache="vllm")


def serves(spec):
    return spec.prefix_cache == "vllm"


def make(spec, capacity_slots, demand, trace):
    for column, what in ((trace.num_samples, "num_samples"), (trace.beam_width, "beam_width")):
        if column is not None and (column > 1).any():
            raise InputError(f"the trace has {what} above 1, and a prefix cache with several sequences of one request "
                             "is not simulated yet; choose prefix_cache: none")
    num_blocks = capacity_slots // spec.block_size
    width = min(ceil_div(demand.longest_tokens, spec.block_size), num_blocks)
    total = demand.total_tokens // spec.block_size + demand.sequences
    refuse_large_tables(8 * min(demand.rows * width, total) + 48 * min(num_blocks, total), num_blocks)
    count = np.zeros(1, COUNT).view(np.recarray)[0]
    count.oldest = count.newest = count.request = NONE
    return CachedMemory(
        num_blocks=num_blocks, block_size=spec.block_size, fifo=spec.reuse == "fifo",
        watermark_blocks=math.floor(spec.watermark * (num_blocks + 1)),
        prefixes=make_prefixes(trace, spec.block_size),
        tables=make_store(demand.rows, width, demand.rows * width),
        hold=np.zeros(demand.rows, HOLD).view(np.recarray), owners=np.zeros(num_blocks, np.int32),
        state=np.zeros(num_blocks, np.int8), keys=make_key_table(num_blocks), newer=np.empty(num_blocks, np.int32),
        older=np.empty(num_blocks, np.int32), since=np.empty(num_blocks, np.int32),
        freed=np.empty(num_blocks, np.int32), found=np.empty(width, np.int32),
        found_at=np.zeros(num_blocks, np.int32), count=count, lifetimes=np.zeros(BINS, np.int64),
        ages=np.zeros(BINS, np.int64), runs=np.zeros(PLACES, np.int64))


# Finding.


def stored_already(memory, ask):
    """Look the prefix up: blocks from the first, as long as they are there, and at most all but one token.

    A head that waits asks in every step: what was found for it is still there, but for what ``_evict`` took away.
    """
    count = memory.count
    if ask.units > 0:
        _forget_found(memory)
        return ask.stored
    most = (ask.known - 1) // memory.block_size
    if count.request != ask.request or count.known != ask.known:
        _forget_found(memory)
        count.request, count.known = ask.request, ask.known
        count.missing = next_key(memory.prefixes, start_of_chain(), ask.request, 0) if most > 0 else 0
    if count.hits < most:
        _find_more(memory, ask.request, most)
    return count.hits * memory.block_size


@HOT
def _forget_found(memory):
    memory.count.hits = memory.count.free_hits = 0
    memory.count.request = NONE


@HOT
def _find_more(memory, request, most):
    count = memory.count
    block = find(memory.keys, count.missing)
    while block != NONE:
        memory.found[count.hits], memory.found_at[block] = block, count.hits
        count.hits += 1
        if memory.owners[block] == 0:
            count.free_hits += 1
        if count.hits == most:
            break
        count.missing = next_key(memory.prefixes, count.missing, request, count.hits)
        block = find(memory.keys, count.missing)


@HOT
def _is_found(memory, block):
    at = memory.found_at[block]
    return at < memory.count.hits and memory.found[at] == block


found = stored_already  # what it notes for an admission is noted anew before one


def fits(memory, ask, running):
    todo = ask.known - ask.stored
    end = ask.known if ask.budget >= todo else ask.stored + ask.budget
    need = ask.copies * (_blocks(memory, end) - memory.count.hits)
    if running > 0:
        need += memory.watermark_blocks
    return need <= _free_blocks(memory) - memory.count.free_hits


def fits_empty(memory, ask):
    return ask.copies * _blocks(memory, ask.known) <= memory.num_blocks and (
        _blocks(memory, ask.prompt + ask.output - 1) <= memory.num_blocks)


# Taking.


def admit(memory, row, ask, tokens, step):
    count, hold = memory.count, memory.hold[row]
    hold.request, hold.keyed, hold.blocks = ask.request, count.hits, 0
    hold.chain = memory.keys.key[memory.found[count.hits - 1]] if count.hits > 0 else start_of_chain()
    need = _blocks(memory, tokens)
    find_room(memory, row, need)
    for j in range(count.hits):
        block = memory.found[j]
        memory.tables.entries[hold.at + j] = block
        if memory.owners[block] == 0:
            _unlink(memory, block)
            count.used += 1
            memory.since[block] = step
        else:
            count.doubled += 1
        memory.owners[block] += 1
    hold.blocks = count.hits
    _forget_found(memory)
    _take(memory, row, need - hold.blocks, step)
    _give_keys(memory, row, tokens)


def extend(memory, row, stored, tokens, step):
    need = _blocks(memory, tokens) - memory.hold.blocks[row]
    if need > _free_blocks(memory):
        return -1
    if need > 0:
        _take(memory, row, need, step)
    if memory.hold.keyed[row] < tokens // memory.block_size:
        _give_keys(memory, row, tokens)
    return 0


@HOT
def _take(memory, row, need, step):
    """Append ``need`` blocks to the row's table; they are free."""
    count, hold = memory.count, memory.hold[row]
    find_room(memory, row, hold.blocks + need)
    for k in range(hold.at + hold.blocks, hold.at + hold.blocks + need):
        if count.freed > 0:
            count.freed -= 1
            block = np.int64(memory.freed[count.freed])
        elif count.fresh < memory.num_blocks:
            block = count.fresh
            count.fresh += 1
        else:
            block = count.oldest
            _unlink(memory, block)
            _evict(memory, block, step)
        memory.tables.entries[k] = block
        memory.owners[block] = 1
        memory.since[block] = step
    count.used += need
    hold.blocks += need


@HOT
def _evict(memory, block, step):
    if memory.state[block] == UNKEYED:
        return
    if memory.state[block] == KEYED:
        if _is_found(memory, block):
            _find_less(memory, block)
        drop(memory.keys, block)
    memory.state[block] = UNKEYED
    memory.count.evicted += 1
    memory.ages[bin_of(step - memory.since[block])] += 1


@COLD
def _find_less(memory, block):
    """What was found is known only up to this block, which loses its key."""
    count = memory.count
    for j in range(memory.found_at[block], count.hits):
        if memory.owners[memory.found[j]] == 0:
            count.free_hits -= 1
    count.hits, count.missing = memory.found_at[block], memory.keys.key[block]


@HOT
def _give_keys(memory, row, tokens):
    """The blocks that ``tokens`` tokens fill get their keys, as far as others can ask for them."""
    request = memory.hold.request[row]
    _key_up_to(memory, row, min(tokens // memory.block_size, shareable_blocks(memory.prefixes, request)))


@HOT
def _key_up_to(memory, row, full):
    hold = memory.hold[row]
    for j in range(hold.keyed, full):
        hold.chain = next_key(memory.prefixes, hold.chain, hold.request, j)
        block = np.int64(memory.tables.entries[hold.at + j])
        add(memory.keys, block, hold.chain)
        memory.state[block] = KEYED
        hold.keyed = j + 1


# Giving back.


def release(memory, row, stored, is_over, step):
    """Last block first: full ones with a key to the end of the queue, others to its front."""
    hold, count = memory.hold[row], memory.count
    full = stored // memory.block_size
    if not is_over or is_continued(memory.prefixes, hold.request):
        _key_up_to(memory, row, full)
    held = memory.tables.entries[hold.at:hold.at + hold.blocks]
    add_runs(memory.runs, held)
    for k in range(hold.blocks):
        j = hold.blocks - 1 - k
        block = np.int64(held[j])
        memory.owners[block] -= 1
        if memory.owners[block] > 0:
            count.doubled -= 1
            continue
        count.used -= 1
        memory.lifetimes[bin_of(step - memory.since[block])] += 1
        memory.since[block] = step
        if _is_found(memory, block):
            memory.count.free_hits += 1
        if j < full and memory.state[block] == UNKEYED:
            memory.state[block] = MARKED
        if j < full or memory.fifo:
            _link(memory, block)
    if not memory.fifo:
        for j in range(full, hold.blocks):  # so that the last block is handed out next; none of these has others
            memory.freed[count.freed] = held[j]
            count.freed += 1
    if hold.room > 0:
        give_region(memory.tables, hold.at, size_of(hold.room))
    hold.blocks = hold.room = hold.keyed = 0


@HOT
def find_room(memory, row, blocks):
    """Let the row's table have a region that is large enough for so many blocks."""
    hold = memory.hold[row]
    if blocks > hold.room:
        size = size_of(blocks)
        hold.at = take_region(memory.tables, size) if hold.room == 0 else (
            move(memory.tables, hold.at, size_of(hold.room), size))
        hold.room = 1 << size


@HOT
def _link(memory, block):
    """To the end of the list; one without a key is there only where all are reused in turn."""
    count = memory.count
    memory.older[block], memory.newer[block] = count.newest, NONE
    if count.newest == NONE:
        count.oldest = block
    else:
        memory.newer[count.newest] = block
    count.newest = block
    if memory.state[block] != UNKEYED:
        count.cached += 1


@HOT
def _unlink(memory, block):
    count = memory.count
    older, newer = np.int64(memory.older[block]), np.int64(memory.newer[block])
    if older == NONE:
        count.oldest = newer
    else:
        memory.newer[older] = newer
    if newer == NONE:
        count.newest = older
    else:
        memory.older[newer] = older
    if memory.state[block] != UNKEYED:
        count.cached -= 1


# What the engine and the ledger read.


def cached_slots(memory):
    return memory.count.cached * memory.block_size


def doubled_slots(memory):
    return memory.count.doubled * memory.block_size


def shares(memory):
    return True


@COLD
def forget(memory):
    memory.lifetimes[:] = 0
    memory.runs[:] = 0
    memory.ages[:] = 0
    memory.count.evicted = 0


def cached_units(memory):
    return (memory.owners == 0) & (memory.state != UNKEYED)


def histograms(memory):
    return {"block_lifetime_steps": memory.lifetimes, "table_run_blocks": binned(memory.runs),
            "eviction_age_steps": memory.ages}


def counters(memory):
    return {}


def evicted_blocks(memory):
    return int(memory.count.evicted)
