"""An experiment: which cases run, where, and what is left when some fail or the user stops it."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pagesim.case import Case, Experiment
from pagesim import __version__
from pagesim.core.files import forget_halves
from pagesim.engine.result import Result
from pagesim.errors import InputError, PagesimError
from pagesim.experiment.attempt import Outcome, Progress, Task, attempt
from pagesim.experiment.summary import document
from pagesim.experiment.processes import run_in_processes
from pagesim.experiment.environment import environment
from pagesim.report.files import json_text, write_text
from pagesim.report.folder import FILES, case_folder, config_text, finished_case, forget_case
from pagesim.trace.source_file import sha256

# Below this much trace text in all cases together, starting processes takes longer than they save.
_WORTH_PROCESSES_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Simulation:
    """An experiment that has run.

    Attributes:
        metrics: the JSON object of every figure; ``metrics["failed"]`` names the cases without figures, and why.
        results: of each case by its name: request times, timeline, sums; empty where they were not kept.
        interrupted: Ctrl-C ended it early; what had finished is here.
        unwritten: files of the run folder that could not be written, and why.
    """

    metrics: dict
    results: dict[str, Result]
    interrupted: bool = False
    unwritten: tuple[str, ...] = ()


def run_experiment(experiment: Experiment, *, jobs: int | None = None, folder: Path | None = None,
                   resume: bool = False, keep_results: bool = False,
                   on_progress: Callable[[Progress], None] = lambda progress: None) -> Simulation:
    """Run every case; an error in one leaves the others running.

    Args:
        jobs: processes at most, and with fewer cases than that, replicas of each at the same time; None takes the
            machine's cores where the work is worth starting processes for.
        folder: where the run folder is written; None for nowhere.
        resume: take the figures of cases that an earlier run into ``folder`` finished.
        keep_results: return each case's Result too.
        on_progress: called in this process as cases advance and end.

    Raises:
        PagesimError: no case ran, and all for the same reason.
        InputError: the folder cannot be written, or has the config or the trace in the place of a file of the run,
            or ``resume`` without one.
    """
    if resume and folder is None:
        raise InputError("there is nothing to resume without the run folder: give it with -o DIR")
    started_s = time.monotonic()
    tasks = _tasks(experiment.cases, folder, keep_results)
    outcomes: dict[int, Outcome] = _finished(tasks) if resume else {}
    for index in outcomes:
        on_progress(Progress(index, 0, 0, 0, ended=True))
    if folder is not None:
        _make(folder, experiment)
    rest = [task for task in tasks if task.index not in outcomes]
    interrupted = False
    try:
        for task, outcome in _run(rest, jobs, on_progress):
            outcomes[task.index] = outcome
    except KeyboardInterrupt:
        interrupted = True
    simulation = _collect(tasks, outcomes, interrupted)
    if folder is not None:
        try:
            _write_run(folder, experiment, simulation, time.monotonic() - started_s)
        except OSError as error:
            simulation = replace(simulation, unwritten=(*simulation.unwritten, f"{error.filename}: {error.strerror}"))
    return simulation


def _tasks(cases: tuple[Case, ...], folder: Path | None, keep_result: bool) -> list[Task]:
    return [Task(index, case, folder and case_folder(folder, case.name, len(cases)), content_address(case), keep_result)
            for index, case in enumerate(cases)]


def content_address(case: Case) -> str:
    """Equal for equal cases of the same pagesim; the trace's content is compared apart, by its sha256.

    The capacity and the durations stand for what lies in other files: the model's config.json, the catalogue.
    """
    sized = repr((case.capacity, case.scheduling, case.durations))
    content = json.dumps({"case": case.resolved, "sized": sized, "pagesim": __version__}, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _finished(tasks: list[Task]) -> dict[int, Outcome]:
    found = {}
    for task in tasks:
        entry, path = finished_case(task.folder, task.key), Path(task.case.trace.path)
        if entry is not None and path.is_file() and entry["trace"]["sha256"] == sha256(path):
            found[task.index] = Outcome(entry | {"name": task.case.name})
    return found


def _make(folder: Path, experiment: Experiment) -> None:
    for path in (experiment.path, *(case.trace.path for case in experiment.cases)):
        if Path(path).resolve() in [(folder / name).resolve() for name in FILES]:
            raise InputError(f"{path}: the run folder would be written over it; give another with -o")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "metrics.json").unlink(missing_ok=True)  # an older run's figures must not pass for this one's
        forget_halves(folder)
        if len(experiment.cases) > 1:  # config.yaml will no longer be that of a case that lay here alone
            forget_case(folder)
    except OSError as error:
        raise InputError(f"{folder}: cannot write the run folder: {error.strerror}") from error


def _run(tasks: list[Task], jobs: int | None,
         on_progress: Callable[[Progress], None]) -> Iterator[tuple[Task, Outcome]]:
    num_processes = _num_processes(tasks) if jobs is None else min(jobs, len(tasks))
    num_threads = max(1, (_cores() if jobs is None else jobs) // max(1, num_processes))
    tasks = [replace(task, num_threads=num_threads) for task in tasks]
    if num_processes > 1:
        yield from run_in_processes(tasks, num_processes, on_progress)
    else:
        for task in tasks:
            yield task, attempt(task, on_progress)


def _num_processes(tasks: list[Task]) -> int:
    paths = [Path(task.case.trace.path) for task in tasks]
    if sum(path.stat().st_size for path in paths if path.is_file()) < _WORTH_PROCESSES_BYTES:
        return 1
    return min(_cores(), len(tasks))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _collect(tasks: list[Task], outcomes: dict[int, Outcome], interrupted: bool) -> Simulation:
    """Every case is in ``cases`` or in ``failed``, in the order of the experiment, whatever order they ended in."""
    interruption = Outcome(error=PagesimError("interrupted before it ended"))
    ordered = [(task, outcomes.get(task.index, interruption)) for task in tasks]
    errors = [outcome.error for _, outcome in ordered if outcome.error]
    if not interrupted and len(errors) == len(tasks) and len({str(error) for error in errors}) == 1:
        raise errors[0]
    failed = [{"name": task.case.name, "error": str(outcome.error)} for task, outcome in ordered if outcome.error]
    entries = [outcome.entry for _, outcome in ordered if outcome.entry]
    results = {task.case.name: outcome.result for task, outcome in ordered if outcome.result}
    unwritten = tuple(outcome.unwritten for _, outcome in ordered if outcome.unwritten)
    return Simulation(document(entries, failed), results, interrupted, unwritten)


def _write_run(folder: Path, experiment: Experiment, simulation: Simulation, wall_s: float) -> None:
    if len(experiment.cases) > 1:
        write_text(folder / "config.yaml", config_text({case.name: case.resolved for case in experiment.cases}))
    write_text(folder / "environment.json", json_text(environment(experiment, simulation.metrics, wall_s)))
    write_text(folder / "metrics.json", json_text(simulation.metrics))
