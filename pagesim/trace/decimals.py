"""Decimal numbers out of a byte buffer, all rows of a column at once."""

import math
import re
from decimal import ROUND_DOWN, Context, Decimal

import numpy as np

from pagesim.trace.instants import ATTO_PER_NS, BAD, FAR, Instants

_NUMBER = re.compile(r"[ \t]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t]*")
_MAX_DIGITS = 19          # 10**19 fits uint64
_EXACT = 2**53            # a quotient of integers below this by 10**k, k <= 22, is the correctly rounded double
_POWERS = 10 ** np.arange(_MAX_DIGITS + 1, dtype=np.uint64)
_FLOAT_POWERS = _POWERS.astype(np.float64)
_LARGEST = np.uint64(FAR) // _POWERS  # what may be raised by so many digits
_NS_DIGITS, _ATTO_DIGITS = 9, 18
_LONG = Context(prec=60, rounding=ROUND_DOWN)  # holds every time in reach to the attosecond


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
    mantissa, fraction_digits, plain = _digits(data, start, end)
    numbers = mantissa / _FLOAT_POWERS[fraction_digits]
    numbers[end == start] = np.nan
    for i in np.flatnonzero(~(plain & (mantissa < _EXACT)) & (end > start)):
        numbers[i] = parse_number(_text(data, start[i], end[i]))
    return numbers


def parse_instants(data: np.ndarray, start: np.ndarray, end: np.ndarray, unit_digits: int) -> Instants:
    """Times of the fields ``data[start[i]:end[i]]``, to the attosecond.

    Args:
        data: the text, uint8; every field lies inside it.
        start, end: half-open byte ranges, int64, shape (num_fields,).
        unit_digits: a second has ``10**unit_digits`` of the file's units.

    Returns:
        shape (num_fields,); ``BAD`` where the field is not a finite number, below 0 where it is negative.
    """
    mantissa, fraction_digits, plain = _digits(data, start, end)
    to_ns = _NS_DIGITS - unit_digits - fraction_digits
    raised = np.maximum(to_ns, 0)
    if len(raised) and (raised == raised[0]).all():  # as many digits in each field, as ever: no need to look up each
        raised = raised[:1]
    ns = np.where(mantissa <= _LARGEST[raised], mantissa * _POWERS[raised], np.uint64(FAR))
    atto = np.zeros(len(ns), dtype=np.int32)
    fine = np.flatnonzero(to_ns < 0)
    if len(fine):
        below = -to_ns[fine]
        whole, rest = np.divmod(mantissa[fine], _POWERS[below])
        ns[fine] = np.minimum(whole, np.uint64(FAR))
        atto[fine] = rest * _POWERS[np.maximum(9 - below, 0)] // _POWERS[np.maximum(below - 9, 0)]
    ns = ns.astype(np.int64)
    ns[end == start] = BAD
    for i in np.flatnonzero(~plain & (end > start)):
        ns[i], atto[i] = _instant(_text(data, start[i], end[i]), unit_digits)
    return Instants(ns, atto)


def _instant(text: str, unit_digits: int) -> tuple[int, int]:
    value = parse_number(text)
    if math.isnan(value):
        return BAD, 0
    if value < 0:
        return -1, 0
    if not 1e-40 < value < 1e30:
        return (FAR, 0) if value > 1 else (0, 0)
    ns, atto = divmod(int(Decimal(text).scaleb(_ATTO_DIGITS - unit_digits, _LONG)), ATTO_PER_NS)
    return min(ns, FAR), atto


def _digits(data: np.ndarray, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All digits of each field as one whole number, uint64; how many of them follow the point, int8; whether the field
    is nothing else: no sign, exponent or blank, not too many digits, and a number at all.
    """
    mantissa = np.zeros(len(start), dtype=np.uint64)
    fraction_digits = np.zeros(len(start), dtype=np.int8)
    dotted = np.zeros(len(start), dtype=bool)
    width = end - start
    plain = width > 0
    for offset in range(min(int(width.max(initial=0)), _MAX_DIGITS + 1)):
        at = start + offset
        inside = at < end
        byte = data.take(at, mode="clip")
        digit = byte - np.uint8(ord("0"))
        is_digit = inside & (digit < 10)
        mantissa = np.where(is_digit, mantissa * np.uint64(10) + digit, mantissa)
        is_dot = inside & (byte == ord("."))
        plain &= ~inside | is_digit | (is_dot & ~dotted)
        fraction_digits += is_digit & dotted
        dotted |= is_dot
    plain &= (width - dotted <= _MAX_DIGITS) & ~(dotted & (width == 1))
    return mantissa, fraction_digits, plain


def _text(data: np.ndarray, start: int, end: int) -> str:
    return data[start:end].tobytes().decode("utf-8", "replace")
