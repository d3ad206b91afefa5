"""A model from the ``config.json`` that Hugging Face repositories ship, read from the local disk.

Only kinds of model whose cache is known to be plain K and V in every layer, or MLA's latent, are computed.  Everything
else is refused: a number for a hybrid model by the plain formula would be wrong by several times without looking wrong.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from pagesim.catalog.kinds import WAY_OUT, Kind, language_model
from pagesim.catalog.models import Model, dtype_name, model
from pagesim.catalog.parameters import count_parameters
from pagesim.catalog.quantization import quantization
from pagesim.errors import InputError

# vLLM's words for the longest sequence; the smallest wins, but for the last, which wins over all.
_LONGEST = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length",
            "max_seq_length", "seq_len", "model_max_length")


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
    expert layers of the Llama family; they stay unknown otherwise, as of a language model within a whole.

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
        return _model(str(path), config, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not JSON: {error}") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _model(name: str, config: dict, path: Path) -> Model:
    kind, text = language_model(config)
    stored = quantization([config, text, _quantization_beside(path)])
    heads = _number(text, "num_attention_heads", "n_head")
    layers = _number(text, "num_hidden_layers", "n_layer", "num_layers")
    shape = {"latent": _latent, "padded": _padded}.get(kind.cache, _plain)(kind, text, heads)
    params, active_params = count_parameters(text) if text is config else (None, None)   # a whole has other parts too
    return Model(name, layers, heads, **shape, window=_window(kind, text), params=params, active_params=active_params,
                 weights=dtype_name(str(text.get("dtype") or text.get("torch_dtype") or "bf16").removeprefix("torch.")),
                 weight_bytes=_checkpoint_bytes(path), max_model_len=_max_model_len(text),
                 quantization=stored and stored.method, kv_cache_dtype=stored.kv_cache_dtype if stored else "auto",
                 extras=tuple(_extras(kind, text, shape.get("head_dim"))))


def _plain(kind: Kind, config: dict, heads: int) -> dict[str, int]:
    """K and V heads and their width.  ``head_dim`` wins over ``hidden_size / heads``."""
    if config.get("kv_lora_rank"):
        raise InputError(f"kv_lora_rank says that K and V come from a latent, which is not known of {kind.name}; "
                         f"{WAY_OUT}")
    if config.get("head_dim") is None and kind.head_dim == "stated":
        raise InputError(f"head_dim is missing, and {kind.name}'s is not hidden_size / heads; add it")
    kv_heads = _kv_heads(kind, config, heads)
    if config.get("head_dim") is not None:
        return {"kv_heads": kv_heads, "head_dim": _number(config, "head_dim")}
    hidden = _number(config, "hidden_size", "n_embd")
    if hidden % heads:
        raise InputError(f"head_dim is missing, and hidden_size {hidden} is not a multiple of {heads} heads; add it")
    return {"kv_heads": kv_heads, "head_dim": hidden // heads}


def _kv_heads(kind: Kind, config: dict, heads: int) -> int:
    words = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
    if kind.kv_heads == "one_if_multi_query":   # Falcon's and StarCoder's; Falcon's later shape ignores the key
        if config.get("new_decoder_architecture"):
            return _number(config, *reversed(words))
        return 1 if config.get("multi_query", True) else heads
    if kind.kv_heads == "groups":               # ChatGLM's
        return _number(config, "multi_query_group_num") if config.get("multi_query_attention") else heads
    if kind.kv_heads != "all" and config.get("num_key_value_heads") is None:
        raise InputError(f"num_key_value_heads is missing, and {kind.name} has no such default; add it")
    return heads if config.get("num_key_value_heads") is None else _number(config, "num_key_value_heads")


def _latent(kind: Kind, config: dict, heads: int) -> dict[str, int]:
    return {"kv_lora_rank": _number(config, "kv_lora_rank"), "qk_rope_head_dim": _number(config, "qk_rope_head_dim")}


def _padded(kind: Kind, config: dict, heads: int) -> dict[str, int]:
    """K and V of every head, V filled up to K's width; the latent that they come from is not what is stored."""
    width = _number(config, "qk_nope_head_dim") + _number(config, "qk_rope_head_dim")
    if _number(config, "v_head_dim") > width:
        raise InputError(f"v_head_dim {config['v_head_dim']} is wider than the {width} of K; {WAY_OUT}")
    return {"kv_heads": heads, "head_dim": width}


def _window(kind: Kind, config: dict) -> int | None:
    """The window of the layers that have one.  Qwen states one and turns it off with ``use_sliding_window``."""
    window = config.get("sliding_window")
    types = config.get("layer_types")
    unused = config.get("use_sliding_window") is False or (types and "sliding_attention" not in types)
    if kind.window == "stated" and not unused and "sliding_window" not in config:
        raise InputError(f"sliding_window is missing, and {kind.name} has one of its own; add it, null where there is "
                         "none")
    return None if window is None or unused else _number(config, "sliding_window")


def _extras(kind: Kind, config: dict, head_dim: int | None) -> Iterator[str]:
    yield from kind.extras or ()
    if config.get("alibi") or (kind.name == "baichuan" and config.get("hidden_size") != 4096):   # Baichuan's 13B
        yield "ALiBi"
    if config.get("attn_logit_softcapping"):
        yield f"a soft cap of {config['attn_logit_softcapping']:g}"
    if config.get("query_pre_attn_scalar", head_dim) != head_dim:
        yield f"scores over √{config['query_pre_attn_scalar']:g}"
    if config.get("attention_multiplier"):
        yield f"scores times {config['attention_multiplier']:g}"


def _max_model_len(config: dict) -> int | None:
    """The longest sequence, stretched where positions are scaled, as vLLM derives it; None where it is not stated."""
    lengths = {key: _number(config, key) for key in _LONGEST if config.get(key) is not None}
    stated = lengths.get("model_max_length", min(lengths.values(), default=None))
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


def _quantization_beside(path: Path) -> dict:
    """What older tools write into a file of its own."""
    beside = path.with_name("hf_quant_config.json")
    return json.loads(beside.read_text("utf-8")) if beside.is_file() else {}


def _checkpoint_bytes(path: Path) -> int | None:
    """Size of the checkpoint that lies beside the config, if one does."""
    index = path.with_name("model.safetensors.index.json")
    if index.is_file():
        return json.loads(index.read_text("utf-8")).get("metadata", {}).get("total_size")
    single = path.with_name("model.safetensors")
    return single.stat().st_size if single.is_file() else None
