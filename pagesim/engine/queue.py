"""The waiting queue: preempted sequences first, the last victim at its head, then requests as they joined."""

import numpy as np

from pagesim.allocators.ask import Ask
from pagesim.allocators.contract import fits_empty, stored_already
from pagesim.core.jit import HOT
from pagesim.engine.durations import LAST_NS
from pagesim.engine.result import Status
from pagesim.engine.state import NO_LIMIT
from pagesim.engine.turns import end_turn, join_turn, next_turn


@HOT
def arrive(state, memory):
    """⓪ Requests that have arrived join the queue, or are rejected."""
    run, requests = state.run, state.requests
    while _may_join(run, requests):
        request = _joined_as(requests, run.joined)
        run.joined += 1
        status = verdict(state, memory, request)
        if status == Status.UNFINISHED:
            if run.waiting == 0:
                state.head.stale = 1
            run.waiting += _samples(requests, request)
        else:
            requests.fates.status[request] = status
            run.done += 1
            if len(requests.turns) > 0:
                end_turn(state.rules, run, requests.turns, requests.arrival_ns, request)


@HOT
def _may_join(run, requests):
    """Whether the next request has arrived."""
    if len(requests.turns) > 0:
        return join_turn(run, requests.turns, requests.arrival_ns)
    return run.joined < run.available and requests.arrival_ns[_joined_as(requests, run.joined)] <= run.now_ns


@HOT
def next_ns(state):
    """When a request joins next, as far as that is known; the end of the clock for never."""
    run, requests = state.run, state.requests
    if len(requests.turns) > 0:
        return next_turn(run, requests.turns, requests.arrival_ns)[1]
    return requests.arrival_ns[_joined_as(requests, run.joined)] if run.joined < run.available else LAST_NS


@HOT
def verdict(state, memory, request):
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


@HOT
def _samples(requests, request):
    return np.int64(requests.samples[request]) if len(requests.samples) > 0 else 1


@HOT
def _fresh(state, request):
    requests = state.requests
    prompt, output = np.int64(requests.prompt[request]), np.int64(requests.output[request])
    limit = np.int64(requests.limit[request]) if len(requests.limit) > 0 else 0
    return Ask(request, prompt, output, limit, prompt, 0, 0, _samples(requests, request), NO_LIMIT)


@HOT
def known_to(memory, ask):
    """The ask, less what the memory holds of it already."""
    return Ask(ask.request, ask.prompt, ask.output, ask.limit, ask.known, stored_already(memory, ask), ask.units,
               ask.copies, ask.budget)


@HOT
def head(state, budget):
    """What the queue's head asks for; ``budget`` tokens can be computed at once."""
    run, rules = state.run, state.rules
    if run.num_returning > 0:
        victim = state.returning[run.num_returning - 1]
        ask = _fresh(state, victim.request)
        return Ask(ask.request, ask.prompt, ask.output, ask.limit, victim.known, victim.stored, victim.units, 1,
                   NO_LIMIT if rules.whole_sequence or victim.units > 0 else budget)
    request = _joined_as(state.requests, run.next_fresh)
    while state.requests.fates.status[request] > 0:  # it was rejected when it arrived
        run.next_fresh += 1
        request = _joined_as(state.requests, run.next_fresh)
    ask = _fresh(state, request)
    return Ask(ask.request, ask.prompt, ask.output, ask.limit, ask.known, 0, 0, ask.copies,
               NO_LIMIT if rules.whole_sequence else budget)


@HOT
def _joined_as(requests, place):
    """The request that joined after ``place`` others."""
    if len(requests.turns) > 0:
        return requests.turns.order[place]
    return requests.order[place] if len(requests.order) > 0 else place
