"""Tables and sentences within the window; where nobody's window sets a width, as wide as they need to be."""

import os
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

    from pagesim.report.tables import Sheet

_ENDLESS = 10_000


def width(stream: "TextIO") -> int:
    """Columns of the terminal, or what COLUMNS asks for; without either there is no limit."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    return shutil.get_terminal_size().columns if stream.isatty() else _ENDLESS


def print_tables(sheets: "list[Sheet]") -> None:
    from rich.console import Console

    from pagesim.report.fitting import fitted
    from pagesim.report.tables import rich_table

    # A cell that is wider than the window is not cut: the terminal wraps it.
    console = Console(width=_ENDLESS, highlight=False)
    for sheet in sheets:
        for part, widths in fitted(sheet, width(sys.stdout)):
            console.print(rich_table(part, widths), overflow="ignore", crop=False)


def say(lines: list[str]) -> None:
    """Print sentences and an empty line; what does not fit goes on in the next line, indented."""
    if lines:
        print("\n".join(wrapped(line, width(sys.stdout)) for line in lines) + "\n", flush=True)


def warn(lines: list[str]) -> None:
    """Print sentences to stderr."""
    for line in lines:
        print(wrapped(f"pagesim: {line}", width(sys.stderr)), file=sys.stderr)


def wrapped(line: str, columns: int, indent: int = 2) -> str:
    """The line cut between words."""
    return textwrap.fill(line, columns, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
