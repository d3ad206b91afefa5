"""What a user asks for: an allocator by its name and rules, validated where it is made."""

from dataclasses import dataclass

from pagesim.errors import InputError

RESERVES = ("max_model_len", "pow2", "exact", "max_tokens", "grow")
PLACEMENTS = ("first_fit", "next_fit", "best_fit", "worst_fit", "buddy")
REUSES = ("lifo", "fifo")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")


@dataclass(frozen=True)
class Contiguous:
    """One region of adjacent slots for each sequence.

    Attributes:
        reserve: how many slots a sequence asks for: the model's maximum (Orca Max), prompt + output rounded up to a
            power of two (Orca Pow2), exactly what it will store (Orca Oracle), prompt + its ``max_tokens``, or what it
            knows, growing by ``growth``.
        placement: which hole it gets.
        growth: factor by which ``grow`` extends a full region, > 1.
    """

    reserve: str = "max_model_len"
    placement: str = "first_fit"
    growth: float = 1.5

    def __post_init__(self) -> None:
        _one_of("reserve", self.reserve, RESERVES)
        _one_of("placement", self.placement, PLACEMENTS)
        if not 1 < self.growth < float("inf"):
            raise InputError(f"growth must be a number above 1, got {self.growth}")


@dataclass(frozen=True)
class Paged:
    """Blocks of ``block_size`` slots, handed out as a sequence grows.

    Attributes:
        block_size: slots in a block, >= 1; 1 is a token pool.
        reuse: freed blocks are handed out next (``lifo``, vLLM without prefix caching) or last (``fifo``).
        watermark: share of the blocks that must stay free at an admission while something runs, in [0, 1).
    """

    block_size: int = 16
    reuse: str = "lifo"
    watermark: float = 0.0

    def __post_init__(self) -> None:
        _one_of("reuse", self.reuse, REUSES)
        if self.block_size < 1:
            raise InputError(f"block_size must be at least 1, got {self.block_size}")
        if not 0 <= self.watermark < 1:
            raise InputError(f"watermark must be a share in [0, 1), got {self.watermark}")
