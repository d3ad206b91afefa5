"""The step loop: the numbered phases of a step, and what happens between two of them.

``advance`` performs whole steps and stops at the ledger's instant of the last one: after scheduling, before anything is
given back.  A step costs a constant but for what happens in it: a sequence that decodes is touched only when it needs
memory or ends.  Partially prefilled sequences are always at the end of the running order, because one that cannot
finish its prefill has used up the step's budget.
"""

from pagesim.allocators.contract import allocated_slots
from pagesim.allocators.pool import bin_of
from pagesim.core.jit import COLD, HOT
from pagesim.engine.admission import PREEMPTION, admit_waiting
from pagesim.engine.instant import forget_warmup, measure, stay_idle
from pagesim.engine.lists import wheel_first
from pagesim.engine.queue import join
from pagesim.engine.running import leave, serve_running
from pagesim.engine.state import (
    AVAILABLE, DECODERS, DONE, JOINED, NOW, OPEN, RUNNING, STEP, STEP_END, STEP_PREEMPTED, STEP_PREFILL, USERS, WAITING,
    WAIT_CAUSE, WARM)

COMPLETED = 1  # of result.STATUSES


def advance(state, allocator, max_steps):
    """Perform up to ``max_steps`` steps; returns whether the run goes on."""
    n = state.n
    for _ in range(max_steps):
        _end_step(state, allocator)
        goes_on = _arrive(state, allocator)
        if goes_on and state.t[NOW] > state.t[STEP_END]:
            stay_idle(state, allocator, state.t[NOW] - state.t[STEP_END])
        if n[WARM] == 0 and (state.t[NOW] >= state.rules.warmup_s or not goes_on):
            forget_warmup(state, allocator)
        if not goes_on:
            return False
        n[STEP] += 1
        n[STEP_PREFILL:WAIT_CAUSE] = 0
        n[WAIT_CAUSE] = -1
        left = serve_running(state, allocator)
        if n[STEP_PREEMPTED] > 0:
            n[WAIT_CAUSE] = PREEMPTION
        else:
            admit_waiting(state, allocator, left)
        measure(state, allocator)
        n[OPEN] = 1
    return True


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
    leave(state, allocator, row, state.rows.final[row])
    n[DECODERS] -= 1
    if len(requests.samples_left) > 0:
        requests.samples_left[request] -= 1
        if requests.samples_left[request] > 0:
            return
    requests.outcome.finish[request] = state.t[NOW]
    requests.outcome.status[request] = COMPLETED
    n[DONE] += 1


@COLD
def _let_arrive(state):
    """Closed loop: for every request that is done, the next row of the file arrives now."""
    n, arrival = state.n, state.requests.arrival
    last = min(n[USERS] + n[DONE], len(arrival))
    arrival[n[AVAILABLE]:last] = state.t[NOW]
    n[AVAILABLE] = last


@HOT
def _arrive(state, allocator):
    """⓪ Requests that have arrived join the queue; with nothing to do the clock jumps.  False when all is over."""
    n, t, arrival = state.n, state.t, state.requests.arrival
    while True:
        while n[JOINED] < n[AVAILABLE] and arrival[n[JOINED]] <= t[NOW]:
            join(state, allocator, n[JOINED])
            n[JOINED] += 1
        if n[RUNNING] + n[WAITING] > 0:
            return t[NOW] < state.rules.until_s
        if state.rules.closed:
            _let_arrive(state)
        if n[JOINED] >= n[AVAILABLE] or arrival[n[JOINED]] >= state.rules.until_s:
            return False
        t[NOW] = max(t[NOW], arrival[n[JOINED]])
