"""Time in a trace: whole nanoseconds, and until the first arrival is subtracted also what a file says beyond them."""

from typing import NamedTuple

import numpy as np

from pagesim.core.units import NS_PER_S
from pagesim.errors import InputError

ATTO_PER_NS = 10**9
BAD = np.iinfo(np.int64).min  # in place of nanoseconds: the text is no time
FAR = np.iinfo(np.int64).max  # … a time that int64 nanoseconds cannot hold: 292 years and more


class Instants(NamedTuple):
    """Times of a file, each ``ns + atto / 10**9`` nanoseconds after the file's own zero.

    Attributes:
        ns: whole nanoseconds, int64; ``BAD`` and ``FAR`` for what is none.
        atto: attoseconds beyond them, int32, 0 to 999,999,999.
    """

    ns: np.ndarray
    atto: np.ndarray

    def at(self, rows: np.ndarray) -> "Instants":
        """Those of some rows."""
        return Instants(self.ns[rows], self.atto[rows])

    def rounded(self) -> np.ndarray:
        """Nanoseconds after the file's zero, int64, to nearest (halves up)."""
        return self.ns + (2 * self.atto.astype(np.int64) >= ATTO_PER_NS)

    def since(self, row: int) -> np.ndarray:
        """Nanoseconds after the instant of ``row``, int64, rounded once, to nearest (halves up)."""
        if not self.atto.any():
            return self.ns - self.ns[row]
        atto = self.atto - self.atto[row].astype(np.int64)
        return self.ns - self.ns[row] + (2 * atto + ATTO_PER_NS) // (2 * ATTO_PER_NS)


def join(parts: list[Instants]) -> Instants:
    """One after the other."""
    return Instants(*(np.concatenate(columns) for columns in zip(*parts)))


def whole_ns(seconds: np.ndarray) -> np.ndarray:
    """Drawn or computed seconds, rounded to nanoseconds, int64 of the same shape.

    Raises:
        InputError: a time that int64 nanoseconds cannot hold.
    """
    ns = np.rint(seconds * float(NS_PER_S))
    if not (np.abs(ns) < FAR).all():
        raise InputError("these arrivals span more than 292 years, which nanoseconds cannot hold; raise the rate")
    return ns.astype(np.int64)
