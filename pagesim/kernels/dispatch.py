"""Paged decode and prefill for users: one rule for each says which kernel runs, and says why.

What the tables have in common is read once (``sharing``).  The Hopper kernels take the common shapes on their GPU, the
general ones everything else::

    cache = Cache(k, v, layout="NHD")            # a layer's blocks; nothing is copied
    plan = plan_decode(q, cache, lengths, table) # once for a batch; lengths and block table on the host
    plan.update(lengths, table)                  # each step, also between replays of a captured graph
    paged_decode(q, cache, block_table, lengths_on_gpu, plan, out=out)                        # for each layer
    paged_prefill(q, cache, block_table, lengths_on_gpu, first_query, max_q_len, out=out)     # needs no plan

How a sequence is cut depends on the batch that it is in: its output is the same in every batch to rounding, not to the
last bit.  Who needs that takes ``general.decode.decode`` with a ``split`` of a fixed item length.
"""

from functools import cache as once
from typing import TYPE_CHECKING

import numpy as np
import torch
import triton

from pagesim.errors import InputError
from pagesim.kernels.cache import Cache
from pagesim.kernels.general.cache_write import write_cache
from pagesim.kernels.general.plan import GeneralPlan
from pagesim.kernels.general.prefill import prefill as general_prefill
from pagesim.kernels.general.split import num_sms
from pagesim.kernels.launch import NEW_TRITON
from pagesim.kernels.mask import CAUSAL, Mask

if TYPE_CHECKING:
    from pagesim.kernels.hopper.decode_launch import HopperPlan

__all__ = ["Cache", "Mask", "paged_decode", "paged_prefill", "plan_decode", "why_general", "why_general_prefill",
           "write_cache"]

KERNELS = ("hopper", "general")
MIN_HOPPER_TILES = 4  # tiles for each SM below which starting the ring and merging cost more than streaming saves
FEW_TILES, FEW_SEQS = 36, 8  # as many, below which, and from which on, a CTA takes one KV head: see ``takes_one_head``
MIN_HOPPER_QUERIES = 512  # below which the general prefill kernel is as fast
MIN_QUERIES_A_SEQUENCE = 80  # on average, below which too many of the 128 rows that Hopper's takes at a time are empty
SLOWER = ("the batch is small", "the sequences have few queries")  # reasons that do not keep who asks for it away

_capability = once(torch.cuda.get_device_capability)


def _why_not_hopper(q: torch.Tensor, cache: Cache, mask: Mask, head_dims: range | tuple[int, ...]) -> str | None:
    """What keeps a call from a Hopper kernel of these ``head_dims``."""
    if q.device.type != "cuda":
        return f"the device is {q.device.type}"
    capability, pool = _capability(q.device), cache.geometry
    return _first([
        (capability != (9, 0), f"compute capability is {capability[0]}.{capability[1]}, not 9.0"),
        (not NEW_TRITON, f"Triton is {triton.__version__}, older than 3.6"),
        (q.dtype not in (torch.bfloat16, torch.float16) or cache.k.dtype != q.dtype,
         f"dtypes are {q.dtype} and {cache.k.dtype}, not bf16 or fp16"),
        (pool.head_dim not in head_dims, f"head_dim is {pool.head_dim}, not {_listed(head_dims)}"),
        (mask.softcap is not None or mask.sinks is not None, "of a soft cap or sinks"),
        (cache.scales != (1.0, 1.0), "of scales"),
        (any(stride % 16 for stride in pool[4:]) or cache.k.data_ptr() % 16,
         "a stride of the pool is not a multiple of 16 elements")])


def _first(reasons: list[tuple[bool, str]]) -> str | None:
    return next((reason for holds, reason in reasons if holds), None)


def _listed(head_dims: range | tuple[int, ...]) -> str:
    if isinstance(head_dims, range):
        return f"a multiple of {head_dims.step} from {head_dims[0]} to {head_dims[-1]}"
    return " or ".join(map(str, head_dims))


def why_general(q: torch.Tensor, cache: Cache, lengths: np.ndarray, mask: Mask = CAUSAL) -> str | None:
    """The rule of decode: what keeps this batch from the Hopper kernel; None where that kernel runs."""
    reason = _why_not_hopper(q, cache, mask, range(64, 257, 16))
    if reason is not None:
        return reason
    pool = cache.geometry
    rows = q.shape[1] * (q.shape[2] // pool.num_kv_heads)
    by_four = pool.num_kv_heads % 4 == 0
    odd = f"of blocks of {pool.block_size} tokens, not a multiple of 16, with "
    return _first([(pool.block_size % 16 != 0 and not by_four, f"{odd}{pool.num_kv_heads} KV heads"),
                   (pool.block_size % 16 != 0 and pool.head_dim not in (64, 128), f"{odd}head_dim {pool.head_dim}"),
                   (pool.head_dim > 128 and not by_four,
                    f"head_dim is {pool.head_dim} and {pool.num_kv_heads} KV heads are not a multiple of 4"),
                   (rows > 16, f"{rows} query rows to a KV head are more than 16"),
                   (_num_tiles(q, cache, lengths, mask) < 2 * MIN_HOPPER_TILES * num_sms(q.device),
                    "the batch is small")])


def _num_tiles(q: torch.Tensor, cache: Cache, lengths: np.ndarray, mask: Mask) -> float:
    """Of 16 tokens that a sequence's queries see, of 4 KV heads."""
    seen = lengths if mask.window is None else np.minimum(lengths, mask.window + q.shape[1])
    return int(np.sum(-(-seen // 16))) * cache.geometry.num_kv_heads / 4


def takes_one_head(q: torch.Tensor, cache: Cache, lengths: np.ndarray, mask: Mask = CAUSAL) -> bool:
    """Whether CTAs of the Hopper kernel take a KV head each, for a batch of several sequences that is not large.

    There are more rows then, cut into fewer parts, whose merges are what small batches wait for.
    """
    pool = cache.geometry
    return (len(lengths) >= FEW_SEQS and pool.block_size % 16 == 0 and pool.head_dim <= 128
            and _num_tiles(q, cache, lengths, mask) < 2 * FEW_TILES * num_sms(q.device))


def why_general_prefill(q: torch.Tensor, cache: Cache, num_seqs: int, mask: Mask = CAUSAL) -> str | None:
    """The rule of prefill, likewise."""
    reason = _why_not_hopper(q, cache, mask, (64, 128))
    if reason is not None:
        return reason
    block_size = cache.geometry.block_size
    return _first([(mask.window is not None, "of a window"),
                   (block_size % 16 != 0, f"blocks of {block_size} tokens are not a multiple of 16"),
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


def plan_decode(q: torch.Tensor, cache: Cache, lengths: np.ndarray, block_table: np.ndarray | None = None, *,
                mask: Mask = CAUSAL, kernel: str | None = None,
                capacity_tokens: int | None = None) -> "GeneralPlan | HopperPlan":
    """Choose a kernel by ``why_general`` and plan for it.

    Args:
        q, cache, mask: like those of the calls.
        lengths: visible tokens, the queries' own included, int64 on the host.
        block_table: the host's copy, int32 (num_seqs, max_blocks): leading blocks that sequences have in common are
            then read once, where that pays and there is no window.  Without it nothing is looked for, now or later.
        kernel: take this one, whatever the rule says.
        capacity_tokens: total tokens that later updates may reach, where a captured graph must keep its buffers.

    Raises:
        InputError: an unknown kernel, one that does not take this shape, or a table without a row for each length.
    """
    lengths = np.asarray(lengths, np.int64)
    pool = cache.geometry
    if _choose(kernel, why_general(q, cache, lengths, mask)) == "general":
        return GeneralPlan(q, cache, lengths, mask.window, block_table, capacity_tokens)
    from pagesim.kernels.hopper import decode_launch  # Gluon is imported only where it can run

    shape = decode_launch.make_shape(q.shape[1], q.shape[2], pool.num_kv_heads, pool.head_dim, pool.block_size,
                                     mask.window, one_head=takes_one_head(q, cache, lengths, mask))
    return decode_launch.HopperPlan(shape, q, cache, lengths, block_table, num_sms(q.device))


def paged_decode(q: torch.Tensor, cache: Cache, block_table: torch.Tensor, lengths: torch.Tensor,
                 plan: "GeneralPlan | HopperPlan", *, mask: Mask = CAUSAL,
                 out: torch.Tensor | None = None) -> torch.Tensor:
    """Attention of each sequence's last ``q_len`` tokens over its paged cache; arguments as for ``general.decode``.

    ``plan`` must have been made or updated from the same lengths and tables, and made for a mask of the same window.
    """
    out = torch.empty_like(q) if out is None else out
    plan.decode(q, cache, block_table, lengths, mask, out)
    return out


def paged_prefill(q: torch.Tensor, cache: Cache, block_table: torch.Tensor, lengths: torch.Tensor,
                  first_query: torch.Tensor, max_q_len: int, *, mask: Mask = CAUSAL, out: torch.Tensor | None = None,
                  kernel: str | None = None) -> torch.Tensor:
    """Causal attention of each sequence's last tokens; arguments as for ``general.prefill``.

    Args:
        kernel: take this one, whatever ``why_general_prefill`` says.

    Raises:
        InputError: an unknown kernel, one that does not take this call, or arguments that do not fit together.
    """
    arguments = q, cache, block_table, lengths, first_query, max_q_len
    if _choose(kernel, why_general_prefill(q, cache, lengths.shape[0], mask)) == "general":
        return general_prefill(*arguments, mask=mask, out=out)
    from pagesim.kernels.hopper import prefill_launch

    out = torch.empty_like(q) if out is None else out
    prefill_launch.prefill(*arguments, scale=mask.scale_of(q.shape[-1]), out=out)
    return out
