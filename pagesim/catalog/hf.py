"""A model from the ``config.json`` that Hugging Face repositories ship, read from the local disk.

Only kinds of model whose cache is known to be plain K and V in every layer, or MLA's latent, are computed.  Everything
else is refused: a number for a hybrid model by the plain formula would be wrong by several times without looking wrong.
"""

import json
from pathlib import Path

from pagesim.catalog.models import Model, dtype_name, model
from pagesim.catalog.parameters import count_parameters
from pagesim.errors import InputError

# Kinds with K and V heads of equal shape in every layer. Those in _MHA_DEFAULT may leave out num_key_value_heads (it is
# num_attention_heads then), those in _OWN_HEAD_DIM must state head_dim (their default is not hidden_size / heads).
_MHA_DEFAULT = {"bloom", "codegen", "gpt2", "gpt_neox", "gptj", "llama", "opt", "phi"}
_OWN_HEAD_DIM = {"ernie4_5", "gemma", "gemma2", "gemma3", "gemma3_text", "glm", "glm4", "glm4_moe", "gpt_oss", "helium",
                 "qwen3", "qwen3_moe"}
_PLAIN = _MHA_DEFAULT | _OWN_HEAD_DIM | {
    "arcee", "baichuan", "cohere", "cohere2", "exaone4", "granite", "granitemoe", "internlm2", "internlm3", "minicpm",
    "ministral", "mistral", "mixtral", "nemotron", "olmo", "olmo2", "olmo3", "olmoe", "persimmon", "phi3", "phimoe",
    "qwen2", "qwen2_moe", "seed_oss", "smollm3", "stablelm", "starcoder2"}
_MLA = {"deepseek_v2", "deepseek_v3", "kimi_k2", "minicpm3"}

# Keys that betray layers without a plain cache, even in a kind known as plain.
_NOT_MODELLED = {
    "attention_chunk_size": "layers that attend within chunks", "cross_attention_layers": "cross-attention layers",
    "index_topk": "an index cache beside the latent", "num_kv_shared_layers": "layers that share a cache",
    "cla_share_factor": "layers that share a cache", "block_configs": "layers of different shapes",
    "is_encoder_decoder": "an encoder's cache",
    "layers_block_type": "layers with a recurrent state", "block_types": "layers with a recurrent state",
    "hybrid_override_pattern": "layers with a recurrent state", "attn_layer_period": "layers with a recurrent state",
    "mamba_d_state": "layers with a recurrent state", "mamba_d_ssm": "layers with a recurrent state",
    "ssm_state_size": "layers with a recurrent state", "state_size": "layers with a recurrent state",
    "linear_num_key_heads": "layers with a recurrent state", "full_attention_interval": "layers with a recurrent state"}
_LAYER_TYPES = {"full_attention", "attention", "sliding_attention"}


def find_model(name: str, directory: str = "") -> Model:
    """A model by its name in the catalogue, or from a ``config.json`` whose path is relative to ``directory``.

    Raises:
        InputError: neither.
    """
    path = Path(directory, name)
    if path.suffix == ".json" or (path / "config.json").is_file():
        return model_from_config(path)
    try:
        return model(name)
    except InputError as error:
        raise InputError(f"{error} (or give the path of a config.json, or {{kv_bytes_per_token: N}})") from None


def model_from_config(path: str | Path) -> Model:
    """The model that a local ``config.json``, or the directory that holds one, describes.

    Weights are those of ``model.safetensors`` or its index beside it, or counted from the shapes of the dense and
    expert layers of the Llama family; they stay unknown otherwise.

    Raises:
        InputError: no such file, a key that is missing, or a model whose cache is not modelled; the message names the
            file.
    """
    path = Path(path)
    path = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(path.read_text("utf-8"))
        if not isinstance(config, dict):
            raise InputError("must hold a JSON object")
        return _model(str(path), _text(config), _checkpoint_bytes(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not JSON: {error}") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _text(config: dict) -> dict:
    """The part that describes the language model; multimodal configs nest it, with the dtype outside."""
    inner = config.get("text_config")
    if not isinstance(inner, dict):
        return config
    return {key: config.get(key) for key in ("torch_dtype", "dtype", "quantization_config")} | inner


def _model(name: str, config: dict, checkpoint_bytes: int | None) -> Model:
    kind = config.get("model_type")
    _refuse_what_is_not_modelled(kind, config)
    heads = _number(config, "num_attention_heads", "n_head")
    layers = _number(config, "num_hidden_layers", "n_layer", "num_layers")
    shape = _latent(config) if kind in _MLA or config.get("kv_lora_rank") else _plain(kind, config, heads)
    params, active_params = count_parameters(config)
    if config.get("quantization_config") and not checkpoint_bytes:
        params = None   # the dtype below is that of the activations, and says nothing of the weights' size
    dtype = dtype_name(str(config.get("dtype") or config.get("torch_dtype") or "bf16").removeprefix("torch."))
    return Model(name, layers, heads, **shape, window=_window(config), params=params, active_params=active_params,
                 weights=dtype, weight_bytes=checkpoint_bytes, max_model_len=_max_model_len(config))


def _refuse_what_is_not_modelled(kind: str | None, config: dict) -> None:
    way_out = "give the model as {kv_bytes_per_token: N} if you know its cache"
    for key, what in _NOT_MODELLED.items():
        if config.get(key):
            raise InputError(f"{key} says that the model has {what}, which is not modelled; {way_out}")
    other = sorted(set(config.get("layer_types") or ()) - _LAYER_TYPES)
    if other:
        raise InputError(f"layer_types has {', '.join(other)}, which is not modelled; {way_out}")
    if kind is not None and kind not in _PLAIN | _MLA:
        raise InputError(f"model_type {kind!r} is not one whose KV cache is known here; {way_out}")


def _plain(kind: str | None, config: dict, heads: int) -> dict[str, int]:
    """K and V heads and their width.  ``head_dim`` wins over ``hidden_size / heads``."""
    if config.get("num_key_value_heads") is None and kind is not None and kind not in _MHA_DEFAULT:
        raise InputError(f"num_key_value_heads is missing, and {kind} has no such default; add it")
    if config.get("head_dim") is None and kind in _OWN_HEAD_DIM:
        raise InputError(f"head_dim is missing, and {kind}'s is not hidden_size / heads; add it")
    kv_heads = heads if config.get("num_key_value_heads") is None else _number(config, "num_key_value_heads")
    if config.get("head_dim") is not None:
        return {"kv_heads": kv_heads, "head_dim": _number(config, "head_dim")}
    hidden = _number(config, "hidden_size", "n_embd")
    if hidden % heads:
        raise InputError(f"head_dim is missing, and hidden_size {hidden} is not a multiple of {heads} heads; add it")
    return {"kv_heads": kv_heads, "head_dim": hidden // heads}


def _latent(config: dict) -> dict[str, int]:
    return {"kv_lora_rank": _number(config, "kv_lora_rank"), "qk_rope_head_dim": _number(config, "qk_rope_head_dim")}


def _window(config: dict) -> int | None:
    """The window of the layers that have one.  Qwen states one and turns it off with ``use_sliding_window``."""
    window = config.get("sliding_window")
    types = config.get("layer_types")
    unused = config.get("use_sliding_window") is False or (types and "sliding_attention" not in types)
    return None if window is None or unused else _number(config, "sliding_window")


def _max_model_len(config: dict) -> int | None:
    """The longest sequence, stretched where positions are scaled, as vLLM derives it; None where it is not stated."""
    keys = ("max_position_embeddings", "n_positions")
    stated = _number(config, *keys) if any(config.get(key) is not None for key in keys) else None
    scaling = config.get("rope_scaling") or config.get("rope_parameters")   # the later name
    if not isinstance(scaling, dict) or not isinstance(scaling.get("factor"), int | float):
        return stated
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "yarn" and scaling.get("original_max_position_embeddings"):
        return int(scaling["original_max_position_embeddings"] * scaling["factor"])
    return int(stated * scaling["factor"]) if kind in ("linear", "dynamic") and stated else stated


def _number(config: dict, *keys: str) -> int:
    """The first of ``keys`` that the config has; each is another family's word for the same."""
    value = next((config[key] for key in keys if config.get(key) is not None), None)
    if value is None:
        raise InputError(f"{keys[0]} is missing")
    if type(value) is not int or value < 1:
        raise InputError(f"{keys[0]} must be a positive whole number, got {value!r}")
    return value


def _checkpoint_bytes(path: Path) -> int | None:
    """Size of the checkpoint that lies beside the config, if one does."""
    index = path.with_name("model.safetensors.index.json")
    if index.is_file():
        return json.loads(index.read_text("utf-8")).get("metadata", {}).get("total_size")
    single = path.with_name("model.safetensors")
    return single.stat().st_size if single.is_file() else None
