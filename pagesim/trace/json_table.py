"""JSON lines → tables of values, a column at a time, with the verbs of ``CsvTable``."""

import itertools
import json
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Context, Decimal

import numpy as np

from pagesim.errors import TraceError
from pagesim.trace.clock import parse_clocks
from pagesim.trace.decimals import parse_instants, parse_number
from pagesim.trace.instants import Instants

_TOO_LARGE = 10**300  # a longer whole number has no float64
# Decimals as written: float64 would lose the last digits of a time since 1970.
_DECODER = json.JSONDecoder(parse_float=Context(prec=60, traps=[]).create_decimal)


@dataclass(frozen=True)
class JsonTable:
    """Some rows of a file.

    Attributes:
        rows: one object a row.
        line: line number of each row in the file, int64, shape (num_rows,).
    """

    rows: list[dict]
    line: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def keys(self) -> list[str]:
        """Those of any row, in the order in which they appear."""
        return list(dict.fromkeys(itertools.chain.from_iterable(self.rows)))

    def head(self, num_rows: int) -> "JsonTable":
        return JsonTable(self.rows[:num_rows], self.line[:num_rows])

    def numbers(self, name: str) -> np.ndarray:
        """float64, shape (num_rows,); NaN where the value is not a finite number."""
        return np.array([_number(row.get(name)) for row in self.rows], dtype=np.float64)

    def instants(self, name: str, unit_digits: int) -> Instants:
        """Times in units of which a second has ``10**unit_digits``; ``BAD`` where the value is not a finite number."""
        values = (row.get(name) for row in self.rows)
        return parse_instants(*_buffer([str(value) if _is_number(value) or isinstance(value, str) else ""
                                        for value in values]), unit_digits)

    def clocks(self, name: str, *, zoned: bool) -> Instants:
        """Times since 1970; ``BAD`` where the value is not such a time."""
        values = (row.get(name) for row in self.rows)
        return parse_clocks(*_buffer([value if isinstance(value, str) else "" for value in values]), zoned=zoned)

    def empty(self, name: str) -> np.ndarray:
        """Whether the value is absent, null or an empty text, bool, shape (num_rows,)."""
        return np.array([row.get(name) in (None, "") for row in self.rows], dtype=bool)

    def labels(self, name: str) -> list[str | None]:
        """The values as names to compare, None where empty."""
        return [None if row.get(name) in (None, "") else str(row[name]) for row in self.rows]

    def shown(self, name: str, row: int) -> str:
        """The value in quotes, for a message."""
        if name not in self.rows[row]:
            return f"no {name!r}"
        value = self.rows[row][name]
        return repr(str(value) if isinstance(value, (str, Decimal)) else json.dumps(value, default=float))

    def ids(self, name: str) -> tuple[list[int | str] | np.ndarray, np.ndarray]:
        """The ids of all rows, whole numbers as int64 where all are; and how many of them each row has, int64, shape
        (num_rows,): -1 for a value that is not a list of whole numbers or texts, and has none here.
        """
        lists = [[] if row.get(name) is None else row[name] for row in self.rows]
        fast = _whole_numbers(lists)
        if fast is not None:
            return fast, np.array(list(map(len, lists)), dtype=np.int64)
        types = [set(map(type, own)) if isinstance(own, list) else {None} for own in lists]
        num_ids = np.array([len(own) if kinds <= {int, str} else -1 for own, kinds in zip(lists, types)], np.int64)
        ids = list(itertools.chain.from_iterable(own for own, num in zip(lists, num_ids) if num > 0))
        return ids, num_ids


def _whole_numbers(lists: list) -> np.ndarray | None:
    """The lists end to end, int64; None if something else is among them, such as a hash of more than 63 bits."""
    if set(map(type, lists)) - {list}:
        return None
    ids = list(itertools.chain.from_iterable(lists))
    try:
        numbers = np.frombuffer(array("q", ids), dtype=np.int64)
    except (OverflowError, TypeError):
        return None
    truths = np.flatnonzero((numbers == 0) | (numbers == 1))  # what true and false would have become
    return None if any(type(ids[at]) is bool for at in truths) else numbers


def _number(value: object) -> float:
    if isinstance(value, str):
        return parse_number(value)
    return float(value) if _is_number(value) and abs(value) < _TOO_LARGE else np.nan


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def _buffer(texts: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The texts' bytes end to end, and where each starts and ends."""
    encoded = [text.encode("utf-8", "replace") for text in texts]
    end = np.cumsum([len(text) for text in encoded], dtype=np.int64)
    start = np.concatenate(([0], end[:-1])).astype(np.int64)
    return np.frombuffer(b"".join(encoded) + b"\n", dtype=np.uint8), start, end


def tables(pieces: Iterator[bytes], first_line: int, path: str) -> Iterator[JsonTable]:
    """The rows of a file as tables; blank lines are left out.

    Raises:
        TraceError: a line is not one JSON object, after the rows before it were given out.
    """
    for piece in pieces:
        rows, line, complaint = [], [], None
        for number, text in enumerate(piece.split(b"\n")[:-1], start=first_line):
            if text.strip():
                try:
                    rows.append(_object(text, f"{path}:{number}"))
                except TraceError as error:
                    complaint = error
                    break
                line.append(number)
        yield JsonTable(rows, np.array(line, dtype=np.int64))
        if complaint:
            raise complaint
        first_line += piece.count(b"\n")


def _object(line: bytes, where: str) -> dict:
    shown = line.decode("utf-8", "replace").strip()[:60]
    try:
        text = line.decode("utf-8", "surrogatepass").strip(" \t\r\n")
        value, end = _DECODER.raw_decode(text)
        if end < len(text):
            _DECODER.decode(text)  # says what is wrong with the rest
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits, and lists as deep
        raise TraceError(f"{where}: not a JSON object on one line ({error}): {shown!r}; "
                         "a JSON trace has one object a line") from None
    if not isinstance(value, dict):
        raise TraceError(f"{where}: not a JSON object: {shown!r}; a JSON trace has one object a line")
    return value
