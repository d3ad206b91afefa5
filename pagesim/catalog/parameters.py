"""How many weights a model of the Llama family has, from the shapes in its ``config.json``."""

_BIASES = {"qwen2"}             # on q, k and v
_HEAD_NORMS = {"qwen3", "qwen3_moe"}
_FAMILY = {"llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe"}


def count_parameters(config: dict) -> tuple[int | None, int | None]:
    """All weights, and those that compute one token; ``(None, None)`` for a family whose shapes are not known here.

    Embedding and output head (one matrix where tied) + layers · (q, k, v, o + gate, up and down of each expert +
    router + norms) + the last norm.  Only ``num_experts_per_tok`` of the experts compute a token.
    """
    kind = config.get("model_type")
    needed = ("hidden_size", "vocab_size", "intermediate_size", "num_attention_heads", "num_hidden_layers")
    if kind not in _FAMILY or any(type(config.get(key)) is not int for key in needed) or config.get("mlp_only_layers"):
        return None, None
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    num_experts = config.get("num_experts") or config.get("num_local_experts") or 1
    used_experts = config.get("num_experts_per_tok") or 1
    expert = 3 * hidden * (config.get("moe_intermediate_size") or config["intermediate_size"])
    router = hidden * num_experts if num_experts > 1 else 0
    embeddings = config["vocab_size"] * hidden * (1 if config.get("tie_word_embeddings") else 2)
    fixed = embeddings + hidden + layers * (_attention(kind, config) + 2 * hidden + router)
    return fixed + layers * num_experts * expert, fixed + layers * min(used_experts, num_experts) * expert


def _attention(kind: str, config: dict) -> int:
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    query, key_value = heads * head_dim, 2 * (config.get("num_key_value_heads") or heads) * head_dim
    matrices = config["hidden_size"] * (2 * query + key_value)
    bias = query + key_value if kind in _BIASES or config.get("attention_bias") else 0
    return matrices + bias + (2 * head_dim if kind in _HEAD_NORMS else 0)
