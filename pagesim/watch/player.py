"""One case of a play: advanced to a time of the common clock, and seen at that time."""

from collections import deque
from dataclasses import dataclass

import numpy as np

from pagesim.core.ledger import CACHED, NOBODY, PARTS
from pagesim.engine.result import STATUSES
from pagesim.engine.run import Run

MOST_EVENTS = 40

_COMPLETED = STATUSES.index("completed")
_CACHED, _IDLE, _REMAINDER = map(PARTS.index, ("cached", "idle", "remainder"))


@dataclass(frozen=True)
class View:
    """What a case looks like at an instant.

    Attributes:
        owners: request that owns each unit, of several the first in the trace, ``CACHED`` or ``NOBODY`` for none,
            int64, shape (num_units,).
        num_owners: sequences that own it, int64, the same shape.
        stored: tokens in each unit that has an owner, int64, the same shape.
        paged: units are blocks, any of which serves; else slots of an arena.
        unit_slots: slots of a unit: of a block, or 1 in an arena.
        parts_slots: the ledger, in the order of ``PARTS``.
        arrived, completed, rejected, preempted: requests so far; ``num_requests`` come in all.
        events: what happened lately, the newest last.
        idle_until_s: start of the next step where nothing runs now; None while a step is under way.
        over: the run has ended.
    """

    name: str
    owners: np.ndarray
    num_owners: np.ndarray
    stored: np.ndarray
    paged: bool
    unit_slots: int
    parts_slots: np.ndarray
    running: int
    waiting: int
    arrived: int
    completed: int
    rejected: int
    preempted: int
    num_requests: int
    events: tuple[str, ...]
    idle_until_s: float | None
    over: bool


class Player:
    """Plays a run that has not begun."""

    def __init__(self, name: str, run: Run) -> None:
        self.name = name
        self._begin(run)

    def _begin(self, run: Run) -> None:
        self._run, self.over = run, False
        self._clock_s = 0.0
        self._kept: np.ndarray | None = None  # by a prefix cache, before the step performed last: whether each unit
        self._seen: list[int] = []
        self._arrived = np.zeros(len(run.trace), bool)
        self._events: deque[str] = deque(maxlen=MOST_EVENTS)

    def rewind(self) -> None:
        """Play from the start again."""
        self._begin(Run(self._run.setup))

    def peak(self) -> tuple[float, float]:
        """The largest share of the capacity that holds tokens in the whole run, and the first time at which it does."""
        run = Run(self._run.setup)
        run.advance()
        peaks = run.result().peaks
        return peaks.token_states / run.setup.capacity_slots, peaks.time_s

    def advance_to(self, time_s: float, most_steps: int) -> bool:
        """Perform steps until the one under way at ``time_s``, or the next where none is; False if more were needed."""
        for _ in range(most_steps):
            if self.over or self._run.position().time_s > time_s:
                self._clock_s = time_s
                return True
            self._kept = self._kept_alone()
            self.over = not self._run.advance(1)
        self._clock_s = min(time_s, self._run.step_start_s())
        return False

    def _kept_alone(self) -> np.ndarray | None:
        """What a prefix cache keeps from now on, where nothing runs until the next step."""
        if not self._run.shares():
            return None
        self._run.settle()
        return None if len(self._run.running()) else self._run.owners() == CACHED

    def next_s(self) -> float:
        """When the picture changes next: the end of the step under way, or the start of the next one."""
        return self._run.step_start_s() if self._is_idle() else self._run.position().time_s

    def reached_s(self) -> float:
        return self._clock_s

    def preemptions(self) -> int:
        return self._run.result().counters.preemptions

    def _is_idle(self) -> bool:
        return self._run.step_start_s() > self._clock_s

    def view(self) -> View:
        """The case at the time that it was advanced to; notes what happened since the last view."""
        run, instant, result = self._run, self._run.instant(), self._run.result()
        idle = self._is_idle()
        empty = idle or (self.over and instant.running == 0)
        owners, stored, parts, owning = self._unowned() if empty else self._memory()
        status = result.requests.status
        arrived = run.have_arrived(self._clock_s)
        self._note(owning, arrived, status)
        return View(
            name=self.name, owners=owners, num_owners=run.num_owners() * (owners >= 0), stored=stored,
            paged=not run.has_holes(), unit_slots=run.units()[0],
            parts_slots=parts, running=0 if empty else instant.running, waiting=0 if empty else instant.waiting,
            arrived=int(np.count_nonzero(arrived)), completed=int(np.count_nonzero(status == _COMPLETED)),
            rejected=int(np.count_nonzero(status > _COMPLETED)), preempted=result.counters.preemptions,
            num_requests=len(run.trace), events=tuple(self._events),
            idle_until_s=run.step_start_s() if idle and not self.over else None, over=self.over)

    def _memory(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[int]]:
        """Owners and tokens of each unit, the ledger, and the requests that run."""
        unit_slots, num_units = self._run.units()
        tables = self._run.tables()
        stored = np.bincount(np.unique(tables.slots()) // unit_slots, minlength=num_units)
        return self._run.owners(), stored, self._run.instant().parts_slots, sorted(set(tables.seq_ids.tolist()))

    def _unowned(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[int]]:
        """The same of a memory in which nothing runs."""
        unit_slots, num_units = self._run.units()
        kept = self._kept_alone() if self.over else self._kept
        owners = np.full(num_units, NOBODY, np.int64) if kept is None else np.where(kept, CACHED, NOBODY)
        parts, cached = np.zeros(len(PARTS), np.int64), int(np.count_nonzero(owners == CACHED))
        parts[_REMAINDER] = self._run.setup.capacity_slots - unit_slots * num_units
        parts[_CACHED], parts[_IDLE] = unit_slots * cached, unit_slots * (num_units - cached)
        return owners, np.zeros(num_units, np.int64), parts, []

    def _note(self, owning: list[int], arrived: np.ndarray, status: np.ndarray) -> None:
        before, now = set(self._seen), set(owning)
        gone = sorted(before - now)
        happened = (
            ("↓", "arrived", np.flatnonzero(arrived & ~self._arrived).tolist()),
            ("+", "admitted", [request for request in owning if request not in before]),
            ("✓", "done", [request for request in gone if status[request] == _COMPLETED]),
            ("↺", "preempted", [request for request in gone if status[request] != _COMPLETED]),
        )
        for mark, what, requests in happened:
            if len(requests):
                self._events.append(f"{mark} {_listed(requests)} {what} at {self._clock_s:.2f} s")
        self._seen, self._arrived = owning, arrived | self._arrived


def _listed(requests: list[int]) -> str:
    """Up to three by their numbers, more by how many."""
    if len(requests) > 3:
        return f"{len(requests):,} requests"
    return f"request{'s' if len(requests) > 1 else ''} {', '.join(map(str, requests))}"
