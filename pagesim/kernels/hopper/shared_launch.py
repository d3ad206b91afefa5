"""The host's side of the Hopper kernel of shared tokens: its shape, its descriptors, its launch."""

import math
from dataclasses import dataclass

import torch
from triton.experimental.gluon import language as gl

from pagesim.kernels.cache import Cache
from pagesim.kernels.general.attend import LOG2E
from pagesim.kernels.hopper.prefill import HALF, ROWS, TILE
from pagesim.kernels.hopper.prefill_launch import NUM_WARPS, REGISTERS, descriptor
from pagesim.kernels.hopper.shared import attend_shared as kernel
from pagesim.kernels.launch import launch
from pagesim.kernels.mask import Mask
from pagesim.kernels.shared_plan import Places, SharedPlan


@dataclass(frozen=True)
class Shape:
    """What the kernel is compiled for, each value a constexpr, as kernels pass them on.

    Attributes:
        GROUP: query heads of a KV head.
        BOX: tokens that one TMA instruction fetches: the most that divide a block and a tile.
        HEADS, HEAD_GROUPS, PART_ROWS, HEAD_ROWS, QUERY_ROWS: as of ``Places``.
    """

    Q_LEN: gl.constexpr
    GROUP: gl.constexpr
    NUM_KV_HEADS: gl.constexpr
    HEAD_DIM: gl.constexpr
    BLOCK_SIZE: gl.constexpr
    BOX: gl.constexpr
    HEADS: gl.constexpr
    HEAD_GROUPS: gl.constexpr
    PART_ROWS: gl.constexpr
    HEAD_ROWS: gl.constexpr
    QUERY_ROWS: gl.constexpr


def make_plan(q: torch.Tensor, cache: Cache, places: Places, *, beside_decode: bool) -> SharedPlan:
    return SharedPlan(q, cache, places, least_rows=ROWS.value, most_rows=ROWS.value, beside_decode=beside_decode)


def attend_shared(q: torch.Tensor, cache: Cache, block_table: torch.Tensor, mask: Mask, plan: SharedPlan,
                  partial: torch.Tensor, log_sum: torch.Tensor) -> None:
    """Write the partial results of what ``plan`` has found; arguments as for ``general.shared.attend_shared``."""
    pool, places = cache.geometry, plan.places
    key = (q.shape, q.dtype, cache.layout, cache.k.data_ptr(), cache.v.data_ptr(), cache.k.shape, cache.k.stride(),
           *(x.data_ptr() % 16 == 0 for x in (q, block_table)))
    known = plan.kept.get(key)
    if known is None:
        values = {"Q_LEN": q.shape[1], "GROUP": q.shape[2] // pool.num_kv_heads, "NUM_KV_HEADS": pool.num_kv_heads,
                  "HEAD_DIM": pool.head_dim, "BLOCK_SIZE": pool.block_size,
                  "BOX": math.gcd(pool.block_size, TILE.value), "HEADS": places.heads,
                  "HEAD_GROUPS": places.head_groups, "PART_ROWS": places.part_rows, "HEAD_ROWS": places.head_rows,
                  "QUERY_ROWS": places.query_rows}
        shape = Shape(**{name: gl.constexpr(value) for name, value in values.items()})
        sizes = [pool.num_blocks, pool.num_kv_heads, pool.block_size, pool.head_dim]
        strides = [pool.block_stride, pool.head_stride, pool.token_stride, 1]
        box = [1, 1, shape.BOX.value, HALF.value]
        known = plan.kept[key] = (descriptor(cache.k, sizes, strides, box), descriptor(cache.v, sizes, strides, box),
                                  shape, {})
    k, v, shape, kept = known
    header, first_parts, _, members, items = plan.tensors
    arguments = (q, k, v, block_table, header, first_parts, members, items, partial, log_sum,
                 mask.scale_of(pool.head_dim) * LOG2E.value, block_table.stride(0), shape)
    launch(kernel, plan.num_programs, arguments, {"num_warps": NUM_WARPS}, kept, maxnreg=REGISTERS, launch_pdl=True)
