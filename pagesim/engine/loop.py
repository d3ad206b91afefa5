"""The step loop: the numbered phases of a step, and what happens between two of them.

``advance`` performs whole steps and stops at the ledger's instant of the last one: after scheduling, before anything is
given back.  A step costs a constant but for what happens in it: a sequence that decodes is touched only when it needs
memory or ends.  Partially prefilled sequences are always at the end of the running order, because one that cannot
finish its prefill has used up the step's budget.
"""

import numpy as np

from pagesim.allocators.contract import allocated_slots, keep_chunk, keeps_chunks
from pagesim.core.histogram import bin_of
from pagesim.core.jit import COLD, HOT
from pagesim.core.units import NS_PER_S
from pagesim.engine.admission import admit_waiting
from pagesim.engine.instant import forget_warmup, measure, stay_idle
from pagesim.engine.lists import wheel_first
from pagesim.engine.queue import arrive, next_ns
from pagesim.engine.record import clear_work
from pagesim.engine.result import Cause, Status
from pagesim.engine.running import leave, serve_running
from pagesim.engine.turns import end_turn, take_turns


def advance(state, memory, last_step):
    """Perform the steps up to ``last_step``; returns whether the run goes on."""
    run = state.run
    while run.step < last_step:
        end_step(state, memory)
        arrive(state, memory)
        while run.running + run.waiting == 0 and _jump(state):
            arrive(state, memory)
        goes_on = run.running + run.waiting > 0 and run.now_ns < state.rules.until_ns
        if goes_on and run.now_ns > run.end_ns:
            stay_idle(state, memory, (run.now_ns - run.end_ns) / NS_PER_S)
        if run.warm == 0 and (run.now_ns >= state.rules.warmup_ns or not goes_on):
            forget_warmup(state, memory)
        if not goes_on:
            return False
        _perform(state, memory)
    return True


@HOT
def _perform(state, memory):
    """① to ③."""
    run = state.run
    run.step += 1
    run.prefilled = 0
    clear_work(state.work)
    left = serve_running(state, memory)
    if state.work.preemptions > 0:
        state.head.cause = Cause.PREEMPTION
    else:
        admit_waiting(state, memory, left)
    measure(state, memory)
    run.open = 1


@HOT
def end_step(state, memory):
    """④ of the step that is open: its finished sequences give back their memory, in the order scheduled."""
    run = state.run
    if run.open == 0:
        return
    run.open = 0
    run.now_ns = run.end_ns
    row = wheel_first(state.ending, run.step)
    while row >= 0 and not (keeps_chunks(memory) and state.rows.chunked[row] == run.step):
        _complete(state, memory, row)
        row = wheel_first(state.ending, run.step)
    if keeps_chunks(memory):
        _end_chunks(state, memory)
    if state.rules.closed:
        _let_arrive(state)


@COLD
def _end_chunks(state, memory):
    """The rows that computed a chunk in the step, which are the last of the running list, end or are kept."""
    run, rows = state.run, state.rows
    row, following = run.last, np.int64(-1)
    while row >= 0 and rows.chunked[row] == run.step:
        following, row = row, rows.prev[row]
    while following >= 0:
        row, following = following, rows.next[following]
        if state.ending.link.due[row] == run.step:
            _complete(state, memory, row)
        else:
            keep_chunk(memory, row, rows.stored[row], run.step)


@HOT
def _complete(state, memory, row):
    run, requests, final = state.run, state.requests, state.rows.final[row]
    request = state.rows.request[row]
    state.sums.waste[bin_of(allocated_slots(memory, row) - final)] += 1
    leave(state, memory, row, final, True)
    run.decoders -= 1
    if len(requests.samples_left) > 0:
        requests.samples_left[request] -= 1
        if requests.samples_left[request] > 0:
            return
    requests.fates.finish_ns[request] = run.now_ns
    requests.fates.status[request] = Status.COMPLETED
    run.done += 1
    if len(requests.turns) > 0:
        end_turn(state.rules, run, requests.turns, requests.arrival_ns, request)


@COLD
def _let_arrive(state):
    """Closed loop: for every request that is done, the next row of the file arrives now."""
    run, requests = state.run, state.requests
    last = min(run.users + run.done, len(requests.arrival_ns))
    requests.arrival_ns[run.available:last] = run.now_ns
    if len(requests.turns) > 0:
        take_turns(state.rules, run, requests.turns, requests.arrival_ns, last)
    run.available = last


@HOT
def _jump(state):
    """With nothing to do the clock jumps to the next arrival; False where none comes before the run's end."""
    run = state.run
    if state.rules.closed:
        _let_arrive(state)
    joins_ns = next_ns(state)
    if joins_ns >= state.rules.until_ns:
        return False
    run.now_ns = max(run.now_ns, joins_ns)
    return True
