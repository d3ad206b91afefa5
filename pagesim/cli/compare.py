"""``pagesim compare``: two runs, or a run and a measured timeline."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagesim.errors import InputError

if TYPE_CHECKING:
    from pagesim.report.pairing import Side

_ROWS_SHOWN = 40
_FIGURES_SHOWN = 20


def compare(
    a: Annotated[Path, typer.Argument(metavar="RUN_A", help="A run folder, or a measured timeline as CSV.")],
    b: Annotated[Path, typer.Argument(metavar="RUN_B", help="A run folder, or a measured timeline as CSV.")],
    case: Annotated[list[str], typer.Option(metavar="NAME", help=(
        "Compare this case only; given twice, A's case and then B's."))] = [],
    all: Annotated[bool, typer.Option("--all", help="Show every figure, in the order of the JSON.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Write one JSON object and nothing else.")] = False,
) -> None:
    """Say what changed from run A to run B and what that did, or lay a measured timeline beside a run.

    A measured timeline is a CSV with time, running, waiting and KV %.
    """
    measured = [path for path in (a, b) if path.is_file() and path.suffix != ".json"]
    if len(measured) == 2:
        raise InputError(f"{a} and {b} are both measured timelines; one of the two must be a run folder")
    if len(case) > (1 if measured else 2):
        most = "1 case can be laid beside a measured timeline" if measured else "2 at most can be compared"
        raise InputError(f"--case is given {len(case)} times; {most}")
    if measured:
        _beside_measured(b if measured[0] == a else a, measured[0], case[0] if case else None, json=json)
    else:
        _runs(a, b, case, all=all, json=json)


def _runs(a: Path, b: Path, names: list[str], *, all: bool, json: bool) -> None:
    from pagesim.report.compare import compare_cases
    from pagesim.report.files import json_text
    from pagesim.report.folder import SCHEMA_VERSION
    from pagesim.report.pairing import changed, pair_cases

    sides = _sides(a), _sides(b)
    if names:
        sides = tuple([_named(run, side, name)] for run, side, name in zip((a, b), sides, (names[0], names[-1])))
    pairing = pair_cases(*sides)
    rows = [{"a": left.name, "b": right.name, "changed": changed(left, right),
             "figures": compare_cases(left.entry, right.entry)} for left, right in pairing.pairs]
    if json:
        print(json_text({"schema_version": SCHEMA_VERSION, "a": str(a), "b": str(b), "cases": rows,
                         "only_in_a": pairing.only_in_a, "only_in_b": pairing.only_in_b}), end="")
        return
    from pagesim.cli.console import say

    for pair in rows:
        _show(pair, all=all)
    alone = [f"only in {run}, compared with nothing: {', '.join(each)}"
             for run, each in ((a, pairing.only_in_a), (b, pairing.only_in_b)) if each]
    if alone:
        say(alone)


def _show(pair: dict, *, all: bool) -> None:
    from pagesim.cli.console import print_tables, say
    from pagesim.report.compare import most_moved
    from pagesim.report.tables import comparison_sheet

    moved = most_moved(pair["figures"])
    title = pair["a"] if pair["a"] == pair["b"] else f"A: {pair['a']}; B: {pair['b']}"
    lines = [title, "changed: " + (", ".join(f"{each['key']} {each['a']} → {each['b']}" for each in pair["changed"])
                                   or "no setting")]
    if not moved:
        say([*lines, f"all {len(pair['figures'])} figures are equal"])
    else:
        say([*lines, _verdict(pair["figures"])])
        shown = pair["figures"] if all else moved[:_FIGURES_SHOWN]
        if not all and len(moved) > len(shown):
            heading = f"The {len(shown)} figures of {len(moved)} that moved most; --all shows every one"
        else:
            heading = "Every figure" if all else "Figures that moved"
        print_tables([comparison_sheet(shown, heading)])
        num_equal = len(pair["figures"]) - len(moved)
        say([f"{num_equal} of {len(pair['figures'])} figures are equal"])


def _verdict(figures: list[dict]) -> str:
    """What a change is usually made for, in one line."""
    from pagesim.report.better import HEADLINES
    from pagesim.report.figures import number

    by_name = {row["figure"]: row for row in figures}
    told = []
    for key, name in HEADLINES.items():
        row = by_name.get(key)
        if row is not None and row["a"] != row["b"]:
            verdict = {True: ", better", False: ", worse", None: ""}[row["better"]]
            by = "" if row["relative"] is None else f" ({100 * row['relative']:+.1f} %{verdict})"
            told.append(f"{name} {number(row['a'])} → {number(row['b'])}{by}")
    return "; ".join(told) or "requests/s, latencies, token use and preemptions are as before"


def _sides(run: Path) -> "list[Side]":
    """The cases of a run; what a metrics.json alone says of the settings are those of the allocator."""
    from pagesim.report.folder import case_folder, read_document, resolved_config
    from pagesim.report.pairing import Side, settings_of

    document = read_document(run)
    num_cases = len(document["cases"]) + len(document["failed"])
    found = []
    for entry in document["cases"]:
        if run.is_dir():
            resolved = resolved_config(case_folder(run, entry["name"], num_cases) / "config.yaml")
        else:
            resolved = {"allocators": [entry["allocator"]]}
        found.append(Side(entry, settings_of(resolved)))
    return found


def _named(run: Path, sides: "list[Side]", name: str) -> "Side":
    by_name = {side.name: side for side in sides}
    if name not in by_name:
        raise InputError(f"{run} has no case {name!r}; it has {', '.join(by_name) or 'none'}")
    return by_name[name]


def _beside_measured(run: Path, measured: Path, case: str | None, *, json: bool) -> None:
    from pagesim.report.compare import beside_measured, read_measured, simulated_gauges
    from pagesim.report.files import json_text
    from pagesim.report.folder import SCHEMA_VERSION, case_folder, read_document

    document = read_document(run)
    names = [entry["name"] for entry in document["cases"]]
    if case is None and len(names) != 1:
        raise InputError(
            f"{run} has {len(names)} cases; choose one with --case: {', '.join(names) or 'none has finished'}")
    if case is not None and case not in names:
        raise InputError(f"{run} has no case {case!r}; it has {', '.join(names)}")
    folder = case_folder(run, case or names[0], len(names) + len(document["failed"]))
    both = beside_measured(read_measured(measured), simulated_gauges(folder / "timeline.csv"))
    if json:
        print(json_text({"schema_version": SCHEMA_VERSION} | both), end="")
        return
    from pagesim.cli.console import print_tables
    from pagesim.report.tables import measured_sheets

    print_tables(measured_sheets(both, _ROWS_SHOWN))
