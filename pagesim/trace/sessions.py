"""Conversations: which row is the turn before, and when a turn comes that waits for it.

A turn's prompt begins with the one before it and its output.  It joins when it has arrived and the one before has
finished; with a think time it arrives that long after.  Nobody knows when before the run, so that the trace has its
earliest time instead: as if every turn took no time.
"""

import numpy as np

from pagesim.errors import TraceError
from pagesim.trace.numbering import by_appearance

NONE = -1


def turns_before(session: np.ndarray, rank: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each row's predecessor in its session, ``NONE`` for a first turn, and an order in which it comes earlier.

    Args:
        session: number of each row's session, ``NONE`` for a row without, shape (num_rows,).
        rank: orders the rows of a session, shape (num_rows,).
    """
    order = np.lexsort((rank, session))
    follows = (session[order][1:] == session[order][:-1]) & (session[order][1:] != NONE)
    parent = np.full(len(session), NONE, dtype=np.int64)
    parent[order[1:][follows]] = order[:-1][follows]
    return parent, order


def chats_before(chats: list, parents: list, kept: np.ndarray, line: np.ndarray, path: str) -> np.ndarray:
    """The row of each kept row's parent chat, ``NONE`` for the first of a conversation; row numbers count kept rows.

    A turn after one that was dropped follows the one before that.

    Args:
        chats, parents: names of all rows, dropped ones included, None for a row without.

    Raises:
        TraceError: with the line of a chat that is there twice, or whose parent is not above it.
    """
    row_of: dict = {None: NONE, "-1": NONE}
    before, num_kept = [], 0
    for row, (chat, parent) in enumerate(zip(chats, parents)):
        if chat is not None and chat in row_of:
            raise TraceError(f"{path}:{line[row]}: chat {chat!r} is there twice; give every row an id of its own")
        if parent not in row_of:
            where = "comes below it" if parent in chats[row:] else "is in no row"
            raise TraceError(f"{path}:{line[row]}: chat {chat!r} follows chat {parent!r}, which {where}; put the turn "
                             "before it above, or give it parent -1 if it begins a conversation")
        above = row_of[parent]
        if kept[row]:
            before.append(above)
            above, num_kept = num_kept, num_kept + 1
        if chat is not None:
            row_of[chat] = above
    return np.array(before, dtype=np.int64)


def numbered(session: np.ndarray, parent: np.ndarray) -> np.ndarray:
    """Conversations numbered by their first rows, ``NONE`` where ``session`` is; parents come earlier."""
    root = list(range(len(parent)))
    for row, above in enumerate(parent.tolist()):
        if above != NONE:
            root[row] = root[above]
    number = np.full(len(parent), NONE, dtype=np.int64)
    inside = session != NONE
    number[inside] = by_appearance(np.array(root, dtype=np.int64)[inside])
    return number


def earliest(arrival_ns: np.ndarray, think_ns: np.ndarray, parent: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Arrivals, int64: a turn with a think time as soon as it could be, any other not before the turn before it.

    Args:
        order: all rows, a parent before its children.
    """
    moved, think, above = arrival_ns.tolist(), think_ns.tolist(), parent.tolist()
    for row in order[parent[order] != NONE].tolist():
        before = moved[above[row]]
        moved[row] = max(moved[row], before) if think[row] == NONE else before + think[row]
    return np.array(moved, dtype=np.int64)


def num_shorter_than_history(trace) -> int:
    """Turns with fewer prompt tokens than the one before and its output have together: they begin with what fits."""
    follows = np.flatnonzero(trace.session_parent != NONE)
    history = np.add(trace.prompt_tokens, trace.output_tokens, dtype=np.int64)[trace.session_parent[follows]]
    return int(np.count_nonzero(trace.prompt_tokens[follows] < history))


def permuted(columns: dict[str, np.ndarray | None], order: np.ndarray) -> dict[str, np.ndarray | None]:
    """The columns of a ``Trace`` with its rows in another order; with some of them, ``NONE`` for a parent left out."""
    moved = {name: None if column is None or name.startswith("prefix_") else column[order]
             for name, column in columns.items()}
    if columns.get("session_parent") is not None:
        place = np.full(len(columns["session_parent"]), NONE, dtype=np.int64)
        place[order] = np.arange(len(order))
        parent = moved["session_parent"]
        moved["session_parent"] = np.where(parent == NONE, NONE, place[parent])
    if columns.get("prefix_ids") is not None:
        offsets = columns["prefix_offsets"]
        num_ids = np.diff(offsets)[order]
        moved["prefix_offsets"] = np.concatenate(([0], np.cumsum(num_ids)))
        shift = np.repeat(offsets[:-1][order] - moved["prefix_offsets"][:-1], num_ids)
        moved["prefix_ids"] = columns["prefix_ids"][np.arange(len(shift)) + shift]
    return moved
