"""Tables on stdout, as wide as they need to be where nobody's window sets the width."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagesim.report.tables import Sheet

# rich takes 80 columns for a pipe and would cut the cells.
_PIPE_COLUMNS = 250


def print_tables(sheets: "list[Sheet]") -> None:
    from rich.console import Console

    from pagesim.report.tables import rich_table

    console = Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS, highlight=False)
    for sheet in sheets:
        console.print(rich_table(sheet))
