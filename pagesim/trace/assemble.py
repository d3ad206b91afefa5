"""The rows of all tables → the columns of a ``Trace``, in order of arrival."""

import itertools

import numpy as np

from pagesim.core.units import NS_PER_S
from pagesim.errors import TraceError
from pagesim.trace import numbering, sessions
from pagesim.trace.formats import Format
from pagesim.trace.instants import Instants, join
from pagesim.trace.rows import Rows

_YEAR_NS = 365 * 86400 * NS_PER_S
_LONGEST_YEARS = 10


def columns_of(parts: list[Rows], form: Format, path: str) -> dict[str, np.ndarray | None]:
    """Columns by the names that ``Trace`` has for them.

    Raises:
        TraceError: turns whose order makes no sense, or arrivals that lie decades apart.
    """
    columns = {name: _joined(parts, name) for name in ("prompt_tokens", "output_tokens", "max_tokens", "num_samples",
                                                       "beam_width", "think_ns")}
    if parts[0].num_ids is not None and any(part.num_ids.any() for part in parts):
        columns["prefix_ids"] = numbering.of_parts([part.prefix_ids for part in parts])
        columns["prefix_offsets"] = np.concatenate(([0], np.cumsum(_joined(parts, "num_ids"))))
    if columns["think_ns"] is not None and (columns["think_ns"] == sessions.NONE).all():
        columns["think_ns"] = None
    arrival = join([part.arrival for part in parts]) if "arrival" in form.columns else None
    order = None
    if arrival is not None and columns["think_ns"] is None and not _sorted(arrival):
        order = np.lexsort(arrival[::-1])
    families = None
    if parts[0].chats is not None or parts[0].session is not None:
        columns["session"], columns["session_parent"], families = _conversations(parts, columns, order, path)
    if arrival is not None:
        columns["arrival_ns"], order = _arrivals(arrival, columns, families, order, _joined(parts, "line"), path)
        _refuse_long_span(columns["arrival_ns"], form, path)
    if order is not None:
        columns = sessions.permuted(columns, order)
        columns["file_row"] = order
        if columns.get("prefix_ids") is not None:
            columns["prefix_ids"] = numbering.by_appearance(columns["prefix_ids"])
    if families is not None:
        parent, line = columns["session_parent"], _joined(parts, "line")
        late = np.flatnonzero(parent >= np.arange(len(parent)))
        _refuse_late_parents(late, parent, line if order is None else line[order], path)
        columns["session"] = sessions.numbered(columns["session"], parent)
    return columns


def _joined(parts: list[Rows], name: str) -> np.ndarray | None:
    columns = [getattr(part, name) for part in parts]
    return None if columns[0] is None else np.concatenate(columns)


def _sorted(arrival: Instants) -> bool:
    steps, atto_steps = (np.diff(part) for part in arrival)
    return bool(((steps > 0) | (steps == 0) & (atto_steps >= 0)).all())


def _conversations(parts: list[Rows], columns: dict[str, np.ndarray | None], order: np.ndarray | None,
                   path: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of the rows in the file's order: session (any number, -1 for none), the turn before, and an order in which that
    comes earlier.
    """
    line = _joined(parts, "line")
    if parts[0].chats is not None:
        chats, parents, kept, lines = (list(itertools.chain.from_iterable(column))
                                       for column in zip(*(part.chats for part in parts)))
        parent = sessions.chats_before(chats, parents, kept, lines, path)
        named = np.array([chat is not None for chat in itertools.compress(chats, kept)])
        inside = named | (parent != sessions.NONE)
        session, families = np.where(inside, 0, sessions.NONE), np.arange(len(parent))
    else:
        session = numbering.of_names(itertools.chain.from_iterable(part.session for part in parts))
        rank = np.arange(len(session)) if order is None else np.argsort(order)
        turn = _joined(parts, "turn")
        if turn is not None:
            rank = turn
            _refuse_equal_turns(session, turn, line, path)
        parent, families = sessions.turns_before(session, rank)
    if columns["think_ns"] is not None:
        orphan = np.flatnonzero((columns["think_ns"] >= 0) & (parent == sessions.NONE))
        if len(orphan):
            raise TraceError(f"{path}:{line[orphan[0]]}: a delay, and no turn of the session before it; give the first "
                             "turn an arrival")
    return session, parent, families


def _refuse_equal_turns(session: np.ndarray, turn: np.ndarray, line: np.ndarray, path: str) -> None:
    order = np.lexsort((turn, session))
    equal = np.flatnonzero((np.diff(session[order]) == 0) & (np.diff(turn[order]) == 0) & (session[order][1:] >= 0))
    if len(equal):
        one, other = sorted(line[order[equal[0]:equal[0] + 2]])
        raise TraceError(f"{path}:{other}: turn {turn[order[equal[0]]]} of its session, as line {one}; "
                         "number the turns")


def _arrivals(arrival: Instants, columns: dict[str, np.ndarray | None], families: np.ndarray | None,
              order: np.ndarray | None, line: np.ndarray | None, path: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Nanoseconds after the first, in the file's order, and the order of arrival (None: the file's)."""
    if columns["think_ns"] is None:
        return arrival.since(0 if order is None else int(order[0])), order
    stated = np.flatnonzero(columns["think_ns"] == sessions.NONE)
    first = stated[np.lexsort(arrival.at(stated)[::-1])[0]]
    since, parent = arrival.since(int(first)), columns["session_parent"]
    arrival_ns = sessions.earliest(since, columns["think_ns"], parent, families)
    _refuse_late_parents(stated[arrival_ns[stated] != since[stated]], parent, line, path)
    return arrival_ns, np.argsort(arrival_ns, kind="stable")


def _refuse_late_parents(late: np.ndarray, parent: np.ndarray, line: np.ndarray, path: str) -> None:
    for row in late[:1]:
        raise TraceError(f"{path}:{line[row]}: arrives before the turn before it, which is line {line[parent[row]]}; "
                         "turns of a session arrive one after the other")


def _refuse_long_span(arrival_ns: np.ndarray, form: Format, path: str) -> None:
    years = int(arrival_ns.max()) / _YEAR_NS
    if years > _LONGEST_YEARS:
        raise TraceError(f"{path}: the last request arrives {years:,.0f} years after the first, which makes no "
                         f"sense: column {form.columns['arrival']!r} is not in the unit its name says; name it "
                         "arrival_ms, arrival_us or arrival_ns")
