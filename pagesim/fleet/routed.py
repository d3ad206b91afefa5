"""Replicas whose next request depends on what they hold when it arrives: they go through the time together.

A request sees every replica as it is just before it joins: all steps that start earlier are performed, all that end by
then have given back what they ended.  It is looked at when it arrives, not when its server has time for it, so that
requests that arrive during a step may all find the same replica the emptiest: one that waits holds nothing.
"""

import time
from collections.abc import Callable

import numpy as np

from pagesim.case import Replicas
from pagesim.engine.compiled import uninterrupted
from pagesim.engine.fed import FedRun
from pagesim.errors import InputError
from pagesim.trace.trace import Trace

_SECONDS_BETWEEN_REPORTS = 0.1
_ARRIVALS_AT_ONCE = 64


class Routed:
    """A fleet on its way through the trace.  ``by`` is the replica of each request that has arrived, -1 of others."""

    def __init__(self, trace: Trace, runs: list[FedRun], replicas: Replicas) -> None:
        self.runs, self.by, self._arrival_ns = runs, np.full(len(trace), -1), trace.arrival_ns
        self._choose, self._arrived = _RULES[replicas.routing], 0
        self._next_ns, self._held_until_ns, self._held, self._held_then = (
            np.array([getattr(run, name) for run in runs])
            for name in ("next_ns", "held_until_ns", "held_slots", "held_then_slots"))

    def arrive(self, num_requests: int) -> bool:
        """Let so many requests arrive, each where the rule sends it; returns whether more are to come."""
        last = min(self._arrived + num_requests, len(self.by))
        for request in range(self._arrived, last):
            now_ns = int(self._arrival_ns[request])
            for replica in np.flatnonzero(self._next_ns < now_ns).tolist():
                self._advance(replica, now_ns)
            replica = self._choose(self, request, now_ns)
            self.by[request] = replica
            self.runs[replica].give(request, now_ns)
            self._next_ns[replica] = self.runs[replica].next_ns
        self._arrived = last
        return last < len(self.by)

    def _advance(self, replica: int, time_ns: int) -> None:
        run = self.runs[replica]
        run.advance_to(time_ns)
        self._next_ns[replica], self._held_until_ns[replica] = run.next_ns, run.held_until_ns
        self._held[replica], self._held_then[replica] = run.held_slots, run.held_then_slots

    def held_slots(self, now_ns: int) -> np.ndarray:
        """What sequences hold in each replica just before a request joins, int64."""
        return np.where(self._held_until_ns > now_ns, self._held, self._held_then)


def _least_kv_used(fleet: Routed, request: int, now_ns: int) -> int:
    return int(fleet.held_slots(now_ns).argmin())


def _longest_cached_prefix(fleet: Routed, request: int, now_ns: int) -> int:
    found = np.array([run.found_tokens(request) for run in fleet.runs])
    return int(np.where(found == found.max(), fleet.held_slots(now_ns), np.iinfo(np.int64).max).argmin())


_RULES = {"least_kv_used": _least_kv_used, "longest_cached_prefix": _longest_cached_prefix}

DEPENDS_ON_MEMORY = tuple(_RULES)


def route(trace: Trace, replicas: Replicas, start: Callable[[FedRun | None], FedRun],
          report: Callable[[list[FedRun]], None]) -> Routed:
    """Let all requests arrive; the replicas are then where they were when the last one did."""
    if trace.session_parent is not None and (trace.session_parent >= 0).any():
        raise InputError(f"{trace.source.path}: the turns of its conversations wait for one another, which routing "
                         f"{replicas.routing} does not take into account; choose routing: by_session")
    first = start(None)
    fleet = Routed(trace, [first, *(start(first) for _ in range(replicas.count - 1))], replicas)
    reported_s = time.monotonic()
    while uninterrupted(fleet.arrive, _ARRIVALS_AT_ONCE):
        if time.monotonic() - reported_s >= _SECONDS_BETWEEN_REPORTS:
            reported_s = time.monotonic()
            report(fleet.runs)
    return fleet
