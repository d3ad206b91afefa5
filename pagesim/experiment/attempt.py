"""One case from its trace to its figures, in the process that calls."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pagesim.case import Case, TraceOptions
from pagesim.engine.ownership import ownership
from pagesim.engine.result import Result
from pagesim.engine.run import Run
from pagesim.engine.setup import Setup
from pagesim.errors import InputError, PagesimError
from pagesim.experiment.summary import case_entry, fleet_entry
from pagesim.fleet.service import serve
from pagesim.report.folder import write_case
from pagesim.trace import Trace, read_trace
from pagesim.trace.arrivals import with_arrivals

# Short enough that Ctrl-C and the progress display feel immediate, long enough to cost nothing.
_STEPS_AT_ONCE = 200_000
_SECONDS_BETWEEN_REPORTS = 0.1
# Of a longer run the steps around its peak, so many that the events of one case stay within some megabytes.
_MOST_RECORDED_STEPS = 1_000
_MOST_RECORDED_CHANGES = 200_000


@dataclass(frozen=True)
class Progress:
    """How far a case is; ``case`` is its place in the experiment."""

    case: int
    steps: int
    requests_done: int
    num_requests: int
    ended: bool = False


@dataclass(frozen=True)
class Task:
    """A case to run.  ``folder`` is where its files go, None for nowhere; ``key`` is the address of its content.

    ``num_threads`` replicas of it at most run at the same time.
    """

    index: int
    case: Case
    folder: Path | None = None
    key: str = ""
    keep_result: bool = True
    num_threads: int = 1


@dataclass(frozen=True)
class Outcome:
    """What became of a task: its figures (and its Result if that was asked for), or the error that ended it.

    ``unwritten`` is why its files could not be written, though it has figures.
    """

    entry: dict | None = None
    result: Result | None = None
    error: PagesimError | None = None
    unwritten: str | None = None


def attempt(task: Task, on_progress: Callable[[Progress], None]) -> Outcome:
    """Run a task; an error that a user or the machine can cause is an outcome, so that the other cases go on."""
    try:
        return _run(task, on_progress)
    except PagesimError as error:
        return Outcome(error=error)
    except OSError as error:
        return Outcome(error=InputError(f"{error.filename}: {error.strerror}"))
    except MemoryError:
        return Outcome(error=PagesimError("not enough memory on this machine; set trace.limit or use fewer --jobs"))


def read_requests(options: TraceOptions) -> Trace:
    """The trace with the arrivals that a case asks for; the file is read once for the cases that share it."""
    changed = os.stat(options.path).st_mtime_ns if os.path.exists(options.path) else None
    return with_arrivals(_read(options.path, options.limit, options.strict, changed), options.kind, rate=options.rate,
                         cv=options.cv, speedup=options.speedup, seed=options.seed)


@lru_cache(maxsize=2)
def _read(path: str, limit: int | None, strict: bool, changed: int | None) -> Trace:
    return read_trace(path, limit=limit, strict=strict)


def check_one_memory(case: Case) -> None:
    """Raises InputError for a case of several replicas, of which nothing is shown that is of one memory."""
    if case.replicas.count > 1:
        raise InputError(f"{case.name}: this shows one memory, and the case has {case.replicas.count} replicas; its "
                         "run folder shows the first of them, and --set replicas=1 lets one serve the whole trace")


def start(case: Case) -> Run:
    """The case's run before its first step.

    Raises:
        InputError: it has several, one a replica.
    """
    check_one_memory(case)
    return Run(setup(case, read_requests(case.trace)))


def setup(case: Case, trace: Trace) -> Setup:
    """What one memory of the case runs, given these requests."""
    asked = case.trace
    return Setup(trace, case.allocator, case.capacity.slots, case.max_model_len, case.scheduling, case.durations,
                 asked.users, asked.until_s, asked.warmup_s)


def _run(task: Task, on_progress: Callable[[Progress], None]) -> Outcome:
    return (_run_alone if task.case.replicas.count == 1 else _run_fleet)(task, on_progress)


def _run_alone(task: Task, on_progress: Callable[[Progress], None]) -> Outcome:
    case, run = task.case, start(task.case)
    trace = run.trace
    reported_s = time.monotonic()
    while run.advance(_STEPS_AT_ONCE):
        if time.monotonic() - reported_s >= _SECONDS_BETWEEN_REPORTS:
            reported_s = time.monotonic()
            now = run.position()
            on_progress(Progress(task.index, now.steps, now.requests_done, len(trace)))
    result = run.result()
    entry, unwritten = case_entry(case, trace, result), None
    if task.folder is not None:
        recorded = ownership(lambda: start(case), run, _steps_to_record(result))
        try:
            write_case(task.folder, task.key, case.resolved, entry, trace, result, recorded)
        except OSError as error:
            unwritten = f"{error.filename}: {error.strerror}"
    on_progress(Progress(task.index, result.counters.steps, len(trace), len(trace), ended=True))
    return Outcome(entry, result if task.keep_result else None, unwritten=unwritten)


def _run_fleet(task: Task, on_progress: Callable[[Progress], None]) -> Outcome:
    case, trace = task.case, read_requests(task.case.trace)

    def report(runs: list[Run]) -> None:
        now = [run.position() for run in runs]
        on_progress(Progress(task.index, sum(each.steps for each in now), sum(each.requests_done for each in now),
                             len(trace)))

    served = serve(trace, case.replicas, lambda requests: setup(case, requests), task.num_threads, report)
    entry = fleet_entry(case, trace, served)
    if task.folder is not None:
        recorded = served.first_ownership(_steps_to_record(served.results[0]))
        write_case(task.folder, task.key, case.resolved, entry, trace, served.result, recorded, served.by)
    on_progress(Progress(task.index, served.result.counters.steps, len(trace), len(trace), ended=True))
    return Outcome(entry, served.result if task.keep_result else None)


def _steps_to_record(result: Result) -> int:
    """Steps whose changes of hands stay within the bound, at the run's mean; what is taken is given back."""
    counters = result.counters
    if result.block_size is None:
        taken = counters.admissions
    else:
        taken = (counters.prefill_tokens + counters.decode_tokens) // result.block_size
    return max(1, min(_MOST_RECORDED_STEPS, _MOST_RECORDED_CHANGES * counters.steps // (2 * taken + 1)))
