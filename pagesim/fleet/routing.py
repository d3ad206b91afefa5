"""Which replica serves a request, by the rules that look at the trace alone."""

import numpy as np

from pagesim.case import Replicas
from pagesim.errors import InputError
from pagesim.trace.numbering import by_appearance
from pagesim.trace.sessions import NONE, permuted
from pagesim.trace.trace import Trace


def is_dealt(trace: Trace, replicas: Replicas) -> bool:
    """Whether who serves a request is known before anything runs, so that the replicas are independent.

    By round robin it is not where turns wait for others: they arrive when those have ended.
    """
    waits = trace.session_parent is not None and (trace.session_parent != NONE).any()
    return replicas.routing == "by_session" or (replicas.routing == "round_robin" and not waits)


def dealt(trace: Trace, replicas: Replicas) -> np.ndarray:
    """The replica of each request, int64, shape (num_requests,).

    Raises:
        InputError: a turn would go to another replica than the one before it.
    """
    turns = np.arange(len(trace)) if replicas.routing == "round_robin" else _sessions(trace)
    served_by = turns % replicas.count
    parent = np.full(len(trace), NONE) if trace.session_parent is None else trace.session_parent
    follows = np.flatnonzero(parent != NONE)
    apart = follows[served_by[follows] != served_by[parent[follows]]]
    if len(apart):
        raise InputError(f"{trace.source.path}: routing {replicas.routing} would part conversations, whose turns wait "
                         f"for the one before (request {apart[0]} for {parent[apart[0]]}); choose routing: by_session")
    return served_by


def _sessions(trace: Trace) -> np.ndarray:
    """Sessions numbered as they first appear; a request outside any is one of its own."""
    alone = np.arange(len(trace))
    if trace.session is None:
        return alone
    return by_appearance(np.where(trace.session == NONE, trace.session.max(initial=0) + 1 + alone, trace.session))


def part(trace: Trace, rows: np.ndarray) -> Trace:
    """These requests of the trace, at their own times."""
    columns = {name: value for name, value in vars(trace).items() if name != "source"}
    return Trace(**permuted(columns, rows), source=trace.source)
