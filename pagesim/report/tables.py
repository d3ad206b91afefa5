"""What a run says at a glance: tables as values, then as rich tables or markdown.  Nothing is printed here."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pagesim.report.figures import groups, number

if TYPE_CHECKING:
    from rich.table import Table

# Up to so many cases stand side by side in one table; more get a row each in a table for each group of figures.
_SIDE_BY_SIDE = 4


@dataclass(frozen=True)
class Sheet:
    """A table of text: one heading a column, rows of as many cells; a row of one cell is a heading within the table.

    The first ``num_keys`` cells of a row say what its figures are of.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    num_keys: int = 1


def sheets(document: dict) -> list[Sheet]:
    """The tables of a run, for the cases that have run."""
    cases = document["cases"]
    if not cases:
        return []
    return [side_by_side(cases)] if len(cases) <= _SIDE_BY_SIDE else row_by_row(cases)


def side_by_side(cases: list[dict]) -> Sheet:
    """A column a case, a row a figure."""
    rows: list[tuple[str, ...]] = []
    for group in groups(cases):
        rows.append((group.title,))
        rows += [(figure.name, *map(figure.text, cases)) for figure in group.figures]
    return Sheet("", ("", *(case["name"] for case in cases)), tuple(rows))


def row_by_row(cases: list[dict]) -> list[Sheet]:
    """A row a case, a column a figure, a sheet a group."""
    return [Sheet(group.title, ("case", *(figure.name for figure in group.figures)),
                  tuple((case["name"], *(figure.text(case) for figure in group.figures)) for case in cases))
            for group in groups(cases)]


def comparison_sheet(rows: list[dict], title: str) -> Sheet:
    """Rows of ``compare``: a figure in two runs, its relative difference, and whether that is better."""
    verdicts = {True: "better", False: "worse", None: ""}
    cells = tuple((row["figure"].replace(".", " "), number(row["a"]), number(row["b"]),
                   "–" if row["relative"] is None else f"{100 * row['relative']:+.2f} %", verdicts[row["better"]])
                  for row in rows)
    return Sheet(title, ("figure", "A", "B", "B against A", "B is"), cells)


def measured_sheets(both: dict, most_rows: int) -> list[Sheet]:
    """A measured timeline beside a run's: the summary, then at most ``most_rows`` moments evenly apart."""
    step = -(-len(both["moments"]) // most_rows)
    summary = tuple((name.replace("_", " "), *map(number, values.values())) for name, values in both["summary"].items())
    moments = tuple(tuple(map(number, moment.values())) for moment in both["moments"][::step])
    return [Sheet("A measured timeline beside the run's; block use as a share",
                  ("quantity", "measured mean", "run mean", "measured peak", "run peak", "mean absolute difference"),
                  summary),
            Sheet("At the measured moments" + (f" (one of {step})" if step > 1 else ""),
                  ("time, s", "running, measured", "run", "waiting, measured", "run", "block use, measured", "run"),
                  moments)]


def rich_table(sheet: Sheet, widths: list[int]) -> "Table":
    """The sheet with columns of these widths, as ``fitting.fitted`` gives them."""
    from rich import box
    from rich.table import Table

    table = Table(title=sheet.title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD,
                  pad_edge=False)
    for k, (heading, width) in enumerate(zip(sheet.columns, widths, strict=True)):
        table.add_column(heading, justify="right" if k else "left", overflow="fold", width=width)
    for row in sheet.rows:
        if len(row) == 1:
            table.add_section()
            table.add_row(row[0], style="bold")
        else:
            table.add_row(*row)
    return table


def markdown(sheet: Sheet) -> str:
    """The sheet as a GitHub table, with its title above it."""

    def line(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"

    rows = (row if len(row) > 1 else (f"**{row[0]}**", *[""] * (len(sheet.columns) - 1)) for row in sheet.rows)
    title = f"**{sheet.title}**\n\n" if sheet.title else ""
    return title + line(sheet.columns) + "|---|" + "---:|" * (len(sheet.columns) - 1) + "\n" + "".join(map(line, rows))
