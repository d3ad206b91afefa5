"""Two runs side by side: every figure with its relative difference, or a run beside a timeline that was measured."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pagesim.errors import InputError
from pagesim.report.better import is_better
from pagesim.report.files import flat
from pagesim.report.timeline_csv import GAUGES, read_timeline

# The usual names of a measured timeline's columns, without a "vllm:" before them, and what one unit of it is.
_COLUMNS = {
    "time": {"t": 1.0, "time": 1.0, "time_s": 1.0, "t_s": 1.0, "elapsed_s": 1.0, "time_ms": 1e-3, "t_ms": 1e-3},
    "running": {"running": 1.0, "num_running": 1.0, "num_requests_running": 1.0},
    "waiting": {"waiting": 1.0, "num_waiting": 1.0, "num_requests_waiting": 1.0},
    "KV cache use": {"kv_cache_pct": 0.01, "kv_pct": 0.01, "kv_percent": 0.01, "kv %": 0.01, "kv_cache_percent": 0.01,
                     "kv_cache_usage": 1.0, "kv_cache_usage_perc": 1.0, "gpu_cache_usage_perc": 1.0,
                     "block_use_share": 1.0}}

QUANTITIES = ("running", "waiting", "block_use")


@dataclass(frozen=True)
class Gauges:
    """What was seen at moments of a run: arrays of shape (num_moments,); ``block_use`` is a share of the pool."""

    time_s: np.ndarray
    running: np.ndarray
    waiting: np.ndarray
    block_use: np.ndarray


def relative(a: float | None, b: float | None) -> float | None:
    """``(b - a) / a``; None where one does not exist or a is 0, unless both are 0."""
    if a is None or b is None:
        return None
    return 0.0 if a == b else None if a == 0 else (b - a) / abs(a)


def compare_cases(a: dict, b: dict) -> list[dict]:
    """Every figure that is a number in one of them: ``{figure, a, b, relative, better}``, in the order of the entry.

    ``better``: B is, or A; None where that has no meaning.
    """
    left, right = flat(a), flat(b)
    rows = []
    for figure in dict.fromkeys([*left, *right]):
        values = left.get(figure), right.get(figure)
        if (any(isinstance(value, int | float) for value in values)
                and not any(isinstance(value, str | bool) for value in values)):
            rows.append({"figure": figure, "a": values[0], "b": values[1], "relative": relative(*values),
                         "better": is_better(figure, *values)})
    return rows


def most_moved(rows: list[dict]) -> list[dict]:
    """The figures that differ, those first that moved most: from 0 before all, what only one side has at the end."""
    differing = [row for row in rows if row["a"] != row["b"]]
    return sorted(differing, key=_moved, reverse=True)


def _moved(row: dict) -> float:
    if row["a"] is None or row["b"] is None:
        return 0.0
    return np.inf if row["relative"] is None else abs(row["relative"])


def read_measured(path: Path) -> Gauges:
    """A measured timeline: a CSV with a time, running, waiting and the share (or per cent) of the KV cache in use.

    Raises:
        InputError: a column is missing, or a value is not a number.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            header = [name.strip().lower().removeprefix("vllm:") for name in next(reader, [])]
            chosen = [_column(path, header, what, known) for what, known in _COLUMNS.items()]
            rows = [[_value(path, reader.line_num, row, index) * unit for index, unit in chosen]
                    for row in reader if row]
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file: {error}") from error
    if not rows:
        raise InputError(f"{path}: no rows below the header")
    return Gauges(*np.array(rows).T)


def _column(path: Path, header: list[str], what: str, known: dict[str, float]) -> tuple[int, float]:
    for index, name in enumerate(header):
        if name in known:
            return index, known[name]
    raise InputError(
        f"{path}:1: no column for {what}: found {', '.join(header) or 'nothing'}; it may be named {', '.join(known)}")


def _value(path: Path, line: int, row: list[str], index: int) -> float:
    text = row[index] if index < len(row) else ""
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise InputError(f"{path}:{line}: column {index + 1} must be a finite number, got {text!r}")
    return value


def simulated_gauges(path: Path) -> Gauges:
    """The ``timeline.csv`` of a run folder, at the start of each of its rows.

    Raises:
        InputError: the file is missing or not a timeline.
    """
    start_s, duration_s, *gauges = map(read_timeline(path).__getitem__, GAUGES)
    return _with_gaps(start_s, start_s + duration_s, Gauges(start_s, *gauges))


def _with_gaps(start_s: np.ndarray, end_s: np.ndarray, rows: Gauges) -> Gauges:
    """Nothing runs and nothing waits before the first row, and from the end of each that no other continues."""
    last_of_burst = np.append(start_s[1:] > end_s[:-1] * (1 + 1e-12), True)[:len(start_s)]
    where = np.concatenate(([0], np.flatnonzero(last_of_burst) + 1))
    since_s = np.concatenate(([-np.inf], end_s[last_of_burst]))
    return Gauges(np.insert(rows.time_s, where, since_s),
                  *(np.insert(getattr(rows, name), where, 0.0) for name in QUANTITIES))


def at_moments(gauges: Gauges, time_s: np.ndarray) -> Gauges:
    """A run's state at the given moments."""
    index = np.searchsorted(gauges.time_s, time_s, side="right") - 1
    return Gauges(time_s, *(getattr(gauges, name)[index] for name in QUANTITIES))


def beside_measured(measured: Gauges, simulated: Gauges) -> dict:
    """The measured moments and the run's state at each; each quantity's means, peaks and mean absolute difference."""
    run = at_moments(simulated, measured.time_s)
    summary = {}
    for name in QUANTITIES:
        seen, ours = getattr(measured, name), getattr(run, name)
        summary[name] = {
            "measured_mean": float(seen.mean()),
            "run_mean": float(ours.mean()),
            "measured_peak": float(seen.max()),
            "run_peak": float(ours.max()),
            "mean_absolute_difference": float(np.abs(seen - ours).mean()),
        }
    moments = [dict(zip(("time_s", *(f"{side}_{name}" for name in QUANTITIES for side in ("measured", "run"))), values))
               for values in zip(measured.time_s.tolist(),
                                 *(getattr(side, name).tolist() for name in QUANTITIES for side in (measured, run)))]
    return {"summary": summary, "moments": moments}
