"""``pagesim plot``: one picture of run folders as a file for a paper."""

import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from pagesim.cli.extras import require
from pagesim.cli.overwriting import Force, check_free


class Kind(str, Enum):
    ledger = "ledger"
    map = "map"
    running = "running"
    sosp23 = "sosp23"
    sweep = "sweep"
    latency = "latency"
    histograms = "histograms"


def plot(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help=(
        "Run folders: what 'pagesim simulate -o DIR' wrote."))],
    kind: Annotated[Kind, typer.Option(help="What is drawn.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help=(
        ".png, .svg or .pdf; without it KIND.png in the first RUN."))] = None,
    case: Annotated[list[str], typer.Option(metavar="NAME", help="Draw this case only; may be repeated.")] = [],
    force: Force = False,
) -> None:
    """Draw one picture as PNG, SVG or PDF: the same as in the report, with matplotlib."""
    require("plot", "report", "matplotlib")
    from pagesim.report.loaded import chosen, load_runs
    from pagesim.report.plots import PLOTS, save

    check_free(output, force=force)
    path = output or runs[0] / f"{kind.value}.png"
    save(PLOTS[kind.value](chosen(load_runs(runs), case)), path)
    print(f"written to {path}", file=sys.stderr)
