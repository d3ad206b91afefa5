"""Run folders read back, for pictures: figures, resolved configs, timelines, who owned what."""

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

from pagesim.core.ledger import CACHED, NOBODY
from pagesim.engine.ownership import Ownership
from pagesim.errors import InputError
from pagesim.report.folder import case_folder, read_document

GAUGES = ("start_s", "duration_s", "mean_running", "mean_waiting", "block_use_share")


@dataclass(frozen=True)
class LoadedCase:
    """A finished case.  ``name`` is unique among all the runs that were loaded together."""

    name: str
    entry: dict
    resolved: dict
    folder: Path

    def timeline(self) -> dict[str, np.ndarray]:
        """The columns of ``timeline.csv`` by their names, float64, shape (num_rows,).

        Raises:
            InputError: the file is missing or not a timeline.
        """
        return timeline(self.folder / "timeline.csv")

    def ownership(self) -> Ownership:
        """Who owned what in the recorded steps.

        Raises:
            InputError: ``events.json`` is missing or damaged.
        """
        with _opened(self.folder / "events.json", "the events of a case") as file:
            events = json.load(file)
            changes, owners = events["changes"], {None: NOBODY, "cached": CACHED}
            for change in changes:  # in place: there are hundreds of thousands
                change[3] = owners.get(change[3], change[3])
                if len(change) == 4:
                    change.append(1 if change[3] >= 0 else 0)
            return Ownership(events["unit_slots"], events["num_units"], events["first_step"], events["last_step"],
                             np.array(events["start_s"], np.float64), np.array(changes, np.int64).reshape(-1, 5))


@dataclass(frozen=True)
class LoadedRun:
    path: Path
    document: dict
    environment: dict
    cases: tuple[LoadedCase, ...]


def load_runs(paths: list[Path]) -> list[LoadedRun]:
    """The runs of these folders; with several runs each case is named after its run too.

    Raises:
        InputError: a folder is no run, or none of its cases has finished.
    """
    labels = _labels(paths)
    return [_load(path, f"{label}: " if len(paths) > 1 else "") for path, label in zip(paths, labels)]


def chosen(runs: list[LoadedRun], names: list[str]) -> list[LoadedCase]:
    """The cases of these names, all if none is named.

    Raises:
        InputError: no case has such a name.
    """
    cases = {case.name: case for run in runs for case in run.cases}
    missing = [name for name in names if name not in cases]
    if missing:
        raise InputError(f"there is no case {missing[0]!r}; the run has {', '.join(cases)}")
    return [cases[name] for name in names or cases]


def timeline(path: Path) -> dict[str, np.ndarray]:
    """The columns of a ``timeline.csv`` by their names, float64, shape (num_rows,).

    Raises:
        InputError: the file is missing or not a timeline.
    """
    with _opened(path, "a timeline") as file:
        rows = csv.reader(file)
        names = next(rows, [])
        values = np.array([[float(cell or "nan") for cell in row] for row in rows]).reshape(-1, len(names))
        columns = dict(zip(names, values.T))
        missing = [name for name in GAUGES if name not in columns]
        if missing:
            raise ValueError(f"no column {missing[0]}")
        return columns


def _load(path: Path, prefix: str) -> LoadedRun:
    if not path.is_dir():
        raise InputError(f"{path}: not a run folder; it is what 'pagesim simulate CONFIG -o DIR' writes")
    document = read_document(path)
    if not document["cases"]:
        raise InputError(f"{path}: none of its cases has finished: there is nothing to show")
    num_cases = len(document["cases"]) + len(document["failed"])
    cases = []
    for entry in document["cases"]:
        folder = case_folder(path, entry["name"], num_cases)
        cases.append(LoadedCase(prefix + entry["name"], entry, resolved_config(folder / "config.yaml"), folder))
    with _opened(path / "environment.json", "the environment of a run") as file:
        environment = json.load(file)
    return LoadedRun(path, document, environment, tuple(cases))


def resolved_config(path: Path) -> dict:
    """The case as it was resolved.

    Raises:
        InputError: the file is missing or damaged.
    """
    import yaml

    with _opened(path, "the config of a case") as file:
        try:
            resolved = yaml.load(file, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except yaml.YAMLError as error:
            raise ValueError(str(error)) from error
        if not isinstance(resolved, dict) or "trace" not in resolved:
            raise ValueError("no mapping with a trace in it")
        return resolved


@contextmanager
def _opened(path: Path, what: str) -> Iterator[TextIO]:
    """The text of a file of a run folder; it is read under this, so that a damaged one is named."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            yield file
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; the run folder is not whole: run the simulation again") from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        reason = error if isinstance(error, ValueError) else repr(error)
        raise InputError(f"{path}: not {what}: {reason}; run the simulation again") from error


def _labels(paths: list[Path]) -> list[str]:
    """The folders' names, or their whole paths where two have the same name."""
    names = [path.resolve().name for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]
