"""Scatter new keys and values into the paged cache through a slot mapping."""

import torch
import triton
import triton.language as tl

from pagesim.errors import InputError
from pagesim.kernels.cache import Cache
from pagesim.kernels.general.attend import INTERPRET, round_to
from pagesim.kernels.validate import CACHE_8BIT, check_dtype

ELEMENTS = 65_536 if INTERPRET else 4096  # of K, and as many of V, that one program moves


def write_cache(k: torch.Tensor, v: torch.Tensor, cache: Cache, slots: torch.Tensor) -> None:
    """Store token i in slot ``slots[i] % block_size`` of block ``slots[i] // block_size``.

    Args:
        k, v: (num_tokens, num_kv_heads, head_dim), contiguous; any dtype for an fp8 cache, else the cache's.
        cache: changed in place; what is stored is value / scale, and fp8 saturates at ±448.
        slots: int64 (num_tokens,), all different; a negative slot (padding) is skipped.

    Raises:
        InputError: arguments that do not fit together; on the CPU also a slot outside the pool.
    """
    check_dtype(cache, k.dtype)
    pool = cache.geometry
    for name, new in (("k", k), ("v", v)):
        if new.shape != (len(slots), pool.num_kv_heads,
                         pool.head_dim) or not new.is_contiguous() or new.dtype != k.dtype:
            raise InputError(f"{name} must be contiguous of shape {(len(slots), pool.num_kv_heads, pool.head_dim)}, "
                             f"got {new.dtype} {tuple(new.shape)}")
    if slots.dtype != torch.int64 or slots.dim() != 1 or not slots.is_contiguous():
        raise InputError(f"slots must be contiguous int64 of one dimension, got {slots.dtype} {tuple(slots.shape)}")
    if not k.device == v.device == cache.k.device == slots.device:
        raise InputError("k, v, cache and slots must be on one device, "
                         f"got {k.device}, {v.device}, {cache.k.device}, {slots.device}")
    if slots.device.type == "cpu" and len(slots) and int(slots.max()) >= pool.num_blocks * pool.block_size:
        token = int(slots.argmax())
        raise InputError(f"token {token} goes to slot {int(slots[token])}, "
                         f"outside the pool of {pool.num_blocks * pool.block_size} slots")
    if not len(slots):
        return
    columns = triton.next_power_of_2(pool.num_kv_heads * pool.head_dim)
    tokens = max(1, ELEMENTS // columns)
    _write[(triton.cdiv(len(slots), tokens),)](
        k, v, cache.k, cache.v, slots, len(slots), 1.0 / cache.scales[0], 1.0 / cache.scales[1],
        pool.block_stride, pool.token_stride, pool.head_stride,
        NUM_KV_HEADS=pool.num_kv_heads, HEAD_DIM=pool.head_dim, BLOCK_SIZE=pool.block_size, COLUMNS=columns,
        TOKENS=tokens, FP8=cache.k.dtype == CACHE_8BIT, INTERPRET=INTERPRET, num_warps=4)


@triton.jit(do_not_specialize=["num_tokens"])
def _write(k_ptr, v_ptr, k_cache_ptr, v_cache_ptr, slots_ptr, num_tokens, k_factor, v_factor,
           block_stride: tl.int64, token_stride: tl.int64, head_stride: tl.int64,
           NUM_KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, COLUMNS: tl.constexpr,
           TOKENS: tl.constexpr, FP8: tl.constexpr, INTERPRET: tl.constexpr):
    """A program moves TOKENS tokens, all heads of each side by side as COLUMNS columns."""
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    column = tl.arange(0, COLUMNS)
    slot = tl.load(slots_ptr + token, mask=token < num_tokens, other=-1)
    mask = (slot >= 0)[:, None] & (column < NUM_KV_HEADS * HEAD_DIM)[None, :]
    source = token.to(tl.int64)[:, None] * (NUM_KV_HEADS * HEAD_DIM) + column[None, :]
    place = slot // BLOCK_SIZE * block_stride + slot % BLOCK_SIZE * token_stride
    target = place[:, None] + (column // HEAD_DIM * head_stride + column % HEAD_DIM)[None, :]
    k = tl.load(k_ptr + source, mask=mask, other=0.0)
    v = tl.load(v_ptr + source, mask=mask, other=0.0)
    tl.store(k_cache_ptr + target, _stored(k, k_factor, k_cache_ptr.dtype.element_ty, FP8, INTERPRET), mask=mask)
    tl.store(v_cache_ptr + target, _stored(v, v_factor, v_cache_ptr.dtype.element_ty, FP8, INTERPRET), mask=mask)


@triton.jit
def _stored(x, factor, dtype: tl.constexpr, FP8: tl.constexpr, INTERPRET: tl.constexpr):
    x = x.to(tl.float32) * factor
    if FP8:
        x = tl.clamp(x, -448.0, 448.0, propagate_nan=tl.PropagateNan.ALL)
    return round_to(x, dtype, INTERPRET)
