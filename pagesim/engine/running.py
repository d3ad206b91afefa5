"""① The running list: every sequence gets its tokens, or the last of the list gives way."""

from pagesim.allocators.contract import (
    allocated_slots, asked_slots, extend, release, room_tokens, unit_slots, units)
from pagesim.core.jit import COLD, HOT
from pagesim.core.ledger import change, give, store
from pagesim.engine.lists import wheel_add, wheel_drop, wheel_first, wheel_move


@HOT
def serve_running(state, memory):
    """Give the running list its tokens; returns the budget left.

    The budget reaches all decoders, because each took at least one token of it when it was admitted beside the others.
    """
    run, work = state.run, state.work
    _grow(state, memory)
    work.decode_tokens = work.output_tokens = work.sequences = run.decoders
    store(state.levels, run.decoders)
    left = state.rules.max_num_batched_tokens - run.decoders
    return left if run.first_partial < 0 else _continue_prefill(state, memory, left)


@HOT
def _grow(state, memory):
    """Decoders that have no slot for their token get memory, in running order.

    Most of them need more again one block later; they stay together as they are and move to that bucket at once.
    """
    step, rows, links = state.run.step, state.rows, state.growth.link
    again = step + unit_slots(memory)
    row = wheel_first(state.growth, step)
    while row >= 0:
        stored = step - 1 - rows.shift[row]
        if not _make_room(state, memory, row, stored, stored + 1):
            break  # it was the last of the running list
        following, room = links.next[row], room_tokens(memory, row)
        if room < rows.final[row] and rows.shift[row] + room + 1 == again:
            links.due[row] = again
        else:
            wheel_drop(state.growth, row)
            _await_growth(state, memory, row)
        row = following
    wheel_move(state.growth, step, again, rows.serial)


@HOT
def _make_room(state, memory, row, stored, tokens):
    """Extend ``row``, preempting the last of the list again and again until it fits or has itself gone."""
    run, final = state.run, state.rows.final[row]
    asked, allocated = asked_slots(memory, row), allocated_slots(memory, row)
    while True:
        copied = extend(memory, row, stored, tokens, run.step)
        if copied >= 0:
            break
        victim = run.last
        _preempt(state, memory, victim)
        if victim == row:
            return False
    more = asked_slots(memory, row)
    if more != asked:
        change(state.levels, asked, more, final, allocated_slots(memory, row) - allocated)
        state.work.copied_tokens += copied
        state.head.stale = 1
    return True


@COLD
def _preempt(state, memory, row):
    """The last of the running list gives back all its memory, keeps its sampled tokens and becomes the queue's head."""
    run, work, rows, rules = state.run, state.work, state.rows, state.rules
    if run.first_partial >= 0:
        stored, known = rows.stored[row], rows.known[row]
        if run.first_partial == row:
            run.first_partial = -1
    else:
        stored = run.step - 1 - rows.shift[row]
        known = stored + 1
        run.decoders -= 1
    moved = units(memory, row)
    victim = state.returning[run.num_returning]
    victim.request, victim.known = rows.request[row], known
    if rules.swap and moved > 0 and run.host_units + moved <= rules.host_units:
        victim.stored, victim.units = stored, moved
        run.host_units += moved
        work.swapped_units += moved
        work.moved_slots += moved * unit_slots(memory)
    else:
        victim.stored, victim.units = 0, 0
        work.recomputed_tokens += stored
        if rules.swap and moved > 0:
            work.swap_fallbacks += 1
    run.num_returning += 1
    run.waiting += 1
    work.preemptions += 1
    state.requests.fates.preemptions[rows.request[row]] += 1
    leave(state, memory, row, stored, False)


@HOT
def leave(state, memory, row, stored, is_over):
    """Take a sequence off the running list; all its memory is given back."""
    run, rows = state.run, state.rows
    wheel_drop(state.growth, row)
    wheel_drop(state.ending, row)
    store(state.levels, -stored)
    give(state.levels, asked_slots(memory, row), rows.final[row], allocated_slots(memory, row))
    release(memory, row, stored, is_over, run.step)
    before, after = rows.prev[row], rows.next[row]
    if before < 0:
        run.first = after
    else:
        rows.next[before] = after
    if after < 0:
        run.last = before
    else:
        rows.prev[after] = before
    rows.unused[run.unused_rows] = row
    run.unused_rows += 1
    run.running -= 1
    state.head.stale = 1


@HOT
def _await_growth(state, memory, row):
    """Note the step in which the row stores more than it has room for."""
    room = room_tokens(memory, row)
    if room < state.rows.final[row]:
        wheel_add(state.growth, row, state.rows.shift[row] + room + 1, state.rows.serial)


@COLD
def _continue_prefill(state, memory, left):
    """Partially prefilled sequences take what is left of the budget, in order; returns what they leave."""
    run, rows = state.run, state.rows
    row = run.first_partial
    while row >= 0 and left > 0:
        chunk = min(rows.known[row] - rows.stored[row], left)
        if not _make_room(state, memory, row, rows.stored[row], rows.stored[row] + chunk):
            return left
        following = rows.next[row]
        left -= chunk
        compute(state, row, chunk)
        state.work.prefill_tokens += chunk
        if rows.stored[row] == rows.known[row]:
            run.first_partial = following
            start_decoding(state, memory, row)
        row = following
    return left


@HOT
def compute(state, row, chunk):
    """``chunk`` tokens of a prefill become stored."""
    state.rows.stored[row] += chunk
    store(state.levels, chunk)
    if chunk > 0:
        state.work.sequences += 1
        state.rows.chunked[row] = state.run.step


@HOT
def start_decoding(state, memory, row):
    """The prefill ends in this step, which samples a token; from the next step on the row stores one token a step."""
    run, rows = state.run, state.rows
    rows.shift[row] = run.step - rows.known[row]
    run.decoders += 1
    state.work.output_tokens += 1
    wheel_add(state.ending, row, rows.shift[row] + rows.final[row], rows.serial)
    _await_growth(state, memory, row)
    if rows.known[row] == state.requests.prompt[rows.request[row]]:
        rows.prefilled[run.prefilled] = rows.request[row]
        run.prefilled += 1
