"""From a run's sums to the figures a user reads: shares of capacity, means, peaks, rates and percentiles.

Plain JSON: ``None`` where a quantity does not exist (a window without time, nothing completed), never NaN.
"""

from dataclasses import asdict

import numpy as np

from pagesim.allocators import Spec, name_of
from pagesim.core.histogram import bin_edges
from pagesim.core.ledger import HELD, PARTS, grouped, is_whole
from pagesim.core.units import NS_PER_S
from pagesim.engine.result import (
    STATUSES, WAIT_CAUSES, WINDOWS, Column, Histograms, Requests, Result, Status, Window)
from pagesim.errors import PagesimError
from pagesim.trace.trace import Trace

LATENCIES = ("queue", "ttft", "tpot", "e2e")
PERCENTILES = (50, 90, 99)

_HELD = slice(Column.TOKEN_STATES, Column.TOKEN_STATES + len(HELD))


def metrics(result: Result, trace: Trace, allocator: Spec) -> dict:
    """All figures of one run; those without a window are over ``busy``.

    Args:
        result: the run.
        trace: the requests that it ran, row for row those of ``result.requests``.
        allocator: under which it ran.

    Raises:
        PagesimError: requests of the trace are missing from the result.
    """
    busy = result.integrals[Window.BUSY]
    shares = {window: ledger(row, result.capacity_slots) for window, row in zip(WINDOWS, result.integrals)}
    return {
        "allocator": {"kind": name_of(allocator), **asdict(allocator)},
        "requests": request_counts(result.requests.status, len(trace)),
        "time": times(result),
        "ledger": shares,
        "sosp23": {window: sosp23(shares[window]) for window in WINDOWS},
        "utilization": ratio(busy[Column.TOKEN_STATES], busy[Column.TIME] * result.capacity_slots),
        "block_use": ratio(allocated(busy), busy[Column.TIME] * result.capacity_slots),
        "internal_fragmentation": internal_fragmentation(busy),
        "external_fragmentation": external_fragmentation(busy),
        "peak": {key: int(value) for key, value in asdict(result.peaks).items() if key not in ("step", "time_s")},
        "mean": means(busy),
        "means": {window: means(row) for window, row in zip(WINDOWS, result.integrals)},
        "waiting_request_s": {cause: float(value) for cause, value in zip(WAIT_CAUSES, result.wait_s)},
        **{key: int(value) for key, value in asdict(result.counters).items() if key != "steps"},
        "throughput": throughput(result),
        "latency": latencies(result.requests, trace.output_tokens, result.warmup_s),
        "histograms": histograms(result.histograms),
        "sharing": sharing(result),
    }


def ratio(numerator: float, denominator: float) -> float | None:
    """``numerator / denominator``, None over 0."""
    return float(numerator / denominator) if denominator > 0 else None


def request_counts(status: np.ndarray, num_kept: int) -> dict:
    """Completed, rejected (and why) and unfinished requests: together the rows that were kept.

    Raises:
        PagesimError: they are not.
    """
    counts = {name: int(np.count_nonzero(status == code)) for code, name in enumerate(STATUSES)}
    completed, unfinished = counts.pop("completed"), counts.pop("unfinished")
    rejected = sum(counts.values())
    if completed + rejected + unfinished != num_kept:
        raise PagesimError(f"requests were lost: {num_kept:,} kept, but {completed:,} completed + {rejected:,} "
                           f"rejected + {unfinished:,} unfinished; this is a bug in pagesim, please report it with the "
                           "config")
    return {"completed": completed, "rejected": rejected, "unfinished": unfinished, "rejected_by_reason": counts}


def times(result: Result) -> dict:
    """Length of the run and of its windows in seconds; with a warm-up, of what follows it."""
    seconds = {window: float(row[Column.TIME]) for window, row in zip(WINDOWS, result.integrals)}
    return {
        "simulated_s": seconds["run"],
        "busy_s": seconds["busy"],
        "queued_s": seconds["queued"],
        "saturated_s": seconds["saturated"],
        "end_s": float(result.end_s),
        "steps": int(result.counters.steps),
    }


def ledger(window: np.ndarray, capacity_slots: int) -> dict[str, float] | None:
    """Time-weighted share of each part, ``Σ part·duration / (capacity · Σ duration)``; the shares sum to 1.

    Args:
        window: one row of ``Result.integrals``, shape (len(Column),).

    Raises:
        PagesimError: they do not.
    """
    if window[Column.TIME] <= 0:
        return None
    parts, whole = window[Column.TOKEN_STATES:Column.RUNNING], window[Column.TIME] * capacity_slots
    if not is_whole(parts, whole):
        raise PagesimError(f"slots were lost: the parts of the ledger sum to {sum(parts):,.0f} slot-seconds of "
                           f"{whole:,.0f}; this is a bug in pagesim, please report it with the config")
    return {name: float(part / whole) for name, part in zip(PARTS, parts)}


def sosp23(shares: dict[str, float] | None) -> dict[str, float] | None:
    """The same shares as Figure 2 of the PagedAttention paper groups them.

    ``internal`` is what was asked for and never filled; a buddy's rounding counts as external.
    """
    if shares is None:
        return None
    return grouped(shares, "sosp23")


def means(window: np.ndarray) -> dict[str, float | None]:
    """Sequences running and waiting, weighted by time."""
    return {
        "running": ratio(window[Column.RUNNING], window[Column.TIME]),
        "waiting": ratio(window[Column.WAITING], window[Column.TIME]),
    }


def allocated(window: np.ndarray) -> float:
    """Slot-seconds owned by sequences: token states + reserved + overreserved + rounding."""
    return float(window[_HELD].sum())


def internal_fragmentation(window: np.ndarray) -> float | None:
    """``(reserved + overreserved + rounding) / allocated``, a ratio of time-weighted sums; None where that is 0 / 0."""
    return ratio(window[Column.RESERVED:Column.ROUNDING + 1].sum(), allocated(window))


def external_fragmentation(window: np.ndarray) -> dict[str, float | None]:
    """Four measures side by side, because they disagree; time-weighted means.

    ``largest_hole`` = 1 - largest hole / free. ``unusable`` = share of the free slots that pieces of the waiting head's
    size cannot use. ``extfrag_index`` = Linux's, 0 (want of memory) to 1000 (fragmentation), over steps in which the
    head finds no hole; None without any. ``blocked_by_fragmentation`` = share of the time with stranded slots.
    """
    return {
        "largest_hole": ratio(window[Column.LARGEST_HOLE], window[Column.TIME]),
        "unusable": ratio(window[Column.UNUSABLE], window[Column.TIME]),
        "extfrag_index": ratio(window[Column.EXTFRAG], window[Column.EXTFRAG_TIME]),
        "blocked_by_fragmentation": ratio(window[Column.BLOCKED_TIME], window[Column.TIME]),
    }


def sharing(result: Result) -> dict[str, float | None] | None:
    """What a prefix cache found and saved; None where sequences cannot share.

    Hits are those of first admissions: ``hit_rate_by_tokens`` = hit tokens / prompt tokens of the requests admitted,
    ``hit_rate_by_blocks`` = hit blocks / full prompt blocks.  ``saved`` = 1 - physical / logical over blocks that have
    an owner, a ratio of time-weighted sums over ``busy``; ``saved_tokens`` the same of tokens.
    """
    found, busy = result.sharing, result.integrals[Window.BUSY]
    if found is None:
        return None
    logical_slots = busy[Column.LOGICAL_BLOCKS] * result.block_size
    return {
        "hit_tokens": found.hit_tokens,
        "readmission_hit_tokens": found.readmission_hit_tokens,
        "hit_rate_by_tokens": ratio(found.hit_tokens, found.prompt_tokens),
        "hit_rate_by_blocks": ratio(found.hit_tokens // result.block_size, found.prompt_blocks),
        "evicted_blocks": found.evicted_blocks,
        "saved": ratio(logical_slots - allocated(busy), logical_slots),
        "saved_tokens": ratio(busy[Column.LOGICAL_TOKENS] - busy[Column.TOKEN_STATES], busy[Column.LOGICAL_TOKENS]),
    }


def throughput(result: Result) -> dict[str, float | None]:
    """Requests completed and tokens sampled per second of the run; with a warm-up, of what follows it."""
    seconds = result.integrals[Window.RUN, Column.TIME]
    done = result.requests.status == Status.COMPLETED
    if result.warmup_s > 0:
        # The window starts with a step; a request that ended just then ended in the step before.  The tolerance is far
        # below a step.
        done &= result.requests.finish_s > result.end_s - seconds + 1e-9 * result.end_s
    return {
        "requests_per_s": ratio(int(np.count_nonzero(done)), seconds),
        "output_tokens_per_s": ratio(result.counters.output_tokens, seconds),
    }


def latencies(requests: Requests, output_tokens: np.ndarray, warmup_s: float) -> dict[str, dict[str, float | None]]:
    """Mean and nearest-rank percentiles in seconds, of completed requests that arrived at or after ``warmup_s``.

    queue = first admission - arrival; ttft = first token - arrival; tpot = (finish - first token)/(output tokens - 1),
    only of requests with more than one; e2e = finish - arrival.  One is computed at a time: a trace may have tens of
    millions of requests.
    """
    chosen = requests.status == Status.COMPLETED
    if warmup_s > 0:
        chosen &= requests.arrival_ns >= warmup_s * NS_PER_S
    times_ns = {"queue": requests.first_scheduled_ns, "ttft": requests.first_token_ns, "e2e": requests.finish_ns}
    summaries = {}
    for name, end_ns in times_ns.items():
        summaries[name] = summary(_seconds_between(requests.arrival_ns, end_ns, chosen))
    chosen &= output_tokens > 1
    values_s = _seconds_between(requests.first_token_ns, requests.finish_ns, chosen)
    values_s /= output_tokens[chosen] - 1
    summaries["tpot"] = summary(values_s)
    return {name: summaries[name] for name in LATENCIES}


def _seconds_between(start_ns: np.ndarray, end_ns: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    between_ns = end_ns[chosen]
    between_ns -= start_ns[chosen]
    return between_ns / NS_PER_S


def summary(values: np.ndarray) -> dict[str, float | None]:
    """Mean and nearest-rank percentiles: the ``ceil(q/100 · n)``-th smallest of n values.  Reorders ``values``."""
    names = [f"p{q}" for q in PERCENTILES]
    if len(values) == 0:
        return dict.fromkeys(["mean", *names])
    mean = float(values.mean())
    ranks = [-(-q * len(values) // 100) - 1 for q in PERCENTILES]
    values.partition(ranks)
    return {"mean": mean, **{name: float(values[rank]) for name, rank in zip(names, ranks)}}


def histograms(counts: Histograms) -> dict[str, list | None]:
    """Each as rows ``[low, high, count]`` of its bins that are not empty; a bin holds low <= value < high."""
    return {name: None if bins is None else [[*bin_edges(k), bins[k].item()] for k in np.flatnonzero(bins).tolist()]
            for name, bins in vars(counts).items()}
