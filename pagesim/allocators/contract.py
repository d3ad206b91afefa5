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


def _module(state_type):
    return _MODULES[state_type.instance_class]


overload(reservation, strict=False, jit_options=INLINE_OPTIONS)(
    lambda state, prompt, output, limit, known: _module(state).reservation
)
overload(fits, strict=False, jit_options=INLINE_OPTIONS)(lambda state, asked, copies, running: _module(state).fits)
overload(fits_empty, strict=False, jit_options=INLINE_OPTIONS)(lambda state, asked, copies: _module(state).fits_empty)
overload(admit, strict=False, jit_options=INLINE_OPTIONS)(lambda state, row, asked, tokens, step: _module(state).admit)
overload(extend, strict=False, jit_options=INLINE_OPTIONS)(
    lambda state, row, stored, tokens, step: _module(state).extend
)
overload(release, strict=False, jit_options=INLINE_OPTIONS)(lambda state, row, step: _module(state).release)
overload(asked_slots, strict=False, jit_options=INLINE_OPTIONS)(lambda state, row: _module(state).asked_slots)
overload(allocated_slots, strict=False, jit_options=INLINE_OPTIONS)(lambda state, row: _module(state).allocated_slots)
overload(units, strict=False, jit_options=INLINE_OPTIONS)(lambda state, row: _module(state).units)
overload(free_slots, strict=False, jit_options=INLINE_OPTIONS)(lambda state: _module(state).free_slots)
overload(hole_stats, strict=False, jit_options=INLINE_OPTIONS)(lambda state, asked: _module(state).hole_stats)
overload(age_holes, strict=False, jit_options=INLINE_OPTIONS)(lambda state, seconds: _module(state).age_holes)
overload(forget, strict=False, jit_options=INLINE_OPTIONS)(lambda state: _module(state).forget)
