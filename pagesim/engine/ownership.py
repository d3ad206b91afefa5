"""Who owned which units of memory, step by step, seen by running a finished run again.

A run is determined by its arguments, so nothing is kept of every step for the sake of the few that are looked at.
A step costs what changes in it, not what is owned: pools of a million units are recorded as fast as small ones.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pagesim.core.ledger import NOBODY
from pagesim.engine.run import Run


@dataclass(frozen=True)
class Ownership:
    """Who owned which units (blocks, or slots of an arena) in the steps ``[first_step, last_step]``.

    Attributes:
        unit_slots, num_units: slots of a unit, units of the pool or arena.
        first_step, last_step: the recorded steps, both included; ``last_step < first_step`` where the run has no step.
        start_s: start of each recorded step, float64, shape (num_steps,).
        changes: int64, shape (num_changes, 5): step, first unit, number of units, new owner (index of the request, of
            several the first in the trace; ``CACHED``; ``NOBODY``), sequences that own it; in order of step, and within
            a step first what is given back, then what is taken, each in order of address.  Before the first recorded
            step all is free.
    """

    unit_slots: int
    num_units: int
    first_step: int
    last_step: int
    start_s: np.ndarray
    changes: np.ndarray

    def owners_at(self, step: int) -> np.ndarray:
        """Owner of each unit at the ledger's instant of ``step``, int64, shape (num_units,)."""
        return self._at(step)[0]

    def num_owners_at(self, step: int) -> np.ndarray:
        """Sequences that own each unit then, int64, shape (num_units,)."""
        return self._at(step)[1]

    def _at(self, step: int) -> np.ndarray:
        seen = np.tile([[NOBODY], [0]], self.num_units)
        for _, first, count, *owners in self.changes[:np.searchsorted(self.changes[:, 0], step, side="right")]:
            seen[:, first:first + count] = np.array(owners)[:, None]
        return seen


def free_runs(owners: np.ndarray) -> list[int]:
    """Lengths of the free runs of units, in order of address."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], owners == NOBODY, [False]])))
    return (edges[1::2] - edges[::2]).tolist()


def ownership(make_run: Callable[[], Run], finished: Run, most_steps: int) -> Ownership:
    """Who owned what in the whole run, or in the ``most_steps`` around its peak where it has more.

    Args:
        make_run: makes the run anew.
        finished: the same run at its end.
        most_steps: steps to record.
    """
    total, peak = finished.position().steps, finished.result().peaks.step
    first = max(0, min(peak - most_steps // 2, total - most_steps))
    run = make_run()
    if first > 0:
        run.advance(first)
    starts, changes, seen = [], [np.zeros((0, 5), np.int64)], None
    while len(starts) < most_steps and run.advance(1):
        gone, came, seen = run.moves(seen)
        rows = np.concatenate([_runs(gone), _runs(came)])
        changes.append(np.insert(rows, 0, first + len(starts), axis=1))
        starts.append(run.step_start_s())
    return Ownership(*run.units(), first, first + len(starts) - 1, np.array(starts, np.float64),
                     np.concatenate(changes))


def _runs(changes: np.ndarray) -> np.ndarray:
    """Rows (first unit, number of units, owner, owners) in order of address, neighbours owned alike as one."""
    changes = changes[np.argsort(changes[:, 0])].astype(np.int64)
    first, count, owners = changes[:, 0], changes[:, 1], changes[:, 2:]
    starts = np.flatnonzero((first[1:] != first[:-1] + count[:-1]) | (owners[1:] != owners[:-1]).any(axis=1)) + 1
    starts = np.concatenate([np.zeros(min(1, len(first)), np.int64), starts])
    counts = np.add.reduceat(count, starts) if len(starts) else count
    return np.column_stack([first[starts], counts, owners[starts]])
