"""Causal prefill over the paged cache: the queries of a chunk attend to the prefix and to themselves.

The chunk's keys and values are in the cache already (``write_cache``); a whole prompt is a chunk without a prefix.
"""

import torch
import triton
import triton.language as tl

from pagesim.kernels.cache import Cache
from pagesim.kernels.general.attend import (
    INTERPRET, INTERPRETED_TILE, add_sink, as_pairs, attend, normalise, open_tiles, round_to)
from pagesim.kernels.mask import CAUSAL, Mask
from pagesim.kernels.validate import check_prefill


def prefill(q: torch.Tensor, cache: Cache, block_table: torch.Tensor, lengths: torch.Tensor,
            first_query: torch.Tensor, max_q_len: int, *, mask: Mask = CAUSAL, out: torch.Tensor | None = None,
            tile_tokens: int | None = None) -> torch.Tensor:
    """Attention of the last tokens of each sequence, causal.

    Args:
        q: (num_queries, num_q_heads, head_dim), contiguous, the sequences' queries end to end; fp16, bf16 or fp32.
        cache: of q's dtype or fp8 e4m3.
        block_table: int32 (num_seqs, max_blocks), rows contiguous.
        lengths: int32 (num_seqs,), tokens in the cache, the queries' own included.
        first_query: int32 (num_seqs + 1,); sequence i has the queries ``first_query[i]:first_query[i + 1]``, which are
            its last tokens.
        max_q_len: most queries of a sequence.
        tile_tokens: as in ``decode``.

    Returns:
        ``out``, shape and dtype of ``q``.

    Raises:
        InputError: arguments that do not fit together; on the CPU also wrong table entries.
    """
    check_prefill(q, cache, block_table, lengths, first_query, max_q_len, mask, out)
    cache = as_pairs(q, cache)
    pool = cache.geometry
    out = torch.empty_like(q) if out is None else out
    num_q_heads, head_dim = q.shape[1:]
    group = num_q_heads // pool.num_kv_heads
    padded = triton.next_power_of_2(head_dim)
    max_rows, tile, stages = limits(padded, q.dtype)
    rows = min(max_rows, max(16, triton.next_power_of_2(max_q_len * group)))
    row_tiles = triton.cdiv(max_q_len * group, rows)
    num_seqs = lengths.shape[0]
    if row_tiles and num_seqs:
        _prefill[(row_tiles * num_seqs * pool.num_kv_heads,)](
            q, cache.k, cache.v, block_table, lengths, first_query, q if mask.sinks is None else mask.sinks, out,
            num_seqs, row_tiles, mask.scale_of(head_dim) * cache.scales[0], cache.scales[1], block_table.stride(0),
            pool.block_stride, pool.token_stride, pool.head_stride,
            GROUP=group, NUM_KV_HEADS=pool.num_kv_heads, HEAD_DIM=head_dim, PADDED=padded, BLOCK_SIZE=pool.block_size,
            TILE=tile_tokens or (INTERPRETED_TILE if INTERPRET else tile), ROWS=rows,
            WINDOW=-1 if mask.window is None else mask.window, SOFTCAP=mask.softcap or 0.0,
            SINKS=mask.sinks is not None, INTERPRET=INTERPRET,
            num_warps=8 if rows > 64 else 4, num_stages=stages)
    return out


def limits(padded_head_dim: int, dtype: torch.dtype) -> tuple[int, int, int]:
    """Most rows, tokens of a tile and pipeline stages that registers and shared memory have room for."""
    if dtype == torch.float32:
        return (32, 32, 3) if padded_head_dim <= 128 else (16, 32, 3)
    return (128, 64, 3) if padded_head_dim <= 128 else (64, 32, 4)


@triton.jit(do_not_specialize=["num_seqs", "row_tiles", "table_stride"])
def _prefill(q_ptr, k_ptr, v_ptr, table_ptr, lengths_ptr, first_query_ptr, sinks_ptr, out_ptr, num_seqs, row_tiles,
             scale, v_scale, table_stride, block_stride: tl.int64, token_stride: tl.int64, head_stride: tl.int64,
             GROUP: tl.constexpr, NUM_KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, PADDED: tl.constexpr,
             BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr, ROWS: tl.constexpr, WINDOW: tl.constexpr,
             SOFTCAP: tl.constexpr, SINKS: tl.constexpr, INTERPRET: tl.constexpr):
    """A program takes ROWS rows of one KV head of one sequence: one query of one of the head's GROUP heads each."""
    pid = tl.program_id(0)
    head = pid % NUM_KV_HEADS
    seq = pid // NUM_KV_HEADS % num_seqs
    row_tile = row_tiles - 1 - pid // (NUM_KV_HEADS * num_seqs)  # the last queries see most: longest first
    first_query = tl.load(first_query_ptr + seq)
    q_len = tl.load(first_query_ptr + seq + 1) - first_query
    if row_tile * ROWS >= q_len * GROUP:
        return
    row = row_tile * ROWS + tl.arange(0, ROWS)
    query = row // GROUP
    valid = query < q_len
    before = tl.load(lengths_ptr + seq) - q_len  # tokens in front of the first query
    low = before + row_tile * ROWS // GROUP      # positions of this tile's first and last query
    high = before + tl.minimum((row_tile * ROWS + ROWS - 1) // GROUP, q_len - 1)
    first = tl.zeros([], tl.int32)
    end = high + 1
    if WINDOW >= 0:
        first = tl.maximum(low - WINDOW, 0)
    open_first, open_end = open_tiles(first, end, low, high, TILE, WINDOW)

    dims = tl.arange(0, PADDED)
    cell = valid[:, None] & (dims < HEAD_DIM)[None, :]
    out_row = (first_query + query).to(tl.int64) * (NUM_KV_HEADS * GROUP) + head * GROUP + row % GROUP
    q = tl.load(q_ptr + out_row[:, None] * HEAD_DIM + dims[None, :], mask=cell, other=0.0)
    maximum, total, out = attend(
        q, k_ptr + head * head_stride, v_ptr + head * head_stride, table_ptr + seq.to(tl.int64) * table_stride,
        before + query, first, open_first, open_end, end, scale, block_stride, token_stride, dims, dims, HEAD_DIM,
        HEAD_DIM, BLOCK_SIZE, TILE, WINDOW, SOFTCAP, INTERPRET)
    if SINKS:
        sink = tl.load(sinks_ptr + head * GROUP + row % GROUP, mask=valid, other=0.0)
        total, out = add_sink(sink, maximum, total, out)
    out = round_to(normalise(total, out) * v_scale, out_ptr.dtype.element_ty, INTERPRET)
    tl.store(out_ptr + out_row[:, None] * HEAD_DIM + dims[None, :], out, mask=cell)
