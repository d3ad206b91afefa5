"""Where every slot of KV memory is: the parts of the capacity, and the law that they sum to it.

At every step, and so over any time, every slot is in one part: ``is_whole`` states it.  The first four parts are what
the running sequences hold; they follow from four levels, which change when a sequence stores, takes or gives back.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from pagesim.core.jit import HOT


class Part(NamedTuple):
    """A part of the capacity, and what a textbook and Figure 2 of the PagedAttention paper call it."""

    name: str
    textbook: str
    sosp23: str


LEDGER = (
    Part("token_states", "used", "token_states"),
    Part("reserved", "internal", "reserved"),  # empty now, filled before the sequence ends
    Part("overreserved", "internal", "internal"),  # asked for, never filled
    Part("rounding", "internal", "external_and_others"),  # taken beyond what was asked: a buddy's power of two
    Part("cached", "free", "external_and_others"),  # kept by a prefix cache alone
    Part("stranded", "external", "external_and_others"),  # free, while the queue's head fits into no hole
    Part("idle", "free", "external_and_others"),
    Part("remainder", "external", "external_and_others"),  # outside any block
)
PARTS = tuple(part.name for part in LEDGER)
HELD = PARTS[:4]  # by sequences: together the allocated slots

NOBODY, CACHED = -1, -2  # owner of what is free; of what nobody but a prefix cache keeps

# What the running sequences hold, in slots: tokens stored; of what they asked for, what they will fill; what they asked
# for; what they got.  ``context_tokens`` are the tokens that each of them has stored, added up.
LEVELS = np.dtype([(name, np.int64) for name in ("token_states", "promised", "asked", "allocated", "context_tokens")],
                  align=True)


@HOT
def store(levels, tokens):
    """Sequences store ``tokens`` more tokens, or give up as many where negative."""
    levels.token_states += tokens
    levels.context_tokens += tokens


@HOT
def take(levels, asked, final, allocated):
    """A sequence that ends with ``final`` tokens takes ``allocated`` slots for the ``asked`` ones."""
    levels.asked += asked
    levels.promised += min(asked, final)
    levels.allocated += allocated


@HOT
def change(levels, asked, more, final, allocated):
    """It asked for ``asked`` slots and asks for ``more`` now, and has ``allocated`` slots more."""
    levels.asked += more - asked
    levels.promised += min(more, final) - min(asked, final)
    levels.allocated += allocated


@HOT
def give(levels, asked, final, allocated):
    """It gives them back."""
    levels.asked -= asked
    levels.promised -= min(asked, final)
    levels.allocated -= allocated


@HOT
def split(parts, levels, doubled, cached, free, is_stranded, remainder):
    """Write the parts, in the order of ``PARTS``.

    ``doubled`` slots, all of them filled, are held by several sequences and in the levels once more for each but the
    first; ``free`` slots have no owner, ``cached`` of them are kept by a prefix cache.
    """
    parts[0] = levels.token_states - doubled
    parts[1] = levels.promised - levels.token_states
    parts[2] = levels.asked - levels.promised
    parts[3] = levels.allocated - levels.asked
    parts[4] = cached
    parts[5] = free - cached if is_stranded else 0
    parts[6] = 0 if is_stranded else free - cached
    parts[7] = remainder


def is_whole(parts: Iterable[float], capacity: float) -> bool:
    """The law: the parts sum to the capacity, in slots, or over time in slot-seconds but for what float64 loses."""
    return math.isclose(sum(parts), capacity, rel_tol=1e-6)


def grouped(shares: dict[str, float], convention: str) -> dict[str, float]:
    """Shares by part, added up as a convention groups them: ``textbook`` or ``sosp23``."""
    groups: dict[str, float] = {}
    for part in LEDGER:
        name = getattr(part, convention)
        groups[name] = groups.get(name, 0) + shares[part.name]
    return groups
