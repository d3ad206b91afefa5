"""The ledger at a step's instant, how long the step lasts, and what it adds to the sums."""

from pagesim.allocators.contract import (
    age_holes, cached_slots, doubled_slots, fits, forget, free_slots, has_holes, hole_stats, reservation, shares,
    unit_slots)
from pagesim.core.jit import COLD, HOT
from pagesim.core.ledger import split
from pagesim.core.units import NS_PER_S
from pagesim.engine.durations import duration_ns
from pagesim.engine.lists import wheel_first
from pagesim.engine.queue import head, known_to
from pagesim.engine.record import add_line, add_work, clear_peaks, clear_total, integrate, raise_peaks
from pagesim.engine.result import Column, Window


@HOT
def measure(state, memory):
    """The ledger at the step's instant, and how long it holds."""
    run, sums, work = state.run, state.sums, state.work
    work.context_tokens = state.levels.context_tokens  # a sequence that the budget did not reach stores nothing yet
    lasts_ns = duration_ns(state.rate, work)
    seconds = lasts_ns / NS_PER_S
    _ask_for_head(state, memory)
    _fill_values(state, memory)
    integrate(memory, sums, Window.RUN, seconds)
    if run.running > 0:
        integrate(memory, sums, Window.BUSY, seconds)
    if run.waiting > 0:
        integrate(memory, sums, Window.QUEUED, seconds)
        sums.wait_s[state.head.cause] += run.waiting * seconds
    if state.head.refused > 0:
        integrate(memory, sums, Window.SATURATED, seconds)
    age_holes(memory, seconds)
    run.end_ns = run.now_ns + lasts_ns
    _note_first_tokens(state)
    _count_completions(state)
    work.steps = 1
    doubled = doubled_slots(memory)
    token_states, allocated = state.levels.token_states - doubled, state.levels.allocated - doubled
    raise_peaks(state, token_states, allocated)
    add_work(state.total, work)
    add_line(state, seconds, token_states, allocated)


@HOT
def _note_first_tokens(state):
    first_token_ns = state.requests.fates.first_token_ns
    for k in range(state.run.prefilled):
        request = state.rows.prefilled[k]
        if first_token_ns[request] < 0:
            first_token_ns[request] = state.run.end_ns


@HOT
def _count_completions(state):
    row = wheel_first(state.ending, state.run.step)
    while row >= 0:
        state.work.completions += 1
        row = state.ending.link.next[row]


@HOT
def _ask_for_head(state, memory):
    """Try the queue's head on the memory without effect, whatever stopped admission."""
    run, rules, seen = state.run, state.rules, state.head
    if has_holes(memory) and seen.stale == 0:
        return
    seen.stale = seen.refused = seen.short = 0
    seen.need = rules.max_model_len
    if run.waiting > 0:
        ask = known_to(memory, head(state, rules.max_num_batched_tokens))
        seen.need = reservation(memory, ask)
        if not fits(memory, ask, run.running):
            seen.refused = 1
            seen.short = 1 if free_slots(memory) < seen.need * ask.copies else 0
    if has_holes(memory):
        seen.num_holes, seen.largest, seen.usable = hole_stats(memory, seen.need)


@HOT
def _fill_values(state, memory):
    """The ledger's columns at this instant."""
    run, seen, v = state.run, state.head, state.sums.values
    free = free_slots(memory)
    stranded = has_holes(memory) and seen.refused > 0 and seen.short == 0
    v[Column.TIME] = 1.0
    split(v[Column.TOKEN_STATES:Column.RUNNING], state.levels, doubled_slots(memory), cached_slots(memory), free,
          stranded, state.rules.remainder)
    v[Column.RUNNING] = run.running
    v[Column.WAITING] = run.waiting
    if shares(memory):
        v[Column.LOGICAL_BLOCKS] = state.levels.allocated // unit_slots(memory)
        v[Column.LOGICAL_TOKENS] = state.levels.context_tokens
    if has_holes(memory):
        v[Column.LARGEST_HOLE:] = 0.0
        if free > 0:
            v[Column.LARGEST_HOLE] = 1.0 - seen.largest / free
            v[Column.UNUSABLE] = (free - seen.usable) / free
        v[Column.BLOCKED_TIME] = 1.0 if stranded else 0.0
        if seen.refused > 0 and seen.largest < seen.need:
            v[Column.EXTFRAG_TIME] = 1.0
            if seen.num_holes > 0:
                v[Column.EXTFRAG] = 1000 - (1000 + 1000 * free // seen.need) // seen.num_holes


@COLD
def stay_idle(state, memory, seconds):
    """Between two steps nothing ran and nothing waited, though requests may have joined the queue by now."""
    run = state.run
    joined = run.waiting
    run.waiting, state.head.stale = 0, 1
    _ask_for_head(state, memory)
    _fill_values(state, memory)
    integrate(memory, state.sums, Window.RUN, seconds)
    age_holes(memory, seconds)
    run.waiting, state.head.stale = joined, 1


@COLD
def forget_warmup(state, memory):
    """The warm-up is over: sums, counters, peaks and histograms start again, the state stays."""
    state.run.warm = 1
    clear_total(state.total)
    clear_peaks(state.peaks)
    sums = state.sums
    sums.integrals[:] = 0.0
    sums.wait_s[:] = 0.0
    sums.waste[:] = 0
    forget(memory)
