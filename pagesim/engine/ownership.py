"""Who owned which units of memory, step by step, seen by running a finished run again.

A run is determined by its arguments, so nothing has to be kept of every step for the sake of the few that are looked at.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from pagesim.engine.run import Run

NOBODY = -1


@dataclass(frozen=True)
class Ownership:
    """Who owned which units (blocks, or slots of an arena) in the steps ``[first_step, last_step]``.

    Attributes:
        unit_slots, num_units: slots of a unit, units of the pool or arena.
        first_step, last_step: the recorded steps, both included; ``last_step < first_step`` where the run has no step.
        start_s: start of each recorded step, float64, shape (num_steps,).
        changes: int64, shape (num_changes, 4): step, first unit, number of units, new owner (index of the request, or
            ``NOBODY``); in order of step and address.  Before the first recorded step all is free.
    """

    unit_slots: int
    num_units: int
    first_step: int
    last_step: int
    start_s: np.ndarray
    changes: np.ndarray

    def owners_at(self, step: int) -> np.ndarray:
        """Owner of each unit at the ledger's instant of ``step``, int64, shape (num_units,)."""
        owners = np.full(self.num_units, NOBODY, np.int64)
        for _, first, count, owner in self.changes[:np.searchsorted(self.changes[:, 0], step, side="right")]:
            owners[first:first + count] = owner
        return owners


def ownership(make_run: Callable[[], Run], finished: Run, most_steps: int) -> Ownership:
    """Who owned what in the whole run, or in the ``most_steps`` around its peak where it has more.

    Args:
        make_run: makes the run anew.
        finished: the same run at its end.
        most_steps: steps to record.
    """
    total, peak = finished.progress().steps, finished.result().peaks.step
    first = max(0, min(peak - most_steps // 2, total - most_steps))
    run = make_run()
    if first > 0:
        run.advance(first)
    unit_slots, num_units = run.units()
    starts, changes, before = [], [], np.full(num_units, NOBODY, np.int64)
    while len(starts) < most_steps and run.advance(1):
        now = run.owners()
        changes += [(first + len(starts), *change) for change in _changes(before, now)]
        starts.append(run.step_start_s())
        before = now
    return Ownership(unit_slots, num_units, first, first + len(starts) - 1, np.array(starts, np.float64),
                     np.array(changes, np.int64).reshape(-1, 4))


def _changes(before: np.ndarray, now: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """(first unit, number of units, new owner) of each run of units that changed hands alike."""
    at = np.flatnonzero(before != now)
    if len(at) == 0:
        return
    begins = np.flatnonzero(np.diff(at, prepend=-2) + (np.diff(now[at], prepend=-2) != 0) > 1)
    for a, b in zip(begins, np.append(begins[1:], len(at))):
        yield int(at[a]), int(b - a), int(now[at[a]])
