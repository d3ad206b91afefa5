"""``pagesim compare``: two runs, or a run and a measured timeline."""

from pathlib import Path
from typing import Annotated

import typer

from pagesim.errors import InputError

_ROWS_SHOWN = 40


def compare(
    a: Annotated[Path, typer.Argument(metavar="RUN_A", help="A run folder, or a measured timeline as CSV.")],
    b: Annotated[Path, typer.Argument(metavar="RUN_B", help="A run folder, or a measured timeline as CSV.")],
    case: Annotated[str | None, typer.Option(help=(
        "The case to lay beside a measured timeline, where the run has several."))] = None,
    all: Annotated[bool, typer.Option("--all", help="Show the figures that are equal too.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Write one JSON object and nothing else.")] = False,
) -> None:
    """Compare two runs figure by figure, or a run with a measured timeline (time, running, waiting, KV %)."""
    measured = [path for path in (a, b) if path.is_file() and path.suffix != ".json"]
    if len(measured) == 2:
        raise InputError(f"{a} and {b} are both measured timelines; one of the two must be a run folder")
    if measured:
        _beside_measured(b if measured[0] == a else a, measured[0], case, json=json)
    elif case is not None:
        raise InputError("--case chooses what is laid beside a measured timeline; two runs are compared case by case")
    else:
        _runs(a, b, all=all, json=json)


def _runs(a: Path, b: Path, *, all: bool, json: bool) -> None:
    from pagesim.report.compare import compare_cases, pair_cases
    from pagesim.report.files import json_text
    from pagesim.report.folder import read_document

    pairs = pair_cases(read_document(a), read_document(b))
    rows = [{"a": left["name"], "b": right["name"], "figures": compare_cases(left, right)} for left, right in pairs]
    if json:
        print(json_text({"a": str(a), "b": str(b), "cases": rows}), end="")
        return
    from pagesim.cli.console import print_tables
    from pagesim.report.tables import comparison_sheet

    for pair in rows:
        shown = [row for row in pair["figures"] if all or row["a"] != row["b"]]
        title = pair["a"] if pair["a"] == pair["b"] else f"A: {pair['a']}; B: {pair['b']}"
        num_equal = sum(row["a"] == row["b"] for row in pair["figures"])
        if shown:
            print_tables([comparison_sheet(shown, title)])
        print(f"{title}: {num_equal} of {len(pair['figures'])} figures are equal")


def _beside_measured(run: Path, measured: Path, case: str | None, *, json: bool) -> None:
    from pagesim.report.compare import beside_measured, read_measured, read_timeline
    from pagesim.report.files import json_text
    from pagesim.report.folder import case_folder, read_document

    document = read_document(run)
    names = [entry["name"] for entry in document["cases"]]
    if case is None and len(names) != 1:
        raise InputError(
            f"{run} has {len(names)} cases; choose one with --case: {', '.join(names) or 'none has finished'}")
    if case is not None and case not in names:
        raise InputError(f"{run} has no case {case!r}; it has {', '.join(names)}")
    folder = case_folder(run, case or names[0], len(names) + len(document["failed"]))
    both = beside_measured(read_measured(measured), read_timeline(folder / "timeline.csv"))
    if json:
        print(json_text(both), end="")
        return
    from pagesim.cli.console import print_tables
    from pagesim.report.tables import measured_sheets

    print_tables(measured_sheets(both, _ROWS_SHOWN))
