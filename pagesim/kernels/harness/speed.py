"""How fast a replayed step decodes, beside reading as many contiguous bytes."""

from dataclasses import dataclass

import torch

from pagesim.core.units import ceil_div
from pagesim.kernels.harness.replay import Replay
from pagesim.kernels.harness.timing import Times, read_ceiling, time_graph


@dataclass(frozen=True)
class Speed:
    """Decode of one layer in graph replay, and reading as many contiguous bytes."""

    times: Times
    num_bytes: int
    ceiling: Times

    @property
    def gb_per_s(self) -> float:
        return self.num_bytes / self.times.median_us / 1e3

    @property
    def ceiling_share(self) -> float:
        return self.ceiling.median_us / self.times.median_us


def decode_bytes(replay: Replay) -> int:
    """Bytes that decoding one layer must move: what is cached of every token, queries, outputs, table entries once.

    A token that sequences share counts once.
    """
    model = replay.model
    values = replay.num_slots * model.num_kv_heads * model.head_dim * model.cache_dtype.itemsize
    values *= 2 if model.latent_dim is None else 1
    width = model.head_dim + (model.latent_dim or model.head_dim)
    queries = len(replay.lengths()) * model.num_q_heads * width * model.dtype.itemsize
    return values + queries + 4 * int(ceil_div(replay.lengths(), replay.block_size).sum())


def time_decode(replay: Replay) -> Speed:
    """Time the decode of layer 0 as it stands, on a GPU; what fits into the L2 may be found there."""
    call, _ = replay.prepare(replay.queries(), 0)
    times = time_graph([call])
    num_bytes = decode_bytes(replay)
    memory = torch.empty(max(4 * num_bytes, 2**30), dtype=torch.uint8, device=replay.device)
    return Speed(times, num_bytes, read_ceiling(num_bytes, memory))
