"""A sweep: many cases, of each its figures in a file of its own, whole or not there at all.

    DIR/
    ├── sweep.json              the cases by name, what varies among them, and the address of each
    ├── results/<address>.json  a case's figures, or the error that ended it
    ├── table.csv               a row a case: what varies, and every figure
    └── seeds.csv               where seeds vary: of each figure its mean, deviation, least and most over them

The address is that of what a case is: its resolved config, its trace's content, pagesim's version; no path and no name
is in it.  So a result is found again by whoever asks for the same case, and folders of several machines are merged by
putting their results together.
"""

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import fmean, stdev

from pagesim import __version__
from pagesim.case import Case, Experiment
from pagesim.core.files import forget_halves
from pagesim.errors import InputError, PagesimError
from pagesim.experiment.attempt import Outcome, Progress, Task, attempt
from pagesim.experiment.cluster import run_on_cluster
from pagesim.experiment.processes import run_in_processes
from pagesim.report.files import flat, json_text, write_text
from pagesim.report.loaded import LoadedCase
from pagesim.trace.source_file import sha256

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Planned:
    """A case of a sweep: its name, what is its own among the keys that vary, and its address."""

    name: str
    varied: dict[str, object]
    address: str


@dataclass(frozen=True)
class Shard:
    """Part ``index`` of ``count``, from 1: every ``count``-th case, so that parts take about as long."""

    index: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.index <= self.count:
            raise InputError(f"a shard is i/N with 1 ≤ i ≤ N, such as 1/4, got {self.index}/{self.count}")


def planned(experiment: Experiment) -> list[Planned]:
    """The cases in the order of the experiment.

    Raises:
        InputError: a trace cannot be read.
    """
    settings = [_leaves(case.resolved) for case in experiment.cases]
    keys = dict.fromkeys(key for each in settings for key in each)
    varied = [key for key in keys if len({repr(each.get(key)) for each in settings}) > 1]
    return [Planned(case.name, {key: each[key] for key in varied if key in each}, address(case))
            for case, each in zip(experiment.cases, settings)]


def address(case: Case) -> str:
    """Equal for equal cases of the same pagesim, wherever their files lie."""
    resolved = case.resolved | {"trace": case.resolved["trace"] | {"path": _digest(case.trace.path)}}
    if str(resolved["model"]).endswith(".json"):
        resolved["model"] = _digest(resolved["model"])
    # The sizes and durations stand for what lies in other files: the model's config.json, the catalogue.
    sized = repr((case.capacity, case.scheduling, case.durations))
    content = json.dumps({"case": resolved, "sized": sized, "pagesim": __version__}, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:32]


@lru_cache(maxsize=64)
def _digest(path: str) -> str:
    try:
        return sha256(Path(path))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def _leaves(value: object, prefix: str = "") -> dict[str, object]:
    """Values by dotted key; of a list each entry by its number, of the only one by none."""
    if isinstance(value, dict):
        return {key: leaf for name, inner in value.items() for key, leaf in _leaves(inner, f"{prefix}{name}.").items()}
    if isinstance(value, list) and value:
        entries = [(f"{prefix}{number}." if len(value) > 1 else prefix, inner) for number, inner in enumerate(value)]
        return {key: leaf for start, inner in entries for key, leaf in _leaves(inner, start).items()}
    return {prefix.removesuffix("."): value}


def begin(folder: Path, plan: list[Planned], *, resume: bool, force: bool) -> None:
    """Write the plan; results of the same cases stay only where they are to be resumed.

    Raises:
        InputError: another sweep lies there, or a folder that is none.
    """
    there = folder / "sweep.json"
    text = json_text({"schema_version": SCHEMA_VERSION, "cases": [vars(each) for each in plan]})
    if folder.is_dir() and any(folder.iterdir()) and not there.is_file():
        raise InputError(f"{folder}: holds other files; a sweep takes an empty folder, or one of its own")
    if there.is_file() and there.read_text(encoding="utf-8") != text and not (force or resume):
        raise InputError(f"{folder}: holds another sweep; give another folder with -o, --resume to keep what is the "
                         "same of it, or --force to replace it")
    (folder / "results").mkdir(parents=True, exist_ok=True)
    forget_halves(folder / "results")
    if not resume:
        for old in (folder / "results").glob("*.json"):
            old.unlink()
    write_text(there, text)


def result_of(folder: Path, case: Planned) -> dict | None:
    """What a result's file holds, ``{"figures": …}`` or ``{"error": …}``; None where there is none that is whole."""
    try:
        found = json.loads((folder / "results" / f"{case.address}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("address") == case.address else None


def run(experiment: Experiment, plan: list[Planned], folder: Path, shard: Shard, where: int | str,
        on_progress: Callable[[Progress], None]) -> None:
    """Run the cases of this shard that have no figures yet, the longest first; each is written when it ends.

    Args:
        where: in so many processes of this machine, or on the cluster of this address.
    """
    own = range(shard.index - 1, len(plan), shard.count)
    todo, seen = [], set()
    for index in own:
        done = result_of(folder, plan[index])
        if (done is not None and "figures" in done) or plan[index].address in seen:
            on_progress(Progress(index, 0, 0, 0, ended=True))
            continue
        seen.add(plan[index].address)
        todo.append(Task(index, experiment.cases[index], keep_result=False))
    todo.sort(key=lambda task: -expected_work(task.case))
    for task, outcome in _outcomes(todo, where, on_progress):
        _write(folder, plan[task.index], outcome)


def _outcomes(tasks: list[Task], where: int | str,
              on_progress: Callable[[Progress], None]) -> Iterator[tuple[Task, Outcome]]:
    if isinstance(where, str):
        yield from run_on_cluster(tasks, where, on_progress)
        return
    if min(where, len(tasks)) > 1:
        yield from run_in_processes(tasks, min(where, len(tasks)), on_progress)
        return
    for task in tasks:
        yield task, attempt(task, on_progress)


def _write(folder: Path, case: Planned, outcome: Outcome) -> None:
    content = {"error": str(outcome.error)} if outcome.entry is None else {
        "figures": {key: value for key, value in outcome.entry.items() if key != "name"}}
    write_text(folder / "results" / f"{case.address}.json",
               json_text({"schema_version": SCHEMA_VERSION, "address": case.address, **content}))


def expected_work(case: Case) -> float:
    """Something that grows with the time that a case takes: its trace's bytes, more where blocks are small."""
    options, path = case.trace, Path(case.trace.path)
    num_bytes = path.stat().st_size if path.is_file() else 0
    rows = num_bytes / 20 if options.limit is None else min(num_bytes / 20, options.limit)
    return rows * (1 + 16 / getattr(case.allocator, "block_size", 16))


def failures(folder: Path, plan: list[Planned]) -> list[str]:
    """A line for each case that ended in an error."""
    found = [(each, result_of(folder, each)) for each in plan]
    return [f"{case.name}: {result['error']}" for case, result in found if result is not None and "error" in result]


def write_tables(folder: Path, plan: list[Planned]) -> int:
    """Write ``table.csv``, and ``seeds.csv``, from the results that are there; returns how many have figures."""
    rows = []
    for case in plan:
        result = result_of(folder, case)
        state = "missing" if result is None else "failed" if "error" in result else "done"
        figures = {} if state != "done" else flat(result["figures"])
        error = {"error": result["error"]} if state == "failed" else {}
        rows.append({"case": case.name, "state": state, **error, **case.varied, **figures})
    _write_csv(folder / "table.csv", rows)
    if any("seed" in case.varied for case in plan):
        _write_csv(folder / "seeds.csv", _over_seeds(folder, plan))
    return sum(row["state"] == "done" for row in rows)


def _over_seeds(folder: Path, plan: list[Planned]) -> list[dict]:
    """A row for each figure of the cases that differ in their seed alone; ``deviation`` is that of a sample."""
    groups: dict[str, tuple[dict, list[dict]]] = {}
    for case in plan:
        result = result_of(folder, case)
        if result is not None and "figures" in result:
            rest = {key: value for key, value in case.varied.items() if key != "seed"}
            groups.setdefault(repr(rest), (rest, []))[1].append(flat(result["figures"]))
    rows = []
    for rest, figures in groups.values():
        for name, first in figures[0].items():
            values = [each[name] for each in figures if isinstance(each.get(name), int | float)]
            if values and not isinstance(first, bool):
                rows.append({**rest, "figure": name, "seeds": len(values), "mean": fmean(values),
                             "deviation": stdev(values) if len(values) > 1 else None, "min": min(values),
                             "max": max(values)})
    return rows


def _write_csv(path: Path, rows: list[dict]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, dict.fromkeys(key for row in rows for key in row), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def cases_of(folder: Path) -> list[LoadedCase]:
    """What has figures, for curves: over seeds their means, and of the settings those that vary.

    Raises:
        InputError: it is no sweep's folder, or nothing in it has figures.
    """
    groups: dict[str, tuple[str, dict, list[dict]]] = {}
    for case in read_plan(folder):
        result = result_of(folder, case)
        if result is not None and "figures" in result:
            rest = {key: value for key, value in case.varied.items() if key != "seed"}
            name = " ".join(word for word in case.name.split() if not word.startswith("seed="))
            groups.setdefault(repr(rest), (name, rest, []))[2].append(result["figures"])
    if not groups:
        raise InputError(f"{folder}: none of its cases has figures yet; pagesim sweep --resume runs them")
    return [LoadedCase(name, {"name": name, **_mean(figures)}, rest, folder) for name, rest, figures in groups.values()]


def _mean(values: list) -> object:
    """Of numbers their mean, of mappings key by key; what is neither, or is missing in one, as the first has it."""
    first = values[0]
    if isinstance(first, dict) and all(isinstance(each, dict) for each in values):
        return {key: _mean([each.get(key) for each in values]) for key in first}
    if len(values) > 1 and all(isinstance(each, int | float) and not isinstance(each, bool) for each in values):
        return fmean(values)
    return first


def read_plan(folder: Path) -> list[Planned]:
    """The plan of a sweep's folder.

    Raises:
        InputError: it is none.
    """
    path = folder / "sweep.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return [Planned(**case) for case in document["cases"]]
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; it is what 'pagesim sweep CONFIG -o DIR' writes") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not the plan of a sweep: {error}") from error


def merge(sources: list[Path], folder: Path) -> list[Planned]:
    """Put the results of the same sweep, run in parts, into one folder; figures win over errors.

    Raises:
        InputError: the folders are of different sweeps, or two have other figures for one case.
        PagesimError: a case has no result in any of them.
    """
    plans = [read_plan(source) for source in sources]
    if any(plan != plans[0] for plan in plans):
        other = sources[next(k for k, plan in enumerate(plans) if plan != plans[0])]
        raise InputError(f"{other} and {sources[0]} are of different sweeps: parts are made by the same config, traces "
                         "and version with --shard i/N")
    chosen = {}
    for case in plans[0]:
        found = [result for source in sources if (result := result_of(source, case)) is not None]
        good = [result for result in found if "figures" in result]
        if any(result != good[0] for result in good):
            raise InputError(f"{case.name}: the folders have different figures for it; run it again")
        if not found:
            raise PagesimError(f"{case.name}: has no result in any of the folders; run the shard that is missing")
        chosen[case.address] = (good or found)[0]
    begin(folder, plans[0], resume=True, force=False)
    for at, result in chosen.items():
        write_text(folder / "results" / f"{at}.json", json_text(result))
    return plans[0]
