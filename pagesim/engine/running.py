"""① The running list: every sequence gets its tokens, or the last of the list gives way."""

from pagesim.allocators.contract import allocated_slots, asked_slots, extend, release, units
from pagesim.core.jit import COLD, HOT
from pagesim.engine.lists import wheel_add, wheel_drop, wheel_first, wheel_move
from pagesim.engine.state import (
    ALLOCATED, ASKED, COPIED, DECODERS, FIRST, FIRST_PARTIAL, HOST_UNITS, LAST, NUM_RETURNING, NUM_UNUSED, PINNED,
    RECOMPUTED, RUNNING, STALE, STEP, STEP_DECODE, STEP_MOVED, STEP_PREEMPTED, STEP_PREFILL, STEP_PREFILLED,
    STEP_SAMPLED, STEP_SEQUENCES, SWAPPED, SWAP_FALLBACKS, TOKEN_STATES, WAITING)


@HOT
def serve_running(state, allocator):
    """Give the running list its tokens; returns the budget left.

    The budget reaches all decoders, because each took at least one token of it when it was admitted beside the others.
    """
    n = state.n
    _grow(state, allocator)
    n[STEP_DECODE] = n[STEP_SAMPLED] = n[STEP_SEQUENCES] = n[DECODERS]
    n[TOKEN_STATES] += n[DECODERS]
    left = state.rules.max_num_batched_tokens - n[DECODERS]
    return left if n[FIRST_PARTIAL] < 0 else _continue_prefill(state, allocator, left)


@HOT
def _grow(state, allocator):
    """Decoders that have no slot for their token get memory, in running order.

    Most of them need more again one block later; they stay together as they are and move to that bucket at once.
    """
    n, rows, links = state.n, state.rows, state.growth.link
    again = n[STEP] + state.rules.unit_slots
    row = wheel_first(state.growth, n[STEP])
    while row >= 0:
        stored = n[STEP] - 1 - rows.shift[row]
        if not _make_room(state, allocator, row, stored, stored + 1):
            break  # it was the last of the running list
        following, asked = links.next[row], asked_slots(allocator, row)
        if asked < rows.final[row] and rows.shift[row] + asked + 1 == again:
            links.due[row] = again
        else:
            wheel_drop(state.growth, row)
            _await_growth(state, allocator, row)
        row = following
    wheel_move(state.growth, n[STEP], again, rows.serial)


@HOT
def _make_room(state, allocator, row, stored, tokens):
    """Extend ``row``, preempting the last of the list again and again until it fits or has itself gone."""
    n, final = state.n, state.rows.final[row]
    asked, allocated = asked_slots(allocator, row), allocated_slots(allocator, row)
    while True:
        copied = extend(allocator, row, stored, tokens, n[STEP])
        if copied >= 0:
            break
        victim = n[LAST]
        _preempt(state, allocator, victim)
        if victim == row:
            return False
    more = asked_slots(allocator, row)
    n[COPIED] += copied
    n[ASKED] += more - asked
    n[PINNED] += min(more, final) - min(asked, final)
    n[ALLOCATED] += allocated_slots(allocator, row) - allocated
    if more != asked:
        n[STALE] = 1
    return True


@COLD
def _preempt(state, allocator, row):
    """The last of the running list gives back all its memory, keeps its sampled tokens and becomes the queue's head."""
    n, rows, rules, queue = state.n, state.rows, state.rules, state.returning
    if n[FIRST_PARTIAL] >= 0:
        stored, known = rows.stored[row], rows.known[row]
        if n[FIRST_PARTIAL] == row:
            n[FIRST_PARTIAL] = -1
    else:
        stored = n[STEP] - 1 - rows.shift[row]
        known = stored + 1
        n[DECODERS] -= 1
    moved = units(allocator, row)
    at = n[NUM_RETURNING]
    queue.request[at], queue.known[at] = rows.request[row], known
    if rules.swap and moved > 0 and (rules.host_units < 0 or n[HOST_UNITS] + moved <= rules.host_units):
        queue.stored[at], queue.units[at] = stored, moved
        n[HOST_UNITS] += moved
        n[SWAPPED] += moved
        n[STEP_MOVED] += moved
    else:
        queue.stored[at], queue.units[at] = 0, 0
        n[RECOMPUTED] += stored
        if rules.swap and moved > 0:
            n[SWAP_FALLBACKS] += 1
    n[NUM_RETURNING] += 1
    n[WAITING] += 1
    n[STEP_PREEMPTED] += 1
    state.requests.outcome.preemptions[rows.request[row]] += 1
    leave(state, allocator, row, stored)


@HOT
def leave(state, allocator, row, stored):
    """Take a sequence off the running list; all its memory is given back."""
    n, rows = state.n, state.rows
    wheel_drop(state.growth, row)
    wheel_drop(state.ending, row)
    asked = asked_slots(allocator, row)
    n[TOKEN_STATES] -= stored
    n[ASKED] -= asked
    n[PINNED] -= min(asked, rows.final[row])
    n[ALLOCATED] -= allocated_slots(allocator, row)
    release(allocator, row, n[STEP])
    before, after = rows.prev[row], rows.next[row]
    if before < 0:
        n[FIRST] = after
    else:
        rows.next[before] = after
    if after < 0:
        n[LAST] = before
    else:
        rows.prev[after] = before
    rows.unused[n[NUM_UNUSED]] = row
    n[NUM_UNUSED] += 1
    n[RUNNING] -= 1
    n[STALE] = 1


@HOT
def _await_growth(state, allocator, row):
    """Note the step in which the row stores more than it asked for so far."""
    asked = asked_slots(allocator, row)
    if asked < state.rows.final[row]:
        wheel_add(state.growth, row, state.rows.shift[row] + asked + 1, state.rows.serial)


@COLD
def _continue_prefill(state, allocator, left):
    """Partially prefilled sequences take what is left of the budget, in order; returns what they leave."""
    n, rows = state.n, state.rows
    row = n[FIRST_PARTIAL]
    while row >= 0 and left > 0:
        chunk = min(rows.known[row] - rows.stored[row], left)
        if not _make_room(state, allocator, row, rows.stored[row], rows.stored[row] + chunk):
            return left
        following = rows.next[row]
        left -= chunk
        compute(state, row, chunk)
        n[STEP_PREFILL] += chunk
        if rows.stored[row] == rows.known[row]:
            n[FIRST_PARTIAL] = following
            start_decoding(state, allocator, row)
        row = following
    return left


@HOT
def compute(state, row, chunk):
    """``chunk`` tokens of a prefill become stored."""
    n = state.n
    state.rows.stored[row] += chunk
    n[TOKEN_STATES] += chunk
    if chunk > 0:
        n[STEP_SEQUENCES] += 1


@HOT
def start_decoding(state, allocator, row):
    """The prefill ends in this step, which samples a token; from the next step on the row stores one token a step."""
    n, rows = state.n, state.rows
    rows.shift[row] = n[STEP] - rows.known[row]
    n[DECODERS] += 1
    n[STEP_SAMPLED] += 1
    wheel_add(state.ending, row, rows.shift[row] + rows.final[row], rows.serial)
    _await_growth(state, allocator, row)
    if rows.known[row] == state.requests.prompt[rows.request[row]]:
        rows.prefilled[n[STEP_PREFILLED]] = rows.request[row]
        n[STEP_PREFILLED] += 1
