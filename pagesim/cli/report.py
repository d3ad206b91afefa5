"""``pagesim report``: a page of pictures from run folders."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from pagesim.cli.overwriting import Force, check_free


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help=(
        "Run folders: what 'pagesim simulate -o DIR' wrote."))],
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE.html", help=(
        "The page; report.html in the first RUN if left out."))] = None,
    case: Annotated[list[str], typer.Option(metavar="NAME", help="Show this case only; may be repeated.")] = [],
    force: Force = False,
) -> None:
    """Write one HTML page, complete in itself: memory over time, address maps, distributions, sweeps, all numbers."""
    from pagesim.report.files import write_text
    from pagesim.report.loaded import chosen, load_runs
    from pagesim.report.page import page_html

    check_free(output, force=force)
    loaded = load_runs(runs)
    page = page_html(loaded, chosen(loaded, case))
    path = output or runs[0] / "report.html"
    write_text(path, page)
    print(f"written to {path} ({path.stat().st_size / 1e6:.2f} MB)", file=sys.stderr)
