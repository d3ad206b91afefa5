"""The rows of a table that become requests: checked, the empty ones dropped and counted."""

import itertools
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from pagesim.core.units import NS_PER_S
from pagesim.errors import TraceError
from pagesim.trace.csv_table import CsvTable
from pagesim.trace.formats import Format
from pagesim.trace.granularity import Granularity
from pagesim.trace.instants import BAD, FAR, Instants
from pagesim.trace.json_table import JsonTable

Table = CsvTable | JsonTable

_MAX_INT32 = 2**31 - 1
_LONGEST_THINK_NS = 10 * 365 * 86400 * NS_PER_S


@dataclass(frozen=True)
class Rows:
    """Requests of one table in the file's order; columns as in ``Trace``, where absent None.

    Attributes:
        read: data rows looked at, dropped ones included.
        dropped: rows left out, by reason.
        line: of each request, int64; of conversations only, whose errors show when all rows are read.
        arrival: after the file's own zero; anything where the request waits for another.
        prefix_ids, num_ids: the file's own ids end to end, and how many each request has.
        session: the file's own names, None for a request without.
        turn: place in the session, int64.
        chats: names and parents' names of all rows, dropped ones included, their lines, and which were kept.
    """

    read: int
    dropped: Counter
    line: np.ndarray | None
    arrival: Instants | None
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    max_tokens: np.ndarray | None
    num_samples: np.ndarray | None
    beam_width: np.ndarray | None
    prefix_ids: np.ndarray | list | None
    num_ids: np.ndarray | None
    session: list | None
    turn: np.ndarray | None
    think_ns: np.ndarray | None
    chats: tuple[list, list, np.ndarray, np.ndarray] | None


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


def requests(table: Table, form: Format, path: str, granularity: Granularity, *, zoned: bool | None, strict: bool,
             room: int | None) -> tuple[Rows, Granularity]:
    """Check a table and keep the rows with prompt and output.

    Args:
        granularity: of prefix ids, as the tables before this one say.
        zoned: the arrivals are wall-clock text, all with a zone or all without; None where they are numbers.
        strict: a row without prompt or output tokens is an error.
        room: rows to keep at most; those after the last kept one are neither checked nor counted.

    Returns:
        The rows, and what the granularity is after them.

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
    think_ns = _think(check, keep)
    arrival = _arrival(check, zoned, None if think_ns is None else think_ns >= 0)
    max_tokens = check.optional("max_tokens", empty=0)
    if max_tokens is not None:
        check.refuse((max_tokens > 0) & (max_tokens < output),
                     "max_tokens is below the request's own output tokens{got}", "max_tokens")
    num_samples, beam_width = _copies(check, "num_samples"), _copies(check, "beam_width")
    if num_samples is not None and beam_width is not None:
        check.refuse((num_samples > 1) & (beam_width > 1),
                     "a request samples in parallel or searches with beams: one of num_samples and beam_width must be 1"
                     "{got}", "beam_width")
    prefix_ids, num_ids, granularity = _prefix_ids(check, prompt, keep, granularity)
    turn = check.optional("turn", empty=0) if "session" in form.columns else None
    check.finish(path)
    counts = (None if column is None else column[keep].astype(np.int32)
              for column in (prompt, output, max_tokens, num_samples, beam_width))
    session, chat, parent = (table.labels(form.columns[role]) if role in form.columns else None
                             for role in ("session", "chat", "parent"))
    line = None if session is None and chat is None else table.line[keep]
    return Rows(len(table), _dropped(prompt, output), line, None if arrival is None else arrival.at(keep),
                *counts, prefix_ids, num_ids, None if session is None else list(itertools.compress(session, keep)),
                None if turn is None else turn[keep].astype(np.int64), None if think_ns is None else think_ns[keep],
                None if chat is None or parent is None else (chat, parent, keep, table.line)), granularity


def _copies(check: _Check, role: str) -> np.ndarray | None:
    """Sequences of a request."""
    copies = check.optional(role, empty=1)
    if copies is not None:
        check.refuse(copies == 0, f"{role} must be at least 1{{got}}", role)
    return copies


def _dropped(prompt: np.ndarray, output: np.ndarray) -> Counter:
    return +Counter({"0 prompt and 0 output tokens": int(np.count_nonzero((prompt == 0) & (output == 0))),
                     "0 prompt tokens": int(np.count_nonzero((prompt == 0) & (output != 0))),
                     "0 output tokens": int(np.count_nonzero((prompt != 0) & (output == 0)))})


def _think(check: _Check, keep: np.ndarray) -> np.ndarray | None:
    """Nanoseconds, int64, -1 where the row has no think time; of sessions only."""
    if "think" not in check.form.columns or not {"session", "chat"} & check.form.columns.keys():
        return None
    name = check.form.columns["think"]
    stated = ~check.table.empty(name)
    think = check.table.instants(name, check.form.think_digits)
    check.refuse(stated & ((think.ns < 0) | (think.ns >= _LONGEST_THINK_NS)),
                 f"{name} must be a time of at least 0 and less than ten years{{got}}", "think")
    return np.where(stated & keep, think.rounded(), -1)


def _arrival(check: _Check, zoned: bool | None, waits: np.ndarray | None) -> Instants | None:
    """Arrivals; ``waits`` says which rows arrive after another instead, and have none."""
    if "arrival" not in check.form.columns:
        return None
    name = check.form.columns["arrival"]
    if waits is None:
        waits = np.zeros(len(check.table), dtype=bool)
    else:
        check.refuse(waits & ~check.table.empty(name),
                     f"a turn arrives at its {name} or so long after the one before it, not both{{got}}", "arrival")
    if zoned is not None:
        clocks = check.table.clocks(name, zoned=zoned)
        check.refuse((clocks.ns == BAD) & ~waits, "arrival must be a date and time like 2023-11-16 18:17:03.9799600, "
                                                  "with a zone in all rows or in none{got}", "arrival")
        return clocks
    arrival = check.table.instants(name, check.form.unit_digits)
    check.refuse((arrival.ns == BAD) & ~waits, "arrival must be a finite number{got}", "arrival")
    check.refuse((arrival.ns < 0) & (arrival.ns != BAD), "arrival must not be negative{got}", "arrival")
    check.refuse(arrival.ns == FAR,
                 f"arrival makes no sense in the unit of column {name!r}{{got}}: it lies centuries ahead; "
                 "name the column after its unit: arrival_ms, arrival_us or arrival_ns", "arrival")
    if check.form.whole_arrivals:
        check.refuse(~waits & ((arrival.ns % 10 ** (9 - check.form.unit_digits) != 0) | (arrival.atto != 0)),
                     f"{check.form.name} times are whole milliseconds{{got}}; if the file counts seconds, rename the "
                     "key to arrival_s and state prefix_block_tokens", "arrival")
    return arrival


def _prefix_ids(check: _Check, prompt: np.ndarray, keep: np.ndarray,
                granularity: Granularity) -> tuple[np.ndarray | list | None, np.ndarray | None, Granularity]:
    """Ids of the kept rows, how many each has, and the granularity after them."""
    if "prefix_ids" not in check.form.columns:
        return None, None, granularity
    granularity = _stated(check, granularity)
    name = check.form.columns["prefix_ids"]
    ids, num_ids = check.table.ids(name)
    for row in np.flatnonzero(num_ids < 0)[:1]:
        check.found.append((row, f"{name} must be a list of ids, got {check.table.shown(name, row)[:60]}"))
    tokens = np.where((prompt > 0) & (prompt <= _MAX_INT32) & keep, prompt, 0)  # others are already noted
    rows = np.flatnonzero(tokens > 0)
    granularity, bad = granularity.narrowed(tokens[rows].astype(np.int64), num_ids[rows], check.table.line[rows])
    if bad >= 0:
        row = rows[bad]
        complaint = (f"{name} has {num_ids[row]} ids for a prompt of {int(prompt[row])} tokens, "
                     f"{granularity.expected(int(prompt[row]))}; the row is damaged, or its blocks have another size "
                     "than the rows above or prefix_block_tokens say")
        check.found.append((row, complaint))
    of_kept = np.repeat(keep, np.maximum(num_ids, 0))
    ids = ids[of_kept] if isinstance(ids, np.ndarray) else list(itertools.compress(ids, of_kept))
    return ids, num_ids[keep], granularity


def _stated(check: _Check, granularity: Granularity) -> Granularity:
    """What a column says of it, which is the same in all rows."""
    if "prefix_block_tokens" not in check.form.columns or not len(check.table):
        return granularity
    stated = check.whole("prefix_block_tokens", check.table.numbers(check.form.columns["prefix_block_tokens"]),
                         "prefix_block_tokens")
    first = stated[0] if granularity.least < granularity.most else granularity.least
    check.refuse((stated != first) | (stated == 0),
                 "prefix_block_tokens must be the same number in all rows, at least 1{got}", "prefix_block_tokens")
    return Granularity.stated(int(first)) if first >= 1 else granularity  # a bad one is already noted
