"""What the engine asks of an allocator, whichever it is.

Each function takes the allocator's state first and is chosen by the state's type: at compile time inside the engine (no
price at run time), by a dictionary in plain Python.  A new allocator is a module with these functions and one entry in
``_MODULES``.  A refusal changes nothing.  An allocator knows no clock, no queue and, but for reservations, no output
length.
"""

from numba.extending import overload

from pagesim.allocators import arena, pool
from pagesim.core.jit import INLINE_OPTIONS

_MODULES = {pool.Pool: pool, arena.Arena: arena}


def reservation(state, prompt, output, limit, known):
    """Slots that a sequence asks for at admission, before rounding; ``limit`` is its max_tokens, 0 for none."""
    return _MODULES[type(state)].reservation(state, prompt, output, limit, known)


def fits(state, asked, copies, running):
    """Whether ``copies`` sequences that ask for ``asked`` slots each could be admitted beside ``running`` others."""
    return _MODULES[type(state)].fits(state, asked, copies, running)


def fits_empty(state, asked, copies):
    """The same with nothing admitted at all."""
    return _MODULES[type(state)].fits_empty(state, asked, copies)


def admit(state, row, asked, tokens, step):
    """Give ``row`` its region of ``asked`` slots (contiguous) or the blocks of ``tokens`` tokens (paged); they fit."""
    return _MODULES[type(state)].admit(state, row, asked, tokens, step)


def extend(state, row, stored, tokens, step):
    """Make room for ``tokens`` tokens in ``row``, which stores ``stored``; returns tokens copied, -1 for a refusal."""
    return _MODULES[type(state)].extend(state, row, stored, tokens, step)


def release(state, row, step):
    """Take back all that ``row`` holds."""
    return _MODULES[type(state)].release(state, row, step)


def asked_slots(state, row):
    """Slots that ``row`` asked for, before rounding: the tokens it can store without ``extend``."""
    return _MODULES[type(state)].asked_slots(state, row)


def allocated_slots(state, row):
    """Slots that ``row`` holds."""
    return _MODULES[type(state)].allocated_slots(state, row)


def units(state, row):
    """What a swap of ``row`` moves: blocks (paged) or slots (contiguous)."""
    return _MODULES[type(state)].units(state, row)


def free_slots(state):
    """Slots without an owner; those outside any block are not counted."""
    return _MODULES[type(state)].free_slots(state)


def hole_stats(state, asked):
    """(holes, slots of the largest, slots of holes that regions of ``asked`` slots could use); zeros where paged."""
    return _MODULES[type(state)].hole_stats(state, asked)


def age_holes(state, seconds):
    """Let ``seconds`` pass over the holes as they are, for their histogram."""
    return _MODULES[type(state)].age_holes(state, seconds)


def forget(state):
    """Reset histograms and counters after a warm-up; ownership stays."""
    return _MODULES[type(state)].forget(state)


_FUNCTIONS = (reservation, fits, fits_empty, admit, extend, release, asked_slots, allocated_slots, units, free_slots,
              hole_stats, age_holes, forget)


def _compile(name):
    """What numba compiles for ``name``: the function of the allocator whose state is the first argument."""

    def choose(state, *arguments):
        return getattr(_MODULES[state.instance_class], name)

    return choose


for _function in _FUNCTIONS:
    overload(_function, strict=False, jit_options=INLINE_OPTIONS)(_compile(_function.__name__))
