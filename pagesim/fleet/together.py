"""Replicas at the same time: what the fleet has free in all while a request waits for one of them.

A replica's timeline is a row a step, or, of many steps, a row for ``stride`` of them; between two rows nothing runs.
"""

from dataclasses import dataclass

import numpy as np

from pagesim.core.ledger import HELD
from pagesim.core.units import NS_PER_S
from pagesim.engine.result import Result
from pagesim.metrics import ratio


@dataclass(frozen=True)
class Together:
    """What holds for all replicas from one time to the next; arrays of shape (num_times,).

    Attributes:
        duration_s: float64.
        busy: whether any replica runs something.
        allocated_slots, free_slots: of all replicas, float64.
        allocated_squares: the replicas' allocated slots, squared and added, float64.
        least_need: the fewest slots that a head needs whose own replica refuses it, int64, 0 where none does.
        stride: the most steps that a row of a timeline stands for; all is exact where it is 1.
    """

    duration_s: np.ndarray
    busy: np.ndarray
    allocated_slots: np.ndarray
    free_slots: np.ndarray
    allocated_squares: np.ndarray
    least_need: np.ndarray
    stride: int


class _Rows:
    """A replica's timeline as values that hold from one time to another."""

    def __init__(self, result: Result) -> None:
        line = result.timeline
        self.start_ns = np.rint(line.start_s * NS_PER_S).astype(np.int64)
        self.end_ns = self.start_ns + np.rint(line.duration_s * NS_PER_S).astype(np.int64)
        self.allocated = line.mean_parts[:, :len(HELD)].sum(axis=1)
        self.running, self.need = line.mean_running, line.refused_need
        blocks = result.num_blocks
        self.usable_slots = result.capacity_slots if blocks is None else blocks * result.block_size

    def at(self, times_ns: np.ndarray) -> np.ndarray:
        """The row that holds at each time, -1 for none: to index what ``padded`` returns."""
        row = np.searchsorted(self.start_ns, times_ns, side="right") - 1
        return np.where(times_ns < padded(self.end_ns)[row], row, -1)


def padded(column: np.ndarray) -> np.ndarray:
    """With a row -1 of nothing."""
    return np.append(column, column.dtype.type(0))


def together(results: list[Result]) -> Together:
    """The timelines of the replicas laid over one another, from the end of the warm-up."""
    replicas = [_Rows(result) for result in results]
    times_ns = np.unique(np.concatenate([edge for each in replicas for edge in (each.start_ns, each.end_ns)]))
    times_ns = times_ns[times_ns >= results[0].warmup_s * NS_PER_S]
    starts_ns = times_ns[:-1]
    allocated, squares, free = (np.zeros(len(starts_ns)) for _ in range(3))
    busy, least = np.zeros(len(starts_ns), bool), np.zeros(len(starts_ns), np.int64)
    for each in replicas:
        row = each.at(starts_ns)
        own, need = padded(each.allocated)[row], padded(each.need)[row]
        allocated += own
        squares += own * own
        free += each.usable_slots - own
        busy |= padded(each.running)[row] > 0
        least = np.where((need > 0) & ((need < least) | (least == 0)), need, least)
    return Together(np.diff(times_ns) / NS_PER_S, busy, allocated, free, squares, least,
                    max(result.timeline.stride for result in results))


def figures(at: Together, num_replicas: int, capacity_slots: int) -> dict[str, float | None]:
    """Over the time in which any replica runs something.

    ``block_use`` and ``free`` = shares of the fleet's capacity.  ``blocked_by_fragmentation`` = share of the time in
    which a replica refuses its queue's head though the fleet has as many free slots as that needs; ``stranded`` = the
    slots free then, as a share of the capacity.  ``block_use_cv`` = coefficient of variation over the replicas, a mean
    over the time in which anything is allocated.
    """
    seconds = at.duration_s * at.busy
    blocked = (at.least_need > 0) & (at.free_slots >= at.least_need)
    whole = seconds.sum() * num_replicas * capacity_slots
    used_s = seconds * (at.allocated_slots > 0)
    squared = num_replicas * at.allocated_squares / np.maximum(at.allocated_slots, 1e-9) ** 2
    return {
        "busy_s": float(seconds.sum()),
        "block_use": ratio((at.allocated_slots * seconds).sum(), whole),
        "free": ratio((at.free_slots * seconds).sum(), whole),
        "stranded": ratio((at.free_slots * seconds)[blocked].sum(), whole),
        "blocked_by_fragmentation": ratio(seconds[blocked].sum(), seconds.sum()),
        "block_use_cv": ratio((np.sqrt(np.maximum(squared - 1, 0)) * used_s).sum(), used_s.sum()),
        "steps_a_row": at.stride,
    }
