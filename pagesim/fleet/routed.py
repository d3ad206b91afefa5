"""Replicas whose next request depends on what they hold when it arrives: they go through the time together.

A request sees every replica as it is just before it joins: all steps that start earlier are performed, all that end by
then have given back what they ended.  It is looked at when it arrives, not when its server has time for it, so that
requests that arrive during a step may all find the same replica the emptiest: one that waits holds nothing.  Of a radix
cache it sees what the step that is under way will have inserted, too: before the step is over nothing is admitted.
"""

import time
from collections.abc import Callable

import numpy as np

from pagesim.case import Replicas
from pagesim.engine.compiled import uninterrupted
from pagesim.engine.fed import NEVER, FedRun
from pagesim.fleet.arrivals import Arrivals
from pagesim.trace.trace import Trace

_SECONDS_BETWEEN_REPORTS = 0.1
_ARRIVALS_AT_ONCE = 64


class Routed:
    """A fleet on its way through the trace.  ``by`` is the replica of each request that has arrived, -1 of others."""

    def __init__(self, trace: Trace, runs: list[FedRun], replicas: Replicas) -> None:
        self.runs, self.by, self.num_arrived = runs, np.full(len(trace), -1), 0
        self._choose, self._arrivals = _RULES[replicas.routing], Arrivals(trace)
        self._awaited: list[set[int]] = [set() for _ in runs]  # requests given to each replica that turns wait for
        self._next_ns, self._held_until_ns, self._held, self._held_then = (
            np.array([getattr(run, name) for run in runs])
            for name in ("next_ns", "held_until_ns", "held_slots", "held_then_slots"))

    def go_on(self, num_arrivals: int) -> bool:
        """Until so many requests have arrived, each where the rule sends it; returns whether more may come."""
        last = self.num_arrived + num_arrivals
        while self.num_arrived < last:
            time_ns, _ = self._arrivals.next()
            replica = int(self._next_ns.argmin())
            begins_ns = int(self._next_ns[replica])
            if begins_ns < time_ns and (time_ns < NEVER or any(self._awaited)):
                # Where turns wait, what ends in this step may let one arrive before the next request that is known.
                self._advance(replica, begins_ns + 1 if any(self._awaited) else time_ns)
            elif time_ns == NEVER:
                return False
            else:
                self._arrive(self._arrivals.take(), time_ns)
        return True

    def _arrive(self, request: int, now_ns: int) -> None:
        replica = self._choose(self, request, now_ns)
        run = self.runs[replica]
        self.by[request] = replica
        self.num_arrived += 1
        run.give(request, now_ns, is_its_arrival=self._arrivals.waits(request))
        self._next_ns[replica] = run.next_ns
        if request in self._arrivals.turns_after:
            if not run.rejects(request):
                self._awaited[replica].add(request)
            elif run.next_ns < NEVER:
                self._arrivals.ended(request, run.next_ns)

    def _advance(self, replica: int, time_ns: int) -> None:
        run = self.runs[replica]
        run.advance_to(time_ns)
        self._next_ns[replica], self._held_until_ns[replica] = run.next_ns, run.held_until_ns
        self._held[replica], self._held_then[replica] = run.held_slots, run.held_then_slots
        for request in sorted(self._awaited[replica]):
            if (ended_ns := run.finish_ns(request)) >= 0:
                self._awaited[replica].remove(request)
                self._arrivals.ended(request, ended_ns)

    def held_slots(self, now_ns: int) -> np.ndarray:
        """What sequences hold in each replica just before a request joins, int64."""
        return np.where(self._held_until_ns > now_ns, self._held, self._held_then)


def _least_kv_used(fleet: Routed, request: int, now_ns: int) -> int:
    return int(fleet.held_slots(now_ns).argmin())


def _longest_cached_prefix(fleet: Routed, request: int, now_ns: int) -> int:
    found = np.array([run.found_tokens(request) for run in fleet.runs])
    return int(np.where(found == found.max(), fleet.held_slots(now_ns), np.iinfo(np.int64).max).argmin())


def _next_in_turn(fleet: Routed, request: int, now_ns: int) -> int:
    return fleet.num_arrived % len(fleet.runs)


_RULES = {"round_robin": _next_in_turn, "least_kv_used": _least_kv_used,
          "longest_cached_prefix": _longest_cached_prefix}



def route(trace: Trace, replicas: Replicas, start: Callable[[FedRun | None], FedRun],
          report: Callable[[list[FedRun]], None]) -> Routed:
    """Let all requests arrive; the replicas are then where they were when the last one did."""
    first = start(None)
    fleet = Routed(trace, [first, *(start(first) for _ in range(replicas.count - 1))], replicas)
    reported_s = time.monotonic()
    while uninterrupted(fleet.go_on, _ARRIVALS_AT_ONCE):
        if time.monotonic() - reported_s >= _SECONDS_BETWEEN_REPORTS:
            reported_s = time.monotonic()
            report(fleet.runs)
    for turn in np.flatnonzero(fleet.by < 0).tolist():  # it never came: counted where the turn before it was
        fleet.by[turn] = fleet.by[trace.session_parent[turn]]
    return fleet
