"""Turns of a conversation: one joins when it has arrived and the turn before it has ended.

With a think time it arrives so long after that end.  Turns that will join at a known time are kept in a heap; the
other requests arrive in the order of the trace, so that the next to join is one of two.
"""

import numpy as np

from pagesim.core.jit import COLD
from pagesim.engine.durations import LAST_NS

# Of a request: the turn before it, its think time and when it ended (-1 for none), and the turns after it as a list:
# the first of them, and behind each the next.  ``order`` are the requests as they joined; ``due`` ones join at
# ``due_ns``, a heap; both have nothing to do with the request they stand at.
TURN = np.dtype([(field, np.int64) for field in (
    "parent", "think_ns", "ended_ns", "child", "sibling", "order", "due_ns", "due")], align=True)


def make_turns(trace) -> np.recarray:
    """Of every request of the trace; of length 0 where none waits for another."""
    parent = trace.session_parent
    if parent is None or (parent < 0).all():
        return np.zeros(0, TURN).view(np.recarray)
    turns = np.zeros(len(trace), TURN).view(np.recarray)
    turns.parent = parent
    turns.think_ns = -1 if trace.think_ns is None else np.minimum(trace.think_ns, LAST_NS - 1)
    turns.ended_ns = turns.child = turns.sibling = -1
    follows = np.flatnonzero(parent >= 0)
    follows = follows[np.argsort(parent[follows], kind="stable")]
    begins = np.diff(parent[follows], prepend=-1) > 0
    turns.child[parent[follows[begins]]] = follows[begins]
    turns.sibling[follows[:-1][~begins[1:]]] = follows[1:][~begins[1:]]
    return turns


@COLD
def next_turn(run, turns, arrival_ns):
    """The request to join next and when, (-1, the end of the clock) for none: the earliest, of these the first."""
    while run.passed < run.available and turns.parent[run.passed] >= 0:
        run.passed += 1
    request, time_ns = -1, LAST_NS
    if run.passed < run.available:
        request, time_ns = run.passed, arrival_ns[run.passed]
    if run.due > 0 and (request < 0 or _before(turns.due_ns[0], turns.due[0], time_ns, request)):
        request, time_ns = turns.due[0], turns.due_ns[0]
    return request, time_ns


@COLD
def join_turn(run, turns, arrival_ns):
    """Let the next request be the last of those that joined, if its time has come; returns whether it has."""
    request, time_ns = next_turn(run, turns, arrival_ns)
    if request < 0 or time_ns > run.now_ns:
        return False
    turns.order[run.joined] = request
    if turns.parent[request] < 0:
        run.passed += 1
        return True
    if turns.think_ns[request] >= 0:
        arrival_ns[request] = time_ns
    _take_first(run, turns)
    return True


@COLD
def end_turn(rules, run, turns, arrival_ns, request):
    """It has ended, or was rejected: the turns after it join at a known time, if it is known when they arrive."""
    turns.ended_ns[request] = run.now_ns
    turn = turns.child[request]
    while turn >= 0:
        if turn < run.available:
            _fall_due(rules, run, turns, arrival_ns, turn)
        turn = turns.sibling[turn]


@COLD
def take_turns(rules, run, turns, arrival_ns, end):
    """Users of a closed loop take the requests up to ``end``: a turn waits if the one before it has not ended."""
    for turn in range(run.available, end):
        if turns.parent[turn] >= 0 and turns.ended_ns[turns.parent[turn]] >= 0:
            _fall_due(rules, run, turns, arrival_ns, turn)


@COLD
def _fall_due(rules, run, turns, arrival_ns, turn):
    think_ns = turns.think_ns[turn]
    time_ns = min(turns.ended_ns[turns.parent[turn]], LAST_NS) + max(think_ns, 0)
    if think_ns < 0 or rules.closed:  # else what the trace says of its arrival counts for nothing
        time_ns = max(time_ns, arrival_ns[turn])
    at = run.due
    run.due += 1
    while at > 0:
        above = (at - 1) // 2
        if not _before(time_ns, turn, turns.due_ns[above], turns.due[above]):
            break
        turns.due_ns[at], turns.due[at] = turns.due_ns[above], turns.due[above]
        at = above
    turns.due_ns[at], turns.due[at] = time_ns, turn


@COLD
def _take_first(run, turns):
    """Out of the heap."""
    run.due -= 1
    time_ns, turn = turns.due_ns[run.due], turns.due[run.due]
    at, below = 0, 1
    while below < run.due:
        if below + 1 < run.due and _before(turns.due_ns[below + 1], turns.due[below + 1],
                                           turns.due_ns[below], turns.due[below]):
            below += 1
        if not _before(turns.due_ns[below], turns.due[below], time_ns, turn):
            break
        turns.due_ns[at], turns.due[at] = turns.due_ns[below], turns.due[below]
        at, below = below, 2 * below + 1
    turns.due_ns[at], turns.due[at] = time_ns, turn


@COLD
def _before(time_ns, request, other_ns, other):
    return time_ns < other_ns or (time_ns == other_ns and request < other)
