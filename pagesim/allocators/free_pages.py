"""The free list of pages as SGLang keeps it: pages of one token in turn, larger ones the latest group first.

What a step's ends give back is held until it is over, and is one group; it may be taken from the next step on.
"""

from typing import NamedTuple

import numpy as np

from pagesim.core.jit import COLD, HOT

# Pages from ``fresh`` on were never handed out; ``freed`` ones are in the ring that begins at ``head``, or on the
# stack; ``held`` ones were given back in step ``since``.
FREE_COUNT = np.dtype([(field, np.int64) for field in ("fresh", "head", "freed", "held", "since")], align=True)


class FreePages(NamedTuple):
    in_turn: bool
    freed: np.ndarray  # int32 (pages,): a ring, or a stack
    held: np.ndarray  # int32 (pages,)
    count: np.record  # FREE_COUNT


def make_free_pages(num_pages: int, in_turn: bool) -> FreePages:
    return FreePages(in_turn, np.empty(num_pages, np.int32), np.empty(num_pages, np.int32),
                     np.zeros(1, FREE_COUNT).view(np.recarray)[0])


@HOT
def take(free):
    """The next page; there is one, and none is held."""
    count = free.count
    if count.freed > 0 and (count.fresh == len(free.freed) or not free.in_turn):
        count.freed -= 1
        if not free.in_turn:
            return np.int64(free.freed[count.freed])
        at = count.head
        count.head = (at + 1) % len(free.freed)
        return np.int64(free.freed[at])
    count.fresh += 1
    return count.fresh - 1


@HOT
def hold_back(free, page, step):
    count = free.count
    if count.held > 0 and count.since != step:
        give_back_held(free)
    count.since = step
    free.held[count.held] = page
    count.held += 1


@COLD
def give_back_held(free):
    """What is held goes behind all others, or as one group before them; in both its first page is next of it."""
    count = free.count
    for k in range(count.held):
        if free.in_turn:
            free.freed[(count.head + count.freed) % len(free.freed)] = free.held[k]
        else:
            free.freed[count.freed] = free.held[count.held - 1 - k]
        count.freed += 1
    count.held = 0


def free_list(free):
    """Pages in the order in which they would be handed out now, without those held; from Python only."""
    count = free.count
    fresh = np.arange(count.fresh, len(free.freed))
    if free.in_turn:
        return np.concatenate([fresh, free.freed[(count.head + np.arange(count.freed)) % len(free.freed)]])
    return np.concatenate([free.freed[:count.freed][::-1], fresh])
