"""Pools that are mostly address space: their last blocks lie where 32 bits no longer reach."""

import pytest
import torch
from cases import Case

from pagesim.kernels.general.decode import Workspace
from pagesim.kernels.general.split import Split

# Block size, first block, and stride between blocks in elements, of 64 elements a token.
FAR = [
    (1, 70_000, 64),  # bug 4: ids above 65,535
    (1, 8_500_000, 64),  # bug 5: more blocks than fit into 23 bits
    (16, 2_000_000, 1100),  # bugs 1, 2: id · stride past 2^31
    (16, 2_067, 16 * 64 * 65 * 16),  # bug 6: packed layers, a stride of a million elements, past 2^31 at id 2,066
    (16, 4_000_000, 1100),  # bug 3: past 2^32
]


def address_space(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    """Memory that is not touched and so takes no room on the CPU; a small machine may refuse it still."""
    try:
        return torch.empty(shape, dtype=dtype, device=device)
    except RuntimeError as error:
        pytest.skip(f"no address space for {shape} of {dtype}: {error}")


def far_like(cache: torch.Tensor, far: int, block_stride: int) -> torch.Tensor:
    """A pool whose blocks ``far`` and after are like those of ``cache``, with nothing written to it."""
    num_blocks = far + len(cache)
    memory = address_space(((num_blocks - 1) * block_stride + cache[0].numel(),), cache.dtype, cache.device)
    return memory.as_strided((num_blocks, *cache.shape[1:]), (block_stride, *cache.stride()[1:]))


def far_case(case: Case, far: int, block_stride: int) -> Case:
    """The same case with block b at ``far + b``."""
    pools = []
    for cache in (case.cache.k, case.cache.v):
        pools.append(far_like(cache, far, block_stride))
        pools[-1][far:] = cache
    return case.moved(*pools, block_table=case.block_table + far)


def far_parts(plan: Split, num_heads: int, head_dim: int, device: str) -> Workspace:
    """Move the plan's partial results behind 2^31 elements, in a workspace that holds them."""
    far = 2 ** 31 // (num_heads * head_dim)
    plan.items[:, 3] += far
    plan.cuts[:, 1:3] += far
    shape = (far + plan.num_parts, 1, num_heads)
    return Workspace(address_space((*shape, head_dim), torch.float32, device),
                     address_space(shape, torch.float32, device))
