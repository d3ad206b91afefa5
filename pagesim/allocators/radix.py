"""The paged allocator with SGLang's radix cache: what was stored stays in a tree until room is needed.

A row's table is what the tree has of its tokens, and its own pages behind it.  After each chunk of a prefill, and at
its end, the tree gets all its whole pages; where it had them already, the row's copies are given back and its table
goes on with the tree's.  A lock on each node of its path keeps them there.
"""

import math
from typing import NamedTuple

import numpy as np

from pagesim.allocators.block_keys import make_prefixes
from pagesim.allocators.cached import find_room
from pagesim.allocators.free_pages import FreePages, free_list, give_back_held, hold_back, make_free_pages, take
from pagesim.allocators.paged import (  # noqa: F401 - answers that are the same
    Paged, _blocks, add_runs, age_holes, allocated_slots, asked_slots, check, has_holes, hole_stats, ids, name,
    reservation, room_tokens, slots_of_a_unit, unit_slots, units)
from pagesim.allocators.radix_tree import (
    ROOT, Tree, add_below, descend, drop_first_leaf, end_a_node_at, hit_path, lock, make_tree, meet, pages_of, unlock,
    use_path, whole)
from pagesim.allocators.table_store import TableStore, give_region, make_store, size_of
from pagesim.core.histogram import BINS, PLACES, bin_of, binned
from pagesim.core.jit import COLD, HOT
from pagesim.core.machine import refuse_large_tables
from pagesim.core.units import ceil_div
from pagesim.errors import InputError

# ``used`` pages have an owner; ``doubled`` counts owners beyond a page's first.  The prefix looked up last agrees up to
# ``found`` tokens, within the node ``found_in``, and ``free_hits`` of its pages have no owner.
COUNT = np.dtype([(field, np.int64) for field in (
    "used", "doubled", "found", "found_in", "free_hits", "evicted")], align=True)
# Steps from a page's first owner to its last, and from its last owner to its eviction; runs of adjacent ids in the
# tables given back, by their length.
SEEN = np.dtype([("lifetimes", np.int64, (BINS,)), ("ages", np.int64, (BINS,)), ("runs", np.int64, (PLACES,))],
                align=True)
# What a row holds: its pages, whose ids are in the region of ``room`` entries from ``at`` on; the node that its lock is
# on; how many of its tokens are the tree's, and how many it has inserted since its admission.
HOLD = np.dtype([(field, np.int64) for field in (
    "blocks", "at", "room", "node", "kept", "inserted", "request", "prompt")], align=True)


class RadixMemory(NamedTuple):
    num_blocks: int
    block_size: int
    watermark_blocks: int
    tree: Tree
    free: FreePages
    tables: TableStore  # of each row: logical → physical page
    hold: np.recarray  # HOLD (rows,)
    since: np.ndarray  # int32 (pages,): step of the first owner, or after its last owner let go, that step
    count: np.record  # COUNT
    seen: np.record  # SEEN


EXAMPLE = Paged(prefix_cache="radix")


def serves(spec):
    return spec.prefix_cache == "radix"


def swaps(spec):
    return False


def make(spec, capacity_slots, demand, trace):
    for column, what in ((trace.num_samples, "num_samples"), (trace.beam_width, "beam_width")):
        if column is not None and (column > 1).any():
            raise InputError(f"the trace has {what} above 1, and prefix_cache radix with several sequences of one "
                             "request is not simulated; choose prefix_cache: none")
    num_blocks = capacity_slots // spec.block_size
    width = min(ceil_div(demand.longest_tokens, spec.block_size), num_blocks)
    total = demand.total_tokens // spec.block_size + demand.sequences
    refuse_large_tables(8 * min(demand.rows * width, total) + 160 * min(num_blocks, total), num_blocks)
    return RadixMemory(
        num_blocks=num_blocks, block_size=spec.block_size,
        watermark_blocks=math.floor(spec.watermark * (num_blocks + 1)),
        tree=make_tree(num_blocks, spec.block_size, spec.eviction, make_prefixes(trace, spec.block_size)),
        free=make_free_pages(num_blocks, in_turn=spec.block_size == 1),
        tables=make_store(demand.rows, width, demand.rows * width),
        hold=np.zeros(demand.rows, HOLD).view(np.recarray), since=np.empty(num_blocks, np.int32),
        count=np.zeros(1, COUNT).view(np.recarray)[0], seen=np.zeros(1, SEEN).view(np.recarray)[0])


# Finding.


def stored_already(memory, ask):
    return _look_up(memory, ask)


@COLD
def _look_up(memory, ask):
    """Look the prefix up, all but one token of it at most; nothing is touched."""
    tree, count = memory.tree, memory.count
    count.found_in, count.found = descend(tree, ask.request, ROOT, whole(tree, ask.known - 1))
    count.free_hits = 0
    node = count.found_in
    while node != ROOT:
        if tree.nodes.locks[node] == 0:
            count.free_hits += (min(count.found, tree.nodes.end[node]) - tree.nodes.begin[node]) // memory.block_size
        node = tree.nodes.parent[node]
    return count.found


found = stored_already  # what it notes for an admission is noted anew before one


def fits(memory, ask, running):
    """What nobody locks can be evicted, except what the ask itself would hit."""
    todo = ask.known - ask.stored
    end = ask.known if ask.budget >= todo else ask.stored + ask.budget
    need = ask.copies * (_blocks(memory, end) - memory.count.found // memory.block_size)
    if running > 0:
        need += memory.watermark_blocks
    return need <= memory.num_blocks - memory.count.used - memory.count.free_hits


def fits_empty(memory, ask):
    return ask.copies * _blocks(memory, ask.known) <= memory.num_blocks and (
        _blocks(memory, ask.prompt + ask.output - 1) <= memory.num_blocks)


# Taking.


def admit(memory, row, ask, tokens, step):
    _admit(memory, row, ask, tokens, step)


@COLD
def _admit(memory, row, ask, tokens, step):
    tree, count, hold = memory.tree, memory.count, memory.hold[row]
    hold.request, hold.prompt, hold.node, hold.inserted = ask.request, ask.prompt, ROOT, 0
    hold.kept = count.found
    find_room(memory, row, _blocks(memory, tokens))
    if count.found > 0:
        hold.node = meet(tree, count.found_in, count.found)
        lock_path(memory, row, ROOT, count.found, step)
    hold.blocks = count.found // memory.block_size
    count.found = count.found_in = count.free_hits = 0
    _grow(memory, row, _blocks(memory, tokens) - hold.blocks, step)


@COLD
def lock_path(memory, row, above, end, step):
    """Lock the nodes from the row's up to ``above`` whose tokens lie before ``end``; their pages go into the table."""
    tree, nodes, hold = memory.tree, memory.tree.nodes, memory.hold[row]
    node = hold.node
    while node != above:
        if nodes.begin[node] < end:
            is_first, page = lock(tree, node), nodes.first[node]
            at = hold.at + nodes.begin[node] // memory.block_size
            for k in range(at, at + pages_of(tree, node)):
                memory.tables.entries[k] = page
                if is_first:
                    memory.since[page] = step
                page = np.int64(memory.tree.following[page])
            if is_first:
                memory.count.used += pages_of(tree, node)
            else:
                memory.count.doubled += pages_of(tree, node)
        node = nodes.parent[node]


def extend(memory, row, stored, tokens, step):
    need = _blocks(memory, tokens) - memory.hold.blocks[row]
    return _grow(memory, row, need, step) if need > 0 else 0


@COLD
def _grow(memory, row, need, step):
    """What is missing is evicted as far as it goes, before it is refused: a refusal gives and takes nothing owned."""
    make_free(memory, need, step)
    if need > memory.num_blocks - memory.count.used:
        return -1
    take_pages(memory, row, need, step)
    return 0


@HOT
def make_free(memory, pages, step):
    """Evict leaves until so many pages are free or no leaf is left."""
    tree, count = memory.tree, memory.count
    give_back_held(memory.free)
    while tree.count.leaves > 0 and memory.num_blocks - count.used - tree.count.cached < pages:
        page, gone = drop_first_leaf(tree)
        for _ in range(gone):
            memory.seen.ages[bin_of(step - memory.since[page])] += 1
            hold_back(memory.free, page, step)
            page = np.int64(tree.following[page])
        give_back_held(memory.free)
        count.evicted += gone


@HOT
def take_pages(memory, row, need, step):
    hold = memory.hold[row]
    find_room(memory, row, hold.blocks + need)
    for k in range(hold.at + hold.blocks, hold.at + hold.blocks + need):
        page = take(memory.free)
        memory.tables.entries[k] = page
        memory.since[page] = step
    memory.count.used += need
    hold.blocks += need


# What a step that is over leaves in the tree.


def keep_chunk(memory, row, stored, step):
    insert(memory, row, stored, step)


@COLD
def insert(memory, row, stored, step):
    """The tree gets all whole pages stored; of what it had already, the row's own copies are given back."""
    tree, hold = memory.tree, memory.hold[row]
    end, prompt = whole(tree, stored), whole(tree, hold.prompt)
    if end == 0:
        return
    before, above = hold.kept, hold.node
    node, there = descend(tree, hold.request, above, end)
    node = meet(tree, node, there)
    held = memory.tables.entries[hold.at:hold.at + hold.blocks]
    if there < end:
        node = add_below(tree, node, hold.request, end, held[there // memory.block_size:end // memory.block_size])
    hit_path(tree, node, hold.inserted)
    if 0 < prompt < end:
        end_a_node_at(tree, node, prompt)
    use_path(tree, node)
    for j in range(before // memory.block_size, there // memory.block_size):
        let_go(memory, np.int64(held[j]), step)
    hold.node = node
    lock_path(memory, row, above, there, step)
    hold.kept = hold.inserted = end


@HOT
def let_go(memory, page, step):
    """The page's only owner gives it back."""
    memory.count.used -= 1
    memory.seen.lifetimes[bin_of(step - memory.since[page])] += 1
    hold_back(memory.free, page, step)


# Giving back.


def release(memory, row, stored, is_over, step):
    _give_back(memory, row, stored, is_over, step)


@COLD
def _give_back(memory, row, stored, is_over, step):
    """In the order of tokens; what the tree has stays there."""
    hold = memory.hold[row]
    held = memory.tables.entries[hold.at:hold.at + hold.blocks]
    add_runs(memory.seen.runs, held)
    if is_over:
        insert(memory, row, stored, step)
    for j in range(hold.kept // memory.block_size, hold.blocks):
        let_go(memory, np.int64(held[j]), step)
    if not is_over:
        give_back_held(memory.free)
    unlock_path(memory, hold.node, step)
    if hold.room > 0:
        give_region(memory.tables, hold.at, size_of(hold.room))
    hold.blocks = hold.room = hold.kept = 0
    hold.node = ROOT


@COLD
def unlock_path(memory, node, step):
    tree, nodes = memory.tree, memory.tree.nodes
    while node != ROOT:
        if unlock(tree, node):
            page = nodes.first[node]
            for _ in range(pages_of(tree, node)):
                memory.seen.lifetimes[bin_of(step - memory.since[page])] += 1
                memory.since[page] = step
                page = np.int64(tree.following[page])
            memory.count.used -= pages_of(tree, node)
        else:
            memory.count.doubled -= pages_of(tree, node)
        node = nodes.parent[node]


# What the engine and the ledger read.


def keeps_chunks(memory):
    return True


def num_units(memory):
    return memory.num_blocks


def free_slots(memory):
    return (memory.num_blocks - memory.count.used) * memory.block_size


def cached_slots(memory):
    return memory.tree.count.cached * memory.block_size


def doubled_slots(memory):
    return memory.count.doubled * memory.block_size


def shares(memory):
    return True


@COLD
def forget(memory):
    memory.seen.lifetimes[:] = 0
    memory.seen.runs[:] = 0
    memory.seen.ages[:] = 0
    memory.count.evicted = 0


def cached_units(memory):
    """What is neither free nor in a table."""
    cached = np.ones(memory.num_blocks, np.bool_)
    cached[free_list(memory.free)] = False
    cached[memory.free.held[:memory.free.count.held]] = False
    for row in np.flatnonzero(memory.hold.blocks):
        cached[ids(memory, row)] = False
    return cached


def histograms(memory):
    return {"block_lifetime_steps": memory.seen.lifetimes, "table_run_blocks": binned(memory.seen.runs),
            "eviction_age_steps": memory.seen.ages}


def counters(memory):
    return {}


def evicted_blocks(memory):
    return int(memory.count.evicted)
