"""Made-up decode cases whose every unused slot is poison."""

from dataclasses import dataclass

import numpy as np
import torch

from pagesim.kernels.pool import poisoned_pool
from pagesim.kernels.reference import paged_attention


@dataclass(frozen=True)
class Case:
    """One batch and its pool.

    Block 0 belongs to nobody and is NaN throughout, as is every free block and every slot behind a sequence's end; the
    table rows' padding points to block 0.  With a window, blocks that no query reaches any more are gone and their
    entries point to block 0 too.
    """

    q: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    block_table: torch.Tensor
    lengths: np.ndarray
    options: dict

    def lengths_tensor(self) -> torch.Tensor:
        return torch.from_numpy(self.lengths.astype(np.int32)).to(self.q.device)

    def expected(self, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """By the definition, in ``dtype``."""
        return paged_attention(self.q, self.k_cache, self.v_cache, self.block_table, self.lengths.tolist(),
                               dtype=dtype, **self.options)

    def poisoned_out(self) -> torch.Tensor:
        return torch.full_like(self.q, float("nan"))


def make_case(lengths: list[int], *, num_q_heads: int = 4, num_kv_heads: int = 2, head_dim: int = 64, q_len: int = 1,
              dtype: torch.dtype = torch.float16, cache_dtype: torch.dtype | None = None, block_size: int = 16,
              layout: str = "NHD", window: int | None = None, softcap: float | None = None, k_scale: float = 1.0,
              v_scale: float = 1.0, spare_blocks: int = 3, device: str = "cpu", seed: int = 0) -> Case:
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
    options = {"layout": layout, "window": window, "softcap": softcap, "k_scale": k_scale, "v_scale": v_scale}
    return Case(q, k_cache, v_cache, table.to(device), np.array(lengths, np.int64), options)
