"""Cutting a batch among the CTAs of a GPU: which CTA attends to which tiles of which sequence.

A *row* is one sequence for one group of KV heads; its tokens come in tiles of ``tile_tokens``.  A *part* is a run of
tiles of one row on one CTA.  A row in several parts is *cut*: its parts leave partial results, which are merged.

Two ways to cut, and one rule between them:

* **runs**: rows are laid end to end and cut into runs of equal cost, one for each CTA.  Perfect balance, nearly one cut
  for each CTA.
* **packs**: whole rows are spread over bins that may exceed the mean by 10 %; few cuts.

The way with fewer parts is taken.  Memory, not an SM, is the bottleneck, so that nearly equal is enough, while each
part costs its CTA as much as a tile more: over 21 measurements of both, the 10 % made no difference that shows.
"""

import heapq
from dataclasses import dataclass

import numpy as np
from numba import njit

from pagesim.errors import InputError

# Columns of a record: one part, as the kernel reads it.
SEQ, GROUP, FIRST_TILE, NUM_TILES, TOKENS, SLOT, FIRST_SLOT, NUM_PARTS, COUNTER, SHARE, NUM_SHARERS, NEXT = range(12)
RECORD_INTS = 16  # 64 bytes: a record is read with one load of half a warp

FEW_PARTS = 8  # up to here the last CTA to arrive merges a row alone; beyond, its CTAs share the merge
MAX_SHARES = 2  # merges that one CTA takes a share of: it can be an owner of two rows that others own too
MIN_TILES = 2  # a batch is spread over fewer CTAs rather than cut into parts below this mean

_PART_COST_TILES = 1.5  # what starting and ending a part costs, in tiles
_SNAP_TILES = 1.0  # a cut this close to a row's end moves to it
_PACK_COST_TILES = 1.0
_PACK_SLACK = 0.1
_PACK_MIN_TILES = 8  # mean tiles of a CTA from which packing is tried: below it the slack is less than a tile


@dataclass(frozen=True)
class Plan:
    """The parts of every CTA.

    Attributes:
        num_ctas: of the launch.
        records: one row a part, shape (num_records, 16), int32; columns as named in this module.  CTA c begins with
            record c (``SEQ`` is -1 where it has none) and goes on with that at ``NEXT``, until -1: its first part is
            one load away.  ``SLOT`` is where a part of a cut row leaves its result, -1 for a whole row.
        num_slots: partial results; at most ``max_slots(num_ctas)``.
        num_counters: cut rows; at most ``max_counters(num_ctas)``.
    """

    num_ctas: int
    records: np.ndarray
    num_slots: int
    num_counters: int


def max_records(num_rows: int, num_ctas: int) -> int:
    """Records that no plan of so many rows exceeds: a CTA adds a cut at most, and a record where it has no part."""
    return num_rows + 2 * num_ctas


def max_slots(num_ctas: int) -> int:
    """Partial results that no plan exceeds: a cut adds two at most."""
    return 2 * num_ctas


def max_counters(num_ctas: int) -> int:
    """Cut rows that no plan exceeds."""
    return num_ctas


def make_plan(lengths: np.ndarray, num_ctas: int, *, head_groups: int = 1, tile_tokens: int = 16) -> Plan:
    """Plan one decode step.

    Args:
        lengths: visible tokens of each sequence, shape (num_seqs,), int64; 0 is allowed and gets a part without tiles,
            so that its output is written.
        num_ctas: CTAs of the launch, all resident at once.
        head_groups: groups of KV heads, each a row of its own.
        tile_tokens: tokens of a tile.

    Raises:
        InputError: a negative length, or no CTA.
    """
    lengths = np.ascontiguousarray(lengths, np.int64)
    if lengths.size and int(lengths.min()) < 0:
        raise InputError(f"sequence {int(lengths.argmin())} has {int(lengths.min())} tokens; a length is 0 or more")
    if num_ctas < 1:
        raise InputError(f"a plan needs at least 1 CTA, got {num_ctas}")
    return Plan(num_ctas, *_plan(lengths, num_ctas, head_groups, tile_tokens))


@njit(cache=True)
def _plan(lengths, num_ctas, head_groups, tile_tokens):
    num_rows = lengths.size * head_groups
    tiles = np.empty(num_rows, np.int64)
    total = 0
    for row in range(num_rows):
        tiles[row] = -(-lengths[row // head_groups] // tile_tokens)
        total += tiles[row]
    used = min(num_ctas, max(1, total // MIN_TILES))
    runs = _runs(tiles, used)
    if total >= _PACK_MIN_TILES * used:
        packs = _packs(tiles, used)
        if len(packs) < len(runs):
            plan = _records(packs, tiles, lengths, num_ctas, head_groups)
            if plan[0]:
                return plan[1:]
    return _records(runs, tiles, lengths, num_ctas, head_groups)[1:]


@njit(cache=True)
def _runs(tiles, num_ctas):
    """Equal-cost runs of rows laid end to end: parts (row, first tile, tiles, CTA), in the order of CTAs."""
    parts = np.empty((tiles.size + num_ctas, 4), np.int64)
    run_cost = (tiles.sum() + _PART_COST_TILES * tiles.size) / num_ctas
    n = 0
    cta = 0
    row_start = 0.0
    for row in range(tiles.size):
        first = 0
        row_end = row_start + tiles[row] + _PART_COST_TILES
        while cta < num_ctas - 1 and (cta + 1) * run_cost < row_end:
            cut = int(np.rint((cta + 1) * run_cost - row_start - _PART_COST_TILES / 2))
            if cut < _SNAP_TILES:
                cut = 0
            elif cut > tiles[row] - _SNAP_TILES:
                cut = tiles[row]
            if cut > first:
                parts[n] = (row, first, cut - first, cta)
                n += 1
                first = cut
            cta += 1
        if first < tiles[row] or tiles[row] == 0:
            parts[n] = (row, first, tiles[row] - first, cta)
            n += 1
        row_start = row_end
    return parts[:n]


@njit(cache=True)
def _packs(tiles, num_ctas):
    """Rows, largest first, each into the emptiest bin: parts (row, first tile, tiles, CTA) in the order of CTAs.

    Rows larger than a bin are cut into equal parts first; what does not fit fills its bin and the rest queues again.
    In a bin the parts of cut rows come first, so that their merges overlap with streaming.
    """
    size = max((tiles.sum() + _PACK_COST_TILES * tiles.size) / num_ctas * (1 + _PACK_SLACK), 1 + _PACK_COST_TILES)
    queue = _cut_large_rows(tiles, size)
    bins = [(-size, cta) for cta in range(num_ctas)]  # a heap by space left, negative
    parts = np.empty((2 * len(queue) + 2 * num_ctas, 4), np.int64)
    per_row = np.zeros(tiles.size, np.int64)
    n = 0
    at = 0
    while at < len(queue) and n < len(parts):
        row, first, count = queue[at]
        space, cta = bins[0]
        take = min(count, max(1, int(-space - _PACK_COST_TILES)))
        parts[n] = (row, first, take, cta)
        n += 1
        per_row[row] += 1
        heapq.heapreplace(bins, (space + take + _PACK_COST_TILES, cta))
        if take < count:
            _requeue(queue, at, row, first + take, count - take)
        else:
            at += 1
    return _by_cta(parts[:n], per_row) if at == len(queue) else parts  # too many parts: the rule refuses them


@njit(cache=True)
def _cut_large_rows(tiles, size):
    """(row, first tile, tiles) of every row, or of its equal parts where it exceeds a bin; largest first."""
    counts = np.ones(tiles.size, np.int64)
    for row in range(tiles.size):
        if tiles[row] + _PACK_COST_TILES > size:
            k = int(np.ceil((tiles[row] + _PACK_COST_TILES) / size))
            if tiles[row] / k + _PACK_COST_TILES > size:
                k += 1
            counts[row] = min(k, tiles[row])
    items = np.empty((counts.sum(), 3), np.int64)
    n = 0
    for row in range(tiles.size):
        k = counts[row]
        for j in range(k):
            first = tiles[row] * j // k
            items[n] = (row, first, tiles[row] * (j + 1) // k - first)
            n += 1
    return items[_order(items[:, 2].max() - items[:, 2])]


@njit(cache=True)
def _requeue(queue, at, row, first, count):
    """Put the rest of the item at ``at`` back, behind the items that are larger."""
    while at + 1 < len(queue) and queue[at + 1, 2] > count:
        queue[at] = queue[at + 1]
        at += 1
    queue[at] = (row, first, count)


@njit(cache=True)
def _by_cta(parts, per_row):
    """Parts in the order of CTAs; of each CTA those of cut rows first, else as they came, largest rows first."""
    key = np.empty(len(parts), np.int64)
    for i in range(len(parts)):
        key[i] = parts[i, 3] * 2 + (per_row[parts[i, 0]] == 1)
    return parts[_order(key)]


@njit(cache=True)
def _order(keys):
    """Indices that sort small integers from 0, equal ones as they are: a counting sort, in a tenth of argsort's."""
    starts = np.zeros(keys.max() + 2, np.int64)
    for key in keys:
        starts[key + 1] += 1
    starts = np.cumsum(starts)
    order = np.empty(keys.size, np.int64)
    for i in range(keys.size):
        order[starts[keys[i]]] = i
        starts[keys[i]] += 1
    return order


@njit(cache=True)
def _records(parts, tiles, lengths, num_ctas, head_groups):
    """Records of parts that are in the order of CTAs, with slots, counters and shares of merges.

    The first value is False where the plan would not fit its workspace or leave a row without a CTA to merge it.
    """
    num_parts = np.zeros(tiles.size, np.int64)
    for i in range(len(parts)):
        num_parts[parts[i, 0]] += 1
    first_slot = np.zeros(tiles.size, np.int64)
    counter = np.zeros(tiles.size, np.int64)
    num_slots = 0
    num_counters = 0
    for row in range(tiles.size):
        if num_parts[row] > 1:
            first_slot[row] = num_slots
            counter[row] = num_counters
            num_slots += num_parts[row]
            num_counters += 1
    seen = np.zeros(tiles.size, np.int64)
    sharers = np.zeros(tiles.size, np.int64)
    shares = np.zeros(num_ctas, np.int64)
    records = np.zeros((num_ctas + len(parts), RECORD_INTS), np.int32)
    records[:num_ctas, SEQ] = -1
    records[:, NEXT] = -1
    at = 0
    used = num_ctas
    for i in range(len(parts)):
        row, first, count, cta = parts[i]
        if i == 0 or parts[i - 1, 3] != cta:
            at = cta
        else:
            records[at, NEXT] = used
            at = used
            used += 1
        record = records[at]
        record[SEQ], record[GROUP] = row // head_groups, row % head_groups
        record[FIRST_TILE], record[NUM_TILES] = first, count
        record[TOKENS] = lengths[row // head_groups]
        record[SLOT] = first_slot[row] + seen[row] if num_parts[row] > 1 else -1
        record[FIRST_SLOT], record[NUM_PARTS], record[COUNTER] = first_slot[row], num_parts[row], counter[row]
        record[SHARE] = -1
        seen[row] += 1
        if num_parts[row] > FEW_PARTS and shares[cta] < MAX_SHARES:
            record[SHARE] = sharers[row]
            sharers[row] += 1
            shares[cta] += 1
    ok = num_slots <= 2 * num_ctas and num_counters <= num_ctas
    for i in range(used):
        if records[i, SEQ] >= 0:
            row = records[i, SEQ] * head_groups + records[i, GROUP]
            records[i, NUM_SHARERS] = sharers[row]
            ok = ok and (num_parts[row] <= FEW_PARTS or sharers[row] > 0)
    return ok, records[:used], num_slots, num_counters
