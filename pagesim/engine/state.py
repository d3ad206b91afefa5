"""The engine's state between two steps: arrays only, so that a run can stop after any step and go on.

Scalars live in two arrays, ``n`` (int64) and ``t`` (float64), under the names below.
"""

from typing import NamedTuple

import numpy as np

from pagesim.allocators.spec import Contiguous, Paged
from pagesim.engine.lists import Wheel, make_wheel
from pagesim.engine.result import WAIT_CAUSES, WINDOWS, Column
from pagesim.engine.rules import Durations, Roofline, Scheduling
from pagesim.trace import Trace

# n: where the run is
(
    STEP,
    OPEN,
    JOINED,
    AVAILABLE,
    USERS,
    DONE,
    NEXT_FRESH,
    NUM_RETURNING,
    FIRST,
    LAST,
    FIRST_PARTIAL,
    DECODERS,
    NUM_UNUSED,
    SERIAL,
    HOST_UNITS,
    WARM,
    LINES,
    STRIDE,
    # n: levels, in slots and counts; the first four have peaks
    TOKEN_STATES,
    ALLOCATED,
    RUNNING,
    WAITING,
    ASKED,
    PINNED,
    # n: what the instant looks like to the queue's head; STALE where it must be looked up again
    STALE,
    REFUSED,
    SHORT,
    NEED,
    NUM_HOLES,
    LARGEST,
    USABLE,
    # n: what happened in this step; the first six are added up in the counters below, the first five in the timeline
    STEP_PREFILL,
    STEP_DECODE,
    STEP_PREEMPTED,
    STEP_ADMITTED,
    STEP_ENDING,
    STEP_SAMPLED,
    STEP_SEQUENCES,
    STEP_MOVED,
    STEP_PREFILLED,
    WAIT_CAUSE,
    # n: counters, since the warm-up
    PREFILL,
    DECODE,
    PREEMPTIONS,
    ADMISSIONS,
    ENDED,
    OUTPUT,
    STEPS,
    RECOMPUTED,
    SWAPPED,
    SWAP_FALLBACKS,
    COPIED,
    # n: peaks, since the warm-up, in the order of the levels
    PEAK_TOKEN_STATES,
    PEAK_ALLOCATED,
    PEAK_RUNNING,
    PEAK_WAITING,
    PEAK_STEP,
    NUM_N,
) = range(58)

NUM_COUNTS, NUM_PEAKS, NUM_MEANS = 5, 4, 10  # of a timeline row

# t
NOW, STEP_END, PEAK_TIME, NUM_T = range(4)

LINES_MAX = 8192  # timeline rows; twice as many steps fall into a row each time it is full


# What the compiled loop gets is few words wide, because every word is paid for wherever the state is passed on: records
# count one, arrays of records seven.

# The rules of the run as plain numbers; see ``engine.rules``.
RULES = np.dtype([
    ("max_num_seqs", np.int64),
    ("max_num_batched_tokens", np.int64),
    ("max_model_len", np.int64),
    ("chunked_prefill", np.bool_),
    ("whole_sequence", np.bool_),  # an admission needs room for all known tokens, not only for its first chunk
    ("swap", np.bool_),
    ("host_units", np.int64),  # blocks (paged) or slots (contiguous) that fit into host memory, -1 without limit
    ("swap_s_per_slot", np.float64),
    ("unit_slots", np.int64),  # block_size, 1 for contiguous
    ("remainder", np.int64),  # slots outside any block
    ("contiguous", np.bool_),
    ("closed", np.bool_),
    ("until_s", np.float64),
    ("warmup_s", np.float64),
    ("roofline", np.bool_),
    ("duration", np.float64, (7,)),  # the fields of Linear or Roofline in their order
], align=True)

# What adds up over the run: the columns over each window, the columns at this step, waiting by its cause, waste of
# ended sequences; and the timeline: start, duration and means of ``values[1:1 + NUM_MEANS]``; first step, maxima,
# counts.
SUMS = np.dtype([
    ("integrals", np.float64, (len(WINDOWS), len(Column))),
    ("values", np.float64, (len(Column),)),
    ("wait_s", np.float64, (len(WAIT_CAUSES),)),
    ("waste", np.int64, (64,)),
    ("line_f", np.float64, (LINES_MAX, 2 + NUM_MEANS)),
    ("line_n", np.int64, (LINES_MAX, 1 + NUM_PEAKS + NUM_COUNTS)),
], align=True)


class Requests(NamedTuple):
    """The trace's columns, shape (num_requests,); optional ones have length 0 where absent."""

    arrival: np.ndarray  # float64
    prompt: np.ndarray  # int32
    output: np.ndarray  # int32
    limit: np.ndarray  # int32, max_tokens
    samples: np.ndarray  # int32
    samples_left: np.ndarray  # int32
    outcome: np.recarray  # OUTCOME


OUTCOME = np.dtype([
    ("first_scheduled", np.float64),
    ("first_token", np.float64),
    ("finish", np.float64),
    ("preemptions", np.int32),
    ("status", np.int32),
], align=True)

# A running sequence.  One that decodes stores ``step - shift`` tokens after being scheduled in ``step``, so that its
# state needs no update from step to step; one that is still being prefilled keeps ``stored`` of its ``known`` tokens.
# ``serial`` grows with each admission: the running order.  ``unused`` is a stack of free rows, ``prefilled`` the
# requests whose first prefill ends in this step; both have nothing to do with the row they stand in.
ROW = np.dtype(
    [(name, np.int64)
     for name in ("request", "shift", "known", "stored", "final", "serial", "next", "prev", "unused", "prefilled")],
    align=True)

# A preempted sequence; the last victim is the queue's head.  ``stored`` tokens and ``units`` (blocks or slots) of it
# lie on the host.
VICTIM = np.dtype([(name, np.int64) for name in ("request", "known", "stored", "units")], align=True)


class State(NamedTuple):
    n: np.ndarray
    t: np.ndarray
    rules: np.record  # RULES
    requests: Requests
    rows: np.recarray  # ROW
    returning: np.recarray  # VICTIM
    growth: Wheel  # rows by the step in which they need more memory
    ending: Wheel  # rows by the step in which they end
    sums: np.record  # SUMS


def make_rules(allocator: Contiguous | Paged, capacity_slots: int, max_model_len: int, scheduling: Scheduling,
               durations: Durations, *, closed: bool, until_s: float | None, warmup_s: float) -> np.record:
    contiguous = isinstance(allocator, Contiguous)
    unit = 1 if contiguous else allocator.block_size
    rules = _record(RULES)
    for name in ("max_num_seqs", "max_num_batched_tokens", "chunked_prefill", "swap_s_per_slot"):
        rules[name] = getattr(scheduling, name)
    rules.max_model_len = max_model_len
    rules.whole_sequence = contiguous or scheduling.reserve_full_isl or not scheduling.chunked_prefill
    rules.swap = scheduling.preemption == "swap"
    rules.host_units = -1 if scheduling.swap_slots is None else scheduling.swap_slots // unit
    rules.unit_slots, rules.remainder = unit, capacity_slots % unit
    rules.contiguous, rules.closed = contiguous, closed
    rules.until_s, rules.warmup_s = np.inf if until_s is None else until_s, warmup_s
    rules.roofline = isinstance(durations, Roofline)
    rules.duration[:len(vars(durations))] = list(vars(durations).values())
    return rules


def _record(dtype: np.dtype) -> np.record:
    return np.zeros(1, dtype).view(np.recarray)[0]


def make_state(trace: Trace, rules: np.record, num_rows: int, closed_users: int | None) -> State:
    """The state before the first step."""
    count = len(trace)
    none = np.zeros(0, np.int32)
    arrival = trace.arrival_s if not rules.closed else np.full(count, np.nan)
    available = count
    if closed_users is not None:
        available = min(closed_users, count)
        arrival[:available] = 0.0
    outcome = np.zeros(count, OUTCOME).view(np.recarray)
    for times in (outcome.first_scheduled, outcome.first_token, outcome.finish):
        times[:] = np.nan
    requests = Requests(arrival=arrival, prompt=trace.prompt_tokens, output=trace.output_tokens,
                        limit=none if trace.max_tokens is None else trace.max_tokens,
                        samples=none if trace.num_samples is None else trace.num_samples,
                        samples_left=none if trace.num_samples is None else trace.num_samples.copy(), outcome=outcome)
    n, t = np.zeros(NUM_N, np.int64), np.zeros(NUM_T)
    n[STEP] = n[FIRST] = n[LAST] = n[FIRST_PARTIAL] = n[PEAK_STEP] = -1
    n[AVAILABLE] = n[USERS] = available
    n[NUM_UNUSED], n[STRIDE], n[STALE] = num_rows, 1, 1
    rows = np.zeros(num_rows, ROW).view(np.recarray)
    rows.unused[:] = np.arange(num_rows)
    longest = min(int(trace.output_tokens.max(initial=1)), int(rules.max_model_len)) + 2  # longer ones are rejected
    return State(n=n, t=t, rules=rules, requests=requests, rows=rows,
                 returning=np.zeros(num_rows, VICTIM).view(np.recarray), growth=make_wheel(num_rows, longest),
                 ending=make_wheel(num_rows, longest), sums=_record(SUMS))
