"""Which kind of model a ``config.json`` describes, and whether its KV cache is one that is known.

``model_type`` and ``architectures`` decide, of the whole and of the language model in it; keys alone never do.  A key
that speaks of another cache is refused in a known kind too, for a new version of it may have grown one.
"""

from typing import NamedTuple

from pagesim.catalog.lookup import entries
from pagesim.errors import InputError

WAY_OUT = "give the model as {kv_bytes_per_token: N} if you know its cache"

_PARTS = ("text_config", "llm_config", "language_config")
_OTHER_PARTS = ("thinker_config", "decoder", "decoder_config", "talker_config")
_OF_THE_WHOLE = ("torch_dtype", "dtype")
_LAYER_TYPES = {"full_attention", "attention", "sliding_attention"}

# Words in the name of a key that betray layers without a plain cache, and what they betray.
_STATE, _SHARED, _INDEX = "layers with a recurrent state", "layers that share a cache", "an index cache beside K and V"
_COMPRESSED, _OTHER_WINDOW = "a compressed cache", "a window other than sliding_window's"
_WORDS = {
    "index": _INDEX, "indexer": _INDEX, "sparse": "sparse attention", "moba": "sparse attention",
    "nsa": "sparse attention", "dsa": "sparse attention", "csa": "sparse attention", "compress": _COMPRESSED,
    "compressed": _COMPRESSED, "compressor": _COMPRESSED, "window": _OTHER_WINDOW, "swa": _OTHER_WINDOW,
    "chunk": "layers that attend within chunks", "cross": "cross-attention layers", "shared": _SHARED,
    "sharing": _SHARED, "share": _SHARED, "cla": _SHARED, "yoco": _SHARED, "hybrid": _STATE, "mamba": _STATE,
    "ssm": _STATE, "state": _STATE, "conv": _STATE, "recurrent": _STATE, "rnn": _STATE, "rwkv": _STATE, "lru": _STATE,
    "linear": _STATE, "lightning": _STATE, "delta": _STATE, "kda": _STATE, "gdn": _STATE, "retention": _STATE}
_KEYS = {
    "is_encoder_decoder": "an encoder's cache", "block_configs": "layers of different shapes",
    "per_layer_config": "layers of different shapes", "attention_other_setting": "layers of different shapes",
    "layers_block_type": _STATE, "block_types": _STATE, "attn_layer_period": _STATE, "full_attention_interval": _STATE,
    "full_attn_idxs": _STATE, "attn_layer_indices": _STATE, "global_attn_every_n_layers": _OTHER_WINDOW}
# Keys with such a word that do not touch the cache, or that are read where they do.
_HARMLESS = {
    "sliding_window", "use_sliding_window", "max_window_layers", "sliding_window_pattern", "_sliding_window_pattern",
    "decoder_sparse_step", "shared_intermediate_size", "share_input_output_embed", "ignore_index"}
_HARMLESS_WORDS = {"expert", "experts", "moe"}


class Kind(NamedTuple):
    """A kind of language model as ``kinds.yaml`` has it; None where it says nothing."""

    name: str
    kv_heads: str | None = None
    head_dim: str | None = None
    window: str | None = None
    cache: str | None = None
    extras: list[str] | None = None


def language_model(config: dict) -> tuple[Kind, dict]:
    """The kind of the language model in ``config`` and the part of it that describes it, with the dtype of the whole.

    Raises:
        InputError: a kind, an architecture or a key that is not known, and so neither is the cache.
    """
    whole = _known(config)
    part = next((name for name in (*_PARTS, *_OTHER_PARTS) if isinstance(config.get(name), dict)), None)
    wraps = entries("kinds.yaml")[whole].get("wraps")
    if part is None:
        name, text = whole, config
    elif part in _PARTS and wraps is not None:
        text = {key: config.get(key) for key in _OF_THE_WHOLE} | config[part]
        name = _known(config[part], part)
    else:
        raise InputError(f"model_type {whole!r} with a {part} is not one whose KV cache is known here; {WAY_OUT}")
    if wraps is not None and name not in wraps:
        raise InputError(f"a language model of model_type {name!r} in a {whole} is not known here; {WAY_OUT}")
    for keys in (config, text):
        _refuse_what_is_not_modelled(keys)
    entry = entries("kinds.yaml")[name]
    return Kind(name, **{key: entry.get(key) for key in Kind._fields[1:]}), text


def _known(config: dict, where: str = "") -> str:
    """The name of the kind that ``model_type`` says, and ``architectures`` do not deny; or that they say alone."""
    kind, architectures = config.get("model_type"), config.get("architectures") or []
    known = entries("kinds.yaml")
    if kind is None:
        named = [name for name, entry in known.items() if set(architectures) & set(entry.get("architectures", ()))]
        if not architectures:
            raise InputError(f"{_in(where)}neither model_type nor architectures says what kind of model this is; add "
                             f"model_type, or {WAY_OUT}")
        kind = named[0] if named else None
    elif kind not in known:
        raise InputError(f"{_in(where)}model_type {kind!r} is not one whose KV cache is known here; {WAY_OUT}")
    other = [name for name in architectures if kind is None or name not in known[kind].get("architectures", ())]
    if other and not (where and kind is not None):   # of a part, architectures are not what an engine goes by
        beside = "" if config.get("model_type") is None else f" of model_type {kind!r}"
        raise InputError(f"{_in(where)}architecture {other[0]!r}{beside} is not one whose KV cache is known here; "
                         f"{WAY_OUT}")
    return kind


def _in(where: str) -> str:
    return f"{where}: " if where else ""


def _refuse_what_is_not_modelled(config: dict) -> None:
    for key, value in config.items():
        what = None if key == "cla_share_factor" and config.get("use_cla") is False else _betrays(key)
        if what is not None and value:
            raise InputError(f"{key} says that the model has {what}, which is not modelled; {WAY_OUT}")
    other = sorted(set(config.get("layer_types") or ()) - _LAYER_TYPES)
    if other:
        raise InputError(f"layer_types has {', '.join(map(str, other))}, which is not modelled; {WAY_OUT}")
    if set(config.get("attn_type_list") or ()) - {1}:
        raise InputError(f"attn_type_list has types other than 1 (full attention), which is not modelled; {WAY_OUT}")


def _betrays(key: str) -> str | None:
    """What the name of a key says of the cache, None where it says nothing."""
    words = key.lower().split("_")
    if key in _HARMLESS or key in _KEYS or key.endswith("_token_index") or _HARMLESS_WORDS.intersection(words):
        return _KEYS.get(key)
    return next((_WORDS[word] for word in words if word in _WORDS), None)
