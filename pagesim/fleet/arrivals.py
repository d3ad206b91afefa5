"""Requests as they arrive at a fleet: at their own times, turns after the end of the one before, wherever that ran."""

import heapq

import numpy as np

from pagesim.engine.fed import NEVER
from pagesim.trace.sessions import NONE
from pagesim.trace.trace import Trace


class Arrivals:
    """The requests that are still to arrive, as far as it is known when; the earliest first, of these the first row."""

    def __init__(self, trace: Trace) -> None:
        parent = np.full(len(trace), NONE) if trace.session_parent is None else trace.session_parent
        self._arrival_ns, self._think_ns = trace.arrival_ns, trace.think_ns
        self._alone, self._passed = np.flatnonzero(parent == NONE).tolist(), 0
        self._due: list[tuple[int, int]] = []
        self.turns_after: dict[int, list[int]] = {}
        for turn in np.flatnonzero(parent != NONE).tolist():
            self.turns_after.setdefault(int(parent[turn]), []).append(turn)

    def next(self) -> tuple[int, int]:
        """(when, which request); ``NEVER`` where none is known to come."""
        return min(self._next_alone(), self._due[0]) if self._due else self._next_alone()

    def _next_alone(self) -> tuple[int, int]:
        if self._passed == len(self._alone):
            return NEVER, len(self._arrival_ns)
        request = self._alone[self._passed]
        return int(self._arrival_ns[request]), request

    def take(self) -> int:
        """The request that arrives next does so now."""
        _, request = self.next()
        if self._due and self._due[0][1] == request:
            heapq.heappop(self._due)
        else:
            self._passed += 1
        return request

    def ended(self, request: int, time_ns: int) -> None:
        """The turns after it arrive once they have been thought of, or at their own time where that is later."""
        for turn in self.turns_after.pop(request, ()):
            think_ns = NONE if self._think_ns is None else int(self._think_ns[turn])
            due_ns = max(time_ns, int(self._arrival_ns[turn])) if think_ns == NONE else time_ns + think_ns
            heapq.heappush(self._due, (due_ns, turn))

    def waits(self, turn: int) -> bool:
        """Whether its arrival is counted from the end of the turn before."""
        return self._think_ns is not None and self._think_ns[turn] != NONE
