"""The rows of a table that become requests: checked, the empty ones dropped and counted."""

import itertools
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from pagesim.core.units import ceil_div
from pagesim.errors import TraceError
from pagesim.trace.csv_table import CsvTable
from pagesim.trace.formats import PLAIN_BLOCK_TOKENS, Format
from pagesim.trace.instants import BAD, FAR, Instants
from pagesim.trace.json_table import JsonTable

Table = CsvTable | JsonTable

_MAX_INT32 = 2**31 - 1


@dataclass(frozen=True)
class Rows:
    """Requests of one table in the file's order; columns as in ``Trace``, where absent None.

    Attributes:
        read: data rows looked at, dropped ones included.
        dropped: rows left out, by reason.
        arrival: after the file's own zero.
        prefix_ids: the file's own ids of each request.
        block_tokens: prompt tokens to one of them.
        session, parent: the file's own names, None for a request without.
    """

    read: int
    dropped: Counter
    arrival: Instants | None
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    max_tokens: np.ndarray | None
    num_samples: np.ndarray | None
    prefix_ids: list[list[int | str]] | None
    block_tokens: int | None
    session: list | None
    parent: list | None


@dataclass
class _Check:
    """Collects what is wrong with a table, to name the first bad line whichever column it is in."""

    table: Table
    form: Format
    found: list[tuple[int, str]] = field(default_factory=list)

    def refuse(self, bad: np.ndarray, complaint: str, role: str | None = None) -> None:
        """Note the first bad row; with a role, what stands there."""
        if bad.any():
            row = int(bad.argmax())
            got = f", got {self.table.shown(self.form.columns[role], row)}" if role else ""
            self.found.append((row, complaint.format(got=got)))

    def whole(self, role: str, numbers: np.ndarray, words: str) -> np.ndarray:
        """The column again, after a look for what is no count of tokens."""
        self.refuse(~(numbers == np.floor(numbers)), words + " must be a whole number{got}", role)
        self.refuse(numbers < 0, words + " must not be negative{got}", role)
        self.refuse(numbers > _MAX_INT32, f"{words} must be at most {_MAX_INT32:,}{{got}}", role)
        return numbers

    def optional(self, role: str, empty: int) -> np.ndarray | None:
        """A column of whole numbers that a file may lack; ``empty`` is what an empty field means."""
        if role not in self.form.columns:
            return None
        name = self.form.columns[role]
        return self.whole(role, np.where(self.table.empty(name), empty, self.table.numbers(name)), role)

    def finish(self, path: str) -> None:
        if self.found:
            row, complaint = min(self.found, key=lambda problem: problem[0])
            raise TraceError(f"{path}:{self.table.line[row]}: {complaint}")


def requests(table: Table, form: Format, path: str, *, zoned: bool | None, strict: bool, room: int | None) -> Rows:
    """Check a table and keep the rows with prompt and output.

    Args:
        zoned: the arrivals are wall-clock text, all with a zone or all without; None where they are numbers.
        strict: a row without prompt or output tokens is an error.
        room: rows to keep at most; those after the last kept one are neither checked nor counted.

    Raises:
        TraceError: with the line of the first bad row.
    """
    prompt, output = (table.numbers(form.columns[role]) for role in ("prompt", "output"))
    keep = (prompt != 0) & (output != 0)
    if room is not None and np.count_nonzero(keep) > room:
        num_rows = int(np.searchsorted(np.cumsum(keep), room)) + 1
        table, prompt, output, keep = table.head(num_rows), prompt[:num_rows], output[:num_rows], keep[:num_rows]
    check = _Check(table, form)
    check.whole("prompt", prompt, "prompt tokens")
    check.whole("output", output, "output tokens")
    if strict:
        check.refuse(~keep, "a request without prompt or output tokens, which is a failed one in public traces; remove "
                            "the row, or leave strict off to have such rows dropped and counted")
    arrival = _arrival(check, zoned) if "arrival" in form.columns else None
    max_tokens = check.optional("max_tokens", empty=0)
    if max_tokens is not None:
        check.refuse((max_tokens > 0) & (max_tokens < output),
                     "max_tokens is below the request's own output tokens{got}", "max_tokens")
    num_samples = check.optional("num_samples", empty=1)
    if num_samples is not None:
        check.refuse(num_samples == 0, "num_samples must be at least 1{got}", "num_samples")
    prefix_ids, block_tokens = _prefix_ids(check, prompt, keep) if "prefix_ids" in form.columns else (None, None)
    check.finish(path)
    counts = (None if column is None else column[keep].astype(np.int32)
              for column in (prompt, output, max_tokens, num_samples))
    return Rows(len(table), _dropped(prompt, output), None if arrival is None else arrival.at(keep), *counts,
                prefix_ids, block_tokens, _names(check, "session", keep), _names(check, "parent", keep))


def _names(check: _Check, role: str, keep: np.ndarray) -> list | None:
    if role not in check.form.columns:
        return None
    return list(itertools.compress(check.table.labels(check.form.columns[role]), keep))


def _dropped(prompt: np.ndarray, output: np.ndarray) -> Counter:
    return +Counter({"0 prompt and 0 output tokens": int(np.count_nonzero((prompt == 0) & (output == 0))),
                     "0 prompt tokens": int(np.count_nonzero((prompt == 0) & (output != 0))),
                     "0 output tokens": int(np.count_nonzero((prompt != 0) & (output == 0)))})


def _arrival(check: _Check, zoned: bool | None) -> Instants:
    name = check.form.columns["arrival"]
    if zoned is not None:
        clocks = check.table.clocks(name, zoned=zoned)
        check.refuse(clocks.ns == BAD, "arrival must be a date and time like 2023-11-16 18:17:03.9799600, with a zone "
                                       "in all rows or in none{got}", "arrival")
        return clocks
    arrival = check.table.instants(name, check.form.unit_digits)
    check.refuse(arrival.ns == BAD, "arrival must be a finite number{got}", "arrival")
    check.refuse((arrival.ns < 0) & (arrival.ns != BAD), "arrival must not be negative{got}", "arrival")
    check.refuse(arrival.ns == FAR,
                 f"arrival makes no sense in the unit of column {name!r}{{got}}: it lies centuries ahead; "
                 "name the column after its unit: arrival_ms, arrival_us or arrival_ns", "arrival")
    if check.form.whole_arrivals:
        check.refuse((arrival.ns % 10 ** (9 - check.form.unit_digits) != 0) | (arrival.atto != 0),
                     f"{check.form.name} times are whole milliseconds{{got}}; if the file counts seconds, rename the "
                     "key to arrival_s and state prefix_block_tokens", "arrival")
    return arrival


def _prefix_ids(check: _Check, prompt: np.ndarray, keep: np.ndarray) -> tuple[list[list[int | str]], int]:
    block_tokens = check.form.hash_block_tokens or PLAIN_BLOCK_TOKENS
    if "prefix_block_tokens" in check.form.columns and len(prompt):
        stated = check.table.numbers(check.form.columns["prefix_block_tokens"])
        check.whole("prefix_block_tokens", stated, "prefix_block_tokens")
        check.refuse((stated != stated[0]) | (stated == 0),
                     "prefix_block_tokens must be the same number in all rows, at least 1{got}", "prefix_block_tokens")
        block_tokens = int(stated[0]) if stated[0] >= 1 else block_tokens  # a bad one is already noted
    name = check.form.columns["prefix_ids"]
    ids = [check.table.ids(name, row) for row in np.flatnonzero(keep)]
    for row, own in zip(np.flatnonzero(keep), ids):
        if own is None:
            check.found.append((row, f"{name} must be a list of ids, got {check.table.shown(name, row)[:60]}"))
            break
        if np.isfinite(prompt[row]) and len(own) != ceil_div(int(prompt[row]), block_tokens):
            check.found.append((row, _wrong_count(check.form, name, int(prompt[row]), len(own), block_tokens)))
            break
    return ids, block_tokens


def _wrong_count(form: Format, name: str, prompt_tokens: int, num_ids: int, block_tokens: int) -> str:
    way_out = "state the size of a block in a column prefix_block_tokens"
    if form.hash_block_tokens:
        way_out = f"the row is damaged, or its blocks have another size: then use the plain columns and {way_out}"
    return (f"{name} has {num_ids} ids for a prompt of {prompt_tokens} tokens, expected "
            f"{ceil_div(prompt_tokens, block_tokens)} (one for each {block_tokens} tokens or part of them); {way_out}")
