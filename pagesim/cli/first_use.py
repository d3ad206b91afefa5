"""What happens once after an install: the engine is compiled, and shows how far it is."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
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
    what = f"compiling the engine for {' and '.join(kind.name for kind in kinds)} memory"
    if nowhere is not None:
        if not quiet:
            print(f"pagesim: {what}; this takes some tens of seconds, each time, since {nowhere} cannot be written; "
                  "PAGESIM_CACHE_DIR moves it", file=sys.stderr, flush=True)
        return
    with _shown(what, quiet=quiet) as on_progress:
        compile_loops(kinds, on_progress)


@contextmanager
def _shown(what: str, *, quiet: bool) -> Iterator[Callable[[float], None]]:
    """Yield what takes the share that is done: a moving line on a terminal, elsewhere one line for all of it."""
    if quiet or not sys.stderr.isatty():
        if not quiet:
            print(f"pagesim: {what}; this takes some tens of seconds, once", file=sys.stderr, flush=True)
        yield lambda share: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(None), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, expand=True) as display:
        line = display.add_task(f"{what}, once", total=1.0)
        yield lambda share: display.update(line, completed=share)
