"""What a run leaves behind: sums, peaks, counters, histograms, a row a request, a timeline; no ratio is taken here."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from pagesim.core.ledger import PARTS
from pagesim.core.units import NS_PER_S


class Window(IntEnum):
    """Times over which the columns are added up."""

    RUN = 0
    BUSY = 1  # something runs
    QUEUED = 2  # something waits
    SATURATED = 3  # the allocator refuses the queue's head


class Cause(IntEnum):
    """Why the queue's head waits."""

    MEMORY = 0
    FRAGMENTATION = 1
    MAX_NUM_SEQS = 2
    BUDGET = 3
    PREEMPTION = 4  # something was preempted in the step


class Status(IntEnum):
    """What became of a request; from EXCEEDS_MAX_MODEL_LEN on, why it was rejected."""

    UNFINISHED = 0
    COMPLETED = 1
    EXCEEDS_MAX_MODEL_LEN = 2
    EXCEEDS_MEMORY = 3
    EXCEEDS_SCHEDULING = 4


WINDOWS, WAIT_CAUSES, STATUSES = (tuple(each.name.lower() for each in names) for names in (Window, Cause, Status))

# Columns of ``Result.integrals``: each is Σ value · duration in slot-seconds, count-seconds or seconds.
Column = IntEnum("Column", [
    "TIME", *(part.upper() for part in PARTS), "RUNNING", "WAITING",
    "LOGICAL_BLOCKS",  # entries of all block tables, and
    "LOGICAL_TOKENS",  # tokens as each sequence stores them, where sequences can share
    "LARGEST_HOLE",  # 1 - largest hole / free; this and the following where memory has holes
    "UNUSABLE",  # share of the free slots that requests of size q cannot use
    "BLOCKED_TIME",  # seconds with stranded > 0
    "EXTFRAG_TIME",  # seconds in which the head cannot be placed, for want of a hole
    "EXTFRAG",  # Linux's extfrag_index over those: toward 1000 for fragmentation, 0 and below for want of memory
], start=0)


@dataclass(frozen=True)
class Timeline:
    """Rows of ``stride`` consecutive steps each, in order of time; in a run of few steps each row is one step.

    All arrays have shape (num_rows,).  ``mean_*`` is weighted by time (an exact integer where the row is one step),
    float64; ``max_*`` and counts are int64.
    """

    stride: int
    first_step: np.ndarray
    start_s: np.ndarray
    duration_s: np.ndarray  # of the steps; the idle time between them is in no row
    mean_parts: np.ndarray  # shape (num_rows, len(PARTS)), slots
    mean_running: np.ndarray
    mean_waiting: np.ndarray
    max_token_states: np.ndarray
    max_allocated: np.ndarray
    max_running: np.ndarray
    max_waiting: np.ndarray
    prefill_tokens: np.ndarray  # sum over the row's steps, as are the following
    decode_tokens: np.ndarray
    preemptions: np.ndarray
    admissions: np.ndarray
    completions: np.ndarray
    refused_need: np.ndarray  # least slots that a refused head needed, 0 where none was refused


@dataclass(frozen=True)
class Requests:
    """One row a request of the trace, shape (num_requests,).

    Times are whole nanoseconds, int64, -1 for one that does not exist; in seconds (float64) that is NaN.  ``status``
    indexes ``STATUSES``.  With parallel samples ``first_token_ns`` is the first sample's, ``finish_ns`` the last's.
    """

    arrival_ns: np.ndarray
    first_scheduled_ns: np.ndarray  # start of the step of the first admission
    first_token_ns: np.ndarray  # end of the step that sampled output token 1
    finish_ns: np.ndarray  # end of the step that sampled the last output token
    status: np.ndarray  # int32
    preemptions: np.ndarray  # int32, times preempted

    @property
    def arrival_s(self) -> np.ndarray:
        return _seconds(self.arrival_ns)

    @property
    def first_scheduled_s(self) -> np.ndarray:
        return _seconds(self.first_scheduled_ns)

    @property
    def first_token_s(self) -> np.ndarray:
        return _seconds(self.first_token_ns)

    @property
    def finish_s(self) -> np.ndarray:
        return _seconds(self.finish_ns)


def _seconds(times_ns: np.ndarray) -> np.ndarray:
    return np.where(times_ns < 0, np.nan, times_ns / NS_PER_S)


@dataclass(frozen=True)
class Histograms:
    """Counts in powers of two: bin 0 holds 0, bin k holds values in [2^(k-1), 2^k); shape (64,).

    ``hole_slots_s`` is weighted by time (hole-seconds, contiguous only, else None); the others are counts, int64.
    """

    hole_slots_s: np.ndarray | None = None
    waste_slots: np.ndarray | None = None  # allocated and never filled, one entry a completed sequence
    block_lifetime_steps: np.ndarray | None = None  # steps from taking a block to giving it back, paged only
    eviction_age_steps: np.ndarray | None = None  # steps a block was in the prefix cache without an owner, then evicted
    table_run_blocks: np.ndarray | None = None  # runs of ids, each the last plus one, in released tables; paged only


@dataclass(frozen=True)
class Counters:
    steps: int = 0
    admissions: int = 0
    preemptions: int = 0
    recomputed_tokens: int = 0
    swapped_blocks: int = 0  # out and in; a contiguous allocator counts slots
    swap_fallbacks: int = 0  # victims that recomputed because the host had no room
    copied_tokens: int = 0  # by growing regions
    failed_growths: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    output_tokens: int = 0  # sampled by completed sequences and by those still unfinished


@dataclass(frozen=True)
class Sharing:
    """What a prefix cache found and lost.

    Hits are counted at a request's first admission, and apart from them at those after a preemption.  ``prompt_tokens``
    and ``prompt_blocks``, full ones, are those of the requests admitted; ``hit_tokens_by_request`` is int32, shape
    (num_requests,).
    """

    hit_tokens: int
    readmission_hit_tokens: int
    prompt_tokens: int
    prompt_blocks: int
    evicted_blocks: int
    hit_tokens_by_request: np.ndarray


@dataclass(frozen=True)
class Peaks:
    """Largest values over the steps; ``step`` is the first with the most token states."""

    token_states: int = 0
    allocated: int = 0
    running: int = 0
    waiting: int = 0
    step: int = -1
    time_s: float = 0.0


@dataclass(frozen=True)
class Result:
    """A run.  ``integrals`` has shape (len(WINDOWS), len(Column)); ``wait_s`` is sequence-seconds by ``WAIT_CAUSES``.

    ``capacity_slots`` = ``num_blocks · block_size`` + remainder; ``num_blocks`` and ``block_size`` are None for
    contiguous.
    ``end_s`` is the end of the last step; with a warm-up every sum starts at the first step at or after ``warmup_s``.
    """

    capacity_slots: int
    num_blocks: int | None
    block_size: int | None
    end_s: float
    warmup_s: float
    integrals: np.ndarray
    wait_s: np.ndarray
    counters: Counters
    peaks: Peaks
    histograms: Histograms
    requests: Requests
    timeline: Timeline
    sharing: Sharing | None = None  # where sequences can share
