"""The address map: time across, addresses up, each cell coloured by the request that owned it."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pagesim.core.ledger import CACHED, NOBODY
from pagesim.engine.ownership import Ownership
from pagesim.report.colours import KEPT, MAP, OWNERS, SHARED


@dataclass(frozen=True)
class AddressMap:
    """Who owned what at some of the recorded steps, seen at some of the addresses.

    Attributes:
        owners: request in each cell, of several the first in the trace, ``CACHED`` or ``NOBODY``, int64, shape
            (num_rows, num_columns); row 0 is the lowest address.
        num_owners: sequences that own it, int64, the same shape.
        colours: index into ``colours.MAP`` of each cell, -1 where free, int8, the same shape.
        steps: the step that each column shows, shape (num_columns,).
        start_s: its start.
        units: the unit that each row shows, shape (num_rows,).
        unit_slots: slots of a unit.
    """

    owners: np.ndarray
    num_owners: np.ndarray
    colours: np.ndarray
    steps: np.ndarray
    start_s: np.ndarray
    units: np.ndarray
    unit_slots: int


def address_map(recorded: Ownership, most_rows: int, most_columns: int) -> AddressMap:
    """Every recorded step and unit where they fit; else evenly spaced ones, exactly as they were."""
    num_steps = recorded.last_step - recorded.first_step + 1
    steps = recorded.first_step + _evenly(num_steps, most_columns)
    units = _evenly(recorded.num_units, most_rows)
    owners, num_owners = np.zeros((2, len(units), len(steps)), np.int64)
    now = np.tile([NOBODY, 0], (recorded.num_units, 1))
    upto = np.concatenate([[0], np.searchsorted(recorded.changes[:, 0], steps, side="right")])
    for column, (begin, end) in enumerate(pairwise(upto)):
        _apply(now, recorded.changes[begin:end])
        owners[:, column], num_owners[:, column] = now[units].T
    return AddressMap(owners, num_owners, _colour(owners, num_owners), steps,
                      recorded.start_s[steps - recorded.first_step], units, recorded.unit_slots)


def _evenly(count: int, most: int) -> np.ndarray:
    """The middles of ``most`` equal parts of ``[0, count)``, or all of it."""
    parts = min(count, most)
    return (2 * np.arange(parts) + 1) * count // (2 * parts) if parts else np.zeros(0, np.int64)


def _apply(owners: np.ndarray, changes: np.ndarray) -> None:
    """Perform changes in their order; of several to one unit the last stays."""
    first, count = changes[:, 1], changes[:, 2]
    ends = np.cumsum(count)
    total = int(ends[-1]) if len(ends) else 0
    owners[np.arange(total) - np.repeat(ends - count - first, count)] = np.repeat(changes[:, 3:], count, axis=0)


def _colour(owners: np.ndarray, num_owners: np.ndarray) -> np.ndarray:
    """A colour for each request, other than those beside it where it first appears, if one is left.

    What several own has one colour, whoever they are, and what nobody but a cache keeps another.
    """
    num_colours, colour_of = len(OWNERS), {NOBODY: -1, CACHED: MAP.index(KEPT)}
    colours = np.full(owners.shape, -1, np.int8)
    for column in range(owners.shape[1]):
        cells = owners[:, column]
        present, where = np.unique(cells, return_index=True)
        for request in present[np.argsort(where)].tolist():
            if request not in colour_of:
                taken = _beside(cells, request, colour_of)
                wanted = (len(colour_of) + k for k in range(num_colours))
                free = (k % num_colours for k in wanted if k % num_colours not in taken)
                colour_of[request] = next(free, len(colour_of) % num_colours)
        of_present = np.array([colour_of[request] for request in present.tolist()])
        colours[:, column] = of_present[np.searchsorted(present, cells)]
    colours[num_owners > 1] = MAP.index(SHARED)
    return colours


def _beside(cells: np.ndarray, request: int, colour_of: dict[int, int]) -> set[int]:
    """Colours of the requests next to this one in a column."""
    at = np.flatnonzero(cells == request)
    beside = np.concatenate([cells[np.maximum(at - 1, 0)], cells[np.minimum(at + 1, len(cells) - 1)]])
    return {colour_of[other] for other in set(beside.tolist()) if other in colour_of}
