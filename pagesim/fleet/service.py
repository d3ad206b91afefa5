"""A trace served by a fleet."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pagesim.case import Replicas
from pagesim.engine.fed import FedRun
from pagesim.engine.ownership import Ownership, ownership
from pagesim.engine.result import Result
from pagesim.engine.run import Run
from pagesim.engine.setup import Setup
from pagesim.fleet.beside import run_beside
from pagesim.fleet.merged import merged, of_requests
from pagesim.fleet.routed import route
from pagesim.fleet.routing import dealt, is_dealt, part
from pagesim.trace.trace import Trace


@dataclass(frozen=True)
class Service:
    """What a fleet did.

    Attributes:
        by: the replica that served each request of the trace, int64.
        rows: of each replica, the requests that it served, increasing.
        runs: each replica's, ended.
        results: of each replica, a row for each of ``rows``.
        first_again: makes the first replica's run anew, before its first step.
    """

    by: np.ndarray
    rows: list[np.ndarray]
    runs: list[Run]
    results: list[Result]
    first_again: Callable[[], Run]

    @cached_property
    def result(self) -> Result:
        """One over all requests, see ``merged``."""
        return merged(self.results, self.rows)

    def first_ownership(self, most_steps: int) -> Ownership:
        """Who owned what in the first replica; see ``ownership``."""
        found = ownership(self.first_again, self.runs[0], most_steps)
        if isinstance(self.runs[0], FedRun):
            return found
        changes = found.changes.copy()  # which number the requests of that run
        owned = changes[:, 3] >= 0
        changes[owned, 3] = self.rows[0][changes[owned, 3]]
        return replace(found, changes=changes)


def serve(trace: Trace, replicas: Replicas, setup: Callable[[Trace], Setup], num_threads: int,
          report: Callable[[list[Run]], None]) -> Service:
    """Let the replicas serve the trace.

    Args:
        setup: what one replica runs, given requests.
        num_threads: replicas that run at the same time where they are independent.
        report: called from time to time with all runs.

    Raises:
        InputError: the routing does not suit the trace.
    """
    if not is_dealt(trace, replicas):
        fleet = route(trace, replicas, lambda beside: FedRun(setup(trace), beside), report)
        by, runs = fleet.by, fleet.runs
        rows = _rows(by, replicas.count)
        run_beside(runs, num_threads, report)
        return Service(by, rows, runs, [of_requests(run.result(), own) for run, own in zip(runs, rows)], runs[0].again)
    by = dealt(trace, replicas)
    rows = _rows(by, replicas.count)
    runs = [Run(setup(part(trace, own))) for own in rows]
    run_beside(runs, num_threads, report)
    return Service(by, rows, runs, [run.result() for run in runs], lambda: Run(runs[0].setup))


def _rows(by: np.ndarray, count: int) -> list[np.ndarray]:
    return [np.flatnonzero(by == replica) for replica in range(count)]
