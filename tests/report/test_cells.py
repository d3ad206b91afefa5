"""report/cells.py: digits made column by column say what Python's own arithmetic says."""

from decimal import Decimal

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pagesim.report.cells import csv_rows, seconds_cells, whole_cells, word_cells


def lines(*columns):
    return csv_rows(columns).splitlines()


@given(st.lists(st.integers(0, 2**62), min_size=1))
def test_whole_numbers_are_written_as_they_are(values):
    assert lines(whole_cells(np.array(values))) == list(map(str, values))


@given(st.lists(st.one_of(st.none(), st.integers(0, 10**15), st.integers(0, 10**6)), min_size=1))
def test_times_are_written_to_the_nanosecond_and_read_back_as_the_same(values_ns):
    cells = lines(seconds_cells(np.array([-1 if ns is None else ns for ns in values_ns])))
    for ns, cell in zip(values_ns, cells, strict=True):
        if ns is None:
            assert cell == ""
        else:
            assert Decimal(cell) * 10**9 == ns and (not cell.endswith("0") or cell.endswith(".0"))


def test_cells_stand_between_commas_whatever_their_widths():
    columns = whole_cells(np.array([5, 1234])), word_cells(("a", "long"), np.array([1, 0])), seconds_cells(
        np.array([-1, 250_000_000]))
    assert lines(*columns) == ["5,long,", "1234,a,0.25"]
