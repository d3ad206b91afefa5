"""Paged decode and prefill for users: one rule for each says which kernel runs, and says why.

The Hopper kernels (``hopper``, ``hopper_prefill``) take the common shapes on their GPU, the general ones (``decode``,
``prefill``) everything else::

    plan = plan_decode(q, k_cache, lengths, layout="NHD")   # once for a batch; lengths on the host
    plan.update(lengths)                                    # each step, also between replays of a captured graph
    paged_decode(q, k_cache, v_cache, block_table, lengths_on_gpu, plan, layout="NHD", out=out)   # for each layer
    paged_prefill(q, k_cache, v_cache, block_table, lengths, first_query, max_q_len, layout="NHD", out=out)   # no plan

How a sequence is cut depends on the batch that it is in: its output is the same in every batch to rounding, not to the
last bit.  Who needs that takes ``decode.decode`` with a ``split`` of a fixed item length.
"""

from functools import cache

import numpy as np
import torch
import triton

from pagesim.errors import InputError
from pagesim.kernels import decode as general
from pagesim.kernels.attend import INTERPRET
from pagesim.kernels.launch import NEW_TRITON
from pagesim.kernels.pool import Geometry, geometry
from pagesim.kernels.prefill import prefill as general_prefill
from pagesim.kernels.split import CTAS_PER_SM, CTAS_PER_SM_8BIT, Split, item_tokens, most_items, num_sms, split
from pagesim.kernels.validate import CACHE_8BIT

KERNELS = ("hopper", "general")
MIN_HOPPER_TILES = 4  # tiles for each SM below which starting the ring and merging cost more than streaming saves
MIN_HOPPER_QUERIES = 512  # below which the general prefill kernel is as fast
MIN_QUERIES_A_SEQUENCE = 80  # on average, below which too many of the 128 rows that Hopper's takes at a time are empty
SLOWER = ("the batch is small", "the sequences have few queries")  # reasons that do not keep who asks for it away


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
        self.workspace = general.make_workspace(num_parts, *q.shape[1:], q.device)
        self.kept: dict[tuple, dict] = {}

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
                self.workspace = general.make_workspace(new.num_parts, *self._shape[1:], self.workspace.out.device)
            return
        self.split.items.copy_(new.items, non_blocking=True)
        self.split.cuts.copy_(new.cuts, non_blocking=True)


_capability = cache(torch.cuda.get_device_capability)


def _why_not_hopper(q: torch.Tensor, k_cache: torch.Tensor, pool: Geometry, *, window: int | None = None,
                    softcap: float | None = None, k_scale: float = 1.0, v_scale: float = 1.0) -> str | None:
    """What keeps a call from both Hopper kernels."""
    if q.device.type != "cuda":
        return f"the device is {q.device.type}"
    capability = _capability(q.device)
    return _first([
        (capability != (9, 0), f"compute capability is {capability[0]}.{capability[1]}, not 9.0"),
        (not NEW_TRITON, f"Triton is {triton.__version__}, older than 3.6"),
        (q.dtype not in (torch.bfloat16, torch.float16) or k_cache.dtype != q.dtype,
         f"dtypes are {q.dtype} and {k_cache.dtype}, not bf16 or fp16"),
        (pool.head_dim not in (64, 128), f"head_dim is {pool.head_dim}, not 64 or 128"),
        (window is not None or softcap is not None, "of a window or a soft cap"),
        (k_scale != 1.0 or v_scale != 1.0, "of scales"),
        (any(stride % 16 for stride in pool[4:]) or k_cache.data_ptr() % 16,
         "a stride of the pool is not a multiple of 16 elements")])


def _first(reasons: list[tuple[bool, str]]) -> str | None:
    return next((reason for holds, reason in reasons if holds), None)


def why_general(q: torch.Tensor, k_cache: torch.Tensor, lengths: np.ndarray, *, layout: str, **options) -> str | None:
    """The rule of decode: what keeps this batch from the Hopper kernel; None where that kernel runs.

    Args:
        options: window, softcap, k_scale and v_scale of the call, where it has them.
    """
    pool = geometry(k_cache, layout)
    reason = _why_not_hopper(q, k_cache, pool, **options)
    if reason is not None:
        return reason
    rows = q.shape[1] * (q.shape[2] // pool.num_kv_heads)
    tiles = int(np.sum(-(-lengths // 16))) * (pool.num_kv_heads // 4)
    return _first([(pool.num_kv_heads % 4 != 0, f"{pool.num_kv_heads} KV heads are not a multiple of 4"),
                   (rows > 16, f"{rows} query rows to a KV head are more than 16"),
                   (tiles < 2 * MIN_HOPPER_TILES * num_sms(q.device), "the batch is small")])


def why_general_prefill(q: torch.Tensor, k_cache: torch.Tensor, num_seqs: int, *, layout: str,
                        **options) -> str | None:
    """The rule of prefill, likewise."""
    pool = geometry(k_cache, layout)
    reason = _why_not_hopper(q, k_cache, pool, **options)
    if reason is not None:
        return reason
    return _first([(pool.block_size % 16 != 0, f"blocks of {pool.block_size} tokens are not a multiple of 16"),
                   (q.data_ptr() % 16 != 0, "the queries do not start at a multiple of 16 bytes"),
                   (q.shape[0] == 0, "there are no queries"),
                   (q.shape[0] < MIN_QUERIES_A_SEQUENCE * num_seqs, "the sequences have few queries"),
                   (q.shape[0] < MIN_HOPPER_QUERIES, "the batch is small")])


def _choose(kernel: str | None, reason: str | None) -> str:
    """The kernel to take, where the rule has found ``reason`` against Hopper's.

    Raises:
        InputError: an unknown kernel, or one that does not take this call.
    """
    if kernel not in (None, *KERNELS):
        raise InputError(f"kernel must be one of {', '.join(KERNELS)}, got {kernel!r}")
    if kernel == "hopper" and reason not in (None, *SLOWER):
        raise InputError(f"the Hopper kernel does not take this: {reason}")
    return kernel or ("hopper" if reason is None else "general")


def plan_decode(q: torch.Tensor, k_cache: torch.Tensor, lengths: np.ndarray, *, layout: str, window: int | None = None,
                kernel: str | None = None, capacity_tokens: int | None = None, **options):
    """Choose a kernel by ``why_general`` and plan for it.

    Args:
        q, k_cache: tensors like those of the calls.
        lengths: visible tokens, the queries' own included, int64 on the host.
        window, options: as of ``why_general``.
        kernel: take this one, whatever the rule says.
        capacity_tokens: total tokens that later updates may reach, where a captured graph must keep its buffers.

    Raises:
        InputError: an unknown kernel, or one that does not take this shape.
    """
    lengths = np.asarray(lengths, np.int64)
    kernel = _choose(kernel, why_general(q, k_cache, lengths, layout=layout, window=window, **options))
    pool = geometry(k_cache, layout)
    if kernel == "general":
        return GeneralPlan(q, pool.num_kv_heads, lengths, window, capacity_tokens,
                           CTAS_PER_SM_8BIT if k_cache.dtype == CACHE_8BIT else CTAS_PER_SM)
    from pagesim.kernels import hopper_launch  # Gluon is imported only where it can run

    shape = hopper_launch.make_shape(q.shape[1], q.shape[2], pool.num_kv_heads, pool.head_dim, pool.block_size)
    return hopper_launch.HopperPlan(shape, pool.num_kv_heads, lengths, num_sms(q.device), q.device)


def paged_decode(q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, block_table: torch.Tensor,
                 lengths: torch.Tensor, plan, *, layout: str, scale: float | None = None, window: int | None = None,
                 softcap: float | None = None, k_scale: float = 1.0, v_scale: float = 1.0,
                 out: torch.Tensor | None = None) -> torch.Tensor:
    """Attention of each sequence's last ``q_len`` tokens over its paged cache; arguments as for ``decode.decode``.

    ``plan`` must have been made or updated from the same lengths; window and softcap must be those it was made for.
    """
    out = torch.empty_like(q) if out is None else out
    if plan.kernel == "general":
        tensors = q, k_cache, v_cache, block_table, lengths, out
        key = (layout, window, softcap,
               *((x.shape, x.stride(), x.dtype, x.device, x.data_ptr() % 16 == 0) for x in tensors))
        return general.decode(q, k_cache, v_cache, block_table, lengths, plan.split, layout=layout, scale=scale,
                              window=window, softcap=softcap, k_scale=k_scale, v_scale=v_scale, out=out,
                              workspace=plan.workspace, kept=None if INTERPRET else plan.kept.setdefault(key, {}))
    from pagesim.kernels import hopper_launch

    if plan.num_seqs != len(q) or (window, softcap, k_scale, v_scale) != (None, None, 1.0, 1.0):
        raise InputError(f"the plan is for {plan.num_seqs} sequences without window, softcap and scales")
    hopper_launch.decode(q, k_cache, v_cache, block_table, lengths, plan, layout=layout,
                         scale=q.shape[-1] ** -0.5 if scale is None else scale, out=out)
    return out


def paged_prefill(q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, block_table: torch.Tensor,
                  lengths: torch.Tensor, first_query: torch.Tensor, max_q_len: int, *, layout: str,
                  scale: float | None = None, window: int | None = None, softcap: float | None = None,
                  k_scale: float = 1.0, v_scale: float = 1.0, out: torch.Tensor | None = None,
                  kernel: str | None = None) -> torch.Tensor:
    """Causal attention of each sequence's last tokens; arguments as for ``prefill.prefill``.

    Args:
        kernel: take this one, whatever ``why_general_prefill`` says.

    Raises:
        InputError: an unknown kernel, one that does not take this call, or arguments that do not fit together.
    """
    options = {"window": window, "softcap": softcap, "k_scale": k_scale, "v_scale": v_scale, "layout": layout}
    arguments = q, k_cache, v_cache, block_table, lengths, first_query, max_q_len
    if _choose(kernel, why_general_prefill(q, k_cache, lengths.shape[0], **options)) == "general":
        return general_prefill(*arguments, scale=scale, out=out, **options)
    from pagesim.kernels import hopper_prefill_launch

    out = torch.empty_like(q) if out is None else out
    hopper_prefill_launch.prefill(*arguments, layout=layout, scale=q.shape[-1] ** -0.5 if scale is None else scale,
                                  out=out)
    return out
