"""The waiting queue: preempted sequences first, the last victim at its head, then requests as they arrived."""

import numpy as np

from pagesim.allocators.ask import Ask
from pagesim.allocators.contract import fits_empty
from pagesim.core.jit import COLD, HOT
from pagesim.engine.result import Status
from pagesim.engine.state import NO_LIMIT


@HOT
def arrive(state, memory):
    """⓪ Requests that have arrived join the queue, or are rejected; False where the outcomes have no room for more."""
    run, incoming = state.run, state.incoming
    while run.joined < run.available and incoming.arrival_s[run.joined] <= run.now_s:
        status = _verdict(state, memory, run.joined)
        if status == Status.UNFINISHED:
            if run.waiting == 0:
                state.head.stale = 1
            run.waiting += _samples(incoming, run.joined)
        else:
            if run.emitted == len(state.outcomes):
                return False
            _reject(state, run.joined, status)
            if run.next_fresh == run.joined:
                run.next_fresh += 1
        run.joined += 1
    return True


@HOT
def _verdict(state, memory, request):
    """Why the request can never run, or UNFINISHED where it can."""
    rules, ask = state.rules, _fresh(state, request)
    if ask.prompt + ask.output > rules.max_model_len:
        return Status.EXCEEDS_MAX_MODEL_LEN
    if not fits_empty(memory, ask):
        return Status.EXCEEDS_MEMORY
    if ask.copies > rules.max_num_seqs or (
            not rules.chunked_prefill and ask.copies * ask.prompt > rules.max_num_batched_tokens):
        return Status.EXCEEDS_SCHEDULING
    return Status.UNFINISHED


@COLD
def _reject(state, request, status):
    run, outcome = state.run, state.outcomes[state.run.emitted]
    outcome.request, outcome.status, outcome.preemptions = request, status, 0
    outcome.first_scheduled_s = outcome.first_token_s = outcome.finish_s = np.nan
    run.emitted += 1
    run.done += 1


@HOT
def _samples(incoming, request):
    return np.int64(incoming.samples[request]) if len(incoming.samples) > 0 else 1


@HOT
def _fresh(state, request):
    incoming = state.incoming
    prompt, output = np.int64(incoming.prompt[request]), np.int64(incoming.output[request])
    limit = np.int64(incoming.limit[request]) if len(incoming.limit) > 0 else 0
    return Ask(request, prompt, output, limit, prompt, 0, 0, _samples(incoming, request), NO_LIMIT)


@HOT
def pop(state, memory):
    """Take the head off the queue."""
    run = state.run
    if run.num_returning > 0:
        run.num_returning -= 1
        return
    run.next_fresh += 1
    while run.next_fresh < run.joined and _verdict(state, memory, run.next_fresh) != Status.UNFINISHED:
        run.next_fresh += 1  # it was rejected when it arrived


@HOT
def head(state, memory, budget):
    """What the queue's head asks for; ``budget`` tokens can be computed at once."""
    run, rules = state.run, state.rules
    if run.num_returning > 0:
        victim = state.returning[run.num_returning - 1]
        request = state.requests[victim.request]
        return Ask(request.number, request.prompt, request.output, request.limit, victim.known, victim.stored,
                   victim.units, 1, NO_LIMIT if rules.whole_sequence or victim.units > 0 else budget)
    ask = _fresh(state, run.next_fresh)
    return Ask(ask.request, ask.prompt, ask.output, ask.limit, ask.known, 0, 0, ask.copies,
               NO_LIMIT if rules.whole_sequence else budget)
