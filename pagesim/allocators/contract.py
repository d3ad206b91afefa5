"""What the engine asks of an allocator, whichever it is.

A function takes the allocator's memory first and is chosen by its type: at compile time inside the engine (no price at
run time), by the table of kinds in plain Python.  A refusal changes nothing.  An allocator knows no clock, no queue
and, but for reservations, no output length.
"""

from pagesim.allocators import KINDS
from pagesim.core.jit import INLINE_OPTIONS

_MODULES = {kind.memory: kind.module for kind in KINDS}


# Compiled into the loop.


def fits(memory, ask, running):
    """Whether the sequences of ``ask`` could be admitted beside ``running`` others."""
    return _MODULES[type(memory)].fits(memory, ask, running)


def fits_empty(memory, ask):
    """The same with nothing admitted at all, and whether one of them could reach its end alone."""
    return _MODULES[type(memory)].fits_empty(memory, ask)


def stored_already(memory, ask):
    """Tokens that one of them need not compute: what came back from the host, or what the memory finds.

    ``fits`` and ``admit`` that follow are about the same ask, with these tokens as its ``stored``.
    """
    return _MODULES[type(memory)].stored_already(memory, ask)


def reservation(memory, ask):
    """Slots that one of them asks for, before rounding."""
    return _MODULES[type(memory)].reservation(memory, ask)


def admit(memory, row, ask, tokens, step):
    """Give ``row`` what one of them gets when it stores ``tokens`` tokens; it fits."""
    return _MODULES[type(memory)].admit(memory, row, ask, tokens, step)


def extend(memory, row, stored, tokens, step):
    """Make room for ``tokens`` tokens in ``row``, which stores ``stored``; returns tokens copied, -1 for a refusal."""
    return _MODULES[type(memory)].extend(memory, row, stored, tokens, step)


def release(memory, row, stored, is_over, step):
    """Take back all that ``row`` holds, which stores ``stored`` tokens; it may come back unless it ``is_over``."""
    return _MODULES[type(memory)].release(memory, row, stored, is_over, step)


def keeps_chunks(memory):
    """Whether it is told of chunks, by ``keep_chunk``; a constant."""
    return _MODULES[type(memory)].keeps_chunks(memory)


def keep_chunk(memory, row, stored, step):
    """The step is over in which ``row``, which goes on and stores ``stored`` tokens, computed a chunk of a prefill."""
    return _MODULES[type(memory)].keep_chunk(memory, row, stored, step)


def room_tokens(memory, row):
    """Tokens that ``row`` can store in all without ``extend``."""
    return _MODULES[type(memory)].room_tokens(memory, row)


def asked_slots(memory, row):
    """Slots that ``row`` asked for, before rounding."""
    return _MODULES[type(memory)].asked_slots(memory, row)


def allocated_slots(memory, row):
    """Slots that ``row`` holds."""
    return _MODULES[type(memory)].allocated_slots(memory, row)


def units(memory, row):
    """What a swap of ``row`` moves, in units."""
    return _MODULES[type(memory)].units(memory, row)


def unit_slots(memory):
    """Slots of a unit: of a block, or 1 in an arena."""
    return _MODULES[type(memory)].unit_slots(memory)


def free_slots(memory):
    """Slots without an owner; those outside any block are not counted."""
    return _MODULES[type(memory)].free_slots(memory)


def cached_slots(memory):
    """Of these, slots kept by a prefix cache."""
    return _MODULES[type(memory)].cached_slots(memory)


def doubled_slots(memory):
    """Slots that several rows hold, once for each row beyond the first."""
    return _MODULES[type(memory)].doubled_slots(memory)


def shares(memory):
    """Whether rows can hold the same slots; a constant."""
    return _MODULES[type(memory)].shares(memory)


def has_holes(memory):
    """Whether free slots can be of no use for where they lie; a constant, so that the other loop is without them."""
    return _MODULES[type(memory)].has_holes(memory)


def hole_stats(memory, asked):
    """(holes, slots of the largest, slots of holes that regions of ``asked`` slots could use)."""
    return _MODULES[type(memory)].hole_stats(memory, asked)


def age_holes(memory, seconds):
    """Let ``seconds`` pass over the holes as they are, for their histogram."""
    return _MODULES[type(memory)].age_holes(memory, seconds)


def forget(memory):
    """Reset histograms and counters after a warm-up; ownership stays."""
    return _MODULES[type(memory)].forget(memory)


_COMPILED = (stored_already, fits, fits_empty, reservation, admit, extend, release, keeps_chunks, keep_chunk,
             room_tokens, asked_slots, allocated_slots, units, unit_slots, free_slots, cached_slots, doubled_slots,
             shares, has_holes, hole_stats, age_holes, forget)


# Asked from Python, of a run as it stands.


def num_units(memory):
    return _MODULES[type(memory)].num_units(memory)


def ids(memory, row):
    """The units that ``row`` holds, in the order of its tokens; an array of integers."""
    return _MODULES[type(memory)].ids(memory, row)


def moves(memory, seen, serial, owner):
    """What changed hands since ``seen``, which is None at first: then all was free; of memories that do not share.

    Args:
        serial, owner: of each row, int64, shape (rows,); ``serial`` is new with each admission.

    Returns:
        What was given back and what was taken, each int64 of shape (n, 3): first unit, number of units, new owner; and
        what to pass as ``seen`` next time.
    """
    return _MODULES[type(memory)].moves(memory, seen, serial, owner)


def histograms(memory):
    """Histograms by their names in ``Result.histograms``."""
    return _MODULES[type(memory)].histograms(memory)


def counters(memory):
    """Counters by their names in ``Result.counters``."""
    return _MODULES[type(memory)].counters(memory)


def cached_units(memory):
    """Whether each unit is kept by a prefix cache alone, bool, shape (units,); of memories that share."""
    return _MODULES[type(memory)].cached_units(memory)


def found(memory, ask):
    """Tokens that ``stored_already`` would find, of an ask that need not be admitted here; of memories that share."""
    return _MODULES[type(memory)].found(memory, ask)


def evicted_blocks(memory):
    """Blocks that lost their key to be handed out; of memories that share."""
    return _MODULES[type(memory)].evicted_blocks(memory)


# A module also answers of a spec: whether it ``serves(spec)``, as it does its ``EXAMPLE``; its memory,
# ``make(spec, capacity_slots, demand, trace)``; ``name(spec)``, a short name; ``slots_of_a_unit(spec)``;
# ``swaps(spec)``, whether a victim's memory can wait on the host; and ``check(spec, trace)``, which raises InputError
# for a trace that it cannot serve.


def tell_numba() -> None:
    """Let numba choose these functions by the type of the memory, where compiled code calls them."""
    from numba.extending import overload

    for function in _COMPILED:
        overload(function, strict=False, jit_options=INLINE_OPTIONS)(_choice(function.__name__))


def _choice(name):
    """What numba compiles for ``name``: the function of the allocator whose memory is the first argument."""

    def choose(memory, *arguments):
        return getattr(_MODULES[memory.instance_class], name)

    return choose
