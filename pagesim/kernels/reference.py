"""Attention as it is defined, twice, in plain torch: over the gathered sequence, and block by block.

Query i of a sequence of L tokens with ``q_len`` queries stands at position ``p_i = L - q_len + i`` and sees the tokens
``t <= p_i``, with a window only those with ``t >= p_i - window``.  With ``s_it = softcap(scale · q_i·k_t)`` over them

    out_i = Σ_t e^{s_it} v_t / Σ_t e^{s_it},        softcap(s) = cap · tanh(s / cap),

and zeros where a query sees nothing.  A head with a sink ``z`` has ``e^z`` more in its denominator.  Block by block
(Milakov and Gimelshein 2018; FlashAttention; Kwon et al. 2023): with the running maximum m, sum ℓ and unnormalised
output O, all kept to the same reference m,

    m' = max(m, m_j)    ℓ' = ℓ·e^{m-m'} + ℓ_j·e^{m_j-m'}    O' = O·e^{m-m'} + O_j·e^{m_j-m'}    out = O / ℓ

over the blocks j; a block in which nothing is visible contributes nothing, and a sink begins with m = z, ℓ = 1, O = 0.
"""

import math

import torch

from pagesim.kernels.cache import Cache
from pagesim.kernels.mask import CAUSAL, Mask


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


def _scores(q: torch.Tensor, k: torch.Tensor, seen: torch.Tensor, mask: Mask) -> torch.Tensor:
    """Masked scores, shape (num_kv_heads, group, q_len, num_tokens)."""
    scores = torch.einsum("qhgd,thd->hgqt", q.unflatten(1, (k.shape[1], -1)), k) * mask.scale_of(q.shape[-1])
    if mask.softcap is not None:
        scores = mask.softcap * torch.tanh(scores / mask.softcap)
    return scores.masked_fill(~seen, -math.inf)


def _seen_values(v: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Values with zeros where no query looks: behind a window there may be anything, and 0 · NaN is NaN."""
    return v.masked_fill(~seen.any(0)[:, None, None], 0.0)


def _rows(out: torch.Tensor) -> torch.Tensor:
    """(num_kv_heads, group, q_len, head_dim) as (q_len, num_q_heads, head_dim)."""
    return out.flatten(0, 1).transpose(0, 1)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Mask = CAUSAL) -> torch.Tensor:
    """One sequence by the definition, in the precision of its arguments.

    Args:
        q: shape (q_len, num_q_heads, head_dim).
        k, v: shape (length, num_kv_heads, head_dim); v may have a head_dim of its own.

    Returns:
        Shape (q_len, num_q_heads, head_dim of v).
    """
    seen = visible(len(q), len(k), mask.window, q.device)
    scores = _scores(q, k, seen, mask)
    if mask.sinks is not None:
        scores = torch.cat([_sinks(mask.sinks, k.shape[1], q), scores], -1)
        weights = torch.softmax(scores, -1)[..., 1:]
    else:
        weights = torch.softmax(scores, -1).masked_fill(~seen, 0.0)
    return _rows(torch.einsum("hgqt,thd->hgqd", weights, _seen_values(v, seen)))


def _sinks(sinks: torch.Tensor, num_kv_heads: int, q: torch.Tensor) -> torch.Tensor:
    """In the precision of ``q``, shape (num_kv_heads, group, q_len, 1)."""
    return sinks.to(q.dtype).view(num_kv_heads, -1, 1, 1).expand(-1, -1, len(q), -1)


def blockwise_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, block_size: int,
                        mask: Mask = CAUSAL) -> torch.Tensor:
    """The same by the recurrence, in blocks of ``block_size`` tokens."""
    seen = visible(len(q), len(k), mask.window, q.device)
    num_q_heads, num_kv_heads = q.shape[1], k.shape[1]
    v = _seen_values(v, seen)
    shape = (num_kv_heads, num_q_heads // num_kv_heads, len(q))
    if mask.sinks is None:
        maximum, total = q.new_full(shape, -math.inf), q.new_zeros(shape)
    else:
        maximum, total = _sinks(mask.sinks, num_kv_heads, q)[..., 0], q.new_ones(shape)
    out = q.new_zeros((*shape, v.shape[-1]))
    for start in range(0, len(k), block_size):
        block = slice(start, start + block_size)
        scores = _scores(q, k[block], seen[:, block], mask)
        new = torch.maximum(maximum, scores.amax(-1))
        base = new.masked_fill(new == -math.inf, 0.0)  # -inf - -inf would be NaN where nothing was visible so far
        weights, keep = torch.exp(scores - base[..., None]), torch.exp(maximum - base)
        total = total * keep + weights.sum(-1)
        out = out * keep[..., None] + torch.einsum("hgqt,thd->hgqd", weights, v[block])
        maximum = new
    return _rows(out / total.masked_fill(total == 0, 1.0)[..., None])


def paged_attention(q: torch.Tensor, cache: Cache, block_table: torch.Tensor, lengths: list[int], mask: Mask = CAUSAL,
                    dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Every sequence by the definition, in ``dtype``.

    Args:
        q: shape (num_seqs, q_len, num_q_heads, head_dim).
        block_table: shape (num_seqs, max_blocks).
        lengths: stored tokens of each sequence, the queries' own included.

    Returns:
        Shape of ``q``, in ``dtype``.
    """
    out = torch.empty(q.shape, dtype=dtype, device=q.device)
    for seq, length in enumerate(lengths):
        k, v = (gather(values, block_table[seq], int(length), cache.layout).to(dtype) * scale
                for values, scale in zip((cache.k, cache.v), cache.scales, strict=True))
        out[seq] = attention(q[seq].to(dtype), k, v, mask)
    return out
