"""Cutting a batch among the CTAs of a GPU: which CTA attends to which tiles of which sequence.

A *row* is one sequence for one group of KV heads; its tokens come in tiles of ``tile_tokens``.  A *part* is a run of
tiles of one row on one CTA.  A row in several parts is *cut*: its parts leave partial results, which are merged.

Two ways to cut, and one rule between them:

* **runs**: rows are laid end to end and cut into runs of equal cost, one for each CTA.  Perfect balance, nearly one cut
  for each CTA.
* **packs**: whole rows are spread over bins that may exceed the mean by 10 %; few cuts.

A sequence that shares its first tokens has only its own in parts of these; the results of the shared ones are further
parts of its rows, the first, and so each of its rows is merged, as all others then by a kernel of its own.

The way with fewer parts is taken, since each part costs its CTA as much as a tile more; but not packs that leave more
than a twentieth of the CTAs without any.

But equal parts do not take equal times: SMs get unequal shares of the memory's bandwidth, by the number of SMs in their
processing cluster (GPC).  So in a large batch the bins of packs hold a tenth less than the mean, and what they do not
hold is a *pool*: parts that nobody owns, drawn one after another by CTAs that are done with their own.  Which CTA takes
a part is up to the GPU; what the parts are, and the order in which they merge, is not: outputs are the same in every
launch, to the last bit.  In a small batch the pool costs more than it evens out, since its parts end, and merge, last.
"""

import heapq
from dataclasses import dataclass

import numpy as np
from numba import njit

from pagesim.errors import InputError

# Columns of a record: one part, as the kernel reads it.
SEQ, GROUP, FIRST_TOKEN, NUM_TILES, TOKENS, SLOT, FIRST_SLOT, NUM_PARTS, COUNTER, SHARE, NUM_SHARERS, NEXT = range(12)
POOL, POOL_SIZE, NUM_DRAWERS = range(12, 15)  # the same in every record
DRAW = -2  # as NEXT: whatever comes next from the pool
RECORD_INTS = 16  # 64 bytes: a record is read with one load of half a warp

FEW_PARTS = 8  # up to here the last CTA to arrive merges a row alone; beyond, CTAs that own a part share the merge
MAX_SHARES = 2  # merges that one CTA takes a share of: it can be an owner of two rows that others own too
MIN_TILES = 2  # a batch is spread over fewer CTAs rather than cut into parts below this mean

_SLOTS_PER_CTA = 4
_PART_COST_TILES = 1.5  # what starting and ending a part costs, in tiles
_SNAP_TILES = 1.0  # a cut this close to a row's end moves to it
_PACK_COST_TILES = 1.0
_PACK_SLACK = 0.1  # by which a bin may exceed the mean, or with a pool stays below it: CTAs share the bandwidth
_PACK_MIN_USED = 0.95  # of the CTAs
_PACK_MIN_TILES = 8  # mean tiles of a CTA from which packing is tried: below it the slack is less than a tile


@dataclass(frozen=True)
class Plan:
    """The parts of every CTA.

    Attributes:
        num_ctas: of the launch.
        records: one row a part, shape (num_records, 16), int32; columns as named in this module.  CTA c begins with
            record c (``SEQ`` is -1 where it has none) and goes on with that at ``NEXT``, until -1: its first part is
            one load away.  At ``DRAW`` it goes on with the pool, ``POOL_SIZE`` records from ``POOL`` on, drawn by
            ``NUM_DRAWERS`` CTAs.  ``SLOT`` is where a part of a cut row leaves its result, -1 for a whole row.
        num_slots: partial results; at most ``max_slots(num_ctas)``, and where sequences share something the shared
            parts and one for each row more.
        num_counters: that of the pool, which is counter 0, and one for each cut row; at most
            ``max_counters(num_ctas)``, and one for each row more.
        first_slots, num_parts: of each row, with what it shares; int64.  0 parts where nothing is merged.
    """

    num_ctas: int
    records: np.ndarray
    num_slots: int
    num_counters: int
    first_slots: np.ndarray
    num_parts: np.ndarray


def max_records(num_rows: int, num_ctas: int) -> int:
    """Records that no plan of so many rows exceeds: whole rows, parts of cut ones, and one where a CTA has no part."""
    return num_rows + max_slots(num_ctas) + num_ctas


def max_slots(num_ctas: int) -> int:
    """Partial results that no plan exceeds: one that would is not taken; runs need two for each CTA."""
    return _SLOTS_PER_CTA * num_ctas


def max_counters(num_ctas: int) -> int:
    """Counters that no plan exceeds: a cut row has two parts at least."""
    return 1 + max_slots(num_ctas) // 2


def make_plan(lengths: np.ndarray, num_ctas: int, *, head_groups: int = 1, tile_tokens: int = 16,
              pool_tiles: int = 200, begin: np.ndarray | None = None, shared_parts: np.ndarray | None = None,
              used_ctas: int | None = None, slack: float = _PACK_SLACK) -> Plan:
    """Plan one decode step.

    Args:
        lengths: visible tokens of each sequence, shape (num_seqs,), int64; 0 is allowed and gets a part without tiles,
            so that its output is written.
        num_ctas: CTAs of the launch, all resident at once.
        head_groups: groups of KV heads, each a row of its own.
        tile_tokens: tokens of a tile.
        pool_tiles: mean tiles of a CTA from which there is a pool.
        slack: by which the tiles of a CTA may exceed the mean to save cuts.
        begin: where each sequence's own tokens begin, behind those that it shares or cannot see; int64.
        shared_parts: how many partial results it gets of those before, int64.
        used_ctas: the first so many CTAs get parts; by default all.

    Raises:
        InputError: a negative length, or no CTA.
    """
    lengths = np.ascontiguousarray(lengths, np.int64)
    if lengths.size and int(lengths.min()) < 0:
        raise InputError(f"sequence {int(lengths.argmin())} has {int(lengths.min())} tokens; a length is 0 or more")
    if num_ctas < 1:
        raise InputError(f"a plan needs at least 1 CTA, got {num_ctas}")
    begin = np.zeros_like(lengths) if begin is None else begin
    shared_parts = np.zeros_like(lengths) if shared_parts is None else shared_parts
    return Plan(num_ctas, *_plan(lengths, begin, shared_parts, num_ctas, min(num_ctas, used_ctas or num_ctas),
                                 head_groups, tile_tokens, pool_tiles, slack))


@njit(cache=True)
def _plan(lengths, begin, shared_parts, num_ctas, used_ctas, head_groups, tile_tokens, pool_tiles, slack):
    num_rows = lengths.size * head_groups
    tiles = np.empty(num_rows, np.int64)
    total = 0
    for row in range(num_rows):
        seq = row // head_groups
        tiles[row] = -(-(lengths[seq] - begin[seq]) // tile_tokens)
        total += tiles[row]
    used = min(used_ctas, max(1, total // MIN_TILES))
    if total >= pool_tiles * used:
        plan = _records(*_packs(tiles, used, slack, True), tiles, lengths, begin, shared_parts, num_ctas, head_groups,
                        tile_tokens)
        if plan[0]:
            return plan[1:]
    parts = _runs(tiles, used)
    pool = parts[:0]
    if total >= _PACK_MIN_TILES * used:
        packs, rest = _packs(tiles, used, slack, False)
        if _PACK_MIN_USED * used <= len(packs) < len(parts):
            parts, pool = packs, rest
    return _records(parts, pool, tiles, lengths, begin, shared_parts, num_ctas, head_groups, tile_tokens)[1:]


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
def _packs(tiles, num_ctas, slack, pooled):
    """Rows, largest first, each into the emptiest bin: parts (row, first tile, tiles, CTA) in the order of CTAs; pool.

    What does not fit fills its bin and the rest waits for its turn again.  With a pool this ends when no bin has room
    for a part of the pool's size; what is left then is the pool.  In a bin the parts of rows that others hold too come
    first, so that their merges overlap with streaming.
    """
    mean = (tiles.sum() + _PACK_COST_TILES * tiles.size) / num_ctas
    size = max(mean * (1 - slack if pooled else 1 + slack), 1 + _PACK_COST_TILES)
    piece = int(slack * mean) if pooled else 0  # of the pool, which so has about one for each CTA
    items = _cut_large_rows(tiles, int(size - _PACK_COST_TILES), piece, num_ctas)
    num_items = len(items) - num_ctas
    behind, heads = _by_size(items[:num_items, 2], len(items))
    bins = [(-size, cta) for cta in range(num_ctas)]  # a heap by space left, negative
    parts = np.empty((len(items), 4), np.int64)
    per_row = np.zeros(tiles.size, np.int64)
    n = 0
    count = len(heads) - 1
    while count >= 0 and num_items < len(items):
        item = heads[count]
        if item < 0:
            count -= 1
            continue
        space, cta = bins[0]
        room = int(-space - _PACK_COST_TILES)
        if pooled and room < min(count, piece):
            break
        row, first, _ = items[item]
        take = count if count <= room + piece // 2 else max(1, room)  # rather a little too much than a little part
        parts[n] = (row, first, take, cta)
        n += 1
        per_row[row] += 1
        heapq.heapreplace(bins, (space + take + _PACK_COST_TILES, cta))
        heads[count] = behind[item]
        if take < count:
            items[num_items] = (row, first + take, count - take)
            behind[num_items], heads[count - take] = heads[count - take], num_items
            num_items += 1
    return _by_cta(parts[:n], per_row), _pool(items, behind, heads[:count + 1], max(1, piece))


@njit(cache=True)
def _cut_large_rows(tiles, size, piece, room):
    """(row, first tile, tiles) of every row, or of its parts, and room for more items.

    The parts are equal, or with a pool of ``size`` and a rest.
    """
    counts = np.ones(tiles.size, np.int64)
    for row in range(tiles.size):
        counts[row] = max(1, -(-(tiles[row] - piece // 2) // size))
    items = np.zeros((counts.sum() + room, 3), np.int64)
    n = 0
    for row in range(tiles.size):
        for j in range(counts[row]):
            first = j * size if piece else tiles[row] * j // counts[row]
            end = (j + 1) * size if piece else tiles[row] * (j + 1) // counts[row]
            items[n] = (row, first, (end if j + 1 < counts[row] else tiles[row]) - first)
            n += 1
    return items


@njit(cache=True)
def _by_size(sizes, room):
    """Lists of equal sizes: the item behind each, with room for more, and the first of each size; -1 ends a list."""
    behind = np.empty(room, np.int64)
    heads = np.full(sizes.max() + 1, -1)
    for item in range(len(sizes) - 1, -1, -1):
        behind[item], heads[sizes[item]] = heads[sizes[item]], item
    return behind, heads


@njit(cache=True)
def _pool(items, behind, heads, piece):
    """Parts (row, first tile, tiles, -1) of about ``piece`` tiles of the items that are left, largest first."""
    parts = np.empty((len(items) + items[:, 2].sum() // piece, 4), np.int64)
    n = 0
    for tiles in range(len(heads) - 1, -1, -1):
        item = heads[tiles]
        while item >= 0:
            row, first, _ = items[item]
            item = behind[item]
            count = max(1, int(np.rint(tiles / piece)))
            for j in range(count):
                begin = tiles * j // count
                parts[n] = (row, first + begin, tiles * (j + 1) // count - begin, -1)
                n += 1
    return parts[:n]


@njit(cache=True)
def _by_cta(parts, per_row):
    """Parts in the order of CTAs; of each CTA those of rows in several bins first, else as they came, largest first."""
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
def _records(parts, pool, tiles, lengths, begin, shared_parts, num_ctas, head_groups, tile_tokens):
    """Records of parts that are in the order of CTAs, and of the pool, with slots, counters and shares of merges.

    The first value is False where the plan would not fit its workspace.
    """
    num_parts = np.zeros(tiles.size, np.int64)
    for i in range(len(parts)):
        num_parts[parts[i, 0]] += 1
    for i in range(len(pool)):
        num_parts[pool[i, 0]] += 1
    first_slot = np.zeros(tiles.size, np.int64)
    counter = np.zeros(tiles.size, np.int64)
    all_parts = np.zeros(tiles.size, np.int64)
    num_slots = 0
    num_own = 0
    num_counters = 1
    for row in range(tiles.size):
        shared = shared_parts[row // head_groups]
        if num_parts[row] > 1:
            num_own += num_parts[row]
        if num_parts[row] + shared > 1:
            first_slot[row] = num_slots
            counter[row] = num_counters
            all_parts[row] = num_parts[row] + shared
            num_slots += all_parts[row]
            num_counters += 1
    seen = np.zeros(tiles.size, np.int64)
    sharers = np.zeros(tiles.size, np.int64)
    shares = np.zeros(num_ctas, np.int64)
    records = np.zeros((num_ctas + len(parts) + len(pool), RECORD_INTS), np.int32)
    records[:num_ctas, SEQ] = records[:num_ctas, NEXT] = -1
    last = DRAW if len(pool) else -1
    used = num_ctas
    drawers = 0
    at = 0
    for i in range(len(parts) + len(pool)):
        row, first, count, cta = parts[i] if i < len(parts) else pool[i - len(parts)]
        if cta >= 0 and (i == 0 or parts[i - 1, 3] != cta):
            at = cta
            drawers += 1
        else:
            if cta >= 0:
                records[at, NEXT] = used
            at = used
            used += 1
        record = records[at]
        record[NEXT] = last
        seq = row // head_groups
        shared = shared_parts[seq]
        record[SEQ], record[GROUP] = seq, row % head_groups
        record[FIRST_TOKEN], record[NUM_TILES] = begin[seq] + first * tile_tokens, count
        record[TOKENS] = lengths[seq]
        record[SLOT] = first_slot[row] + shared + seen[row] if num_parts[row] + shared > 1 else -1
        record[FIRST_SLOT], record[NUM_PARTS] = first_slot[row], num_parts[row] + shared
        record[COUNTER] = counter[row]
        record[SHARE] = -1
        seen[row] += 1
        if cta >= 0 and num_parts[row] > FEW_PARTS and shares[cta] < MAX_SHARES:
            record[SHARE] = sharers[row]
            sharers[row] += 1
            shares[cta] += 1
    records[:used, POOL], records[:used, POOL_SIZE], records[:used, NUM_DRAWERS] = used - len(pool), len(pool), drawers
    for i in range(used):
        if records[i, SEQ] >= 0:
            records[i, NUM_SHARERS] = sharers[records[i, SEQ] * head_groups + records[i, GROUP]]
    return num_own <= _SLOTS_PER_CTA * num_ctas, records[:used], num_slots, num_counters, first_slot, all_parts
