"""A trace file → ``Trace``."""

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pagesim.errors import TraceError
from pagesim.trace import csv_table, json_table, source_file
from pagesim.trace.assemble import columns_of
from pagesim.trace.clock import has_zone
from pagesim.trace.formats import Format, detect
from pagesim.trace.granularity import Granularity
from pagesim.trace.rows import Table, requests
from pagesim.trace.trace import Source, Trace


def read_trace(path: str | Path, *, limit: int | None = None, strict: bool = False,
               prefix_block_tokens: int | None = None) -> Trace:
    """Read a trace; its form is told by its header or keys.

    Rows with 0 prompt or 0 output tokens (failed requests in public traces) are dropped and counted.  Arrivals are
    sorted, ties in the order of the file, and moved so that the first is 0.  Prefix ids and sessions are numbered from
    0 in order of appearance.

    Args:
        limit: rows to keep, the first of the file; those after them are not read.
        strict: a row that would be dropped is an error.
        prefix_block_tokens: prompt tokens to one prefix id, where the file leaves it open.

    Raises:
        TraceError: ``file:line: what was found; what to do``.
    """
    for name, value, means in (("limit", limit, "rows to keep"),
                               ("prefix_block_tokens", prefix_block_tokens, "prompt tokens to one prefix id")):
        if value is not None and value < 1:
            raise TraceError(f"{name} is the number of {means}, at least 1, got {value}")
    path = Path(path)
    form, tables = _open(path)
    if prefix_block_tokens and "prefix_block_tokens" in form.columns:
        raise TraceError(f"{path}: the file has a column prefix_block_tokens of its own; leave the number out")
    granularity = Granularity.stated(prefix_block_tokens) if prefix_block_tokens else Granularity()
    parts, zoned = [], None
    for table in tables:
        if not len(table):
            continue
        if not parts and form.may_be_clock:  # the first row decides for the file
            zoned = has_zone(table.shown(form.columns["arrival"], 0).strip("'"))
        kept = sum(len(part.prompt_tokens) for part in parts)
        rows, granularity = requests(table, form, str(path), granularity, zoned=zoned, strict=strict,
                                     room=limit and limit - kept)
        parts.append(rows)
        if limit and kept + len(rows.prompt_tokens) == limit:
            break
    dropped = sum((part.dropped for part in parts), Counter())
    read = sum(part.read for part in parts)
    if read == sum(dropped.values()):
        reasons = "; ".join(f"{count:,} with {reason}" for reason, count in dropped.items())
        rows = f"all {read:,} rows were dropped ({reasons})" if read else "a header and nothing below it"
        raise TraceError(f"{path}: no requests: {rows}")
    has_ids = any(part.num_ids is not None and part.num_ids.any() for part in parts)
    source = Source(str(path), form.name, source_file.sha256(path), read, dict(dropped),
                    granularity.tokens(form.hash_block_tokens, str(path)) if has_ids else None)
    return Trace(**{"arrival_ns": None} | columns_of(parts, form, str(path)), source=source)


def form_of(path: Path) -> Format:
    """The form of a trace file, by its header or first rows.

    Raises:
        TraceError: it is none that is known.
    """
    return _open(path)[0]


def _open(path: Path) -> tuple[Format, Iterator[Table]]:
    """The form of a file and its rows."""
    pieces = source_file.chunks(path)
    first = next(pieces)
    body = first.lstrip(b" \n")
    line_number = first.count(b"\n", 0, len(first) - len(body)) + 1
    head, _, rest = body.partition(b"\n")
    where = f"{path}:{line_number}"
    if head.startswith((b"{", b"[")):
        tables = json_table.tables(itertools.chain([body], pieces), line_number, str(path))
        some = next(table for table in tables if len(table))
        form = detect(some.keys(), where)
        return form, _of_form(itertools.chain([some], tables), form, some.keys(), path)
    names, separator = csv_table.header(head, where)
    below = itertools.chain([rest] if rest else [], pieces)
    return detect(names, where), csv_table.tables(below, names, separator, line_number + 1, str(path))


def _of_form(tables: Iterator[json_table.JsonTable], form: Format, keys: list[str],
             path: Path) -> Iterator[json_table.JsonTable]:
    """The tables, as long as no row has a key that would have been read, had one of the first rows had it."""
    for table in tables:
        for key in set(table.keys()) - set(keys):
            row = next(row for row, values in enumerate(table.rows) if key in values)
            where = f"{path}:{table.line[row]}"
            if detect([*keys, key], where) != form:
                raise TraceError(f"{where}: key {key!r} is in no row above; give it to the first row too, as null")
        yield table
