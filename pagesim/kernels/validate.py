"""What a kernel call must satisfy, checked on the host: a wrong id would read foreign memory and say nothing."""

import numpy as np
import torch

from pagesim.errors import InputError
from pagesim.kernels.cache import Cache, Geometry, describe
from pagesim.kernels.mask import Mask

QUERY_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
CACHE_8BIT = torch.float8_e4m3fn
MAX_HEAD_DIM = 256


def check_queries(q: torch.Tensor, cache: Cache, mask: Mask, out: torch.Tensor | None) -> Geometry:
    """The queries' last two dimensions are heads and head_dim that fit the cache; ``out`` is like ``q``."""
    if q.dtype not in QUERY_DTYPES or not q.is_contiguous():
        raise InputError(f"q must be contiguous and one of {', '.join(map(str, QUERY_DTYPES))}, got {describe(q)}")
    check_dtype(cache, q.dtype)
    pool = cache.geometry
    if q.device != cache.k.device:
        raise InputError(f"q is on {q.device} and the cache on {cache.k.device}")
    num_q_heads, head_dim = q.shape[-2:]
    if head_dim != pool.head_dim or not 1 <= head_dim <= MAX_HEAD_DIM:
        raise InputError(f"head_dim of q and cache must be equal and at most {MAX_HEAD_DIM}, "
                         f"got {head_dim} and {pool.head_dim}")
    if pool.num_kv_heads < 1 or num_q_heads % pool.num_kv_heads or num_q_heads == 0:
        raise InputError(f"{num_q_heads} query heads cannot be shared evenly by {pool.num_kv_heads} KV heads")
    if out is not None and not (out.shape == q.shape and out.dtype == q.dtype and out.device == q.device
                                and out.is_contiguous()):
        raise InputError(f"out must be like q and contiguous, got {describe(out)} for {describe(q)}")
    if mask.sinks is not None and (len(mask.sinks) != num_q_heads or mask.sinks.device != q.device):
        raise InputError(f"sinks must be {num_q_heads}, one for each query head, on {q.device}, "
                         f"got {describe(mask.sinks)}")
    return pool


def check_dtype(cache: Cache, dtype: torch.dtype) -> None:
    if cache.k.dtype not in (dtype, CACHE_8BIT):
        raise InputError(f"the cache must be {dtype} or {CACHE_8BIT}, got {cache.k.dtype}")


def check_decode(q: torch.Tensor, cache: Cache, block_table: torch.Tensor, lengths: torch.Tensor, mask: Mask,
                 out: torch.Tensor | None) -> None:
    """Everything about a decode call that can be seen without waiting for the GPU.

    Tensors on the CPU are looked into as well; for those on a GPU the caller checks its host copy (``check_table``).
    """
    if q.dim() != 4:
        raise InputError(f"q must have shape (num_seqs, q_len, num_q_heads, head_dim), got {tuple(q.shape)}")
    pool = check_queries(q, cache, mask, out)
    check_metadata(block_table, lengths, q.shape[0], q.device)
    if q.device.type == "cpu":
        first_visible = None if mask.window is None else lengths.numpy() - q.shape[1] - mask.window
        check_table(block_table.numpy(), lengths.numpy(), pool.block_size, pool.num_blocks, shared=True,
                    first_visible=first_visible)


def check_prefill(q: torch.Tensor, cache: Cache, block_table: torch.Tensor, lengths: torch.Tensor,
                  first_query: torch.Tensor, max_q_len: int, mask: Mask, out: torch.Tensor | None) -> None:
    """The same of a prefill call."""
    if q.dim() != 3:
        raise InputError(f"q must have shape (num_queries, num_q_heads, head_dim), got {tuple(q.shape)}")
    pool = check_queries(q, cache, mask, out)
    check_metadata(block_table, lengths, lengths.shape[0], q.device)
    if (first_query.dtype != torch.int32 or first_query.shape != (len(lengths) + 1,) or not first_query.is_contiguous()
            or first_query.device != q.device):
        raise InputError(f"first_query must be contiguous int32 of shape ({len(lengths) + 1},) on {q.device}, "
                         f"got {describe(first_query)}")
    if q.device.type == "cpu":
        q_lens = np.diff(first_query.numpy())
        if first_query[0] != 0 or first_query[-1] != len(q) or (q_lens < 0).any() or (q_lens > max_q_len).any():
            raise InputError(f"first_query must rise from 0 to {len(q)} by at most max_q_len = {max_q_len}, "
                             f"got {first_query.tolist()}")
        if (q_lens > lengths.numpy()).any():
            seq = int(np.argmax(q_lens > lengths.numpy()))
            raise InputError(f"sequence {seq} has {q_lens[seq]} queries and only {int(lengths[seq])} tokens; "
                             "its queries count among them")
        first_visible = None if mask.window is None else lengths.numpy() - q_lens - mask.window
        check_table(block_table.numpy(), lengths.numpy(), pool.block_size, pool.num_blocks, shared=True,
                    first_visible=first_visible)


def check_metadata(block_table: torch.Tensor, lengths: torch.Tensor, num_seqs: int, device: torch.device) -> None:
    if (block_table.dtype != torch.int32 or block_table.dim() != 2
            or (block_table.numel() and block_table.stride(1) != 1)):
        raise InputError("block_table must be int32 of shape (num_seqs, max_blocks) with contiguous rows, "
                         f"got {describe(block_table)}")
    if lengths.dtype != torch.int32 or lengths.dim() != 1 or not lengths.is_contiguous():
        raise InputError(f"lengths must be contiguous int32 of shape (num_seqs,), got {describe(lengths)}")
    if block_table.shape[0] != num_seqs or lengths.shape[0] != num_seqs:  # len() of a tensor takes microseconds
        raise InputError(f"q has {num_seqs} sequences, block_table {len(block_table)} and lengths {len(lengths)}")
    if block_table.device != device or lengths.device != device:
        raise InputError(f"q is on {device}, block_table on {block_table.device} and lengths on {lengths.device}")


def check_table(block_table: np.ndarray, lengths: np.ndarray, block_size: int, num_blocks: int, *,
                shared: bool = False, first_visible: np.ndarray | None = None) -> None:
    """Look at every entry that a kernel would use.

    Args:
        block_table: shape (num_seqs, max_blocks); what lies behind a sequence's last block may be anything.
        lengths: visible tokens, shape (num_seqs,).
        shared: a block may stand in several rows.
        first_visible: entries wholly before this token are not used (sliding window), shape (num_seqs,); None: all are.

    Raises:
        InputError: a row too short for its length, an id outside the pool, or a block used twice, with sequence and
            entry.
    """
    max_blocks = block_table.shape[1]
    needed = -(-lengths.astype(np.int64) // block_size)
    wrong = np.flatnonzero((lengths < 0) | (needed > max_blocks))
    if len(wrong):
        seq = int(wrong[0])
        raise InputError(f"sequence {seq} has {int(lengths[seq])} tokens; a row of {max_blocks} table entries of "
                         f"{block_size} slots holds 0 to {max_blocks * block_size}")
    columns = np.arange(max_blocks)[None, :]
    used = columns < needed[:, None]
    if first_visible is not None:
        used &= columns >= (np.maximum(first_visible, 0) // block_size)[:, None]
    wrong = np.argwhere(used & ((block_table < 0) | (block_table >= num_blocks)))
    if len(wrong):
        seq, entry = wrong[0]
        raise InputError(f"sequence {seq} entry {entry} is block {block_table[seq, entry]}, "
                         f"outside the pool of {num_blocks} blocks")
    rows, entries = np.nonzero(used)
    keys = block_table[rows, entries].astype(np.int64) + (rows * num_blocks if shared else 0)
    order = np.argsort(keys, kind="stable")
    twice = np.flatnonzero(np.diff(keys[order]) == 0)
    if len(twice):
        a, b = order[twice[0]], order[twice[0] + 1]
        raise InputError(f"block {block_table[rows[a], entries[a]]} is used twice: "
                         f"by sequence {rows[a]} entry {entries[a]} and by sequence {rows[b]} entry {entries[b]}")

