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
        q, out: (num_seqs, q_len, num_q_heads, head_dim).
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

    def need(self, *dtypes: torch.dtype, one_query: bool = False) -> None:
        """Raises NotHere for another cache, or where there must be one query token for several."""
        if self.cache.k.dtype not in dtypes:
            names = " or ".join(str(dtype)[6:] for dtype in dtypes)
            raise NotHere(f"a cache in {names} only, not in {str(self.cache.k.dtype)[6:]}")
        if one_query and self.workload.q_len != 1:
            raise NotHere("one query token only")
