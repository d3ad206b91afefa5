"""Wall-clock times like ``2023-11-16 18:17:03.9799600`` and ``2024-05-10T00:00:00.009930+00:00``, a column at once."""

import re

import numpy as np

from pagesim.core.units import NS_PER_S
from pagesim.trace.instants import ATTO_PER_NS, BAD, Instants

_LAYOUT = "dddd-dd-dd dd:dd:dd"


def has_zone(text: str) -> bool | None:
    """Whether a time states its zone; None for what does not look like a time."""
    match = re.match(r"\s*\d{4}-\d\d-\d\d[ T][\d:.]*(.*)", text)
    return bool(match[1].strip()) if match else None


def parse_clocks(data: np.ndarray, start: np.ndarray, end: np.ndarray, *, zoned: bool) -> Instants:
    """Times since 1970 of the fields ``data[start[i]:end[i]]``; times without a zone are taken as UTC.

    Args:
        data: the text, uint8.
        start, end: half-open byte ranges, int64, shape (num_fields,).
        zoned: all of them must state a zone, or none.

    Returns:
        shape (num_fields,); ``BAD`` where the field is not such a time.
    """
    width = max(int((end - start).max(initial=0)), len(_LAYOUT) + 1)
    at = start[:, None] + np.arange(width)
    text = np.where(at < end[:, None], data.take(at, mode="clip"), np.uint8(0))
    good = _matches_layout(text)
    year, month, day, hour, minute, second = (_digits(text, *span) for span in
                                              ((0, 4), (5, 7), (8, 10), (11, 13), (14, 16), (17, 19)))
    good &= (month >= 1) & (month <= 12) & (day >= 1) & (hour < 24) & (minute < 60) & (second < 61)
    good &= (year >= 1970) & (year < 2262)  # what int64 nanoseconds hold
    months = (year - 1970) * 12 + month - 1
    first_day, next_month = _first_day(months), _first_day(months + 1)
    good &= day <= next_month - first_day
    fraction, zone_at = _fraction(text)
    offset_s, zone_good = _zones(text, zone_at, end - start)
    good &= zone_good & ((zone_at < end - start) == zoned)
    seconds = (first_day + day - 1) * 86400 + hour * 3600 + minute * 60 + second - offset_s
    return Instants(np.where(good, seconds * NS_PER_S + fraction.ns, BAD), fraction.atto)


def _first_day(months: np.ndarray) -> np.ndarray:
    """Days from 1970 to the first of a month, counted from January 1970."""
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _matches_layout(text: np.ndarray) -> np.ndarray:
    good = np.ones(len(text), dtype=bool)
    for column, kind in enumerate(_LAYOUT):
        byte = text[:, column]
        if kind == "d":
            good &= byte - np.uint8(ord("0")) < 10
        else:
            good &= (byte == ord(kind)) | (kind == " " and byte == ord("T"))
    return good


def _digits(text: np.ndarray, first: int, last: int) -> np.ndarray:
    value = np.zeros(len(text), dtype=np.int64)
    for column in range(first, last):
        value = value * 10 + text[:, column] - ord("0")
    return value


def _fraction(text: np.ndarray) -> tuple[Instants, np.ndarray]:
    """What follows the whole second, and the column at which the zone starts."""
    fraction = Instants(np.zeros(len(text), dtype=np.int64), np.zeros(len(text), dtype=np.int32))
    point = len(_LAYOUT)
    running = text[:, point] == ord(".")
    zone_at = np.where(running, point + 1, point)
    units = [(part, whole // 10**place) for part, whole in zip(fraction, (NS_PER_S, ATTO_PER_NS))
             for place in range(1, 10)]
    for column in range(point + 1, text.shape[1]):
        digit = text[:, column] - np.uint8(ord("0"))
        running &= digit < 10
        if not running.any():
            break
        if units:
            part, unit = units.pop(0)
            part += np.where(running, digit.astype(part.dtype) * unit, 0).astype(part.dtype)
        zone_at += running
    return fraction, zone_at


def _zones(text: np.ndarray, zone_at: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Seconds east of UTC, and whether the zone can be read."""
    offset_s = np.zeros(len(text), dtype=np.int64)
    good = np.ones(len(text), dtype=bool)
    if (zone_at == length).all():
        return offset_s, good
    at = zone_at[:, None] + np.arange(7)
    rest = np.take_along_axis(text, np.minimum(at, text.shape[1] - 1), axis=1)
    rest = np.where(at < length[:, None], rest, np.uint8(0))
    if (rest == rest[0]).all():  # one zone for all, as ever: no need to sort
        zones, which = rest[:1], np.zeros(len(text), dtype=np.int64)
    else:
        zones, which = np.unique(rest, axis=0, return_inverse=True)
    parsed = [_zone_s(zone.tobytes().rstrip(b"\0").decode("utf-8", "replace")) for zone in zones]
    offset_s = np.array([value or 0 for value in parsed], dtype=np.int64)[which.ravel()]
    good = np.array([value is not None for value in parsed])[which.ravel()]
    return offset_s, good


def _zone_s(text: str) -> int | None:
    if text in ("", "Z", "z", " UTC"):
        return 0
    match = re.fullmatch(r" ?([+-])(\d\d):?(\d\d)?", text)
    if not match or int(match[2]) > 15 or int(match[3] or 0) > 59:
        return None
    return (int(match[2]) * 3600 + int(match[3] or 0) * 60) * (-1 if match[1] == "-" else 1)
