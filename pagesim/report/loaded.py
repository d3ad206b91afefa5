"""Run folders read back, for pictures: figures, resolved configs, timelines, who owned what."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pagesim.engine.ownership import Ownership
from pagesim.errors import InputError
from pagesim.report.events import read_events
from pagesim.report.files import opened
from pagesim.report.folder import case_folder, read_document, resolved_config
from pagesim.report.timeline_csv import read_timeline


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
        return read_timeline(self.folder / "timeline.csv")

    def ownership(self) -> Ownership:
        """Who owned what in the recorded steps.

        Raises:
            InputError: ``events.json`` is missing or damaged.
        """
        return read_events(self.folder / "events.json")


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
    with opened(path / "environment.json", "the environment of a run") as file:
        environment = json.load(file)
    return LoadedRun(path, document, environment, tuple(cases))


def _labels(paths: list[Path]) -> list[str]:
    """The folders' names, or their whole paths where two have the same name."""
    names = [path.resolve().name for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]
