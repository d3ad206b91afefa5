"""How requests are scheduled: the rules a user chooses, validated where they are made."""

from dataclasses import dataclass
from typing import Literal, get_args

from pagesim.core.choices import one_of
from pagesim.errors import InputError

Preemption = Literal["recompute", "swap"]


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
    preemption: Preemption = "recompute"
    reserve_full_isl: bool = True
    swap_slots: int | None = None
    swap_s_per_slot: float = 0.0

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
        one_of("preemption", self.preemption, get_args(Preemption))
        if self.swap_slots is not None and self.swap_slots < 0:
            raise InputError(f"swap_slots must not be negative, got {self.swap_slots}")
        if not 0 <= self.swap_s_per_slot < float("inf"):
            raise InputError(f"swap_s_per_slot must be finite and not negative, got {self.swap_s_per_slot}")
