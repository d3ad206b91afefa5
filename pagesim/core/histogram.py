"""Histograms in powers of two: bin 0 counts 0, bin k the values in [2^(k-1), 2^k)."""

import numpy as np

from pagesim.core.jit import HOT

BINS = 64

_BITS = np.array([value.bit_length() for value in range(1024)])


@HOT
def bin_of(value):
    """The bin of ``value``: the number of its bits."""
    bits = 0
    while value >= 1024:
        value >>= 10
        bits += 10
    return bits + _BITS[np.uint64(value)]  # one that may be negative costs twice as much


# Most values are small: counted each by itself, and put into bins when the counting is over, they cost half as much.
SMALL = len(_BITS)
PLACES = SMALL + BINS


@HOT
def place_of(value):
    """Where ``value`` is counted in an array of ``PLACES``."""
    return value if value < SMALL else SMALL + bin_of(value)


def binned(counts: np.ndarray) -> np.ndarray:
    """Counts by place, shape (PLACES,), as counts by bin, int64, shape (BINS,)."""
    return counts[SMALL:] + np.bincount(_BITS, counts[:SMALL], minlength=BINS).astype(np.int64)


def bin_edges(k: int) -> tuple[int, int]:
    """Bin ``k`` holds values in [low, high)."""
    return (0, 1) if k == 0 else (2 ** (k - 1), 2**k)
