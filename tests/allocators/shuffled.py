"""A kind of allocator that pagesim does not have: paged, but any of the blocks given back may be handed out next.

``test_new_kind`` puts this file beside the allocators of a copy of the package.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pagesim.allocators import paged
from pagesim.allocators.paged import (  # noqa: F401 - what is the same
    Paged, PagedMemory, age_holes, allocated_slots, asked_slots, cached_slots, counters, doubled_slots, fits,
    fits_empty, forget, free_slots, has_holes, histograms, hole_stats, ids, keep_chunk, keeps_chunks, moves, num_units, release, reservation,
    room_tokens, shares, slots_of_a_unit, stored_already, swaps, unit_slots, units)
from pagesim.core.jit import HOT
from pagesim.errors import InputError

_PRIME = 2**31 - 1


@dataclass(frozen=True)
class Shuffled:
    """Blocks of ``block_size`` slots, handed out in random order once they have been given back."""

    block_size: int = 8
    """Slots in a block."""
    seed: int = 0
    """Of the draws."""

    def __post_init__(self) -> None:
        if self.block_size < 1:
            raise InputError(f"block_size must be at least 1, got {self.block_size}")


ShuffledMemory = NamedTuple("ShuffledMemory", [
    *PagedMemory.__annotations__.items(), ("seed", int), ("draws", np.ndarray)])  # int64 (1,): how many were made

# Called from here too, and not by the engine alone.
for function in (paged.admit, paged.extend, free_slots, units):
    HOT(function)


EXAMPLE = Shuffled()


def check(spec, trace):
    pass


def serves(spec):
    return True


def make(spec, capacity_slots, demand, trace):
    pool = paged.make(Paged(spec.block_size), capacity_slots, demand, trace)
    return ShuffledMemory(*pool, spec.seed, np.zeros(1, np.int64))


def name(spec):
    return f"shuffled {spec.block_size} seed={spec.seed}"


@HOT
def _draw(memory, below):
    """A number in [0, below), the same in every run."""
    memory.draws[0] += 1
    drawn = (memory.seed + memory.draws[0]) * 48271 % _PRIME
    return drawn * drawn % _PRIME * 69621 % _PRIME % below


@HOT
def _shuffle(memory, blocks):
    """Put drawn blocks on top of the stack."""
    stack, freed = memory.freed, memory.count.freed
    for i in range(min(blocks, freed)):
        top, at = freed - 1 - i, _draw(memory, freed - i)
        stack[top], stack[at] = stack[at], stack[top]


@HOT
def _missing(memory, row, tokens):
    return (tokens + memory.block_size - 1) // memory.block_size - units(memory, row)


def admit(memory, row, ask, tokens, step):
    _shuffle(memory, _missing(memory, row, tokens))
    paged.admit(memory, row, ask, tokens, step)


def extend(memory, row, stored, tokens, step):
    missing = _missing(memory, row, tokens)
    if missing * memory.block_size <= free_slots(memory):  # a refusal changes nothing, the order of the stack neither
        _shuffle(memory, missing)
    return paged.extend(memory, row, stored, tokens, step)
