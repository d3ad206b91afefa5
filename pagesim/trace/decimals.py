"""Decimal numbers out of a byte buffer, all rows of a column at once."""

import math
import re

import numpy as np

_NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")
_MAX_DIGITS = 18          # 10**18 fits int64
_EXACT = 2**53            # a quotient of integers below this by 10**k, k <= 22, is the correctly rounded double
_POWERS = 10.0 ** np.arange(_MAX_DIGITS + 1)


def parse_number(text: str) -> float:
    """The number that ``text`` spells, plain or with an exponent; NaN for all else (``inf``, ``1_000``, ``''``)."""
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    return value if math.isfinite(value) else math.nan


def parse_decimals(data: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Numbers of the fields ``data[start[i]:end[i]]``.

    Args:
        data: the text, uint8; every field lies inside it.
        start, end: half-open byte ranges, int64, shape (num_fields,).

    Returns:
        float64, shape (num_fields,); equal to what ``float`` gives, NaN where the field is not a finite number.
    """
    mantissa = np.zeros(len(start), dtype=np.int64)
    fraction_digits = np.zeros(len(start), dtype=np.int8)
    dotted = np.zeros(len(start), dtype=bool)
    plain = (end > start) & (end - start <= _MAX_DIGITS)
    for offset in range(min(int((end - start).max(initial=0)), _MAX_DIGITS)):
        at = start + offset
        inside = at < end
        byte = data.take(at, mode="clip")
        digit = byte - np.uint8(ord("0"))
        is_digit = inside & (digit < 10)
        mantissa = np.where(is_digit, mantissa * 10 + digit, mantissa)
        is_dot = inside & (byte == ord("."))
        plain &= ~inside | is_digit | (is_dot & ~dotted)
        fraction_digits += is_digit & dotted
        dotted |= is_dot
    plain &= (mantissa < _EXACT) & ~(dotted & (end - start == 1))
    numbers = mantissa / _POWERS[fraction_digits]
    numbers[end == start] = np.nan
    for i in np.flatnonzero(~plain & (end > start)):  # a sign, an exponent, blanks, many digits, or no number at all
        numbers[i] = parse_number(data[start[i]:end[i]].tobytes().decode("utf-8", "replace"))
    return numbers
