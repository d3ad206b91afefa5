"""``timeline.csv``: one row a stretch of the timeline; columns carry their units."""

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pagesim.core.ledger import PARTS
from pagesim.engine.result import Timeline
from pagesim.report.files import opened

GAUGES = ("start_s", "duration_s", "mean_running", "mean_waiting", "block_use_share")


def timeline_lines(timeline: Timeline, capacity_slots: int) -> Iterator[str]:
    """CSV of the timeline; ``mean_*`` is weighted by time, ``block_use_share`` is allocated / capacity."""
    parts = [f"mean_{part}_slots" for part in PARTS]
    yield ("first_step,start_s,duration_s,mean_running,mean_waiting,block_use_share," + ",".join(parts)
           + ",max_token_states_slots,max_allocated_slots,max_running,max_waiting,"
             "prefill_tokens,decode_tokens,preemptions,admissions,completions\n")
    t = timeline
    block_use = t.mean_parts[:, :4].sum(axis=1) / capacity_slots
    columns = (t.first_step, t.start_s, t.duration_s, t.mean_running, t.mean_waiting, block_use, *t.mean_parts.T,
               t.max_token_states, t.max_allocated, t.max_running, t.max_waiting, t.prefill_tokens, t.decode_tokens,
               t.preemptions, t.admissions, t.completions)
    yield from _lines([_cells(column) for column in columns])


def _cells(column: np.ndarray) -> list[str]:
    """Numbers as the shortest text that reads back as the same; NaN as nothing."""
    cells = list(map(repr, column.tolist()))
    for row in np.flatnonzero(np.isnan(column)).tolist():
        cells[row] = ""
    return cells


def _lines(columns: list[list[str]]) -> Iterator[str]:
    for row in zip(*columns):
        yield ",".join(row) + "\n"


def read_timeline(path: Path) -> dict[str, np.ndarray]:
    """The columns of a ``timeline.csv`` by their names, float64, shape (num_rows,).

    Raises:
        InputError: the file is missing or not a timeline.
    """
    with opened(path, "a timeline") as file:
        rows = csv.reader(file)
        names = next(rows, [])
        values = np.array([[float(cell or "nan") for cell in row] for row in rows]).reshape(-1, len(names))
        columns = dict(zip(names, values.T))
        missing = [name for name in GAUGES if name not in columns]
        if missing:
            raise ValueError(f"no column {missing[0]}")
        return columns
