"""How the engine's helper functions are compiled: into the loop that calls them, never for a call from Python.

A mark costs nothing: numba is imported, and told, when the loop is compiled.
"""

from collections.abc import Callable

_NO_WRAPPERS = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
# Inlined by force: a call that passes the engine's whole state costs more than what the function does.
INLINE_OPTIONS = {"forceinline": True, **_NO_WRAPPERS}

_marked: list[tuple[Callable, dict]] = []


def HOT(function: Callable) -> Callable:
    """Mark a function that most steps call: inlined wherever it is called."""
    _marked.append((function, INLINE_OPTIONS))
    return function


def COLD(function: Callable) -> Callable:
    """Mark a function that few steps call."""
    _marked.append((function, _NO_WRAPPERS))
    return function


def tell_numba() -> None:
    """Let numba compile the functions marked so far, where compiled code calls them."""
    from numba.extending import register_jitable

    while _marked:
        function, options = _marked.pop()
        register_jitable(**options)(function)
