"""What happens once after an install: the engine is compiled, and says so."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagesim.allocators import Spec


def compile_first(allocators: "Iterable[Spec]", *, quiet: bool) -> None:
    """Compile the engine for those of these allocators for which that has not been done yet."""
    from pagesim.engine.compiled import compile_loops, uncompiled, unwritable_cache

    kinds = uncompiled(allocators)
    if not kinds:
        return
    nowhere = unwritable_cache()
    often = "once" if nowhere is None else f"each time, since {nowhere} cannot be written; PAGESIM_CACHE_DIR moves it"
    if not quiet:
        names = " and ".join(kind.name for kind in kinds)
        print(f"pagesim: compiling the engine for {names} memory; this takes up to half a minute, {often}",
              file=sys.stderr, flush=True)
    if nowhere is None:
        compile_loops(kinds)
