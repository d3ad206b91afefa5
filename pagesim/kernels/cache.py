"""The paged KV cache: K and V as two tensors of blocks, in one of two layouts, with strides that the owner chose."""

from dataclasses import dataclass
from functools import cached_property
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


@dataclass(frozen=True, eq=False)
class Cache:
    """One layer's keys and values.

    Attributes:
        k, v: tensors of blocks in ``layout`` (see ``Geometry``), of equal shape, strides, dtype and device.
        layout: NHD or HND.
        scales: of K and of V: a cached value times its scale is the value meant.  1 unless the cache is fp8.

    Raises:
        InputError: an unknown layout, tensors of other than four dimensions of which the last is contiguous, tensors
            that do not agree, or a scale that is no number above 0.
    """

    k: torch.Tensor
    v: torch.Tensor
    layout: str = "NHD"
    scales: tuple[float, float] = (1.0, 1.0)

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise InputError(f"layout must be one of {', '.join(LAYOUTS)}, got {self.layout!r}")
        if self.k.dim() != 4 or self.k.stride(3) != 1:
            raise InputError("a cache must have 4 dimensions, the last contiguous, "
                             f"got shape {tuple(self.k.shape)} strides {self.k.stride()}")
        if (self.k.shape, self.k.stride(), self.k.dtype, self.k.device) != (
                self.v.shape, self.v.stride(), self.v.dtype, self.v.device):
            raise InputError("k and v of a cache must agree in shape, strides, dtype and device, got "
                             f"{describe(self.k)} and {describe(self.v)}")
        for name, scale in zip(("k", "v"), self.scales, strict=True):
            if not 0 < scale < float("inf"):
                raise InputError(f"the scale of {name} must be a number above 0, got {scale}")

    @cached_property
    def geometry(self) -> Geometry:
        """Sizes and strides, whatever the order of the dimensions."""
        blocks, tokens, heads, dim = self.k.shape
        block_stride, token_stride, head_stride, _ = self.k.stride()
        if self.layout == "HND":
            tokens, heads, token_stride, head_stride = heads, tokens, head_stride, token_stride
        return Geometry(blocks, tokens, heads, dim, block_stride, token_stride, head_stride)


def describe(tensor: torch.Tensor) -> str:
    """For messages."""
    return f"{tensor.dtype} {tuple(tensor.shape)} strides {tensor.stride()} on {tensor.device}"


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
