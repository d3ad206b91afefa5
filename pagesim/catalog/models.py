"""What a model stores for each token, and what it weighs."""

from dataclasses import dataclass, replace
from fractions import Fraction

from pagesim.catalog.lookup import find
from pagesim.errors import InputError

_COMPUTED_IN = {"fp32", "bf16", "fp16"}
_DTYPES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "int4": 0.5, "mxfp4": 0.53125}
_SPELLINGS = {"float32": "fp32", "float": "fp32", "bfloat16": "bf16", "float16": "fp16", "half": "fp16",
              "fp8_e4m3": "fp8", "fp8_e5m2": "fp8"}
KV_CACHE_DTYPES = ("auto", "bf16", "fp16", "fp8")
WEIGHT_DTYPES = ("auto", "fp32", "bf16", "fp16", "fp8", "int8", "int4")


@dataclass(frozen=True)
class Model:
    """The shape of a model, whole: nothing here is per shard.

    Attributes:
        name: as in the catalogue, or the path of a config.json.
        layers, heads: attention layers, and query heads in each.
        kv_heads, head_dim: K and V heads in each layer and their width; None with MLA.
        kv_lora_rank, qk_rope_head_dim: the latent that MLA stores instead; None without it.
        window: tokens that some layers keep, the rest being dropped; None where every layer keeps all.
        params, active_params: all weights, and those that compute one token; None where unknown.
        weights: dtype of the weights as published.
        weight_bytes: size of the published weights where params and dtype do not tell it.
        max_model_len: longest sequence the model is made for, in tokens; None where unknown.
        quantization: maker of a quantized checkpoint, whose weights' size only ``weight_bytes`` tells; None otherwise.
        kv_cache_dtype: what the checkpoint wants its cache to be, fp8; auto where it says nothing.
        extras: what its attention has besides a causal softmax(Q·Kᵀ/√d)·V, the window apart; sinks, ALiBi, a soft cap.
    """

    name: str
    layers: int
    heads: int
    kv_heads: int | None = None
    head_dim: int | None = None
    kv_lora_rank: int | None = None
    qk_rope_head_dim: int | None = None
    window: int | None = None
    params: int | None = None
    active_params: int | None = None
    weights: str = "bf16"
    weight_bytes: int | None = None
    max_model_len: int | None = None
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    extras: tuple[str, ...] = ()

    @property
    def is_mla(self) -> bool:
        return self.kv_lora_rank is not None

    def beyond_plain_attention(self, longest_tokens: int) -> list[str]:
        """What its attention does to sequences of up to ``longest_tokens`` that plain causal attention does not."""
        acts = self.window is not None and self.window < longest_tokens
        return [*self.extras, *([f"a window of {self.window:,} tokens in some layers"] if acts else [])]


def model(name: str) -> Model:
    """The model of the catalogue called ``name``; names and repository names, in any case.

    Raises:
        InputError: no such model.
    """
    name, entry = find("models.yaml", "model", name)
    shape = {key: value for key, value in entry.items() if key != "aliases"}
    return Model(name, **shape | {"extras": tuple(entry.get("extras", ()))})


def dtype_name(spelling: str) -> str:
    """One name for the spellings of vLLM and PyTorch: ``bfloat16`` is ``bf16``, ``fp8_e4m3`` is ``fp8``."""
    return _SPELLINGS.get(spelling, spelling)


def kv_bytes_per_token(model: Model, kv_cache_dtype: str, tensor_parallel_size: int, max_model_len: int | None) -> int:
    """Bytes of K and V of one token in all layers of one shard.

    ``2 · layers · kv_heads · head_dim · bytes`` with ``max(1, kv_heads / tensor_parallel_size)`` heads a shard; MLA:
    ``layers · (kv_lora_rank + qk_rope_head_dim) · bytes``, whole on every shard.  ``auto`` is what the checkpoint
    wants, else 2 bytes, or fp32's 4.

    Raises:
        InputError: heads that cannot be shared among the shards, or layers that keep less than ``max_model_len``
            tokens, for which this formula would charge too much.
    """
    if model.window is not None and (max_model_len is None or model.window < max_model_len):
        most = kv_bytes_per_token(replace(model, window=None), kv_cache_dtype, tensor_parallel_size, max_model_len)
        raise InputError(
            f"{model.name} has layers that keep only a window of {model.window:,} tokens, which is not modelled yet; "
            f"set max_model_len to {model.window} or less, or give the model as {{kv_bytes_per_token: N}}; N is at "
            f"most {most}, as if every layer kept all tokens")
    if model.heads % tensor_parallel_size:
        raise InputError(f"tensor_parallel_size {tensor_parallel_size} does not divide the {model.heads} attention "
                         f"heads of {model.name}")
    dtype = model.kv_cache_dtype if kv_cache_dtype == "auto" else kv_cache_dtype
    bytes_each = 4 if dtype == "auto" and model.weights == "fp32" else _DTYPES.get(dtype, 2)
    if model.is_mla:
        return model.layers * (model.kv_lora_rank + model.qk_rope_head_dim) * bytes_each
    return 2 * model.layers * kv_heads_per_shard(model, tensor_parallel_size) * model.head_dim * bytes_each


def kv_heads_per_shard(model: Model, tensor_parallel_size: int) -> int:
    """KV heads of one shard; with more shards than heads each keeps a copy of one.

    Raises:
        InputError: the heads cannot be shared among the shards.
    """
    heads, shards = model.kv_heads, tensor_parallel_size
    if max(heads, shards) % min(heads, shards):
        raise InputError(
            f"tensor_parallel_size {shards} and the {heads} KV heads of {model.name} do not divide one another")
    return max(1, heads // shards)


def weight_bytes(model: Model, tensor_parallel_size: int) -> int:
    """Bytes of the weights on one shard: ``params · dtype bytes / tensor_parallel_size``.

    Raises:
        InputError: the number of parameters, or the size of their dtype, is not known.
    """
    if model.weight_bytes is not None:
        return model.weight_bytes // tensor_parallel_size
    if model.quantization is not None:
        raise InputError(f"the size of {model.name}'s {model.quantization} weights is not known; put its "
                         "model.safetensors.index.json beside it, or give memory.weights, such as weights: 15GiB (on "
                         "one GPU)")
    if model.params is None or model.weights not in _DTYPES:
        raise InputError(f"the size of {model.name}'s weights is not known; give memory.weights, such as weights: "
                         "15GiB (on one GPU)")
    return int(model.params * _DTYPES[model.weights]) // tensor_parallel_size


def served_in(model: Model, dtype: str) -> Model:
    """The model with ``dtype`` for what it computes in, as an engine serves it.

    ``auto`` is the published dtype, fp32 in 16 bits.  Weights that are stored narrower stay as they are unless another
    narrow dtype is asked for; the cache of such a model has the dtype that it computes in.
    """
    if dtype == "auto":
        dtype = "bf16" if model.weights == "fp32" else model.weights
    if dtype == model.weights:
        return model
    if dtype in _COMPUTED_IN and (model.quantization or model.weights not in _COMPUTED_IN):
        return replace(model, kv_cache_dtype=dtype) if model.kv_cache_dtype == "auto" else model
    num_bytes = None
    if model.weight_bytes is not None and model.weights in _COMPUTED_IN and model.quantization is None:
        num_bytes = int(model.weight_bytes * Fraction(_DTYPES[dtype]) / _DTYPES[model.weights])
    return replace(model, weights=dtype, weight_bytes=num_bytes, quantization=None)


def flops_per_token(model: Model, tensor_parallel_size: int) -> float:
    """Floating-point operations of one shard for one token, attention apart: ``2 · params`` (those active for a token).

    Raises:
        InputError: the number of parameters is not known.
    """
    params = model.active_params or model.params
    if params is None:
        raise InputError(f"the number of parameters of {model.name} is not known, and the roofline needs it; use "
                         "durations: {kind: linear, ...}")
    return 2 * params / tensor_parallel_size


def flops_per_context_token(model: Model, tensor_parallel_size: int) -> float:
    """Operations of one shard for one token of context: ``4 · layers · heads · head_dim``.

    MLA's heads read the latent itself: ``kv_lora_rank + qk_rope_head_dim`` wide for the scores, ``kv_lora_rank`` for
    the values.
    """
    width = model.kv_lora_rank + model.qk_rope_head_dim / 2 if model.is_mla else model.head_dim
    return 4 * model.layers * model.heads * width / tensor_parallel_size
