"""The passes over all block ids behind ``reuse.py``, compiled.

Numba's cache on disk watches the file of a cached function and no other.  All that is compiled here stands in this
file and calls nothing outside it, so the cache never outlives its source.
"""

from heapq import heappop, heappush

import numba
import numpy as np

_LEAF = 64  # places of a leaf of the Fenwick tree: counted one by one, so that the tree stays in the processor's cache
_NEVER = -1


def _compiled(function):
    try:
        return numba.njit(cache=True)(function)
    except RuntimeError:  # nowhere to write a cache: a second or two each time
        return numba.njit(function)


@_compiled
def lru_hits(ids, offsets, num_full, num_countable, num_distinct):
    """Blocks by stack distance: how many are hit by a cache of so many blocks and by none that is smaller.

    The stack lists blocks by last use, a request's first block above its last: so the end of a prefix goes before its
    beginning, and a request looks at the stack as it was before it.  A block is hit by a cache that holds it and all
    before it in the prompt (Mattson et al., 1970: the cache of c blocks holds the upper c of the stack).

    Args:
        ids: numbered from 0, int64, all requests end to end.
        offsets: request i begins at ``ids[offsets[i]]``.
        num_full: whole blocks of each prompt, which a cache can keep.
        num_countable: leading ones that may hit, at most ``num_full``.

    Returns:
        Blocks by the size that hits them, int64, shape (num_distinct + 1,), and how many whole blocks differ.
    """
    hits = np.zeros(num_distinct + 1, np.int64)
    last = np.full(num_distinct, _NEVER, np.int64)  # place of each block's last use; places rise with time
    num_leaves = num_full.sum() // _LEAF + 2
    holds = np.zeros(num_leaves * _LEAF, np.uint8)  # whether the place is some block's last
    tree = np.zeros(num_leaves + 1, np.int64)       # Fenwick: such places of the leaves that are complete
    live, place = 0, 0
    for request in range(len(num_full)):
        begin = offsets[request]
        depth, deepest, above = 0, 0, _NEVER
        for block in range(begin, begin + num_countable[request]):
            at = last[ids[block]]
            if at == _NEVER:
                break
            if at == above - 1:
                depth += 1
            else:
                depth = live
                for before in range(at // _LEAF * _LEAF, at):
                    depth -= holds[before]
                leaf = at // _LEAF
                while leaf > 0:
                    depth -= tree[leaf]
                    leaf -= leaf & -leaf
            above = at
            deepest = max(deepest, depth)
            hits[deepest] += 1
        for block in range(begin + num_full[request] - 1, begin - 1, -1):
            at = last[ids[block]]
            if at == _NEVER:
                live += 1
            else:
                holds[at] = 0
                if at // _LEAF != place // _LEAF:
                    _add(tree, at // _LEAF, -1)
            last[ids[block]] = place
            holds[place] = 1
            place += 1
            if place % _LEAF == 0:
                count = 0
                for before in range(place - _LEAF, place):
                    count += holds[before]
                _add(tree, place // _LEAF - 1, count)
    return hits, live


@_compiled
def _add(tree, leaf, count):
    at = leaf + 1
    while at < len(tree):
        tree[at] += count
        at += at & -at


@_compiled
def next_uses(ids, offsets, num_full, num_countable, num_distinct):
    """The request in which each whole block would hit next, int32, shape of ``ids``; the number of requests for none.

    Between two uses of a block it must be kept for the second to hit; where that one does not count, nothing is lost.
    """
    num_requests = len(num_full)
    after = np.full(len(ids), num_requests, np.int32)
    upcoming = np.full(num_distinct, num_requests, np.int32)
    for request in range(num_requests - 1, -1, -1):
        begin = offsets[request]
        for block in range(begin, begin + num_full[request]):
            after[block] = upcoming[ids[block]]
        for block in range(begin + num_full[request] - 1, begin - 1, -1):
            upcoming[ids[block]] = request if block < begin + num_countable[request] else num_requests
    return after


@_compiled
def optimal_hits(after, offsets, num_full, capacity):
    """Most blocks that any cache of ``capacity`` blocks can hit: it drops what is used furthest in the future (Belady).

    Of a prefix the beginning is never used later than the end, so what is kept is whole prefixes.

    Args:
        after: of ``next_uses``.
    """
    num_requests = len(num_full)
    kept = np.zeros(num_requests, np.int64)  # blocks kept for this request
    waits = np.zeros(num_requests, np.uint8)  # whether it is in the heap
    furthest = [0]  # a heap of the requests with kept blocks, negative; requests that are over lie at its end
    furthest.pop()
    size, hits = 0, 0
    for request in range(num_requests):
        hits += kept[request]
        size -= kept[request]
        for block in range(offsets[request], offsets[request] + num_full[request]):
            use = after[block]
            if use < num_requests:
                kept[use] += 1
                size += 1
                if not waits[use]:
                    waits[use] = 1
                    heappush(furthest, -use)
        while size > capacity:
            use = -furthest[0]
            dropped = min(kept[use], size - capacity)
            kept[use] -= dropped
            size -= dropped
            if kept[use] == 0:
                waits[use] = 0
                heappop(furthest)
    return hits
