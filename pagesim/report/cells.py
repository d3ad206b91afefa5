"""Columns of numbers as CSV text.

Digits are made for a whole column at once: number by number they take most of the time of a long run's file.
A cell is its letters, uint8 of shape (width, num_rows), with 0 where a row has none.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from pagesim.core.units import NS_PER_S

_DECIMALS = 9
_ZERO, _POINT, _COMMA, _NEWLINE = b"0.,\n"


def whole_cells(values: np.ndarray) -> np.ndarray:
    """Numbers that are whole and not negative."""
    digits = _digits(values, len(str(int(values.max(initial=0)))))
    return _shown(digits, range(len(digits)), always=len(digits) - 1)


def seconds_cells(values_ns: np.ndarray) -> np.ndarray:
    """Nanoseconds as seconds, without zeros at their end, of which one decimal stays; below 0 it is an empty cell."""
    exists = values_ns >= 0
    ns = np.where(exists, values_ns, 0)
    point = np.full((1, len(ns)), _POINT, np.uint8)
    decimals = _shown(_digits(ns % NS_PER_S, _DECIMALS), reversed(range(_DECIMALS)), always=0)
    return np.concatenate([whole_cells(ns // NS_PER_S), point, decimals]) * exists


def word_cells(words: Sequence[str], codes: np.ndarray) -> np.ndarray:
    """``words[code]`` of each row, in ASCII."""
    return np.array(words, "S")[codes].view(np.uint8).reshape(len(codes), -1).T


def csv_rows(columns: Sequence[np.ndarray]) -> str:
    """Lines of the columns side by side."""
    num_rows = columns[0].shape[1]
    comma, newline = (np.full((1, num_rows), end, np.uint8) for end in (_COMMA, _NEWLINE))
    pieces = [piece for column in columns for piece in (column, comma)]
    by_row = np.concatenate([*pieces[:-1], newline]).T
    return by_row.tobytes().translate(None, b"\0").decode("ascii")


def _shown(digits: np.ndarray, places: Iterable[int], *, always: int) -> np.ndarray:
    """Letters of the digits; zeros met before the first other digit on the way through ``places`` are left out."""
    met = np.zeros(digits.shape[1], bool)
    for place in places:
        met |= digits[place] > 0
        digits[place] += np.uint8(_ZERO)
        if place != always:
            digits[place] *= met
    return digits


def _digits(values: np.ndarray, width: int) -> np.ndarray:
    """Decimal digits, the highest first, uint8, shape (width, num_rows)."""
    rest = values.astype(np.uint32 if width <= _DECIMALS else np.uint64)
    digits = np.empty((width, len(values)), np.uint8)
    for place in reversed(range(width)):
        higher = rest // 10
        digits[place] = rest - higher * 10
        rest = higher
    return digits
