"""The step loop: arrivals, the running list, admissions, the ledger, time.

``advance`` performs whole steps and stops at the ledger's instant of the last one: after scheduling, before anything is
given back.  A step costs a constant but for what happens in it: a sequence that decodes is touched only when it needs
memory or ends.  Partially prefilled sequences are always at the end of the running order, because one that cannot
finish its prefill has used up the step's budget.
"""

from pagesim.allocators.contract import (
    admit,
    age_holes,
    allocated_slots,
    asked_slots,
    extend,
    fits,
    fits_empty,
    forget,
    free_slots,
    hole_stats,
    release,
    reservation,
    units,
)
from pagesim.allocators.pool import bin_of
from pagesim.core.jit import COLD, HOT
from pagesim.engine.lists import wheel_add, wheel_drop, wheel_first, wheel_take
from pagesim.engine.record import BUSY, QUEUED, RUN, SATURATED, add_line, integrate
from pagesim.engine.state import *  # noqa: F403  (the names of the scalars)

MEMORY, FRAGMENTATION, SEQUENCES, BUDGET, PREEMPTION = range(5)  # result.WAIT_CAUSES
COMPLETED, TOO_LONG, TOO_LARGE, NOT_SCHEDULABLE = range(1, 5)  # result.STATUSES


def advance(state, allocator, max_steps):
    """Perform up to ``max_steps`` steps; returns whether the run goes on."""
    n = state.n
    for _ in range(max_steps):
        _end_step(state, allocator)
        goes_on = _arrive(state, allocator)
        if goes_on and state.t[NOW] > state.t[STEP_END]:
            _stay_idle(state, allocator, state.t[NOW] - state.t[STEP_END])
        if n[WARM] == 0 and (state.t[NOW] >= state.rules.warmup_s or not goes_on):
            _forget_warmup(state, allocator)
        if not goes_on:
            return False
        n[STEP] += 1
        n[STEP_PREFILL:WAIT_CAUSE] = 0
        n[WAIT_CAUSE] = -1
        left = _serve_running(state, allocator)
        if n[STEP_PREEMPTED] > 0:
            n[WAIT_CAUSE] = PREEMPTION
        else:
            _admit_waiting(state, allocator, left)
        _measure(state, allocator)
        n[OPEN] = 1
    return True


# ------------------------------------------------------------------------------------------ between two steps


@HOT
def _end_step(state, allocator):
    """④ of the step that is open: its finished sequences give back their memory, in the order scheduled."""
    n = state.n
    if n[OPEN] == 0:
        return
    n[OPEN] = 0
    state.t[NOW] = state.t[STEP_END]
    row = wheel_first(state.ending, n[STEP])
    while row >= 0:
        _complete(state, allocator, row)
        row = wheel_first(state.ending, n[STEP])
    if state.rules.closed:
        _let_arrive(state)


@HOT
def _complete(state, allocator, row):
    n, requests = state.n, state.requests
    request = state.rows.request[row]
    state.sums.waste[bin_of(allocated_slots(allocator, row) - state.rows.final[row])] += 1
    _leave(state, allocator, row, state.rows.final[row])
    n[DECODERS] -= 1
    if len(requests.samples_left) > 0:
        requests.samples_left[request] -= 1
        if requests.samples_left[request] > 0:
            return
    requests.outcome.finish[request] = state.t[NOW]
    requests.outcome.status[request] = COMPLETED
    n[DONE] += 1


@HOT
def _leave(state, allocator, row, stored):
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


@COLD
def _let_arrive(state):
    """Closed loop: for every request that is done, the next row of the file arrives now."""
    n, arrival = state.n, state.requests.arrival
    last = min(n[USERS] + n[DONE], len(arrival))
    arrival[n[AVAILABLE] : last] = state.t[NOW]
    n[AVAILABLE] = last


@HOT
def _arrive(state, allocator):
    """⓪ Requests that have arrived join the queue; with nothing to do the clock jumps.  False when all is over."""
    n, t, arrival = state.n, state.t, state.requests.arrival
    while True:
        while n[JOINED] < n[AVAILABLE] and arrival[n[JOINED]] <= t[NOW]:
            _join(state, allocator, n[JOINED])
            n[JOINED] += 1
        if n[RUNNING] + n[WAITING] > 0:
            return t[NOW] < state.rules.until_s
        if state.rules.closed:
            _let_arrive(state)
        if n[JOINED] >= n[AVAILABLE] or arrival[n[JOINED]] >= state.rules.until_s:
            return False
        t[NOW] = max(t[NOW], arrival[n[JOINED]])


@HOT
def _join(state, allocator, request):
    """Append a request to the queue, or reject it with its reason."""
    n, rules, requests = state.n, state.rules, state.requests
    prompt, output = int(requests.prompt[request]), int(requests.output[request])
    copies = _copies(requests, request)
    asked = reservation(allocator, prompt, output, _limit(requests, request), prompt)
    status = 0
    if prompt + output > rules.max_model_len:
        status = TOO_LONG
    elif not fits_empty(allocator, asked, copies) or not fits_empty(allocator, prompt + output - 1, 1):
        status = TOO_LARGE
    elif copies > rules.max_num_seqs or (not rules.chunked_prefill and copies * prompt > rules.max_num_batched_tokens):
        status = NOT_SCHEDULABLE
    if status > 0:
        requests.outcome.status[request] = status
        n[DONE] += 1
        return
    if n[WAITING] == 0:
        n[STALE] = 1
    n[WAITING] += copies


@HOT
def _copies(requests, request):
    return int(requests.samples[request]) if len(requests.samples) > 0 else 1


@HOT
def _limit(requests, request):
    return int(requests.limit[request]) if len(requests.limit) > 0 else 0


# ------------------------------------------------------------------------------------------ ① the running list


@HOT
def _serve_running(state, allocator):
    """Give the running list its tokens; returns the budget left.

    The budget reaches all decoders, because each took at least one token of it when it was admitted beside the others.
    """
    n, rows = state.n, state.rows
    row = wheel_take(state.growth, n[STEP])
    while row >= 0:
        stored = n[STEP] - 1 - rows.shift[row]
        if _make_room(state, allocator, row, stored, stored + 1):
            _await_growth(state, allocator, row)
        row = wheel_take(state.growth, n[STEP])
    n[STEP_DECODE] = n[STEP_SAMPLED] = n[STEP_SEQUENCES] = n[DECODERS]
    n[TOKEN_STATES] += n[DECODERS]
    left = state.rules.max_num_batched_tokens - n[DECODERS]
    return left if n[FIRST_PARTIAL] < 0 else _continue_prefill(state, allocator, left)


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
    _leave(state, allocator, row, stored)


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
        _compute(state, row, chunk)
        n[STEP_PREFILL] += chunk
        if rows.stored[row] == rows.known[row]:
            n[FIRST_PARTIAL] = following
            _start_decoding(state, allocator, row)
        row = following
    return left


@HOT
def _compute(state, row, chunk):
    """``chunk`` tokens of a prefill become stored."""
    n = state.n
    state.rows.stored[row] += chunk
    n[TOKEN_STATES] += chunk
    if chunk > 0:
        n[STEP_SEQUENCES] += 1


@HOT
def _start_decoding(state, allocator, row):
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


# ------------------------------------------------------------------------------------------ ② admissions


@HOT
def _head(state):
    """The queue's head: (request, known tokens, tokens kept on the host, units kept there, sequences)."""
    n, queue = state.n, state.returning
    if n[NUM_RETURNING] > 0:
        at = n[NUM_RETURNING] - 1
        return queue.request[at], queue.known[at], queue.stored[at], queue.units[at], 1
    while state.requests.outcome.status[n[NEXT_FRESH]] > 0:  # rejected: it never joined the queue
        n[NEXT_FRESH] += 1
    request = n[NEXT_FRESH]
    return request, int(state.requests.prompt[request]), 0, 0, _copies(state.requests, request)


@HOT
def _reserved_for(state, allocator, request, known):
    requests = state.requests
    return reservation(
        allocator, int(requests.prompt[request]), int(requests.output[request]), _limit(requests, request), known
    )


@HOT
def _admit_waiting(state, allocator, left):
    """Admit from the queue's head, in strict order, until something stops it."""
    n, rules = state.n, state.rules
    while n[WAITING] > 0:
        request, known, stored, kept, copies = _head(state)
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
        asked, many = _reserved_for(state, allocator, request, known), copies
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
    admit(allocator, row, _reserved_for(state, allocator, request, known), stored + chunk, n[STEP])
    asked = asked_slots(allocator, row)
    n[ASKED] += asked
    n[PINNED] += min(asked, final)
    n[ALLOCATED] += allocated_slots(allocator, row)
    n[TOKEN_STATES] += stored
    _compute(state, row, chunk)
    if kept > 0 and known - stored == 1 and known > state.requests.prompt[request]:
        n[STEP_DECODE] += 1
    else:
        n[STEP_PREFILL] += chunk
    if rows.stored[row] == known:
        _start_decoding(state, allocator, row)
    elif n[FIRST_PARTIAL] < 0:
        n[FIRST_PARTIAL] = row


# ------------------------------------------------------------------------------------------ the ledger, and time


@HOT
def _measure(state, allocator):
    """The ledger at the step's instant, and how long it holds."""
    n, t, sums = state.n, state.t, state.sums
    duration = _duration(state)
    _ask_for_head(state, allocator)
    _fill_values(state, allocator)
    integrate(sums, RUN, duration)
    if n[RUNNING] > 0:
        integrate(sums, BUSY, duration)
    if n[WAITING] > 0:
        integrate(sums, QUEUED, duration)
        sums.wait_s[n[WAIT_CAUSE]] += n[WAITING] * duration
    if n[REFUSED] > 0:
        integrate(sums, SATURATED, duration)
    age_holes(allocator, duration)
    t[STEP_END] = t[NOW] + duration
    for k in range(n[STEP_PREFILLED]):
        request = state.rows.prefilled[k]
        if not state.requests.outcome.first_token[request] >= 0.0:
            state.requests.outcome.first_token[request] = t[STEP_END]
    _count(state)
    add_line(n, sums, t[NOW], duration)


@HOT
def _duration(state):
    """Seconds of the step: ``rules.Linear`` or ``rules.Roofline``, and the time to move swapped memory."""
    n, rules, d = state.n, state.rules, state.rules.duration
    prefill, tokens = n[STEP_PREFILL], n[STEP_PREFILL] + n[STEP_DECODE]
    context = n[TOKEN_STATES]  # a sequence that the budget did not reach stores nothing yet
    if rules.roofline:
        memory = (d[0] + d[1] * (context + tokens)) / (0.8 * d[4])
        compute = (d[2] * tokens + d[3] * context) / (0.6 * d[5])
        duration = d[6] + max(memory, compute)
    else:
        duration = d[0] + d[1] * prefill + d[2] * n[STEP_SEQUENCES] + d[3] * context
    if n[STEP_MOVED] > 0:
        duration += n[STEP_MOVED] * rules.unit_slots * rules.swap_s_per_slot
    return duration


@HOT
def _ask_for_head(state, allocator):
    """Try the queue's head on the allocator without effect, whatever stopped admission."""
    n, rules = state.n, state.rules
    if rules.contiguous and n[STALE] == 0:
        return
    n[STALE] = n[REFUSED] = n[SHORT] = 0
    n[NEED] = rules.max_model_len
    if n[WAITING] > 0:
        request, known, stored, kept, copies = _head(state)
        tokens = known if rules.whole_sequence or kept > 0 else min(known, rules.max_num_batched_tokens)
        n[NEED] = _reserved_for(state, allocator, request, tokens)
        if not fits(allocator, n[NEED], copies, n[RUNNING]):
            n[REFUSED] = 1
            n[SHORT] = 1 if free_slots(allocator) < n[NEED] * copies else 0
    n[NUM_HOLES], n[LARGEST], n[USABLE] = hole_stats(allocator, n[NEED])


@HOT
def _fill_values(state, allocator):
    """The columns of ``result.Column`` at this instant."""
    n, rules, v = state.n, state.rules, state.sums.values
    free = free_slots(allocator)
    stranded = rules.contiguous and n[REFUSED] > 0 and n[SHORT] == 0
    v[0] = 1.0
    v[1] = n[TOKEN_STATES]
    v[2] = n[PINNED] - n[TOKEN_STATES]
    v[3] = n[ASKED] - n[PINNED]
    v[4] = n[ALLOCATED] - n[ASKED]
    v[5] = 0.0
    v[6] = free if stranded else 0
    v[7] = 0 if stranded else free
    v[8] = rules.remainder
    v[9] = n[RUNNING]
    v[10] = n[WAITING]
    v[11:16] = 0.0
    if rules.contiguous and free > 0:
        v[11] = 1.0 - n[LARGEST] / free
        v[12] = (free - n[USABLE]) / free
    v[13] = 1.0 if stranded else 0.0
    if rules.contiguous and n[REFUSED] > 0 and n[LARGEST] < n[NEED]:
        v[14] = 1.0
        if n[NUM_HOLES] > 0:
            v[15] = 1000 - (1000 + 1000 * free // n[NEED]) // n[NUM_HOLES]


@COLD
def _stay_idle(state, allocator, duration):
    """Between two steps nothing ran and nothing waited, though requests may have joined the queue by now."""
    n = state.n
    joined = n[WAITING]
    n[WAITING], n[STALE] = 0, 1
    _ask_for_head(state, allocator)
    _fill_values(state, allocator)
    integrate(state.sums, RUN, duration)
    age_holes(allocator, duration)
    n[WAITING], n[STALE] = joined, 1


@HOT
def _count(state):
    """Counters and peaks; the peak is the first step with the most token states."""
    n = state.n
    row = wheel_first(state.ending, n[STEP])
    while row >= 0:
        n[STEP_ENDING] += 1
        row = state.ending.link.next[row]
    if n[TOKEN_STATES] > n[PEAK_TOKEN_STATES] or n[PEAK_STEP] < 0:
        n[PEAK_STEP] = n[STEP]
        state.t[PEAK_TIME] = state.t[NOW]
    for k in range(NUM_PEAKS):
        n[PEAK_TOKEN_STATES + k] = max(n[PEAK_TOKEN_STATES + k], n[TOKEN_STATES + k])
    for k in range(NUM_COUNTS + 1):
        n[PREFILL + k] += n[STEP_PREFILL + k]
    n[STEPS] += 1


@COLD
def _forget_warmup(state, allocator):
    """The warm-up is over: sums, counters, peaks and histograms start again, the state stays."""
    n, sums = state.n, state.sums
    n[WARM] = 1
    n[PREFILL:PEAK_STEP] = 0
    n[PEAK_STEP] = -1
    state.t[PEAK_TIME] = 0.0
    sums.integrals[:] = 0.0
    sums.wait_s[:] = 0.0
    sums.waste[:] = 0
    forget(allocator)
