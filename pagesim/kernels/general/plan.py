"""What the general decode kernel needs of a batch: items, cuts, what is shared, and room for partial results."""

from dataclasses import replace

import numpy as np
import torch

from pagesim.errors import InputError
from pagesim.kernels.cache import Cache
from pagesim.kernels.general.attend import INTERPRET
from pagesim.kernels.general.decode import decode, make_workspace
from pagesim.kernels.general.shared import attend_shared, make_plan
from pagesim.kernels.general.split import CTAS_PER_SM, CTAS_PER_SM_8BIT, Split, item_tokens, most_items, num_sms, split
from pagesim.kernels.launch import Kept
from pagesim.kernels.mask import Mask
from pagesim.kernels.shared_plan import Places
from pagesim.kernels.validate import CACHE_8BIT, check_decode


class GeneralPlan:
    """Plan and partial results of batches of one shape, with the same use as ``HopperPlan``.

    Attributes:
        capacity_tokens: total of the lengths that an update may bring.  Given, buffers keep their addresses and are
            padded to the most items that any batch of so many tokens is cut into.
        kept: what calls compiled, by their shapes.
    """

    kernel = "general"

    def __init__(self, q: torch.Tensor, cache: Cache, lengths: np.ndarray, window: int | None,
                 block_table: np.ndarray | None, capacity_tokens: int | None):
        self._shape, self._window = q.shape, window
        num_heads = q.shape[2]
        group = num_heads // cache.geometry.num_kv_heads
        self._size = (cache.geometry.num_kv_heads, num_sms(q.device),
                      CTAS_PER_SM_8BIT if cache.k.dtype == CACHE_8BIT else CTAS_PER_SM)
        self.capacity_tokens = max(int(np.sum(lengths)), capacity_tokens or 0)
        self._pad = most_items(len(lengths), self.capacity_tokens, *self._size) if capacity_tokens else 0
        self.shared = None if block_table is None or window is not None else make_plan(
            q, cache, Places(cache.geometry.num_kv_heads, 1, q.shape[1] * num_heads, group, num_heads))
        self.split = self._cut(lengths, block_table, q.device)
        num_parts = self._pad or self.split.num_parts
        if self._pad and self.shared:
            num_parts += len(lengths) + self.shared.max_parts
        self.workspace = make_workspace(num_parts, *q.shape[1:], q.device)
        self.kept: dict[tuple, Kept] = {}

    def _cut(self, lengths: np.ndarray, block_table: np.ndarray | None, device: torch.device | str) -> Split:
        found = self.shared.find(block_table, lengths) if self.shared else None
        begin, shared_parts = found[:2] if found else (None, None)
        own = lengths if begin is None else lengths - begin
        most = item_tokens(int(np.sum(own)), *self._size)
        plan = split(lengths, most, device=device, q_len=self._shape[1], window=self._window, begin=begin,
                     shared_parts=shared_parts, pad_items=self._pad, pad_cuts=self._pad and len(lengths))
        if self.shared:
            self.shared.upload(plan.first_parts, np.zeros_like(plan.first_parts))  # the cuts say how many
        return plan

    def update(self, lengths: np.ndarray, block_table: np.ndarray | None = None) -> None:
        """Plan for these visible tokens, and tables, as ``plan_decode`` takes them.

        Raises:
            InputError: another number of sequences, or more tokens than the ``capacity_tokens`` that was given.
        """
        total = int(np.sum(lengths))
        if len(lengths) != self._shape[0] or (self._pad and total > self.capacity_tokens):
            raise InputError(f"the plan is for {self._shape[0]} sequences of at most {self.capacity_tokens} tokens "
                             f"together, got {len(lengths)} of {total}; give plan_decode a larger capacity_tokens")
        new = self._cut(lengths, block_table, "cpu")
        if not self._pad:
            self.split = replace(new, items=new.items.to(self.split.items.device),
                                 cuts=new.cuts.to(self.split.cuts.device))
            if new.num_parts > len(self.workspace.out):
                self.workspace = make_workspace(new.num_parts, *self._shape[1:], self.workspace.out.device)
            return
        self.split.items.copy_(new.items, non_blocking=True)
        self.split.cuts.copy_(new.cuts, non_blocking=True)

    def decode(self, q: torch.Tensor, cache: Cache, block_table: torch.Tensor, lengths: torch.Tensor, mask: Mask,
               out: torch.Tensor) -> None:
        """Launch on the current stream; arguments as for ``dispatch.paged_decode``."""
        tensors = q, cache.k, cache.v, block_table, lengths, out, *([] if mask.sinks is None else [mask.sinks])
        key = (cache.layout, mask.window, mask.softcap,
               *((x.shape, x.stride(), x.dtype, x.device, x.data_ptr() % 16 == 0) for x in tensors))
        kept = None if INTERPRET else self.kept.setdefault(key, {})
        if self.shared:
            if not kept:
                check_decode(q, cache, block_table, lengths, mask, out)
            self.shared.note_capture()
            if self.shared.launches:
                attend_shared(q, cache, block_table, mask, self.shared, *self.workspace)
        decode(q, cache, block_table, lengths, self.split, mask=mask, out=out, workspace=self.workspace, kept=kept)
