"""The engine's state between two steps: arrays and records only, so that a run can stop after any step and go on.

What the compiled loop gets is few words wide, because every word is paid for wherever the state is passed on: records
count one, arrays of records seven.
"""

from typing import NamedTuple

import numpy as np

from pagesim.core.histogram import BINS
from pagesim.core.ledger import LEVELS, PARTS
from pagesim.core.units import NS_PER_S
from pagesim.engine.durations import LAST_NS, coefficients
from pagesim.engine.lists import Wheel, make_wheel
from pagesim.engine.result import Cause, Column, Window
from pagesim.engine.setup import Setup
from pagesim.engine.turns import make_turns

LINES_MAX = 8192  # timeline rows; twice as many steps fall into a row each time it is full
NO_LIMIT = 2**62


def _integers(*names: str) -> np.dtype:
    return np.dtype([(name, np.int64) for name in names], align=True)


# The rules of the run as plain numbers; see ``engine.scheduling`` and ``engine.setup``.
RULES = np.dtype([
    ("max_num_seqs", np.int64),
    ("max_num_batched_tokens", np.int64),
    ("max_model_len", np.int64),
    ("chunked_prefill", np.bool_),
    ("whole_sequence", np.bool_),  # an admission needs room for all known tokens, not only for its first chunk
    ("swap", np.bool_),
    ("host_units", np.int64),  # blocks (paged) or slots (contiguous) that fit into host memory
    ("remainder", np.int64),  # slots outside any block
    ("closed", np.bool_),
    ("until_ns", np.int64),
    ("warmup_ns", np.int64),
], align=True)

# Where the run is.
RUN = _integers(
    "now_ns",
    "end_ns",  # of the step performed last
    "step",
    "open",  # the step has been performed up to the ledger's instant
    "warm",  # the warm-up is over
    "joined", "available", "users", "done",  # requests that arrived, that may arrive, users, done for good
    "next_fresh",  # the place, among those that joined, of the first never admitted, or of one that was rejected
    "passed", "due",  # where some wait for a turn before them: the first that joins by itself; entries in ``TURN.due``
    "num_returning",
    "waiting", "running",  # sequences
    "first", "last", "first_partial",  # rows of the running list
    "decoders", "prefilled",  # rows that decode; entries in ``ROW.prefilled``
    "serial",  # of the next admission
    "unused_rows",  # entries of the stack
    "host_units",
    "lines", "stride",  # of the timeline
)

# What the instant looks like to the queue's head: whether the memory refuses it, and for want of slots; what it needs;
# the holes as it sees them; why it waits.  Where it is stale it must be looked up again.
HEAD = _integers("stale", "refused", "short", "need", "num_holes", "largest", "usable", "cause")

# What a step does, and what all of them did since the warm-up.
WORK = _integers("prefill_tokens", "decode_tokens", "sequences", "context_tokens", "moved_slots", "copied_tokens",
                 "preemptions", "admissions", "completions", "output_tokens", "recomputed_tokens", "swapped_units",
                 "swap_fallbacks", "steps", "hit_tokens", "readmission_hit_tokens", "admitted_prompt_tokens",
                 "admitted_prompt_blocks")

# ``step`` and ``time_s`` are of the first step with the most token states.
PEAKS = np.dtype([*((name, np.int64) for name in ("token_states", "allocated", "running", "waiting", "step")),
                  ("time_s", np.float64)], align=True)

# A row of the timeline: means over its steps of the columns from ``token_states`` to ``waiting``, maxima, counts; the
# least that a queue's head needed which the memory refused, 0 for none.
MEANS = slice(Column.TOKEN_STATES, Column.WAITING + 1)
LINE = np.dtype([
    ("start_s", np.float64),
    ("duration_s", np.float64),
    ("means", np.float64, (len(PARTS) + 2,)),
    *((name, np.int64) for name in (
        "first_step", "token_states", "allocated", "running", "waiting", "prefill_tokens", "decode_tokens",
        "preemptions", "admissions", "completions", "refused_need"))], align=True)

# What adds up over the run: the columns over each window, the columns at this step, waiting by its cause, waste of
# ended sequences.
SUMS = np.dtype([
    ("integrals", np.float64, (len(Window), len(Column))),
    ("values", np.float64, (len(Column),)),
    ("wait_s", np.float64, (len(Cause),)),
    ("waste", np.int64, (BINS,)),
], align=True)

# A running sequence.  One that decodes stores ``step - shift`` tokens after being scheduled in ``step``, so that its
# state needs no update from step to step; one that is still being prefilled keeps ``stored`` of its ``known`` tokens.
# ``serial`` grows with each admission: the running order.  ``chunked`` is the step of its latest chunk.  ``unused`` is
# a stack of free rows, ``prefilled`` the requests whose first prefill ends in this step; both have nothing to do with
# the row they stand in.
ROW = _integers("request", "shift", "known", "stored", "final", "serial", "next", "prev", "unused", "prefilled",
                "chunked")

# A preempted sequence; the last victim is the queue's head.  ``stored`` tokens and ``units`` (blocks or slots) of it
# lie on the host.
VICTIM = _integers("request", "known", "stored", "units")

# What became of a request; -1 for a time that does not exist.
FATE = np.dtype([("first_scheduled_ns", np.int64), ("first_token_ns", np.int64), ("finish_ns", np.int64),
                 ("preemptions", np.int32), ("status", np.int32)], align=True)


class Stretch(NamedTuple):
    """Consecutive requests of a trace, of which one at least is not done or may still arrive; they are numbered from 0.

    A stretch ends where the trace does; nothing in the engine knows where in the trace it began.  Optional columns have
    length 0 where absent.
    """

    order: np.ndarray  # int64, requests as they arrive; of length 0 where that is the order of the trace
    arrival_ns: np.ndarray  # int64
    prompt: np.ndarray  # int32
    output: np.ndarray  # int32
    limit: np.ndarray  # int32, max_tokens
    samples: np.ndarray  # int32
    samples_left: np.ndarray  # int32
    hits: np.ndarray  # int32, tokens found at the first admission
    fates: np.recarray  # FATE
    turns: np.recarray  # TURN


class State(NamedTuple):
    rules: np.record  # RULES
    rate: np.record  # durations.DURATION
    run: np.record  # RUN
    levels: np.record  # ledger.LEVELS
    head: np.record  # HEAD
    work: np.record  # WORK, of the step
    total: np.record  # WORK, of the run
    peaks: np.record  # PEAKS
    sums: np.record  # SUMS
    lines: np.recarray  # LINE
    requests: Stretch
    rows: np.recarray  # ROW
    returning: np.recarray  # VICTIM
    growth: Wheel  # rows by the step in which they need more memory
    ending: Wheel  # rows by the step in which they end


def _records(dtype: np.dtype, count: int) -> np.recarray:
    return np.zeros(count, dtype).view(np.recarray)


def _record(dtype: np.dtype) -> np.record:
    return _records(dtype, 1)[0]


def make_state(setup: Setup, rows: int, slots_of_a_unit: int, shares: bool) -> State:
    """The state before the first step of at most ``rows`` sequences that run at once."""
    longest = min(int(setup.trace.output_tokens.max(initial=1)), setup.max_model_len) + 2  # longer ones are rejected
    run, peaks = _record(RUN), _record(PEAKS)
    run.step = run.first = run.last = run.first_partial = peaks.step = -1
    run.unused_rows = rows
    run.stride = 1
    run.available = run.users = len(setup.trace) if setup.closed_users is None else min(setup.closed_users,
                                                                                       len(setup.trace))
    head, running, rules = _record(HEAD), _records(ROW, rows), _rules(setup, slots_of_a_unit)
    head.stale = 1
    running.unused = np.arange(rows)
    run.warm = rules.warmup_ns == 0  # else the run would count from its first step, not from the first arrival
    return State(
        rules=rules, rate=coefficients(setup.durations, setup.scheduling.swap_s_per_slot),
        run=run, levels=_record(LEVELS), head=head, work=_record(WORK), total=_record(WORK), peaks=peaks,
        sums=_record(SUMS), lines=_records(LINE, LINES_MAX), requests=_stretch(setup, int(run.users), shares),
        rows=running, returning=_records(VICTIM, rows), growth=make_wheel(rows, longest),
        ending=make_wheel(rows, longest))


def _rules(setup: Setup, slots_of_a_unit: int) -> np.record:
    scheduling, rules = setup.scheduling, _record(RULES)
    for name in ("max_num_seqs", "max_num_batched_tokens", "chunked_prefill"):
        rules[name] = getattr(scheduling, name)
    rules.max_model_len = setup.max_model_len
    rules.whole_sequence = scheduling.reserve_full_isl or not scheduling.chunked_prefill
    rules.swap = scheduling.preemption == "swap"
    rules.host_units = NO_LIMIT if scheduling.swap_slots is None else scheduling.swap_slots // slots_of_a_unit
    rules.remainder = setup.capacity_slots % slots_of_a_unit
    rules.closed = setup.closed_users is not None
    rules.until_ns = LAST_NS if setup.until_s is None else _ns(setup.until_s)
    rules.warmup_ns = _ns(setup.warmup_s)
    return rules


def _ns(seconds: float) -> int:
    """To nearest, halves to even, as steps are; the end of the clock where it is beyond that."""
    return round(min(seconds * NS_PER_S, LAST_NS))


def _stretch(setup: Setup, users: int, shares: bool) -> Stretch:
    """The whole trace."""
    trace, none = setup.trace, np.zeros(0, np.int32)
    arrival_ns = trace.arrival_ns
    if setup.closed_users is not None:
        arrival_ns = np.full(len(trace), -1)
        arrival_ns[:users] = 0
    elif trace.think_ns is not None:
        arrival_ns = arrival_ns.copy()  # a turn that waits arrives when the run says
    fates = _records(FATE, len(trace))
    for times_ns in (fates.first_scheduled_ns, fates.first_token_ns, fates.finish_ns):
        times_ns[:] = -1
    return Stretch(np.zeros(0, np.int64), arrival_ns, trace.prompt_tokens, trace.output_tokens,
                   none if trace.max_tokens is None else trace.max_tokens,
                   none if trace.num_samples is None else trace.num_samples,
                   none if trace.num_samples is None else trace.num_samples.copy(),
                   np.zeros(len(trace) if shares else 0, np.int32), fates, make_turns(trace))
