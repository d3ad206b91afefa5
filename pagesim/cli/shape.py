"""Heads and head_dim of the attention that is tried or measured: the model's, or what the user asks for."""

from pagesim.errors import InputError

_UNKNOWN_MODEL = {"num_q_heads": 32, "num_kv_heads": 8, "head_dim": 128}  # Llama 3 8B


def attention_shape(known: dict | None, heads: str | None, head_dim: int | None) -> dict:
    """What tables say of their model, with ``--heads`` and ``--head-dim`` in its place where they are given."""
    shape = dict(known or _UNKNOWN_MODEL)
    if heads is not None:
        q, _, kv = heads.partition("/")
        if not (q.isdigit() and kv.isdigit() and int(kv) > 0 and int(q) > 0 and int(q) % int(kv) == 0):
            raise InputError(f"--heads must be query heads and KV heads that divide them, such as 32/8, got {heads!r}")
        shape |= {"num_q_heads": int(q), "num_kv_heads": int(kv)}
    if head_dim is not None:
        shape["head_dim"] = head_dim
    return shape
