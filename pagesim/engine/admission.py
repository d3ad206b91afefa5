"""② Admissions from the queue's head, in strict order, until something stops them."""

from pagesim.allocators.contract import (
    admit, allocated_slots, asked_slots, fits, free_slots, has_holes, reservation, shares, unit_slots)
from pagesim.core.jit import HOT
from pagesim.core.ledger import store, take
from pagesim.core.units import final_tokens
from pagesim.engine.queue import head, known_to
from pagesim.engine.result import Cause
from pagesim.engine.running import compute, start_decoding


@HOT
def admit_waiting(state, memory, left):
    """Admit from the queue's head, in strict order, until something stops it; ``left`` is the step's budget."""
    run, rules, work = state.run, state.rules, state.work
    while run.waiting > 0:
        ask = head(state, left)
        if left == 0:
            state.head.cause = Cause.BUDGET
            return
        if run.running + ask.copies > rules.max_num_seqs:
            state.head.cause = Cause.MAX_NUM_SEQS
            return
        ask = known_to(memory, ask)
        todo = ask.known - ask.stored
        if not rules.chunked_prefill and ask.copies * todo > left:
            state.head.cause = Cause.BUDGET
            return
        if not fits(memory, ask, run.running):
            enough = has_holes(memory) and free_slots(memory) >= reservation(memory, ask) * ask.copies
            state.head.cause = Cause.FRAGMENTATION if enough else Cause.MEMORY
            return
        if shares(memory):
            _count_hits(state, memory, ask)
        if run.num_returning > 0:
            run.num_returning -= 1
        else:
            run.next_fresh += 1
            state.requests.fates.first_scheduled_ns[ask.request] = run.now_ns
        run.host_units -= ask.units
        work.swapped_units += ask.units
        work.moved_slots += ask.units * unit_slots(memory)
        for _ in range(ask.copies):
            chunk = min(todo, left)
            _enter(state, memory, ask, chunk)
            left -= chunk


@HOT
def _count_hits(state, memory, ask):
    total = state.total
    if ask.units > 0:
        return
    if state.run.num_returning > 0:
        total.readmission_hit_tokens += ask.stored
        return
    state.requests.hits[ask.request] = ask.stored
    total.hit_tokens += ask.stored
    total.admitted_prompt_tokens += ask.prompt
    total.admitted_prompt_blocks += ask.prompt // unit_slots(memory)


@HOT
def _enter(state, memory, ask, chunk):
    """A sequence joins the end of the running list, takes its memory and computes ``chunk`` tokens."""
    run, rows, levels = state.run, state.rows, state.levels
    run.unused_rows -= 1
    row = rows.unused[run.unused_rows]
    final = final_tokens(ask.prompt, ask.output)
    rows.request[row], rows.known[row], rows.stored[row], rows.final[row] = ask.request, ask.known, ask.stored, final
    rows.serial[row] = run.serial
    run.serial += 1
    rows.prev[row], rows.next[row] = run.last, -1
    if run.last < 0:
        run.first = row
    else:
        rows.next[run.last] = row
    run.last = row
    run.running += 1
    run.waiting -= 1
    state.work.admissions += 1
    state.head.stale = 1
    admit(memory, row, ask, ask.stored + chunk, run.step)
    take(levels, asked_slots(memory, row), final, allocated_slots(memory, row))
    store(levels, ask.stored)
    compute(state, row, chunk)
    if ask.units > 0 and ask.known - ask.stored == 1 and ask.known > ask.prompt:
        state.work.decode_tokens += 1
    else:
        state.work.prefill_tokens += chunk
    if rows.stored[row] == ask.known:
        start_decoding(state, memory, row)
    elif run.first_partial < 0:
        run.first_partial = row
