"""A timeline of thousands of rows in the few hundred columns of a picture: means by time, extremes kept."""

from dataclasses import dataclass

import numpy as np

from pagesim.core.ledger import PARTS

MEANS = (*(f"mean_{part}_slots" for part in PARTS), "mean_running", "mean_waiting")
MAXIMA = ("max_token_states_slots", "max_allocated_slots", "max_running", "max_waiting")
SUMS = ("preemptions", "admissions", "completions")


@dataclass(frozen=True)
class Thinned:
    """Stretches ``[edges_s[k], edges_s[k + 1])`` of a run.

    Attributes:
        edges_s: shape (num_columns + 1,).
        values: by the names of the timeline's columns, shape (num_columns,): ``MEANS`` weighted by time, ``MAXIMA``
            over every row that touches the stretch, ``SUMS`` of the rows that start in it.
        exact: each stretch is a row of the timeline, or the idle time between two.
    """

    edges_s: np.ndarray
    values: dict[str, np.ndarray]
    exact: bool

    def shares(self, capacity_slots: int) -> np.ndarray:
        """The ledger's parts as shares of capacity, shape (len(PARTS), num_columns)."""
        return np.array([self.values[f"mean_{part}_slots"] for part in PARTS]) / capacity_slots


def thin(timeline: dict[str, np.ndarray], most_columns: int) -> Thinned:
    """At most ``most_columns`` stretches: the rows as they are where they are few, else stretches of equal length.

    Between two rows nothing runs and nothing waits: what is not ``remainder`` is ``idle`` then.
    """
    start, end = timeline["start_s"], timeline["start_s"] + timeline["duration_s"]
    if len(start) == 0:
        return Thinned(np.zeros(1), {name: np.zeros(0) for name in (*MEANS, *MAXIMA, *SUMS)}, True)
    # A row's end and the next one's start are the same moment but for rounding.
    end[:-1] = np.where(np.isclose(end[:-1], start[1:], rtol=1e-9, atol=1e-12), start[1:], end[:-1])
    edges = np.unique(np.concatenate([[0.0], start, end]))
    exact = len(edges) - 1 <= most_columns
    if not exact:
        edges = np.linspace(0.0, end[-1], most_columns + 1)
    values = {name: _means(start, end, timeline[name], edges) for name in MEANS}
    covered = _means(start, end, np.ones(len(start)), edges)
    capacity = sum(timeline[f"mean_{part}_slots"][0] for part in PARTS)
    remainder = timeline["mean_remainder_slots"][0]
    values["mean_remainder_slots"] = np.full(len(edges) - 1, remainder)
    values["mean_idle_slots"] = values["mean_idle_slots"] + (1 - covered) * (capacity - remainder)
    first = np.searchsorted(end, edges[:-1], side="right")
    last = np.searchsorted(start, edges[1:], side="left")
    for name in MAXIMA:
        column = timeline[name]
        values[name] = np.array([column[a:b].max(initial=0) for a, b in zip(first, last)])
    at = np.clip(np.searchsorted(edges, start, side="right") - 1, 0, len(edges) - 2)
    for name in SUMS:
        values[name] = np.bincount(at, weights=timeline[name], minlength=len(edges) - 1)
    return Thinned(edges, values, exact)


def _means(start: np.ndarray, end: np.ndarray, values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Means over ``[edges[k], edges[k + 1])`` of what is ``values`` in ``[start, end)`` and 0 between."""
    moments = np.stack([start, end], axis=1).ravel()
    areas = np.cumsum((end - start) * values)
    integral = np.stack([np.concatenate([[0.0], areas[:-1]]), areas], axis=1).ravel()
    return np.diff(np.interp(edges, moments, integral)) / np.diff(edges)
