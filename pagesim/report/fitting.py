"""Tables within a width: no number and no word is broken, columns that do not fit stand in a table below."""

from itertools import pairwise

from pagesim.report.tables import Sheet

_BETWEEN, _EDGES = 3, 2  # columns that rich takes between two cells, and at both ends together
_MISSING = "–"


def fitted(sheet: Sheet, width: int) -> list[tuple[Sheet, list[int]]]:
    """Sheets that fit, each with the widths of its columns; all begin with the key columns.

    Headings and keys may wrap between words, figures stay whole.  Where it does not fit, a column without any figure is
    left out.  One column that is wider alone than what is left beside the keys stands alone, as wide as it is.
    """
    if _total(_widths(sheet, wrapped=False)) <= width:
        return [(sheet, _widths(sheet, wrapped=False))]
    sheet = _without_empty(sheet)
    least = _widths(sheet, wrapped=True)
    starts = [sheet.num_keys]
    for column in range(sheet.num_keys + 1, len(sheet.columns)):
        if _total(least[:sheet.num_keys] + least[starts[-1]:column + 1]) > width:
            starts.append(column)
    parts = [_part(sheet, first, end) for first, end in pairwise([*starts, len(sheet.columns)])]
    titles = [sheet.title, *[""] * (len(parts) - 1)]
    return [(Sheet(title, part.columns, part.rows, part.num_keys), _widened(part, width))
            for title, part in zip(titles, parts, strict=True)]


def _total(widths: list[int]) -> int:
    return sum(widths) + _BETWEEN * (len(widths) - 1) + _EDGES


def _widths(sheet: Sheet, *, wrapped: bool) -> list[int]:
    """Of each column: as its texts are, or the least with headings and keys wrapped between words."""
    from rich.cells import cell_len

    def longest(text: str, may_wrap: bool) -> int:
        return max(map(cell_len, text.split() if may_wrap and text.strip() else [text]))

    widths = [longest(heading, wrapped) for heading in sheet.columns]
    for row in sheet.rows:
        for k, cell in enumerate(row):
            widths[k] = max(widths[k], longest(cell, wrapped and k < sheet.num_keys))
    return widths


def _widened(sheet: Sheet, width: int) -> list[int]:
    """The least widths, and what is left of the room to the columns whose texts would not wrap with it."""
    widths = _widths(sheet, wrapped=True)
    room = width - _total(widths)
    for k, wanted in enumerate(_widths(sheet, wrapped=False)):
        more = max(0, min(room, wanted - widths[k]))
        widths[k], room = widths[k] + more, room - more
    return widths


def _without_empty(sheet: Sheet) -> Sheet:
    full = [row for row in sheet.rows if len(row) > 1]
    kept = [k for k in range(len(sheet.columns)) if k < sheet.num_keys or any(row[k] != _MISSING for row in full)]
    return _chosen(sheet, kept if len(kept) > sheet.num_keys else list(range(len(sheet.columns))))


def _part(sheet: Sheet, first: int, end: int) -> Sheet:
    return _chosen(sheet, [*range(sheet.num_keys), *range(first, end)])


def _chosen(sheet: Sheet, columns: list[int]) -> Sheet:
    rows = tuple(row if len(row) == 1 else tuple(row[k] for k in columns) for row in sheet.rows)
    return Sheet(sheet.title, tuple(sheet.columns[k] for k in columns), rows, sheet.num_keys)
