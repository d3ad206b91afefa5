"""Oracle and engine behind one view, so that a worked example holds for both."""

import math
from dataclasses import asdict, dataclass

from oracle.run import OracleRun
from strategies import Setup

from pagesim.core.ledger import PARTS
from pagesim.engine.result import STATUSES, WINDOWS, Column
from pagesim.engine.run import Run


@dataclass(frozen=True)
class View:
    """The ledger's instant of one step."""

    start_s: float
    duration_s: float
    memory: dict[int, list[int]]     # request → its block ids, or the addresses of its stored tokens; in running order
    stored: dict[int, int]           # request → stored tokens
    parts: dict[str, int]
    allocated: int
    waiting: int
    preemptions: int

    @property
    def starts(self) -> dict[int, int]:
        """Request → first block or address."""
        return {request: ids[0] for request, ids in self.memory.items()}


@dataclass(frozen=True)
class Outcome:
    views: list[View]
    status: list[str]
    first_scheduled_s: list[float]
    finish_s: list[float]
    counters: dict[str, int]
    peaks: dict[str, float]
    integrals: dict[tuple[str, Column], float]

    def mean(self, column: Column, window: str = "busy") -> float:
        return self.integrals[window, column] / self.integrals[window, Column.TIME]


def by_oracle(made: Setup) -> Outcome:
    run = OracleRun(made)
    views = []
    for step in run.steps:
        memory = {request: table for (request, _), table in step.tables.items()}
        for (request, sample), (start, _, _) in step.regions.items():
            memory[request] = list(range(start, start + step.stored[request, sample]))
        views.append(View(step.start_s, step.duration_s, memory, {r: n for (r, _), n in step.stored.items()},
                          step.instant.parts, step.instant.allocated, step.waiting, len(step.preempted)))
    integrals = {(window, column): run.sums.integrals[w][column] for w, window in enumerate(WINDOWS) for column in Column}
    return Outcome(views, run.status, seconds(run.first_scheduled_ns), seconds(run.finish_ns), run.sums.counters, run.sums.peaks, integrals)


def seconds(times_ns: list[int]) -> list[float]:
    return [math.nan if time_ns < 0 else time_ns / 1e9 for time_ns in times_ns]


def by_engine(made: Setup) -> Outcome:
    run = Run(made)
    tables = []
    while run.advance(max_steps=1):
        tables.append(run.tables())
    result = run.result()
    line = result.timeline
    assert line.stride == 1
    views = []
    for k, table in enumerate(tables):
        requests = table.seq_ids.tolist()
        views.append(View(
            line.start_s[k], line.duration_s[k], {r: table.table(i).tolist() for i, r in enumerate(requests)},
            dict(zip(requests, table.lengths.tolist())), dict(zip(PARTS, line.mean_parts[k].tolist())),
            int(line.max_allocated[k]), int(line.max_waiting[k]), int(line.preemptions[k])))
    integrals = {(window, column): result.integrals[w, column] for w, window in enumerate(WINDOWS) for column in Column}
    return Outcome(views, [STATUSES[status] for status in result.requests.status],
                   result.requests.first_scheduled_s.tolist(), result.requests.finish_s.tolist(), asdict(result.counters),
                   asdict(result.peaks), integrals)
