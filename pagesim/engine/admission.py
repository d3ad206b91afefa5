"""② Admissions from the queue's head, in strict order, until something stops them."""

from pagesim.allocators.contract import admit, allocated_slots, asked_slots, fits, free_slots
from pagesim.core.jit import COLD, HOT
from pagesim.engine.queue import head, reserved_for
from pagesim.engine.running import compute, start_decoding
from pagesim.engine.state import (
    ALLOCATED, ASKED, FIRST, FIRST_PARTIAL, HOST_UNITS, LAST, NEXT_FRESH, NOW, NUM_RETURNING, NUM_UNUSED, PINNED,
    RUNNING, SERIAL, STALE, STEP, STEP_ADMITTED, STEP_DECODE, STEP_MOVED, STEP_PREFILL, SWAPPED, TOKEN_STATES, WAITING,
    WAIT_CAUSE)

MEMORY, FRAGMENTATION, SEQUENCES, BUDGET, PREEMPTION = range(5)  # result.WAIT_CAUSES


@HOT
def admit_waiting(state, allocator, left):
    """Admit from the queue's head, in strict order, until something stops it."""
    n, rules = state.n, state.rules
    while n[WAITING] > 0:
        request, known, stored, kept, copies = head(state)
        todo = known - stored
        if left == 0:
            n[WAIT_CAUSE] = BUDGET
            return
        if n[RUNNING] + copies > rules.max_num_seqs:
            n[WAIT_CAUSE] = SEQUENCES
            return
        if not rules.chunked_prefill and copies * todo > left:
            n[WAIT_CAUSE] = BUDGET
            return
        asked, many = reserved_for(state, allocator, request, known), copies
        if not rules.whole_sequence and kept == 0:
            asked, many = _slots_of_chunks(rules.unit_slots, todo, copies, left), 1
        if not fits(allocator, asked, many, n[RUNNING]):
            n[WAIT_CAUSE] = FRAGMENTATION if rules.contiguous and free_slots(allocator) >= asked * many else MEMORY
            return
        if n[NUM_RETURNING] > 0:
            n[NUM_RETURNING] -= 1
            n[HOST_UNITS] -= kept
            n[SWAPPED] += kept
            n[STEP_MOVED] += kept
        else:
            n[NEXT_FRESH] += 1
            state.requests.outcome.first_scheduled[request] = state.t[NOW]
        for _ in range(copies):
            chunk = min(todo, left)
            _enter(state, allocator, request, known, stored, kept, chunk)
            left -= chunk


@COLD
def _slots_of_chunks(unit, todo, copies, left):
    """Slots of the blocks that the first chunks of ``copies`` sequences take."""
    slots = 0
    for _ in range(copies):
        chunk = min(todo, left)
        slots += (chunk + unit - 1) // unit * unit
        left -= chunk
    return slots


@HOT
def _enter(state, allocator, request, known, stored, kept, chunk):
    """A sequence joins the end of the running list, takes its memory and computes ``chunk`` tokens."""
    n, rows = state.n, state.rows
    n[NUM_UNUSED] -= 1
    row = rows.unused[n[NUM_UNUSED]]
    final = int(state.requests.prompt[request]) + int(state.requests.output[request]) - 1
    rows.request[row], rows.known[row], rows.stored[row], rows.final[row] = request, known, stored, final
    rows.serial[row] = n[SERIAL]
    n[SERIAL] += 1
    rows.prev[row], rows.next[row] = n[LAST], -1
    if n[LAST] < 0:
        n[FIRST] = row
    else:
        rows.next[n[LAST]] = row
    n[LAST] = row
    n[RUNNING] += 1
    n[WAITING] -= 1
    n[STEP_ADMITTED] += 1
    n[STALE] = 1
    admit(allocator, row, reserved_for(state, allocator, request, known), stored + chunk, n[STEP])
    asked = asked_slots(allocator, row)
    n[ASKED] += asked
    n[PINNED] += min(asked, final)
    n[ALLOCATED] += allocated_slots(allocator, row)
    n[TOKEN_STATES] += stored
    compute(state, row, chunk)
    if kept > 0 and known - stored == 1 and known > state.requests.prompt[request]:
        n[STEP_DECODE] += 1
    else:
        n[STEP_PREFILL] += chunk
    if rows.stored[row] == known:
        start_decoding(state, allocator, row)
    elif n[FIRST_PARTIAL] < 0:
        n[FIRST_PARTIAL] = row
