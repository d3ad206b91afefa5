"""Short ways to write a worked example: every step lasts one second."""

from strategies import Setup, setup

from pagesim.allocators import Contiguous, Paged
from pagesim.engine.durations import Linear
from pagesim.engine.scheduling import Scheduling


def run_of(requests, allocator: Contiguous | Paged, capacity_slots: int, max_model_len: int = 4096,
           durations=None, closed_users=None, until_s=None, warmup_s=0.0, num_samples=None, **scheduling) -> Setup:
    """``requests`` are (prompt tokens, output tokens) or (prompt tokens, output tokens, arrival in seconds)."""
    rows = [(*row, 0)[:3] for row in requests]
    scheduling.setdefault("max_num_batched_tokens", 65536)
    return setup([p for p, _, _ in rows], [o for _, o, _ in rows], None if closed_users else [t for _, _, t in rows],
                 num_samples=num_samples, allocator=allocator, capacity_slots=capacity_slots, max_model_len=max_model_len,
                 scheduling=Scheduling(**scheduling), durations=durations or Linear(1.0), closed_users=closed_users, until_s=until_s,
                 warmup_s=warmup_s)


def blocks_of(requests, num_blocks: int, block_size: int = 16, reuse: str = "lifo", watermark: float = 0.0,
              **rest) -> Setup:
    return run_of(requests, Paged(block_size, reuse, watermark), num_blocks * block_size, **rest)


def region(slots: int, steps: int, arrival_s: float = 0) -> tuple[int, int, float]:
    """A request that stores exactly ``slots`` tokens and runs for ``steps`` steps."""
    assert 1 <= steps <= slots
    return slots - steps + 1, steps, arrival_s


def regions_of(requests, placement: str, capacity_slots: int, reserve: str = "exact", **rest) -> Setup:
    return run_of(requests, Contiguous(reserve, placement), capacity_slots, **rest)
