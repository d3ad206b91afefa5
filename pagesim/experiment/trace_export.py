"""``--export-trace``: cases run once more, so that each preemption of a request that is shown is seen at its time."""

from pathlib import Path

import numpy as np

from pagesim.case import Case
from pagesim.engine.result import Result
from pagesim.errors import InputError
from pagesim.experiment.attempt import start
from pagesim.report import perfetto
from pagesim.report.perfetto import Preemption, shown_requests


def check_name(path: Path) -> None:
    """Raises InputError for a name that the viewers would not take for a timeline, or a folder that is not there."""
    if not path.parent.is_dir():
        raise InputError(f"--export-trace: there is no folder {path.parent}; make it first")
    if not path.name.endswith((".json", ".json.gz")):
        raise InputError(f"--export-trace writes JSON: the name must end in .json or .json.gz, got {path}")


def write_trace(cases: tuple[Case, ...], path: Path) -> None:
    """Write the timeline of every case, each as a process of its own."""
    events = []
    for process, case in enumerate(cases, 1):
        run = start(case)
        run.advance()
        result = run.result()
        events += perfetto.case_events(process, case.name, run.trace, result, preemptions(case, result))
    perfetto.write(path, events)


def preemptions(case: Case, result: Result) -> list[Preemption]:
    """Of the shown requests, in order of time: single steps where the timeline knows of a preemption in their lives."""
    shown = shown_requests(result)
    own = slice(shown.start, shown.stop)
    if not result.requests.preemptions[own].any():
        return []
    lives_s = np.nanmin(result.requests.first_scheduled_s[own]), np.nanmax(
        np.nan_to_num(result.requests.finish_s[own], nan=result.end_s))
    line = result.timeline
    within = (line.preemptions > 0) & (line.start_s + line.duration_s >= lives_s[0]) & (line.start_s <= lives_s[1])
    found, run, done = [], start(case), 0
    for first in line.first_step[within].tolist():
        run.advance(first - done)
        done = first
        before = run.result().requests.preemptions[own].copy()
        for _ in range(line.stride):
            run.advance(1)
            done += 1
            now = run.result().requests.preemptions[own].copy()
            found += [Preemption(run.step_start_s(), shown[k]) for k in np.flatnonzero(now > before)]
            before = now
    return found
