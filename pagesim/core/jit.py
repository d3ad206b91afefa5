"""How the engine's helper functions are compiled: into the loop that calls them, never for a call from Python."""

from numba.extending import register_jitable

_NO_WRAPPERS = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}

COLD = register_jitable(**_NO_WRAPPERS)
# Inlined by force: a call that passes the engine's whole state costs more than what the function does.
INLINE_OPTIONS = {"forceinline": True, **_NO_WRAPPERS}
HOT = register_jitable(**INLINE_OPTIONS)
