"""The paged KV cache: K and V as two tensors of blocks, in one of two layouts, with strides that the owner chose."""

from typing import NamedTuple

import torch

from pagesim.errors import InputError

LAYOUTS = ("NHD", "HND")


class Geometry(NamedTuple):
    """Sizes of a cache and its strides in elements; the last dimension is contiguous.

    NHD is ``(num_blocks, block_size, num_kv_heads, head_dim)``, HND has heads before tokens:
    ``(num_blocks, num_kv_heads, block_size, head_dim)``.
    """

    num_blocks: int
    block_size: int
    num_kv_heads: int
    head_dim: int
    block_stride: int
    token_stride: int
    head_stride: int


def geometry(cache: torch.Tensor, layout: str) -> Geometry:
    """Sizes and strides of K or V, whatever the order of its dimensions.

    Raises:
        InputError: an unknown layout, or not four dimensions of which the last is contiguous.
    """
    if layout not in LAYOUTS:
        raise InputError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
    if cache.dim() != 4 or cache.stride(3) != 1:
        raise InputError("a cache must have 4 dimensions, the last contiguous, "
                         f"got shape {tuple(cache.shape)} strides {cache.stride()}")
    blocks, tokens, heads, dim = cache.shape
    block_stride, token_stride, head_stride, _ = cache.stride()
    if layout == "HND":
        tokens, heads, token_stride, head_stride = heads, tokens, head_stride, token_stride
    return Geometry(blocks, tokens, heads, dim, block_stride, token_stride, head_stride)


def poisoned_pool(num_blocks: int, block_size: int, num_kv_heads: int, head_dim: int, *, layout: str,
                  dtype: torch.dtype, device: str) -> torch.Tensor:
    """A cache in which every slot is NaN: whoever reads a slot that nobody wrote shows it in the output."""
    inner = (block_size, num_kv_heads) if layout == "NHD" else (num_kv_heads, block_size)
    pool = torch.empty((num_blocks, *inner, head_dim), dtype=dtype, device=device)
    if dtype.itemsize == 1:
        pool.view(torch.uint8).fill_(0x7F)  # e4m3's NaN; fill_(nan) is not implemented for every 8-bit type
    else:
        pool.fill_(float("nan"))
    return pool
