"""The ledger at a step's instant, how long the step lasts, and what it adds to the sums."""

from pagesim.allocators.contract import age_holes, fits, forget, free_slots, hole_stats
from pagesim.core.jit import COLD, HOT
from pagesim.engine.lists import wheel_first
from pagesim.engine.queue import head, reserved_for
from pagesim.engine.record import BUSY, QUEUED, RUN, SATURATED, add_line, integrate
from pagesim.engine.result import Column
from pagesim.engine.state import (
    ALLOCATED, ASKED, LARGEST, NEED, NOW, NUM_COUNTS, NUM_HOLES, NUM_PEAKS, PEAK_STEP, PEAK_TIME, PEAK_TOKEN_STATES,
    PINNED, PREFILL, REFUSED, RUNNING, SHORT, STALE, STEP, STEPS, STEP_DECODE, STEP_END, STEP_ENDING, STEP_MOVED,
    STEP_PREFILL, STEP_PREFILLED, STEP_SEQUENCES, TOKEN_STATES, USABLE, WAITING, WAIT_CAUSE, WARM)


@HOT
def measure(state, allocator):
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
        request, known, _, kept, copies = head(state)
        tokens = known if rules.whole_sequence or kept > 0 else min(known, rules.max_num_batched_tokens)
        n[NEED] = reserved_for(state, allocator, request, tokens)
        if not fits(allocator, n[NEED], copies, n[RUNNING]):
            n[REFUSED] = 1
            n[SHORT] = 1 if free_slots(allocator) < n[NEED] * copies else 0
    n[NUM_HOLES], n[LARGEST], n[USABLE] = hole_stats(allocator, n[NEED])


@HOT
def _fill_values(state, allocator):
    """The ledger's columns at this instant."""
    n, rules, v = state.n, state.rules, state.sums.values
    free = free_slots(allocator)
    stranded = rules.contiguous and n[REFUSED] > 0 and n[SHORT] == 0
    v[Column.TIME] = 1.0
    v[Column.TOKEN_STATES] = n[TOKEN_STATES]
    v[Column.RESERVED] = n[PINNED] - n[TOKEN_STATES]
    v[Column.OVERRESERVED] = n[ASKED] - n[PINNED]
    v[Column.ROUNDING] = n[ALLOCATED] - n[ASKED]
    v[Column.CACHED] = 0.0
    v[Column.STRANDED] = free if stranded else 0
    v[Column.IDLE] = 0 if stranded else free
    v[Column.REMAINDER] = rules.remainder
    v[Column.RUNNING] = n[RUNNING]
    v[Column.WAITING] = n[WAITING]
    v[Column.LARGEST_HOLE:] = 0.0
    if rules.contiguous and free > 0:
        v[Column.LARGEST_HOLE] = 1.0 - n[LARGEST] / free
        v[Column.UNUSABLE] = (free - n[USABLE]) / free
    v[Column.BLOCKED_TIME] = 1.0 if stranded else 0.0
    if rules.contiguous and n[REFUSED] > 0 and n[LARGEST] < n[NEED]:
        v[Column.EXTFRAG_TIME] = 1.0
        if n[NUM_HOLES] > 0:
            v[Column.EXTFRAG] = 1000 - (1000 + 1000 * free // n[NEED]) // n[NUM_HOLES]


@COLD
def stay_idle(state, allocator, duration):
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
def forget_warmup(state, allocator):
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
