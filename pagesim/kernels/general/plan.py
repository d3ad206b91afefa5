"""What the general decode kernel needs of a batch: items, cuts, and room for partial results."""

import numpy as np
import torch

from pagesim.errors import InputError
from pagesim.kernels.general.decode import make_workspace
from pagesim.kernels.general.split import Split, item_tokens, most_items, num_sms, split
from pagesim.kernels.launch import Kept


class GeneralPlan:
    """Items, cuts and room for partial results of the general kernel, with the same use as ``HopperPlan``.

    Attributes:
        capacity_tokens: total of the lengths that an update may bring.  Given, buffers keep their addresses and are
            padded to the most items that any batch of so many tokens is cut into.
        kept: what calls compiled, by their shapes.
    """

    kernel = "general"

    def __init__(self, q: torch.Tensor, num_kv_heads: int, lengths: np.ndarray, window: int | None,
                 capacity_tokens: int | None, ctas_per_sm: int):
        self._shape, self._window = q.shape, window
        self._size = num_kv_heads, num_sms(q.device), ctas_per_sm
        self.capacity_tokens = max(int(np.sum(lengths)), capacity_tokens or 0)
        self._pad = most_items(len(lengths), self.capacity_tokens, *self._size) if capacity_tokens else 0
        self.split = self._cut(lengths, q.device)
        num_parts = self._pad or self.split.num_parts
        self.workspace = make_workspace(num_parts, *q.shape[1:], q.device)
        self.kept: dict[tuple, Kept] = {}

    def _cut(self, lengths: np.ndarray, device: torch.device | str) -> Split:
        most = item_tokens(int(np.sum(lengths)), *self._size)
        return split(lengths, most, device=device, q_len=self._shape[1], window=self._window, pad_items=self._pad,
                     pad_cuts=self._pad and len(lengths))

    def update(self, lengths: np.ndarray) -> None:
        """Plan for these visible tokens.

        Raises:
            InputError: another number of sequences, or more tokens than the ``capacity_tokens`` that was given.
        """
        total = int(np.sum(lengths))
        if len(lengths) != self._shape[0] or (self._pad and total > self.capacity_tokens):
            raise InputError(f"the plan is for {self._shape[0]} sequences of at most {self.capacity_tokens} tokens "
                             f"together, got {len(lengths)} of {total}; give plan_decode a larger capacity_tokens")
        new = self._cut(lengths, "cpu")
        if not self._pad:
            self.split = Split(new.items.to(self.split.items.device), new.cuts.to(self.split.cuts.device),
                               new.num_parts)
            if new.num_parts > len(self.workspace.out):
                self.workspace = make_workspace(new.num_parts, *self._shape[1:], self.workspace.out.device)
            return
        self.split.items.copy_(new.items, non_blocking=True)
        self.split.cuts.copy_(new.cuts, non_blocking=True)
