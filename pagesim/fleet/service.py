"""A trace served by a fleet."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pagesim.case import Replicas
from pagesim.engine.result import Result
from pagesim.engine.run import Run
from pagesim.fleet.beside import run_beside
from pagesim.fleet.merged import merged
from pagesim.fleet.routing import dealt, part
from pagesim.trace.trace import Trace


@dataclass(frozen=True)
class Service:
    """What a fleet did.

    Attributes:
        by: the replica that served each request of the trace, int64.
        rows: of each replica, the requests that it served, increasing.
        runs: each replica's, ended.
        results: of each replica, a row for each of ``rows``.
    """

    by: np.ndarray
    rows: list[np.ndarray]
    runs: list[Run]
    results: list[Result]

    @cached_property
    def result(self) -> Result:
        """One over all requests, see ``merged``."""
        return merged(self.results, self.rows)


def serve(trace: Trace, replicas: Replicas, start: Callable[[Trace], Run], num_threads: int,
          report: Callable[[list[Run]], None]) -> Service:
    """Let the replicas serve the trace.

    Args:
        start: makes the run of one replica on the requests that it gets.
        num_threads: replicas that run at the same time where they are independent.
        report: called from time to time with all runs.

    Raises:
        InputError: the routing does not suit the trace.
    """
    by = dealt(trace, replicas)
    rows = [np.flatnonzero(by == replica) for replica in range(replicas.count)]
    runs = [start(part(trace, own)) for own in rows]
    run_beside(runs, num_threads, report)
    return Service(by, rows, runs, [run.result() for run in runs])
