"""The host's side of the Hopper prefill kernel: its shape, its descriptors, its launch."""

import math
from dataclasses import dataclass
from functools import cache

import torch
import triton
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from pagesim.kernels.cache import Cache, Geometry
from pagesim.kernels.general.attend import LOG2E
from pagesim.kernels.general.split import num_sms
from pagesim.kernels.hopper.prefill import HALF, ROWS, TILE, M
from pagesim.kernels.hopper.prefill import prefill as prefill_kernel
from pagesim.kernels.launch import Kept, launch
from pagesim.kernels.mask import CAUSAL
from pagesim.kernels.validate import check_prefill

NUM_WARPS = 4  # of a consumer
REGISTERS = 168  # of a thread at launch, where the SM is full: a consumer's then takes 232, a producer's 40

_kept: dict[tuple, Kept] = {}


@dataclass(frozen=True)
class Shape:
    """What the kernel is compiled for, each value a constexpr, as kernels pass them on.

    Attributes:
        NUM_Q_HEADS: query heads of the model; GROUP of them share a KV head.
        BLOCK_SIZE: tokens of a block.
        BOX: tokens that one TMA instruction fetches: the most that divide a block and a tile.
    """

    NUM_Q_HEADS: gl.constexpr
    GROUP: gl.constexpr
    HEAD_DIM: gl.constexpr
    BLOCK_SIZE: gl.constexpr
    BOX: gl.constexpr


@cache
def make_shape(num_q_heads: int, num_kv_heads: int, head_dim: int, block_size: int) -> Shape:
    values = {"NUM_Q_HEADS": num_q_heads, "GROUP": num_q_heads // num_kv_heads, "HEAD_DIM": head_dim,
              "BLOCK_SIZE": block_size, "BOX": math.gcd(block_size, TILE.value)}
    return Shape(**{name: gl.constexpr(value) for name, value in values.items()})


def prefill(q: torch.Tensor, cache: Cache, block_table: torch.Tensor, lengths: torch.Tensor,
            first_query: torch.Tensor, max_q_len: int, *, scale: float, out: torch.Tensor) -> None:
    """Launch on the current stream; arguments as for ``general.prefill.prefill``."""
    check_prefill(q, cache, block_table, lengths, first_query, max_q_len, CAUSAL, out)
    pool = cache.geometry
    num_queries, num_q_heads, head_dim = q.shape
    shape = make_shape(num_q_heads, pool.num_kv_heads, head_dim, pool.block_size)
    counter = torch.zeros(1, dtype=torch.int32, device=q.device)  # a call's own: calls may run at the same time
    arguments = (descriptor(q, q.shape, q.stride(), [M.value, 1, HALF.value]), _blocks(cache.k, pool, shape),
                 _blocks(cache.v, pool, shape), block_table, lengths, first_query, counter, out, lengths.shape[0],
                 block_table.stride(0), scale * LOG2E.value, shape)
    items = (triton.cdiv(num_queries, ROWS.value) + lengths.shape[0]) * num_q_heads  # at most
    key = (num_q_heads, pool[1:4], q.dtype, q.device,
           *(tensor.data_ptr() % 16 == 0 for tensor in (block_table, lengths, first_query, out)))
    launch(prefill_kernel, min(items, num_sms(q.device)), arguments, {"num_warps": NUM_WARPS},
           _kept.setdefault(key, {}), maxnreg=REGISTERS)


def _blocks(values: torch.Tensor, pool: Geometry, shape: Shape) -> TensorDescriptor:
    """Boxes of BOX tokens and HALF columns of a head, in a pool of any strides."""
    return descriptor(values, [pool.num_blocks, pool.num_kv_heads, pool.block_size, pool.head_dim],
                       [pool.block_stride, pool.head_stride, pool.token_stride, 1], [1, 1, shape.BOX.value, HALF.value])


def descriptor(tensor: torch.Tensor, sizes: list[int], strides: list[int], box: list[int]) -> TensorDescriptor:
    swizzled = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=len(box))
    return TensorDescriptor(tensor, list(sizes), list(strides), box, swizzled)
