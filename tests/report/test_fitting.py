"""report/fitting.py: a table within any width has every figure whole."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from pagesim.report.fitting import fitted
from pagesim.report.tables import Sheet, rich_table

WORDS = st.lists(st.text("abc,.0123456789", min_size=1, max_size=9), min_size=1, max_size=4).map(" ".join)


def printed(sheet, width):
    out = io.StringIO()
    for part, widths in fitted(sheet, width):
        Console(file=out, width=10_000).print(rich_table(part, widths))
    return out.getvalue()


@st.composite
def sheet(draw):
    num_columns, num_keys = draw(st.integers(2, 12)), draw(st.integers(1, 2))
    figures = st.text("0123456789,.", min_size=1, max_size=9)
    keys = [draw(WORDS) for _ in range(num_keys)]
    rows = [(*keys, *(draw(figures) for _ in range(num_columns))) for _ in range(draw(st.integers(1, 4)))]
    return Sheet("title", tuple(draw(WORDS) for _ in range(num_keys + num_columns)), tuple(rows), num_keys)


@given(sheet(), st.integers(40, 120))
def test_no_line_is_wider_and_no_word_is_broken(sheet, width):
    out = printed(sheet, width)
    assert max(map(len, out.splitlines())) <= width
    shown = set(out.split())
    assert all(word in shown for text in (*sheet.columns, *(cell for row in sheet.rows for cell in row))
               for word in text.split())


def test_what_fits_is_one_table_and_what_does_not_has_its_keys_in_each():
    sheet = Sheet("t", ("case", "a", "b", "c"), (("paged 16", "1" * 8, "2" * 8, "3" * 8),))
    assert len(fitted(sheet, 80)) == 1
    parts = [part for part, _ in fitted(sheet, 32)]
    assert [part.columns for part in parts] == [("case", "a", "b"), ("case", "c")]
    assert [part.title for part in parts] == ["t", ""]


def test_a_column_without_a_figure_is_left_out_where_room_is_short_only():
    sheet = Sheet("", ("case", "a", "empty"), (("paged 16", "1" * 10, "–"),))
    assert "empty" in printed(sheet, 80) and "empty" not in printed(sheet, 25)


@pytest.mark.parametrize("width", [10, 20])
def test_a_figure_wider_than_the_window_stays_whole(width):
    assert "1" * 30 in printed(Sheet("", ("case", "a"), (("paged", "1" * 30),)), width)
