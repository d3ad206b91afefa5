"""Made-up decode cases whose every unused slot is poison."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from pagesim.kernels.cache import Cache, poisoned_pool
from pagesim.kernels.mask import Mask
from pagesim.kernels.reference import paged_attention


@dataclass(frozen=True)
class Case:
    """One batch and its pool.

    Block 0 belongs to nobody and is NaN throughout, as is every free block and every slot behind a sequence's end; the
    table rows' padding points to block 0.  With a window, blocks that no query reaches any more are gone and their
    entries point to block 0 too.
    """

    q: torch.Tensor
    cache: Cache
    block_table: torch.Tensor
    lengths: np.ndarray
    mask: Mask

    def lengths_tensor(self) -> torch.Tensor:
        return torch.from_numpy(self.lengths.astype(np.int32)).to(self.q.device)

    def expected(self, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """By the definition, in ``dtype``."""
        return paged_attention(self.q, self.cache, self.block_table, self.lengths.tolist(), self.mask, dtype)

    def moved(self, k: torch.Tensor, v: torch.Tensor, **changes) -> "Case":
        """The same case over other tensors, and with other changes."""
        return replace(self, cache=replace(self.cache, k=k, v=v), **changes)

    def poisoned_out(self) -> torch.Tensor:
        return torch.full_like(self.q, float("nan"))


def make_case(lengths: list[int], *, num_q_heads: int = 4, num_kv_heads: int = 2, head_dim: int = 64, q_len: int = 1,
              dtype: torch.dtype = torch.float16, cache_dtype: torch.dtype | None = None, block_size: int = 16,
              layout: str = "NHD", window: int | None = None, softcap: float | None = None, k_scale: float = 1.0,
              v_scale: float = 1.0, sinks: bool = False, spare_blocks: int = 3, device: str = "cpu",
              seed: int = 0) -> Case:
    """A batch with a random block table; every number follows from ``seed``."""
    generator = torch.Generator().manual_seed(seed)
    cache_dtype = cache_dtype or dtype
    blocks = [-(-length // block_size) for length in lengths]
    num_blocks = 1 + sum(blocks) + spare_blocks
    ids = 1 + torch.randperm(num_blocks - 1, generator=generator)
    k_cache, v_cache = (poisoned_pool(num_blocks, block_size, num_kv_heads, head_dim, layout=layout, dtype=cache_dtype,
                                      device=device)
                        for _ in range(2))
    table = torch.zeros((len(lengths), max([1, *blocks])), dtype=torch.int32)
    used = 0
    for seq, (length, count) in enumerate(zip(lengths, blocks, strict=True)):
        own = ids[used:used + count]
        used += count
        gone = 0 if window is None else max(0, length - q_len - window) // block_size
        table[seq, gone:count] = own[gone:].int()
        token = torch.arange(gone * block_size, length)
        for cache, scale in ((k_cache, k_scale), (v_cache, v_scale)):
            new = torch.randn((len(token), num_kv_heads, head_dim), generator=generator) / scale
            rows = cache if layout == "NHD" else cache.transpose(1, 2)
            rows[own[token // block_size].to(device), (token % block_size).to(device)] = new.to(cache_dtype).to(device)
    q = torch.randn((len(lengths), q_len, num_q_heads, head_dim), generator=generator).to(dtype).to(device)
    drawn = torch.randn(num_q_heads, generator=generator).to(device) if sinks else None
    return Case(q, Cache(k_cache, v_cache, layout, (k_scale, v_scale)), table.to(device), np.array(lengths, np.int64),
                Mask(window=window, softcap=softcap, sinks=drawn))
