"""One progress line for all cases, on a terminal's stderr only."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagesim.experiment import Progress


@contextmanager
def progress_display(num_cases: int, *, quiet: bool) -> Iterator[Callable[["Progress"], None]]:
    """Yield what takes the reports: cases ended, requests done of all, their rate and the time left."""
    if quiet or not sys.stderr.isatty():
        yield lambda progress: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Display

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[done]}"), TimeRemainingColumn())
    with Display(*columns, console=Console(stderr=True), transient=True) as display:
        line = display.add_task(f"0 of {num_cases} cases", total=None, done="reading the trace")
        latest: dict[int, Progress] = {}

        def show(progress: "Progress") -> None:
            latest[progress.case] = progress
            ended = sum(each.ended for each in latest.values())
            done = sum(each.requests_done for each in latest.values())
            # The cases not begun are taken to be as long as the longest known.
            total = sum(each.num_requests for each in latest.values())
            total += (num_cases - len(latest)) * max(each.num_requests for each in latest.values())
            speed = display.tasks[0].speed
            text = f"{done:,} of {total:,} requests" + (f", {speed:,.0f}/s" if speed else "")
            display.update(line, completed=done, total=max(total, 1), done=text,
                           description=f"{ended} of {num_cases} cases")

        yield show
