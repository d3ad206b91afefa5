"""How long a step lasts: a function of its work, by coefficients that a user chooses, in whole nanoseconds."""

from dataclasses import dataclass

import numpy as np

from pagesim.core.jit import HOT
from pagesim.core.units import NS_PER_S
from pagesim.errors import InputError

BANDWIDTH_SHARE, COMPUTE_SHARE = 0.8, 0.6  # of the data sheet's, reached in practice
LAST_NS = 2**62  # 146 years: no step starts then or later, and none lasts longer, so that no sum leaves int64


@dataclass(frozen=True)
class Linear:
    """``step_s + prefill_token_s·prefill tokens + sequence_s·sequences + context_token_s·context tokens`` a step.

    Sequences are those scheduled in the step; context is their stored tokens, this step's included.  ``fixed`` is this
    with ``step_s`` alone.
    """

    step_s: float
    prefill_token_s: float = 0.0
    sequence_s: float = 0.0
    context_token_s: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < float("inf"):
                raise InputError(f"{name} must be finite and not negative, got {value}")
        _refuse_shorter_than_the_clock(self.step_s + self.sequence_s + self.context_token_s,
                                       "step_s, sequence_s or context_token_s")


@dataclass(frozen=True)
class Roofline:
    """``overhead_s + max(bytes / (BANDWIDTH_SHARE · bandwidth), operations / (COMPUTE_SHARE · peak))`` of a step.

    bytes = ``weight_bytes + kv_bytes_per_token·(context + tokens)``: every stored token of the scheduled sequences is
    read (this step's included) and this step's tokens are written.  Operations =
    ``2·params·tokens + 4·layers·heads·head_dim·context``.  All figures are per GPU (one shard).

    Attributes:
        weight_bytes, kv_bytes_per_token: bytes of one shard.
        flops_per_token: ``2·params`` of one shard.
        flops_per_context_token: ``4·layers·heads·head_dim`` of one shard.
        bandwidth_bytes_per_s, peak_flops_per_s: the data sheet's; the shares are applied here.
        overhead_s: constant time of a step.
    """

    weight_bytes: float
    kv_bytes_per_token: float
    flops_per_token: float
    flops_per_context_token: float
    bandwidth_bytes_per_s: float
    peak_flops_per_s: float
    overhead_s: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            least = ("above 0" if name in ("kv_bytes_per_token", "bandwidth_bytes_per_s", "peak_flops_per_s")
                     else "not negative")
            if not 0 <= value < float("inf") or (least == "above 0" and value == 0):
                raise InputError(f"{name} must be finite and {least}, got {value}")
        memory_s = (self.weight_bytes + 2 * self.kv_bytes_per_token) / (BANDWIDTH_SHARE * self.bandwidth_bytes_per_s)
        compute_s = (self.flops_per_token + self.flops_per_context_token) / (COMPUTE_SHARE * self.peak_flops_per_s)
        _refuse_shorter_than_the_clock(self.overhead_s + max(memory_s, compute_s), "overhead_s")


Durations = Linear | Roofline


def _refuse_shorter_than_the_clock(least_s: float, names: str) -> None:
    """``least_s`` is what one sequence with one token of context takes."""
    if least_s < 1 / NS_PER_S:
        raise InputError(f"a step with work must last at least 1 ns (1e-9 s), which is what the clock counts; the "
                         f"shortest of these lasts {least_s:g} s: give {names} a larger value")


# The fields of ``Linear`` and ``Roofline`` under their names, and the time to move a slot of swapped memory.
DURATION = np.dtype([("is_roofline", np.bool_), ("moved_slot_s", np.float64),
                     *((name, np.float64) for rule in (Linear, Roofline) for name in rule.__dataclass_fields__)],
                    align=True)


def coefficients(durations: Durations, moved_slot_s: float) -> np.record:
    """The record of a rule; the other rule's fields are 0."""
    made = np.zeros(1, DURATION).view(np.recarray)[0]
    made.is_roofline, made.moved_slot_s = isinstance(durations, Roofline), moved_slot_s
    for name, value in vars(durations).items():
        made[name] = value
    return made


@HOT
def duration_ns(rule, work):
    """Nanoseconds of a step, rounded once, to nearest (halves to even); ``rule`` of DURATION and ``work`` of WORK."""
    context = work.context_tokens
    if rule.is_roofline:
        tokens = work.prefill_tokens + work.decode_tokens
        memory = ((rule.weight_bytes + rule.kv_bytes_per_token * (context + tokens))
                  / (BANDWIDTH_SHARE * rule.bandwidth_bytes_per_s))
        compute = ((rule.flops_per_token * tokens + rule.flops_per_context_token * context)
                   / (COMPUTE_SHARE * rule.peak_flops_per_s))
        seconds = rule.overhead_s + max(memory, compute)
    else:
        seconds = (rule.step_s + rule.prefill_token_s * work.prefill_tokens + rule.sequence_s * work.sequences
                   + rule.context_token_s * context)
    if work.moved_slots > 0:
        seconds += work.moved_slots * rule.moved_slot_s
    return np.int64(min(np.rint(seconds * NS_PER_S), float(LAST_NS)))
