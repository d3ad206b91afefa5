"""What is run: frozen, picklable, everything a worker process needs."""

from dataclasses import dataclass
from typing import Literal

from pagesim.allocators import Spec
from pagesim.engine.durations import Durations
from pagesim.engine.scheduling import Scheduling

Routing = Literal["round_robin", "by_session", "least_kv_used", "longest_cached_prefix"]


@dataclass(frozen=True)
class TraceOptions:
    """Which requests arrive, and when.

    Attributes:
        path: file, as it opens from the current directory.
        kind: arrivals: trace, poisson, gamma, closed, saturate.
        rate: mean requests per second, for poisson and gamma; None otherwise.
        cv: coefficient of variation of the intervals, for gamma; None otherwise.
        users: for closed; None otherwise.
        speedup: 2 is twice the trace's rate.
        limit: rows kept; None keeps all.
        strict: a row without prompt or output is an error, not dropped.
        until_s: the run ends with the step that reaches this time; None runs to the end.
        warmup_s: figures count from here.
        seed: of drawn arrivals.
    """

    path: str
    kind: str = "trace"
    rate: float | None = None
    cv: float | None = None
    users: int | None = None
    speedup: float = 1.0
    limit: int | None = None
    strict: bool = False
    until_s: float | None = None
    warmup_s: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Capacity:
    """How much KV memory a replica has, on one shard.

    Attributes:
        slots: all of it, those outside any block included.
        kv_bytes_per_token: of one slot; None where the model is not known.
        blocks, block_size: of a paged pool; None for a contiguous arena.
    """

    slots: int
    kv_bytes_per_token: int | None = None
    blocks: int | None = None
    block_size: int | None = None

    @property
    def bytes(self) -> int | None:
        return None if self.kv_bytes_per_token is None else self.slots * self.kv_bytes_per_token

    @property
    def usable_slots(self) -> int:
        """Slots that a sequence can have: those inside blocks."""
        return self.slots if self.blocks is None else self.blocks * self.block_size


@dataclass(frozen=True)
class Replicas:
    """Servers side by side, each with all of the case's memory for itself, and which of them serves a request.

    Attributes:
        count: how many.
        routing: ``round_robin``: each request the next replica.  ``by_session``: each session the next replica, for
            all of its turns; a request outside any is a session of its own.  ``least_kv_used``: the replica whose
            running sequences hold the least when it arrives, of several the first.  ``longest_cached_prefix``: the one
            that has most of its prompt cached, of several the one of least KV used.
    """

    count: int = 1
    routing: Routing = "round_robin"


@dataclass(frozen=True)
class Case:
    """One simulation.  ``resolved`` is the config that gives just this case, every key with its value, JSON-able."""

    name: str
    resolved: dict
    trace: TraceOptions
    allocator: Spec
    capacity: Capacity
    max_model_len: int
    scheduling: Scheduling
    durations: Durations
    model: str | None = None
    gpu: str | None = None
    replicas: Replicas = Replicas()


@dataclass(frozen=True)
class Experiment:
    """Cases of one config file, in the order in which they are reported."""

    path: str
    cases: tuple[Case, ...]
