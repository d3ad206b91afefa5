"""A workload on the GPU, as the kernels that can be measured take it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from pagesim.kernels.cache import Cache
from pagesim.kernels.harness.workloads import Workload

Call = Callable[[], None]
HALF = (torch.bfloat16, torch.float16)


class NotHere(Exception):
    """A kernel that cannot run here, and why."""


@dataclass(frozen=True)
class Batch:
    """One batch, and several tables that it is measured on in turn.

    Attributes:
        tables: int32 (num_seqs, max_blocks) each; ``table_kind`` says how they lie.
        lengths: int32 (num_seqs,).
        q, out: (num_seqs, q_len, num_q_heads, head_dim), with MLA of ``out`` latent_dim instead.
    """

    workload: Workload
    cache: Cache
    tables: list[torch.Tensor]
    table_kind: str
    lengths: torch.Tensor
    q: torch.Tensor
    out: torch.Tensor

    @property
    def block_size(self) -> int:
        return self.cache.geometry.block_size

    @property
    def first_query(self) -> torch.Tensor:
        """Where each sequence's queries begin, end to end, and their end, int32 (num_seqs + 1,)."""
        return torch.arange(len(self.q) + 1, dtype=torch.int32, device=self.q.device) * self.workload.q_len

    @property
    def vectors(self) -> torch.Tensor:
        """The cache of an MLA model, (num_blocks, block_size, head_dim)."""
        return self.cache.k.squeeze(2 if self.cache.layout == "NHD" else 1)

    def need(self, *dtypes: torch.dtype, one_query: bool = False, latent: bool = False) -> None:
        """Raises NotHere for another cache, or where there must be one query token for several.

        Args:
            latent: the kernel is for MLA models; else it is for K and V heads.
        """
        if self.cache.k.dtype not in dtypes:
            names = " or ".join(str(dtype)[6:] for dtype in dtypes)
            raise NotHere(f"a cache in {names} only, not in {str(self.cache.k.dtype)[6:]}")
        if latent != (self.workload.latent_dim is not None):
            raise NotHere("a latent cache only" if latent else "K and V heads only, not a latent")
        if one_query and self.workload.q_len != 1:
            raise NotHere("one query token only")
