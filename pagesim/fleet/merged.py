"""The results of replicas as one: what adds up is added, sums over time are those of the mean replica.

So a share of the capacity stays a ratio of sums over all replicas, a mean number of sequences is a replica's, and the
time of a window is what a replica spends in it.  One replica alone is what it is without a fleet.
"""

from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np

from pagesim.engine.result import Counters, Histograms, Peaks, Requests, Result, Sharing


def merged(results: list[Result], rows: list[np.ndarray]) -> Result:
    """One result over all requests.

    Peaks are those of the replica that has the most of each; the timeline is the first replica's.

    Args:
        results: of each replica, over the requests that it served.
        rows: which requests of the trace these are, increasing, int64.
    """
    first = results[0]
    return replace(
        first, end_s=max(each.end_s for each in results),
        integrals=sum(each.integrals for each in results) / len(results), wait_s=sum(each.wait_s for each in results),
        counters=Counters(**_folded(Counters, [each.counters for each in results], sum)),
        peaks=_peaks([each.peaks for each in results]),
        histograms=Histograms(**_folded(Histograms, [each.histograms for each in results], _sum_of_bins)),
        requests=Requests(**{field.name: _in_order([getattr(each.requests, field.name) for each in results], rows)
                             for field in fields(Requests)}),
        sharing=None if first.sharing is None else _sharing([each.sharing for each in results], rows))


def of_requests(result: Result, rows: np.ndarray) -> Result:
    """A replica's result over all requests of the trace, with a row for each that it served."""
    requests = Requests(**{field.name: getattr(result.requests, field.name)[rows] for field in fields(Requests)})
    found = result.sharing
    if found is not None:
        found = replace(found, hit_tokens_by_request=found.hit_tokens_by_request[rows])
    return replace(result, requests=requests, sharing=found)


def _folded(of: type, values: list, fold: Callable) -> dict:
    return {field.name: fold([getattr(value, field.name) for value in values]) for field in fields(of)}


def _sum_of_bins(bins: list[np.ndarray | None]) -> np.ndarray | None:
    return None if bins[0] is None else sum(bins)


def _in_order(columns: list[np.ndarray], rows: list[np.ndarray]) -> np.ndarray:
    whole = np.empty(sum(map(len, columns)), columns[0].dtype)
    for column, places in zip(columns, rows):
        whole[places] = column
    return whole


def _peaks(peaks: list[Peaks]) -> Peaks:
    fullest = max(peaks, key=lambda each: each.token_states)
    return Peaks(**_folded(Peaks, peaks, max) | {"step": fullest.step, "time_s": fullest.time_s})


def _sharing(found: list[Sharing], rows: list[np.ndarray]) -> Sharing:
    counts = _folded(Sharing, [replace(each, hit_tokens_by_request=0) for each in found], sum)
    hits = _in_order([each.hit_tokens_by_request for each in found], rows)
    return Sharing(**counts | {"hit_tokens_by_request": hits})
