"""One progress line for all cases, on a terminal's stderr only."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagesim.experiment import Progress


@contextmanager
def progress_display(names: list[str], *, quiet: bool) -> Iterator[Callable[["Progress"], None]]:
    """Yield what takes the reports: requests done of all, their rate and the time left, cases ended of all."""
    if quiet or not sys.stderr.isatty():
        yield lambda progress: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Display

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} requests"),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
    )
    with Display(*columns, console=Console(stderr=True), transient=True) as display:
        line = display.add_task(names[0], total=1, speed="")
        latest: dict[int, "Progress"] = {}

        def show(progress: "Progress") -> None:
            latest[progress.case] = progress
            ended = sum(each.ended for each in latest.values())
            # The cases not begun are taken to be as long as the longest known.
            total = sum(each.num_requests for each in latest.values())
            total += (len(names) - len(latest)) * max(each.num_requests for each in latest.values())
            done = sum(each.requests_done for each in latest.values())
            speed = display.tasks[0].speed
            display.update(
                line,
                completed=done,
                total=max(total, 1),
                speed=f"{speed:,.0f}/s" if speed else "",
                description=f"{ended} of {len(names)} cases · {names[progress.case]}",
            )

        yield show
