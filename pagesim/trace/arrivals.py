"""When requests arrive: as the trace says, drawn from a process, or all at once."""

from dataclasses import replace

import numpy as np

from pagesim.errors import InputError, TraceError
from pagesim.trace.instants import FAR, whole_ns
from pagesim.trace.sessions import NONE, earliest, permuted
from pagesim.trace.trace import Trace

KINDS = ("trace", "poisson", "gamma", "closed", "saturate")


def with_arrivals(trace: Trace, kind: str, *, rate: float | None = None, cv: float | None = None, speedup: float = 1.0,
                  seed: int = 0) -> Trace:
    """The same requests, arriving otherwise; a turn with a think time still follows the one before.

    They keep their order but for ``closed``, where users take them in the order of the file.

    Args:
        kind: ``trace`` keeps the trace's own times; ``poisson`` and ``gamma`` draw them; with ``saturate`` all arrive
            at 0; with ``closed`` too, and the engine lets a request in when a user is free.
        rate: mean requests per second of a drawn process.
        cv: coefficient of variation of gamma's intervals; 1 is a Poisson process, above 1 is burstier.
        speedup: of ``trace``; 2 is twice the rate, so every interval is halved, think times too.
        seed: of the drawn process.

    Raises:
        TraceError: kind ``trace`` for a file that has lengths only.
        InputError: an unknown kind, or a number that is missing, not positive, or not of this kind.
    """
    if kind not in KINDS:
        raise InputError(f"arrivals must be one of {', '.join(KINDS)}, got {kind!r}")
    _refuse_foreign(kind, rate=rate, cv=cv, speedup=None if speedup == 1 else speedup)
    if kind == "trace":
        if trace.arrival_ns is None:
            raise TraceError(f"{trace.source.path}: the file has lengths only and no arrival times; draw them: "
                             "arrivals poisson with a rate (requests/s) and a seed, or use saturate or closed; as in "
                             "--set 'trace.arrivals={kind: saturate}'")
        return trace if speedup == 1 else _faster(trace, speedup)
    if kind == "closed":
        return _in_file_order(replace(trace, arrival_ns=np.zeros(len(trace), dtype=np.int64)))
    if kind == "saturate":
        return _arriving(trace, np.zeros(len(trace), dtype=np.int64))
    rng = np.random.Generator(np.random.PCG64(seed))
    alone = np.ones(len(trace), dtype=bool) if trace.think_ns is None else trace.think_ns == NONE
    arrival_ns = np.zeros(len(trace), dtype=np.int64)
    arrival_ns[alone] = whole_ns(draw_arrivals(rng, int(alone.sum()), _positive("rate", rate),
                                               1.0 if kind == "poisson" else _positive("cv", cv)))
    return _arriving(trace, arrival_ns)


def _arriving(trace: Trace, arrival_ns: np.ndarray) -> Trace:
    """The trace at these arrivals of the requests that wait for no other; the others as soon as they could come."""
    if trace.think_ns is None:
        return replace(trace, arrival_ns=arrival_ns)
    arrival_ns = earliest(arrival_ns, trace.think_ns, trace.session_parent, np.arange(len(trace)))
    columns = {name: value for name, value in vars(trace).items() if name != "source"} | {"arrival_ns": arrival_ns}
    return replace(trace, **permuted(columns, np.argsort(arrival_ns, kind="stable")))


def _in_file_order(trace: Trace) -> Trace:
    if trace.file_row is None:
        return trace
    parent = trace.session_parent
    if parent is not None:
        late = np.flatnonzero((parent != NONE) & (trace.file_row[parent] > trace.file_row))
        if len(late):
            raise TraceError(f"{trace.source.path}: row {trace.file_row[late[0]] + 1} comes before the turn "
                             "before it, and closed takes rows in the order of the file; sort the file")
    columns = {name: value for name, value in vars(trace).items() if name not in ("source", "file_row")}
    return replace(trace, **permuted(columns, np.argsort(trace.file_row)), file_row=None)


def _faster(trace: Trace, speedup: float) -> Trace:
    """Every interval divided, think times too."""
    arrival_ns = _divided(trace.arrival_ns, speedup)
    if trace.think_ns is not None:
        trace = replace(trace, think_ns=np.where(trace.think_ns == NONE, NONE, _divided(trace.think_ns, speedup)))
    return _arriving(trace, arrival_ns)


def _divided(arrival_ns: np.ndarray, speedup: float) -> np.ndarray:
    """Each rounded once, to the nearest nanosecond."""
    if len(arrival_ns) and not arrival_ns.max() / _positive("speedup", speedup) < FAR:
        raise InputError(f"a speedup of {speedup:g} stretches the arrivals over more than 292 years; raise it")
    return np.rint(arrival_ns / speedup).astype(np.int64)


def draw_arrivals(rng: np.random.Generator, num_requests: int, rate: float, cv: float = 1.0) -> np.ndarray:
    """Seconds of a renewal process with gamma intervals, float64, shape (num_requests,); the first arrival is 0.

    Raises:
        InputError: a rate or a coefficient of variation of which no numbers can be drawn.
    """
    if not (1e-9 <= rate <= 1e9 and 1e-6 <= cv <= 1e6):
        raise InputError("drawn arrivals need a rate from 1e-9 to 1e9 requests/s and intervals with a coefficient of "
                         f"variation from 1e-6 to 1e6, got {rate:g} and {cv:g}")
    if cv == 1:
        intervals_s = rng.exponential(1 / rate, num_requests - 1)
    else:
        intervals_s = rng.gamma(cv**-2, cv**2 / rate, num_requests - 1)
    return np.concatenate(([0.0], np.cumsum(intervals_s)))


def _refuse_foreign(kind: str, **given: float | None) -> None:
    owners = {"rate": ("poisson", "gamma"), "cv": ("gamma",), "speedup": ("trace",)}
    for name, value in given.items():
        if value is not None and kind not in owners[name]:
            raise InputError(f"{name} is of arrivals {' and '.join(owners[name])}, not of {kind}; "
                             "remove it or change the kind")


def _positive(name: str, value: float | None) -> float:
    if value is None:
        raise InputError(f"these arrivals need a {name}")
    if not 0 < value < float("inf"):
        raise InputError(f"{name} must be finite and above 0, got {value}")
    return float(value)
