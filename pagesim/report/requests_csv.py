"""``requests.csv``: one row a request; columns carry their units."""

from collections.abc import Iterator

import numpy as np

from pagesim.engine.result import STATUSES, Result
from pagesim.report.cells import csv_rows, seconds_cells, whole_cells, word_cells
from pagesim.trace.trace import Trace

_ROWS_AT_ONCE = 16_384  # their letters stay in the cache


def request_text(trace: Trace, result: Result, served_by: np.ndarray | None = None) -> Iterator[str]:
    """CSV of every request in the order of the trace, many lines at once.

    Times are seconds to the nanosecond; one that does not exist is an empty cell.  With a prefix cache there is what a
    request found of its prompt when it was first admitted; of a fleet the last column is the replica that served it.
    """
    requests, names = result.requests, ("arrival_s", "first_scheduled_s", "first_token_s", "finish_s")
    found = [] if result.sharing is None else [result.sharing.hit_tokens_by_request]
    yield (f"request,status,prompt_tokens,output_tokens,preemptions,{','.join(names)},queue_s,ttft_s,tpot_s,e2e_s"
           f"{',hit_tokens' * len(found)}{'' if served_by is None else ',replica'}\n")
    columns = requests.arrival_ns, requests.first_scheduled_ns, requests.first_token_ns, requests.finish_ns
    for start in range(0, len(trace), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        output = trace.output_tokens[rows]
        arrival, scheduled, first, finish = (column[rows] for column in columns)
        tpot = _rounded_ratio(_between(first, finish), output - 1)
        number = whole_cells(np.arange(start, start + len(output)))
        counts = map(whole_cells, (trace.prompt_tokens[rows], output, requests.preemptions[rows]))
        times = (arrival, scheduled, first, finish, _between(arrival, scheduled), _between(arrival, first), tpot,
                 _between(arrival, finish))
        yield csv_rows([number, word_cells(STATUSES, requests.status[rows]), *counts, *map(seconds_cells, times),
                        *(whole_cells(hits[rows]) * (scheduled >= 0) for hits in found),
                        *([] if served_by is None else [whole_cells(served_by[rows])])])


def _between(start_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
    """-1 where there is no end: an end has a start."""
    return np.where(end_ns < 0, -1, end_ns - start_ns)


def _rounded_ratio(values_ns: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """To the nearest nanosecond, -1 where there is no value or nothing was counted."""
    exists = (values_ns >= 0) & (counts > 0)
    return np.where(exists, np.rint(values_ns / np.maximum(counts, 1)), -1).astype(np.int64)
