"""What the cache should hold: random keys and values of every sequence, in the order of its tokens."""

from dataclasses import dataclass

import torch

from pagesim.errors import InputError
from pagesim.kernels.cache import Cache

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True)
class Model:
    """The attention of one shard that is tried.

    Attributes:
        layers: caches of their own that share the block tables.
        dtype: of queries, new keys and values, and outputs.
        cache_dtype: of the pool: ``dtype``, or fp8 e4m3.
        latent_dim: of an MLA model, whose heads share one cached vector of head_dim values, a latent of so many and a
            rope part; None where K and V are cached.
        cache_scale: a cached value times this is the value meant; 1 unless the cache is fp8.

    Raises:
        InputError: an MLA model with more than one KV head, or without a rope part.
    """

    num_q_heads: int
    num_kv_heads: int
    head_dim: int
    layers: int
    dtype: torch.dtype
    cache_dtype: torch.dtype
    layout: str = "NHD"
    latent_dim: int | None = None

    def __post_init__(self) -> None:
        if self.latent_dim is not None and not (self.num_kv_heads == 1 and 0 < self.latent_dim < self.head_dim):
            raise InputError(f"MLA caches one vector a token, longer than its latent of {self.latent_dim}; "
                             f"got {self.num_kv_heads} of {self.head_dim}")

    @property
    def cache_scale(self) -> float:
        return 1.0 if self.cache_dtype == self.dtype else 2.0**-5  # random values of size 1 become e4m3 of size 32

    def cache(self, k: torch.Tensor, v: torch.Tensor) -> Cache:
        return Cache(k, v, self.layout, (self.cache_scale, self.cache_scale))


class Contents:
    """Keys and values of one growing sequence, shape (layers, 2, num_tokens, num_kv_heads, head_dim)."""

    def __init__(self, model: Model, device: torch.device) -> None:
        self._model = model
        self._values = torch.empty((model.layers, 2, 16, model.num_kv_heads, model.head_dim), dtype=model.dtype,
                                   device=device)
        self.length = 0

    def append(self, new: torch.Tensor) -> None:
        """Add tokens, shape (layers, 2, num_new, num_kv_heads, head_dim)."""
        end = self.length + new.shape[2]
        if end > self._values.shape[2]:
            shape = list(self._values.shape)
            shape[2] = max(end, 2 * shape[2])
            values = self._values.new_empty(shape)
            values[:, :, :self.length] = self._values[:, :, :self.length]
            self._values = values
        self._values[:, :, self.length:end] = new
        self.length = end

    def meant(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values as the cache can represent them, float64, shape (length, num_kv_heads, head_dim) each.

        With MLA the values are the keys' latent part.
        """
        values, scale = self._values[layer, :, :self.length], self._model.cache_scale
        if self._model.cache_dtype != self._model.dtype:
            values = (values.float() / scale).clamp(-448, 448).to(self._model.cache_dtype).double() * scale
        k, v = values.double()
        return (k, v) if self._model.latent_dim is None else (k, k[..., :self._model.latent_dim])
