"""CSV text → tables of fields that are parsed a column at a time, without making a Python object per field."""

import csv
import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pagesim.errors import TraceError
from pagesim.trace.clock import parse_clocks
from pagesim.trace.decimals import parse_decimals, parse_number

_NEWLINE, _COMMA = ord("\n"), ord(",")


@dataclass(frozen=True)
class CsvTable:
    """Some rows of a file, as byte ranges of its text.

    Attributes:
        data: the text, uint8.
        start, end: half-open range of each field in ``data``, int64, shape (num_rows, num_columns).
        line: line number of each row in the file, int64, shape (num_rows,).
        column: column name → its position.
    """

    data: np.ndarray
    start: np.ndarray
    end: np.ndarray
    line: np.ndarray
    column: dict[str, int]

    def __len__(self) -> int:
        return len(self.line)

    def head(self, num_rows: int) -> "CsvTable":
        return CsvTable(self.data, self.start[:num_rows], self.end[:num_rows], self.line[:num_rows], self.column)

    def numbers(self, name: str) -> np.ndarray:
        """float64, shape (num_rows,); NaN where the field is not a finite number."""
        return parse_decimals(self.data, *self._fields(name))

    def clocks(self, name: str, *, zoned: bool) -> np.ndarray:
        """Nanoseconds since 1970, int64, shape (num_rows,); ``clock.BAD`` where the field is not such a time."""
        return parse_clocks(self.data, *self._fields(name), zoned=zoned)

    def empty(self, name: str) -> np.ndarray:
        """Whether the field has no character, bool, shape (num_rows,)."""
        start, end = self._fields(name)
        return start == end

    def labels(self, name: str) -> list[bytes | None]:
        """The fields as names to compare, None where empty."""
        text = self.data.tobytes()
        return [text[start:end] or None for start, end in zip(*(bounds.tolist() for bounds in self._fields(name)))]

    def shown(self, name: str, row: int) -> str:
        """The field in quotes, for a message."""
        return repr(self._text(name, row))

    def ids(self, name: str, row: int) -> list[str] | None:
        """The ids of a field, which has them between spaces."""
        return self._text(name, row).split()

    def _text(self, name: str, row: int) -> str:
        start, end = (bounds[row] for bounds in self._fields(name))
        return self.data[start:end].tobytes().decode("utf-8", "replace").strip()

    def _fields(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        at = self.column[name]
        return self.start[:, at], self.end[:, at]


def header(line: bytes, where: str) -> list[str]:
    """The column names of a header line.

    Raises:
        TraceError: the line holds data: there is no header, or the file gives rates and not requests.
    """
    try:
        names = next(csv.reader([line.decode("utf-8", "replace")]), [])
    except csv.Error as error:
        raise TraceError(f"{where}: no CSV header ({error}); a trace has its column names in the first line") from None
    shown = line.decode("utf-8", "replace").strip()[:60]
    numbers = [parse_number(name) for name in names]
    if len(names) == 6 and min(numbers[:3]) >= 0 and re.fullmatch(r"[A-Za-z]*", names[3]):
        raise TraceError(f"{where}: a ServeGen rate file (window start, rate, CV, distribution and its arguments; "
                         f"{shown!r}): it holds no requests; draw some with 'pagesim trace generate --arrivals gamma "
                         "--rate R --cv CV'")
    if not all(map(math.isnan, numbers)) or not any(name.strip() for name in names):
        raise TraceError(f"{where}: no header, the first line is {shown!r}; put the column names above it, such as "
                         "arrival_s,prompt_tokens,output_tokens")
    return names


def tables(pieces: Iterator[bytes], names: list[str], first_line: int, path: str) -> Iterator[CsvTable]:
    """The rows of a file as tables.

    Args:
        pieces: text after the header, whole lines each.
        first_line: line number of the first row.

    Raises:
        TraceError: a row has more or fewer fields than the header, after the rows before it were given out.
    """
    column = {name: at for at, name in enumerate(names)}
    for piece in pieces:
        num_lines = piece.count(b"\n")
        text = _without_quotes(piece, f"{path}:{first_line}") if b'"' in piece else piece
        table = _split(text, first_line + np.arange(num_lines), column)
        if table is None:
            table, complaint = _split_slowly(text, first_line, column, path)
            yield table
            if complaint:
                raise TraceError(complaint)
        else:
            yield table
        first_line += num_lines


def _split(text: bytes, line: np.ndarray, column: dict[str, int]) -> CsvTable | None:
    """Fields of rows that all have the header's number of fields; None if one has not."""
    data = np.frombuffer(text, dtype=np.uint8)
    end = np.flatnonzero((data == _COMMA) | (data == _NEWLINE))
    if len(end) != len(line) * len(column):
        return None
    start = np.concatenate(([0], end + 1))[:-1]
    start, end = (bounds.reshape(len(line), len(column)) for bounds in (start, end))
    is_row = (data[end[:, -1]] == _NEWLINE).all()  # with as many newlines as rows, all newlines then end a row
    blank = len(column) == 1 and (start == end).any()
    return CsvTable(data, start, end, line, column) if is_row and not blank else None


def _split_slowly(text: bytes, first_line: int, column: dict[str, int], path: str) -> tuple[CsvTable, str]:
    """The rows up to the first of a wrong length, blank lines left out, and what is wrong with that one."""
    kept, line, complaint = [], [], ""
    for number, row in enumerate(text.split(b"\n")[:-1], start=first_line):
        num_fields = row.count(b",") + 1
        if row.strip() and num_fields != len(column):
            complaint = (f"{path}:{number}: {num_fields} fields, the header has {len(column)} ({', '.join(column)}): "
                         f"{row.decode('utf-8', 'replace')[:80]!r}; complete or remove the row")
            break
        if row.strip():
            kept.append(row + b"\n")
            line.append(number)
    return _split(b"".join(kept), np.array(line, dtype=np.int64), column), complaint


def _without_quotes(piece: bytes, where: str) -> bytes:
    """The same rows without quotation marks, on the same lines: commas and line breaks inside a field become blanks."""
    reader = csv.reader(io.StringIO(piece.decode("utf-8", "replace"), newline=""))
    out, before = [], 0
    try:
        for row in reader:
            fields = (field.replace(",", " ").replace("\n", " ") for field in row)
            out.append(",".join(fields) + "\n" * (reader.line_num - before))
            before = reader.line_num
    except csv.Error as error:
        raise TraceError(f"{where}: quotation marks that cannot be read, here or in the rows below ({error}); "
                         "remove them") from None
    return "".join(out).encode()
