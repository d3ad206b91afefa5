"""How requests are scheduled and how long a step lasts: the rules a user chooses, validated where they are made."""

from dataclasses import dataclass

from pagesim.errors import InputError


@dataclass(frozen=True)
class Scheduling:
    """First come, first served, with vLLM's names and meanings.

    Attributes:
        max_num_seqs: sequences that run at once.
        max_num_batched_tokens: tokens computed in one step, prefill and decode together.
        chunked_prefill: a prompt may be computed in several steps.
        preemption: a victim recomputes its tokens, or swaps its memory to the host and back.
        reserve_full_isl: a request is admitted only if all it knows fits, though the first chunk takes less.
        swap_slots: room in host memory, in slots (whole blocks of it are used); None is without limit.
        swap_s_per_slot: seconds to move one slot over PCIe, one way.
    """

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    chunked_prefill: bool = True
    preemption: str = "recompute"
    reserve_full_isl: bool = True
    swap_slots: int | None = None
    swap_s_per_slot: float = 0.0

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.preemption not in ("recompute", "swap"):
            raise InputError(f"preemption must be one of recompute, swap, got {self.preemption!r}")
        if self.swap_slots is not None and self.swap_slots < 0:
            raise InputError(f"swap_slots must not be negative, got {self.swap_slots}")
        if not 0 <= self.swap_s_per_slot < float("inf"):
            raise InputError(f"swap_s_per_slot must be finite and not negative, got {self.swap_s_per_slot}")


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
        if self.step_s + self.sequence_s + self.context_token_s <= 0:
            raise InputError(
                "a step with work must last longer than 0: give step_s, sequence_s or context_token_s a positive value")


@dataclass(frozen=True)
class Roofline:
    """``overhead_s + max(bytes / (0.8·bandwidth), floating-point operations / (0.6·peak))`` of a step.

    bytes = ``weight_bytes + kv_bytes_per_token·(context + tokens)``: every stored token of the scheduled sequences is
    read (this step's included) and this step's tokens are written.  Operations =
    ``2·params·tokens + 4·layers·heads·head_dim·context``.  All figures are per GPU (one shard).

    Attributes:
        weight_bytes, kv_bytes_per_token: bytes of one shard.
        flops_per_token: ``2·params`` of one shard.
        flops_per_context_token: ``4·layers·heads·head_dim`` of one shard.
        bandwidth_bytes_per_s, peak_flops_per_s: the data sheet's; the shares 0.8 and 0.6 are applied here.
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


Durations = Linear | Roofline
