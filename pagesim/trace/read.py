"""A trace file → ``Trace``."""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from pagesim.errors import TraceError
from pagesim.trace import csv_table, json_table, source_file
from pagesim.trace.clock import has_zone
from pagesim.trace.formats import Format, detect
from pagesim.trace.instants import NS_PER_S, Instants, join
from pagesim.trace.rows import Rows, Table, requests
from pagesim.trace.trace import Source, Trace

_YEAR_NS = 365 * 86400 * NS_PER_S
_LONGEST_YEARS = 10


def read_trace(path: str | Path, *, limit: int | None = None, strict: bool = False) -> Trace:
    """Read a trace; its form is told by its header or keys.

    Rows with 0 prompt or 0 output tokens (failed requests in public traces) are dropped and counted.  Arrivals are
    sorted, ties in the order of the file, and moved so that the first is 0.  Prefix ids and sessions are numbered from
    0 in order of appearance.

    Args:
        limit: rows to keep, the first of the file; those after them are not read.
        strict: a row that would be dropped is an error.

    Raises:
        TraceError: ``file:line: what was found; what to do``.
    """
    if limit is not None and limit < 1:
        raise TraceError(f"limit is the number of rows to keep, at least 1, got {limit}")
    path = Path(path)
    form, tables = _open(path)
    parts, zoned = [], None
    for table in tables:
        if not len(table):
            continue
        if not parts and form.may_be_clock:  # the first row decides for the file
            zoned = has_zone(table.shown(form.columns["arrival"], 0).strip("'"))
        kept = sum(len(part.prompt_tokens) for part in parts)
        parts.append(requests(table, form, str(path), zoned=zoned, strict=strict, room=limit and limit - kept))
        if limit and kept + len(parts[-1].prompt_tokens) == limit:
            break
    dropped = sum((part.dropped for part in parts), Counter())
    read = sum(part.read for part in parts)
    if read == sum(dropped.values()):
        reasons = "; ".join(f"{count:,} with {reason}" for reason, count in dropped.items())
        rows = f"all {read:,} rows were dropped ({reasons})" if read else "a header and nothing below it"
        raise TraceError(f"{path}: no requests: {rows}")
    source = Source(str(path), form.name, source_file.sha256(path), read, dict(dropped), _block_tokens(parts, path))
    return _trace(parts, form, source)


def _block_tokens(parts: list[Rows], path: Path) -> int | None:
    sizes = list(dict.fromkeys(part.block_tokens for part in parts))
    if len(sizes) > 1:
        raise TraceError(f"{path}: prefix_block_tokens must be the same number in all rows, got {sizes[0]} and "
                         f"{sizes[1]}")
    return sizes[0]


def _open(path: Path) -> tuple[Format, Iterator[Table]]:
    """The form of a file and its rows."""
    pieces = source_file.chunks(path)
    first = next(pieces)
    body = first.lstrip(b" \n")
    line_number = first.count(b"\n", 0, len(first) - len(body)) + 1
    head, _, rest = body.partition(b"\n")
    where = f"{path}:{line_number}"
    if head.startswith((b"{", b"[")):
        form = detect(json_table.keys(head, where), where)
        return form, json_table.tables(itertools.chain([body], pieces), line_number, str(path))
    names, separator = csv_table.header(head, where)
    below = itertools.chain([rest] if rest else [], pieces)
    return detect(names, where), csv_table.tables(below, names, separator, line_number + 1, str(path))


def _trace(parts: list[Rows], form: Format, source: Source) -> Trace:
    def joined(name: str) -> np.ndarray | None:
        columns = [getattr(part, name) for part in parts]
        return None if columns[0] is None else np.concatenate(columns)

    order, arrival_ns = None, None
    if "arrival" in form.columns:
        order, arrival_ns = _in_order(join([part.arrival for part in parts]))
        _refuse_long_span(arrival_ns, form, source)
    prefix_ids, prefix_offsets, session = None, None, None
    if "prefix_ids" in form.columns:
        ids = list(itertools.chain.from_iterable(part.prefix_ids for part in parts))
        prefix_ids, prefix_offsets = _numbered_prefixes(_reordered(ids, order))
    if "session" in form.columns:
        names = [name for part in parts for name in part.session]
        if "parent" in form.columns:
            names = _roots(names, [name for part in parts for name in part.parent])
        session = _numbered(_reordered(names, order))
    columns = {name: joined(name) for name in ("prompt_tokens", "output_tokens", "max_tokens", "num_samples")}
    if order is not None:
        columns = {name: column if column is None else column[order] for name, column in columns.items()}
    return Trace(arrival_ns, **columns, prefix_ids=prefix_ids, prefix_offsets=prefix_offsets, session=session,
                 source=source)


def _in_order(arrival: Instants) -> tuple[np.ndarray | None, np.ndarray]:
    """The order of arrival (None: the file's), and nanoseconds after the first."""
    order = None
    if not (arrival.ns[1:] > arrival.ns[:-1]).all() and not _sorted(arrival):
        order = np.lexsort(arrival[::-1])
        arrival = arrival.at(order)
    return order, arrival.since(0)


def _sorted(arrival: Instants) -> bool:
    steps, atto_steps = (np.diff(part) for part in arrival)
    return bool(((steps > 0) | (steps == 0) & (atto_steps >= 0)).all())


def _refuse_long_span(arrival_ns: np.ndarray, form: Format, source: Source) -> None:
    years = arrival_ns[-1] / _YEAR_NS
    if years > _LONGEST_YEARS:
        raise TraceError(f"{source.path}: the last request arrives {years:,.0f} years after the first, which makes no "
                         f"sense: column {form.columns['arrival']!r} is not in the unit its name says; name it "
                         "arrival_ms, arrival_us or arrival_ns")


def _reordered(values: list, order: np.ndarray | None) -> list:
    return values if order is None else [values[i] for i in order]


def _numbered(names: Iterable) -> np.ndarray:
    """0, 1, … by first appearance, -1 for None."""
    numbers: dict = {}
    return np.array([-1 if name is None else numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)


def _numbered_prefixes(ids: list[list[int | str]]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.concatenate(([0], np.cumsum([len(own) for own in ids], dtype=np.int64)))
    return _numbered(itertools.chain.from_iterable(ids)), offsets


def _roots(names: list[str], parents: list[str]) -> list[str]:
    """The first chat of the conversation each chat belongs to; a parent outside the file stands for itself."""
    root: dict[str, str] = {}
    for name, parent in zip(names, parents):
        root[name] = name if parent in (None, "-1") else root.get(parent, parent)
    return [root[name] for name in names]
