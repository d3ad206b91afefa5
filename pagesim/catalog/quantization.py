"""What a quantized checkpoint says of its own numbers: the width of its weights, and of the cache it was made for.

vLLM's ``--kv-cache-dtype auto`` follows the checkpoint, so a model's own dtype would be off by two.  What is not
understood is refused.
"""

from collections.abc import Iterator
from typing import NamedTuple

from pagesim.catalog.kinds import WAY_OUT
from pagesim.errors import InputError

# Makers that say nothing of the cache: it has the model's dtype.
_WEIGHTS_ONLY = {
    "awq", "awq_marlin", "auto_awq", "gptq", "gptq_marlin", "auto_gptq", "auto-round", "intel/auto-round", "inc",
    "bitsandbytes", "mxfp4", "gpt_oss_mxfp4", "fp8", "fbgemm_fp8", "fp_quant", "experts_int8", "hqq", "torchao",
    "quark", "moe_wna16"}
_MODELOPT = {"modelopt", "modelopt_fp4", "modelopt_mxfp8", "modelopt_mixed"}
_OF_THE_CACHE = ("kv_cache", "kvcache", "output_kv")


class Quantization(NamedTuple):
    """How a checkpoint's numbers are stored: ``method`` names its maker, ``kv_cache_dtype`` is ``fp8`` or ``auto``."""

    method: str
    kv_cache_dtype: str


def quantization(configs: list[dict]) -> Quantization | None:
    """What the first of ``configs`` that says anything of it says; None for weights as they were trained.

    ``configs`` are those of the whole model, of the language model in it, and ``hf_quant_config.json`` beside them.

    Raises:
        InputError: a maker or a cache that is not known here.
    """
    said = next((found for config in configs for found in [_said(config)] if found), None)
    if said is None:
        return None
    method = _method(said)
    if method in _MODELOPT:
        inner = said.get("quantization")
        parts = (inner, said) if isinstance(inner, dict) else (said,)
        keys = ((key, part.get(key)) for key in ("kv_cache_scheme", "kv_cache_quant_algo") for part in parts)
        return Quantization(method, _kv_cache_dtype(*next(((key, value) for key, value in keys if value), ("", None))))
    if method == "compressed-tensors":
        return Quantization(method, _kv_cache_dtype("kv_cache_scheme", said.get("kv_cache_scheme")))
    if method not in _WEIGHTS_ONLY:
        raise InputError(f"quantization_config is of quant_method {method!r}, which is not known here, and so neither "
                         f"is the cache; {WAY_OUT}")
    for key in _given(said):
        if any(word in key for word in _OF_THE_CACHE):
            raise InputError(f"quantization_config has {key}, which is not understood beside {method}; {WAY_OUT}")
    return Quantization(method, "auto")


def _given(said: dict) -> Iterator[str]:
    """Names of keys with a value, those inside others too."""
    for key, value in said.items():
        if value:
            yield key
            yield from _given(value) if isinstance(value, dict) else ()


def _said(config: dict) -> dict | None:
    """``hf_quant_config.json`` is itself what the others hold under a key."""
    if "producer" in config and "quantization" in config:
        return config
    found = config.get("quantization_config") or config.get("compression_config")
    if found is not None and not isinstance(found, dict):
        raise InputError(f"quantization_config must be a JSON object, got {found!r}")
    return found


def _method(said: dict) -> str:
    producer = said.get("producer")
    if said.get("quant_method") is None and isinstance(producer, dict) and producer.get("name") == "modelopt":
        return "modelopt"
    return str(said.get("quant_method", "")).lower().replace("_tensors", "-tensors")


def _kv_cache_dtype(key: str, value: object) -> str:
    """``fp8`` for floats of eight bits, ``auto`` where nothing is said."""
    if value is None or value == {}:
        return "auto"
    scheme = value if isinstance(value, dict) else {}
    floats_of_8 = (scheme.get("num_bits"), scheme.get("type"), bool(scheme.get("dynamic"))) == (8, "float", False)
    if floats_of_8 or (isinstance(value, str) and value.lower() == "fp8"):
        return "fp8"
    raise InputError(f"{key} {value!r} is not a cache whose size is known here; {WAY_OUT}")
