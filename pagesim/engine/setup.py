"""The one argument of a run."""

from dataclasses import dataclass

import numpy as np

from pagesim.allocators import Spec, first_kind, kind_of
from pagesim.allocators.ask import Demand
from pagesim.core.units import final_tokens
from pagesim.engine.durations import Durations
from pagesim.engine.scheduling import Scheduling
from pagesim.errors import InputError
from pagesim.trace.trace import Trace


@dataclass(frozen=True)
class Setup:
    """What is run, and by which rules.

    Attributes:
        trace: requests with arrival times (ignored where ``closed_users`` is given).
        capacity_slots: KV memory in slots; what whole blocks leave over is the ledger's remainder.
        max_model_len: a request with more prompt and output tokens is rejected.
        closed_users: so many users take rows in file order, each the next when its last is done.
        until_s: no step starts at or after this time.
        warmup_s: sums, counters and peaks start at the first step at or after this time.

    Raises:
        InputError: the rules contradict each other or the trace.
    """

    trace: Trace
    allocator: Spec
    capacity_slots: int
    max_model_len: int
    scheduling: Scheduling
    durations: Durations
    closed_users: int | None = None
    until_s: float | None = None
    warmup_s: float = 0.0

    def __post_init__(self) -> None:
        longest, scheduling, until_s, warmup_s = self.max_model_len, self.scheduling, self.until_s, self.warmup_s
        if longest < 1:
            raise InputError(f"max_model_len must be at least 1, got {longest}")
        if self.capacity_slots < first_kind(self.allocator).module.slots_of_a_unit(self.allocator):
            raise InputError(f"KV memory of {self.capacity_slots} slots holds not one block: give it more memory or "
                             "smaller blocks")
        if not scheduling.chunked_prefill and scheduling.max_num_batched_tokens < longest:
            raise InputError(f"without chunked prefill max_num_batched_tokens ({scheduling.max_num_batched_tokens}) "
                             f"must not be below max_model_len ({longest}): raise it or turn chunked_prefill on")
        if self.closed_users is not None and self.closed_users < 1:
            raise InputError(f"a closed loop needs at least 1 user, got {self.closed_users}")
        if self.closed_users is None and self.trace.arrival_s is None:
            raise InputError(
                "the trace has lengths only: choose an arrival process (poisson, gamma, closed or saturate)")
        if (until_s is not None and not until_s > 0) or not 0 <= warmup_s < float("inf"):
            raise InputError(
                f"until_s must be above 0 and warmup_s finite and not negative, got {until_s} and {warmup_s}")
        if scheduling.preemption == "swap" and not kind_of(self.allocator).module.swaps(self.allocator):
            raise InputError(f"{first_kind(self.allocator).module.name(self.allocator)} cannot let a victim's "
                             "memory wait on the host; choose preemption: recompute")
        first_kind(self.allocator).module.check(self.allocator, self.trace)

    def demand(self) -> Demand:
        """The most that this run can ask of its memory."""
        trace = self.trace
        final = final_tokens(trace.prompt_tokens.astype(np.int64), trace.output_tokens)
        runs = final < self.max_model_len  # longer ones are rejected
        samples = 1 if trace.num_samples is None else trace.num_samples
        most_samples = int(np.max(samples, initial=1))
        sequences = int(np.sum(samples * runs))
        units = self.capacity_slots // first_kind(self.allocator).module.slots_of_a_unit(self.allocator)
        return Demand(rows=max(1, min(self.scheduling.max_num_seqs, sequences, units + most_samples)),
                      max_model_len=self.max_model_len, longest_tokens=int(final[runs].max(initial=1)),
                      total_tokens=int(np.sum(final * runs * samples)), sequences=sequences)
