"""The waiting queue: preempted sequences first, the last victim at its head, then requests as they arrived."""

from pagesim.allocators.contract import fits_empty, reservation
from pagesim.core.jit import HOT
from pagesim.engine.state import DONE, NEXT_FRESH, NUM_RETURNING, STALE, WAITING

TOO_LONG, TOO_LARGE, NOT_SCHEDULABLE = range(2, 5)  # result.STATUSES


@HOT
def join(state, allocator, request):
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


@HOT
def head(state):
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
def reserved_for(state, allocator, request, known):
    requests = state.requests
    return reservation(allocator, int(requests.prompt[request]), int(requests.output[request]),
                       _limit(requests, request), known)
