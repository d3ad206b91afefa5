"""``pagesim plot``: one picture of run folders as a file for a paper."""

import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagesim.cli.extras import require
from pagesim.cli.overwriting import Force, check_free
from pagesim.errors import InputError

if TYPE_CHECKING:
    from pagesim.report.loaded import LoadedCase


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
        "Run folders, what 'pagesim simulate -o DIR' wrote; or for --kind sweep the folder of 'pagesim sweep'."))],
    kind: Annotated[Kind, typer.Option(help="What is drawn.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help=(
        ".png, .svg or .pdf; without it KIND.png in the first RUN."))] = None,
    case: Annotated[list[str], typer.Option(metavar="NAME", help="Draw this case only; may be repeated.")] = [],
    figure: Annotated[list[str], typer.Option(metavar="NAME", help=(
        "For --kind sweep: a figure by its name in the CSV, such as latency.ttft.p99_s; may be repeated."))] = [],
    force: Force = False,
) -> None:
    """Draw one picture as PNG, SVG or PDF: the same as in the report, with matplotlib."""
    require("plot", "report", "matplotlib")
    from pagesim.report.loaded import chosen, load_runs
    from pagesim.report.plots import PLOTS, save

    check_free(output, force=force)
    path = output or runs[0] / f"{kind.value}.png"
    if figure and kind is not Kind.sweep:
        raise InputError(f"--figure is for --kind sweep; --kind {kind.value} always shows the same")
    cases = _cases(runs) if kind is Kind.sweep else None
    if cases is None:
        cases = chosen(load_runs(runs), case)
    save(PLOTS[kind.value](cases, *([tuple(figure)] if figure else [])), path)
    print(f"written to {path}", file=sys.stderr)


def _cases(folders: list[Path]) -> "list[LoadedCase] | None":
    """Those of a sweep's folder; None where it is none."""
    if not (folders[0] / "sweep.json").is_file():
        return None
    if len(folders) > 1:
        raise InputError("one sweep at a time is drawn")
    from pagesim.experiment.sweep import cases_of

    return cases_of(folders[0])
