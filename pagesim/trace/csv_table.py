"""CSV text → tables of fields that are parsed a column at a time, without making a Python object per field."""

import csv
import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from pagesim.errors import TraceError
from pagesim.trace.clock import parse_clocks
from pagesim.trace.decimals import parse_decimals, parse_instants, parse_number
from pagesim.trace.instants import Instants

# What stands for a separator and a line break inside quotation marks; both count as blanks between ids.
_QUOTED_SEPARATOR, _QUOTED_NEWLINE = "\x1f", "\x1e"
# Ids that are numbers: without leading zeros, which would make two names one, and such that int64 holds them.
_WHOLE = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)


@dataclass(frozen=True)
class CsvTable:
    """Some rows of a file, as byte ranges of its text.

    Attributes:
        data: the text, uint8.
        start, end: half-open range of each field in ``data``, int64, shape (num_rows, num_columns).
        line: line number of each row in the file, int64, shape (num_rows,).
        column: column name → its position.
        separator: what stands between two fields.
    """

    data: np.ndarray
    start: np.ndarray
    end: np.ndarray
    line: np.ndarray
    column: dict[str, int]
    separator: str

    def __len__(self) -> int:
        return len(self.line)

    def head(self, num_rows: int) -> "CsvTable":
        return replace(self, start=self.start[:num_rows], end=self.end[:num_rows], line=self.line[:num_rows])

    def numbers(self, name: str) -> np.ndarray:
        """float64, shape (num_rows,); NaN where the field is not a finite number."""
        return parse_decimals(self.data, *self._fields(name))

    def instants(self, name: str, unit_digits: int) -> Instants:
        """Times in units of which a second has ``10**unit_digits``; ``BAD`` where the field is not a finite number."""
        return parse_instants(self.data, *self._fields(name), unit_digits)

    def clocks(self, name: str, *, zoned: bool) -> Instants:
        """Times since 1970; ``BAD`` where the field is not such a time."""
        return parse_clocks(self.data, *self._fields(name), zoned=zoned)

    def empty(self, name: str) -> np.ndarray:
        """Whether the field has no character, bool, shape (num_rows,)."""
        start, end = self._fields(name)
        return start == end

    def labels(self, name: str) -> list[str | None]:
        """The fields as names to compare, None where empty."""
        text = self.data.tobytes().decode("latin-1")  # a character a byte
        return [text[start:end] or None for start, end in zip(*(bounds.tolist() for bounds in self._fields(name)))]

    def shown(self, name: str, row: int) -> str:
        """The field in quotes as the file has it, for a message."""
        text = self._text(name, row).replace(_QUOTED_SEPARATOR, self.separator).replace(_QUOTED_NEWLINE, "\n")
        return repr(text.strip(" \t"))

    def ids(self, name: str) -> tuple[list[int | str] | np.ndarray, np.ndarray]:
        """The ids of all rows, which a field has between blanks or as a list in quotation marks: whole numbers as int64
        where all are; and how many of them each row has, int64, shape (num_rows,).
        """
        texts = [self._text(name, row).strip().removeprefix("[").removesuffix("]") for row in range(len(self))]
        num_ids = np.array([len(text.split()) for text in texts], dtype=np.int64)
        ids = [int(name) if _WHOLE.fullmatch(name) else name for text in texts for name in text.split()]
        return (np.array(ids, dtype=np.int64) if set(map(type, ids)) <= {int} else ids), num_ids

    def _text(self, name: str, row: int) -> str:
        start, end = (bounds[row] for bounds in self._fields(name))
        return self.data[start:end].tobytes().decode("utf-8", "replace")

    def _fields(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        at = self.column[name]
        return self.start[:, at], self.end[:, at]


def header(line: bytes, where: str) -> tuple[list[str], str]:
    """The column names of a header line, and what separates them: a tab where there is one and no comma.

    Raises:
        TraceError: the line holds data: there is no header, or the file gives rates and not requests.
    """
    separator = "\t" if b"\t" in line.strip() and b"," not in line else ","
    try:
        names = next(csv.reader([line.decode("utf-8", "replace")], delimiter=separator), [])
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
    return names, separator


def tables(pieces: Iterator[bytes], names: list[str], separator: str, first_line: int, path: str) -> Iterator[CsvTable]:
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
        text = _without_quotes(piece, separator, f"{path}:{first_line}") if b'"' in piece else piece
        table = _split(text, first_line + np.arange(num_lines), column, separator)
        if table is None:
            table, complaint = _split_slowly(text, first_line, column, separator, path)
            yield table
            if complaint:
                raise TraceError(complaint)
        else:
            yield table
        first_line += num_lines


def _split(text: bytes, line: np.ndarray, column: dict[str, int], separator: str) -> CsvTable | None:
    """Fields of rows that all have the header's number of fields; None if one has not."""
    data = np.frombuffer(text, dtype=np.uint8)
    newline = ord("\n")
    end = np.flatnonzero((data == ord(separator)) | (data == newline))
    if len(end) != len(line) * len(column):
        return None
    start = np.concatenate(([0], end + 1))[:-1]
    start, end = (bounds.reshape(len(line), len(column)) for bounds in (start, end))
    is_row = (data[end[:, -1]] == newline).all()  # with as many newlines as rows, all newlines then end a row
    blank = len(column) == 1 and (start == end).any()
    return CsvTable(data, start, end, line, column, separator) if is_row and not blank else None


def _split_slowly(text: bytes, first_line: int, column: dict[str, int], separator: str,
                  path: str) -> tuple[CsvTable, str]:
    """The rows up to the first of a wrong length, blank lines left out, and what is wrong with that one."""
    kept, line, complaint = [], [], ""
    for number, row in enumerate(text.split(b"\n")[:-1], start=first_line):
        num_fields = row.count(separator.encode()) + 1
        if row.strip() and num_fields != len(column):
            complaint = (f"{path}:{number}: {num_fields} fields, the header has {len(column)} ({', '.join(column)}): "
                         f"{row.decode('utf-8', 'replace')[:80]!r}; complete or remove the row")
            break
        if row.strip():
            kept.append(row + b"\n")
            line.append(number)
    return _split(b"".join(kept), np.array(line, dtype=np.int64), column, separator), complaint


def _without_quotes(piece: bytes, separator: str, where: str) -> bytes:
    """The same rows without quotation marks, on the same lines; other bytes stand for what they kept together."""
    reader = csv.reader(io.StringIO(piece.decode("utf-8", "replace"), newline=""), delimiter=separator)
    out, before = [], 0
    try:
        for row in reader:
            fields = (field.replace(separator, _QUOTED_SEPARATOR).replace("\n", _QUOTED_NEWLINE) for field in row)
            out.append(separator.join(fields) + "\n" * (reader.line_num - before))
            before = reader.line_num
    except csv.Error as error:
        raise TraceError(f"{where}: quotation marks that cannot be read, here or in the rows below ({error}); "
                         "remove them") from None
    return "".join(out).encode()
