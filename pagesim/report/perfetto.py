"""A run as a timeline for Perfetto and chrome://tracing, in the Trace Event Format (JSON, times in microseconds).

Each case is a process.  Its counters are the ledger in slots, running and waiting requests, and preemptions; each
request that is shown is a track with three slices:

    queued    arrival … start of the step of the first admission
    prefill   … end of the step that samples output token 1
    decode    … finish, times in which the request was preempted included

An instant marks each preemption and each rejection.
"""

import gzip
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pagesim.core.files import replacing
from pagesim.core.ledger import PARTS
from pagesim.core.units import NS_PER_S
from pagesim.engine.result import STATUSES, Result
from pagesim.trace.trace import Trace

MOST_REQUESTS = 1_000

# Name and colour; chrome://tracing gives the first and the last the same colour, if it is not told.
_SLICES = (("queued", "grey"), ("prefill", "yellow"), ("decode", "good"))


class Preemption(NamedTuple):
    """A request lost its memory when the step that starts at ``time_s`` was scheduled."""

    time_s: float
    request: int


def shown_requests(result: Result) -> range:
    """All requests, or the ``MOST_REQUESTS`` (in order of arrival) around the one admitted last before the peak."""
    count = len(result.requests.status)
    admitted = np.flatnonzero(result.requests.first_scheduled_s <= result.peaks.time_s)
    middle = int(admitted[-1]) if len(admitted) else 0
    first = max(0, min(middle - MOST_REQUESTS // 2, count - MOST_REQUESTS))
    return range(first, min(count, first + MOST_REQUESTS))


def case_events(process: int, name: str, trace: Trace, result: Result,
                preemptions: Iterable[Preemption]) -> Iterator[dict]:
    """Every event of a case.

    Args:
        process: number of the case, from 1.
        preemptions: of the shown requests.
    """
    shown = shown_requests(result)
    label = name if len(shown) == len(trace) else f"{name} (requests {shown[0]:,} to {shown[-1]:,} of {len(trace):,})"
    yield from _named("process", process, 0, label, place=process)
    yield from _counters(process, result)
    for request in shown:
        yield from _request(process, request, trace, result)
    for time_s, request in preemptions:
        yield _instant("preempted", process, request, time_s)


def write(path: Path, events: Iterable[dict]) -> None:
    """Write strict JSON, an event a line, compressed where the name ends with ``.gz``; equal events, equal bytes."""
    lines = ",\n".join(json.dumps(event, allow_nan=False, ensure_ascii=False) for event in events)
    content = f'{{"displayTimeUnit": "ms", "traceEvents": [\n{lines}\n]}}\n'.encode()
    with replacing(path, "wb") as file:
        file.write(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def _counters(process: int, result: Result) -> Iterator[dict]:
    """The values of each timeline row at its start, and an empty memory where nothing follows at once.

    With a prefix cache it is not known how much of that memory is cached: it has a name of its own.
    """
    line, empty_name = result.timeline, "idle" if result.sharing is None else "cached_or_idle"
    names = dict.fromkeys((*PARTS, empty_name), 0)
    for k, start_s in enumerate(line.start_s.tolist()):
        parts = names | dict(zip(PARTS, _plain(line.mean_parts[k])))
        running, waiting = _plain(np.array([line.mean_running[k], line.mean_waiting[k]]))
        yield from _levels(process, start_s, parts, running, waiting, int(line.preemptions[k]))
        end_s = start_s + float(line.duration_s[k])
        follows_s = float(line.start_s[k + 1]) if k + 1 < len(line.start_s) else math.inf
        if follows_s > end_s * (1 + 1e-9):
            empty = names | {"remainder": parts["remainder"],
                             empty_name: result.capacity_slots - parts["remainder"]}
            yield from _levels(process, end_s, empty, 0, 0, 0)


def _levels(process: int, time_s: float, parts: dict, running: float, waiting: float, preempted: int) -> Iterator[dict]:
    for name, values in (("KV memory, slots", parts), ("requests", {"running": running, "waiting": waiting}),
                         ("preemptions", {"count": preempted})):
        yield {"ph": "C", "name": name, "pid": process, "tid": 0, "ts": _us(time_s), "args": values}


def _request(process: int, request: int, trace: Trace, result: Result) -> Iterator[dict]:
    columns = result.requests
    thread = request + 1
    yield from _named("thread", process, thread, f"request {request}", place=request)
    status = STATUSES[columns.status[request]]
    if status not in ("completed", "unfinished"):
        yield _instant(f"rejected: {status}", process, request, float(columns.arrival_ns[request]) / NS_PER_S)
        return
    times = columns.arrival_ns, columns.first_scheduled_ns, columns.first_token_ns, columns.finish_ns
    times_s = [math.nan if column[request] < 0 else float(column[request]) / NS_PER_S for column in times]
    facts = {"request": request, "prompt_tokens": int(trace.prompt_tokens[request]),
             "output_tokens": int(trace.output_tokens[request]), "preemptions": int(columns.preemptions[request]),
             "status": status}
    if result.sharing is not None and columns.first_scheduled_ns[request] >= 0:
        facts["hit_tokens"] = int(result.sharing.hit_tokens_by_request[request])
    for (name, colour), start_s, end_s in zip(_SLICES, times_s, times_s[1:]):
        if math.isnan(start_s):
            return
        end_s = max(start_s, result.end_s) if math.isnan(end_s) else end_s
        yield {"ph": "X", "name": name, "cname": colour, "cat": "request", "pid": process, "tid": thread,
               "ts": _us(start_s), "dur": round(_us(end_s) - _us(start_s), 3), "args": facts}


def _instant(name: str, process: int, request: int, time_s: float) -> dict:
    return {"ph": "i", "s": "t", "name": name, "cat": "request", "pid": process, "tid": request + 1, "ts": _us(time_s),
            "args": {"request": request}}


def _named(kind: str, process: int, thread: int, label: str, *, place: int) -> Iterator[dict]:
    """Name of a process or thread, and its place among them; without one, viewers sort by name: 1, 10, 100, 2."""
    for name, facts in ((f"{kind}_name", {"name": label}), (f"{kind}_sort_index", {"sort_index": place})):
        yield {"ph": "M", "name": name, "pid": process, "tid": thread, "args": facts}


def _us(time_s: float) -> float:
    return round(time_s * 1e6, 3)


def _plain(values: np.ndarray) -> list[float | int]:
    """Means of a row; whole numbers, which rows of one step have, without a point."""
    return [int(value) if value.is_integer() else round(value, 3) for value in values.tolist()]
