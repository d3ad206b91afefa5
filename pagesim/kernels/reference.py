"""Attention as it is defined, twice, in plain torch: over the gathered sequence, and block by block.

Query i of a sequence of L tokens with ``q_len`` queries stands at position ``p_i = L - q_len + i`` and sees the tokens
``t <= p_i``, with a window only those with ``t >= p_i - window``.  With ``s_it = softcap(scale · q_i·k_t)`` over them

    out_i = Σ_t e^{s_it} v_t / Σ_t e^{s_it},        softcap(s) = cap · tanh(s / cap),

and zeros where a query sees nothing.  Block by block (Milakov and Gimelshein 2018; FlashAttention; Kwon et al. 2023):
with the running maximum m, sum ℓ and unnormalised output O, all kept to the same reference m,

    m' = max(m, m_j)    ℓ' = ℓ·e^{m-m'} + ℓ_j·e^{m_j-m'}    O' = O·e^{m-m'} + O_j·e^{m_j-m'}    out = O / ℓ

over the blocks j; a block in which nothing is visible contributes nothing.
"""

import math

import torch


def gather(cache: torch.Tensor, table: torch.Tensor, length: int, layout: str) -> torch.Tensor:
    """Keys or values of one sequence in the order of its tokens, shape (length, num_kv_heads, head_dim)."""
    block_size = cache.shape[1 if layout == "NHD" else 2]
    blocks = cache[table[:-(-length // block_size)].long()]
    if layout == "HND":
        blocks = blocks.transpose(1, 2)
    return blocks.reshape(-1, *blocks.shape[2:])[:length]


def visible(q_len: int, length: int, window: int | None, device: torch.device) -> torch.Tensor:
    """Which query sees which token, bool, shape (q_len, length)."""
    position = torch.arange(length - q_len, length, device=device)[:, None]
    token = torch.arange(length, device=device)[None, :]
    seen = token <= position
    return seen if window is None else seen & (token >= position - window)


def _scores(q: torch.Tensor, k: torch.Tensor, seen: torch.Tensor, scale: float, softcap: float | None) -> torch.Tensor:
    """Masked scores, shape (num_kv_heads, group, q_len, num_tokens)."""
    q = q.unflatten(1, (k.shape[1], -1))
    scores = torch.einsum("qhgd,thd->hgqt", q, k) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    return scores.masked_fill(~seen, -math.inf)


def _seen_values(v: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Values with zeros where no query looks: behind a window there may be anything, and 0 · NaN is NaN."""
    return v.masked_fill(~seen.any(0)[:, None, None], 0.0)


def _rows(out: torch.Tensor) -> torch.Tensor:
    """(num_kv_heads, group, q_len, head_dim) as (q_len, num_q_heads, head_dim)."""
    return out.flatten(0, 1).transpose(0, 1)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float, window: int | None = None,
              softcap: float | None = None) -> torch.Tensor:
    """One sequence by the definition, in the precision of its arguments.

    Args:
        q: shape (q_len, num_q_heads, head_dim).
        k, v: shape (length, num_kv_heads, head_dim); v may have a head_dim of its own.

    Returns:
        Shape (q_len, num_q_heads, head_dim of v).
    """
    seen = visible(len(q), len(k), window, q.device)
    scores = _scores(q, k, seen, scale, softcap)
    weights = torch.softmax(scores, -1).masked_fill(~seen, 0.0)
    return _rows(torch.einsum("hgqt,thd->hgqd", weights, _seen_values(v, seen)))


def blockwise_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, block_size: int, scale: float,
                        window: int | None = None, softcap: float | None = None) -> torch.Tensor:
    """The same by the recurrence, in blocks of ``block_size`` tokens."""
    seen = visible(len(q), len(k), window, q.device)
    num_q_heads, num_kv_heads = q.shape[1], k.shape[1]
    v = _seen_values(v, seen)
    shape = (num_kv_heads, num_q_heads // num_kv_heads, len(q))
    maximum = q.new_full(shape, -math.inf)
    total = q.new_zeros(shape)
    out = q.new_zeros((*shape, v.shape[-1]))
    for start in range(0, len(k), block_size):
        block = slice(start, start + block_size)
        scores = _scores(q, k[block], seen[:, block], scale, softcap)
        new = torch.maximum(maximum, scores.amax(-1))
        base = new.masked_fill(new == -math.inf, 0.0)  # -inf - -inf would be NaN where nothing was visible so far
        weights, keep = torch.exp(scores - base[..., None]), torch.exp(maximum - base)
        total = total * keep + weights.sum(-1)
        out = out * keep[..., None] + torch.einsum("hgqt,thd->hgqd", weights, v[block])
        maximum = new
    return _rows(out / total.masked_fill(total == 0, 1.0)[..., None])


def paged_attention(q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, block_table: torch.Tensor,
                    lengths: list[int], *, layout: str, scale: float | None = None, window: int | None = None,
                    softcap: float | None = None, k_scale: float = 1.0, v_scale: float = 1.0,
                    dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Every sequence by the definition, in ``dtype``.

    Args:
        q: shape (num_seqs, q_len, num_q_heads, head_dim).
        k_cache, v_cache: the pool in ``layout``; a cached value times its scale is the value meant.
        block_table: shape (num_seqs, max_blocks).
        lengths: stored tokens of each sequence, the queries' own included.

    Returns:
        Shape of ``q``, in ``dtype``.
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    out = torch.empty((*q.shape[:-1], v_cache.shape[-1]), dtype=dtype, device=q.device)
    for seq, length in enumerate(lengths):
        k = gather(k_cache, block_table[seq], int(length), layout).to(dtype) * k_scale
        v = gather(v_cache, block_table[seq], int(length), layout).to(dtype) * v_scale
        out[seq] = attention(q[seq].to(dtype), k, v, scale=scale, window=window, softcap=softcap)
    return out
