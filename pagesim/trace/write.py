"""``Trace`` → the plain form, as CSV or JSON lines."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pagesim.core.files import replacing
from pagesim.core.units import NS_PER_S
from pagesim.errors import InputError, TraceError
from pagesim.trace.sessions import NONE, turns_before
from pagesim.trace.trace import Trace

_FORMS = (".csv", ".jsonl", ".csv.gz", ".jsonl.gz")


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write the plain form, whole or not at all; the name's end picks CSV or JSON lines, gzipped or not.

    Columns are ``arrival_s,prompt_tokens,output_tokens`` and those optional ones that the trace has; seconds have
    as many digits as they need, nine at most.

    Raises:
        InputError: another ending.
        TraceError: the trace was read from this very file, or the file cannot be written.
    """
    path = Path(path)
    form = next((form for form in _FORMS if path.name.endswith(form)), None)
    if form is None:
        raise InputError(f"{path}: a trace is written as {', '.join(_FORMS)}; give the file one of these endings")
    if path.exists() and Path(trace.source.path).exists() and path.samefile(trace.source.path):
        raise TraceError(f"{path}: this is the file the trace was read from; give the output another name")
    data = "".join(_csv_lines(trace) if ".csv" in form else _json_lines(trace)).encode()
    if form.endswith(".gz"):
        data = gzip.compress(data, mtime=0)  # no time stamp: equal traces, equal bytes
    try:
        with replacing(path, "wb") as file:
            file.write(data)
    except OSError as error:
        raise TraceError(f"{path}: cannot be written: {error.strerror}") from None


def _columns(trace: Trace) -> dict[str, list]:
    """Column name → values, a list of ids, a number or the text of one each; None where a request has none."""
    def optional(column: np.ndarray | None, none: int) -> list | None:
        return None if column is None else [None if value == none else value for value in column.tolist()]

    waits = trace.think_ns is not None and trace.think_ns != NONE  # a turn that waits arrives when the run says
    arrival_ns = None if trace.arrival_ns is None else np.where(waits, NONE, trace.arrival_ns)
    columns = {"arrival_s": _seconds(arrival_ns),
               "prompt_tokens": trace.prompt_tokens.tolist(), "output_tokens": trace.output_tokens.tolist(),
               "max_tokens": optional(trace.max_tokens, 0), "num_samples": optional(trace.num_samples, 0),
               "beam_width": optional(trace.beam_width, 0), **_sessions(trace)}
    if trace.prefix_ids is not None:
        columns["prefix_block_tokens"] = [trace.source.hash_block_tokens] * len(trace)
        columns["prefix_ids"] = [ids.tolist() for ids in np.split(trace.prefix_ids, trace.prefix_offsets[1:-1])]
    return {name: values for name, values in columns.items() if values is not None}


def _sessions(trace: Trace) -> dict[str, list | None]:
    """Sessions by name where their turns follow one another in the rows' order, else each row with its parent's id."""
    columns = {"session": trace.session}
    if trace.session_parent is not None:
        in_order, _ = turns_before(trace.session, np.arange(len(trace)))
        if (in_order != trace.session_parent).any():
            inside = trace.session != NONE
            columns = {"chat_id": np.where(inside, np.arange(len(trace)), NONE),
                       "parent_chat_id": np.where(inside, trace.session_parent, NONE)}
    columns = {name: None if column is None else [None if value == NONE else value for value in column.tolist()]
               for name, column in columns.items()}
    return columns | {"think_s": _seconds(trace.think_ns)}


def _csv_lines(trace: Trace) -> Iterator[str]:
    columns = _columns(trace)
    yield ",".join(columns) + "\n"
    texts = ([_csv_field(value) for value in values] for values in columns.values())
    yield from (",".join(row) + "\n" for row in zip(*texts))


def _csv_field(value: int | str | list[int] | None) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return "" if value is None else str(value)


def _json_lines(trace: Trace) -> Iterator[str]:
    columns = _columns(trace)
    texts = ([value if isinstance(value, str) else json.dumps(value) for value in values]  # a float has too few digits
             for values in columns.values())
    names = [json.dumps(name) for name in columns]
    yield from ("{" + ", ".join(f"{name}: {text}" for name, text in zip(names, row)) + "}\n" for row in zip(*texts))


def _seconds(times_ns: np.ndarray | None) -> list[str | None] | None:
    """All digits and no more, one after the point at least: ``'0.0'``, ``'12.345'``; None for a time below 0."""
    if times_ns is None:
        return None
    parts = (divmod(ns, NS_PER_S) for ns in times_ns.tolist())
    return [None if whole < 0 else f"{whole}.{f'{rest:09}'.rstrip('0') or '0'}" for whole, rest in parts]
