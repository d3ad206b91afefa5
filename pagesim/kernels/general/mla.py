"""Paged decode of multi-head latent attention: all heads share one cached vector a token, a latent and a rope part.

With the projections absorbed into the queries (DeepSeek-V2, 2024), the scores are products with the whole vector and
the values are its latent part, so that a tile is read once for both.
"""

import numpy as np
import torch
import triton
import triton.language as tl

from pagesim.errors import InputError
from pagesim.kernels.general.attend import INTERPRET, INTERPRETED_TILE, LOG2E, accumulate, normalise, round_to
from pagesim.kernels.general.decode import Workspace, fitting_workspace, make_workspace, merge
from pagesim.kernels.general.split import ITEM_INTS, Split, item_tokens, num_sms, split
from pagesim.kernels.validate import CACHE_8BIT, QUERY_DTYPES, check_metadata, check_table

TILE = 32
MAX_LATENT_DIM = 512
MAX_ROWS = 64  # what an SM's shared memory has room for
MAX_ROWS_FP32 = 16


def plan_mla(q: torch.Tensor, lengths: np.ndarray) -> Split:
    """Items for ``decode_mla`` of queries like ``q``, (num_seqs, q_len, num_heads, dim), over these visible tokens."""
    row_tiles = triton.cdiv(q.shape[1] * q.shape[2], _rows(q))
    most = item_tokens(int(lengths.sum()), row_tiles, num_sms(q.device), ctas_per_sm=1)
    return split(lengths, most, device=q.device, q_len=q.shape[1])


class GeneralMlaPlan:
    """Items and room for partial results of the general kernel, with the same use as ``HopperMlaPlan``.

    An update may move its buffers: a captured graph does not see it.
    """

    kernel = "general"

    def __init__(self, q: torch.Tensor, latent_dim: int, lengths: np.ndarray):
        self._q, self._latent_dim = q, latent_dim  # only its shape, dtype and device
        self.num_seqs = len(lengths)
        self.update(lengths)

    def update(self, lengths: np.ndarray) -> None:
        self.split = plan_mla(self._q, lengths)
        self.workspace = make_workspace(self.split.num_parts, *self._q.shape[1:3], self._latent_dim, self._q.device)


def _rows(q: torch.Tensor) -> int:
    """Rows of a program, a row being one query of one head."""
    most = MAX_ROWS_FP32 if q.dtype == torch.float32 else MAX_ROWS
    return min(most, max(16, triton.next_power_of_2(q.shape[1] * q.shape[2])))


def decode_mla(q: torch.Tensor, cache: torch.Tensor, block_table: torch.Tensor, lengths: torch.Tensor, plan: Split, *,
               latent_dim: int, scale: float, cache_scale: float = 1.0, out: torch.Tensor | None = None,
               workspace: Workspace | None = None, tile_tokens: int | None = None) -> torch.Tensor:
    """Attention of each sequence's last ``q_len`` tokens over its paged latent cache, causal.

    Args:
        q: (num_seqs, q_len, num_heads, latent_dim + rope_dim), contiguous, fp16, bf16 or fp32.
        cache: (num_blocks, block_size, latent_dim + rope_dim), of q's dtype or fp8 e4m3, the last dimension contiguous.
        block_table, lengths, plan, workspace, tile_tokens: as in ``decode``.
        latent_dim: 512 in DeepSeek's models; the rest of the vector is the rope part.
        scale: of the scores; it follows from the dimensions before absorption (192 in DeepSeek-V2: 192 ** -0.5).
        cache_scale: a cached value times this is the value meant.

    Returns:
        ``out``, (num_seqs, q_len, num_heads, latent_dim), dtype of ``q``; zeros for queries that see nothing.

    Raises:
        InputError: arguments that do not fit together; on the CPU also wrong table entries.
    """
    check_mla(q, cache, block_table, lengths, latent_dim, scale, cache_scale, out)
    q_len, num_heads, dim = q.shape[1:]
    out = q.new_empty((*q.shape[:3], latent_dim)) if out is None else out
    workspace = fitting_workspace(workspace, plan, out)
    rows = _rows(q)
    stages = 3 if q.dtype != torch.float32 else 2 if cache.dtype == q.dtype else 1  # more would spill
    row_tiles = triton.cdiv(q_len * num_heads, rows)
    if len(plan.items):
        _decode[(len(plan.items) * row_tiles,)](
            q, cache, block_table, lengths, plan.items, out, workspace.out, workspace.log_sum,
            scale * cache_scale, cache_scale, block_table.stride(0), cache.stride(0), cache.stride(1),
            Q_LEN=q_len, NUM_HEADS=num_heads, LATENT=latent_dim, ROPE=dim - latent_dim,
            LATENT_PADDED=triton.next_power_of_2(latent_dim),
            ROPE_PADDED=max(16, triton.next_power_of_2(dim - latent_dim)), BLOCK_SIZE=cache.shape[1],
            TILE=tile_tokens or (INTERPRETED_TILE if INTERPRET else TILE), ROWS=rows, ROW_TILES=row_tiles,
            ITEM_INTS=ITEM_INTS, INTERPRET=INTERPRET,
            num_warps=8 if rows > 16 or q.dtype == torch.float32 else 4, num_stages=stages)
    merge(plan, workspace, out)
    return out


def check_mla(q: torch.Tensor, cache: torch.Tensor, block_table: torch.Tensor, lengths: torch.Tensor, latent_dim: int,
              scale: float, cache_scale: float, out: torch.Tensor | None) -> None:
    """Raises InputError for arguments of ``decode_mla`` that do not fit together; on the CPU also wrong entries."""
    if q.dim() != 4 or q.dtype not in QUERY_DTYPES or not q.is_contiguous():
        raise InputError("q must be contiguous of shape (num_seqs, q_len, num_heads, latent_dim + rope_dim) and one of "
                         f"{', '.join(map(str, QUERY_DTYPES))}, got {q.dtype} {tuple(q.shape)}")
    if (cache.dim() != 3 or cache.stride(2) != 1 or cache.dtype not in (q.dtype, CACHE_8BIT)
            or cache.device != q.device):
        raise InputError(f"the cache must be {q.dtype} or {CACHE_8BIT} of shape (num_blocks, block_size, dim) on "
                         f"{q.device}, the last dimension contiguous, got {cache.dtype} {tuple(cache.shape)} on "
                         f"{cache.device}")
    if cache.shape[2] != q.shape[3] or not 1 <= latent_dim <= min(MAX_LATENT_DIM, q.shape[3] - 1):
        raise InputError("q and cache must have equal vectors, longer than latent_dim, and that at most "
                         f"{MAX_LATENT_DIM}; got {q.shape[3]}, {cache.shape[2]} and latent_dim {latent_dim}")
    for name, value in (("scale", scale), ("cache_scale", cache_scale)):
        if not 0 < value < float("inf"):
            raise InputError(f"{name} must be a number above 0, got {value}")
    if out is not None and (out.shape != (*q.shape[:3], latent_dim) or out.dtype != q.dtype
                            or not out.is_contiguous()):
        raise InputError(f"out must be contiguous {q.dtype} of shape {(*q.shape[:3], latent_dim)}, "
                         f"got {out.dtype} {tuple(out.shape)}")
    check_metadata(block_table, lengths, len(q), q.device)
    if q.device.type == "cpu":
        check_table(block_table.numpy(), lengths.numpy(), cache.shape[1], cache.shape[0], shared=True)


@triton.jit(do_not_specialize=["table_stride"])
def _decode(q_ptr, cache_ptr, table_ptr, lengths_ptr, items_ptr, out_ptr, part_out_ptr, part_log_sum_ptr, scale,
            cache_scale, table_stride, block_stride: tl.int64, token_stride: tl.int64,
            Q_LEN: tl.constexpr, NUM_HEADS: tl.constexpr, LATENT: tl.constexpr, ROPE: tl.constexpr,
            LATENT_PADDED: tl.constexpr, ROPE_PADDED: tl.constexpr, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr,
            ROWS: tl.constexpr, ROW_TILES: tl.constexpr, ITEM_INTS: tl.constexpr, INTERPRET: tl.constexpr):
    """A program takes one item and up to ROWS rows, a row being one query of one head."""
    pid = tl.program_id(0)
    row_tile = pid % ROW_TILES
    item_ptr = items_ptr + pid // ROW_TILES * ITEM_INTS
    seq = tl.load(item_ptr)
    if seq < 0:
        return
    first = tl.load(item_ptr + 1)
    part = tl.load(item_ptr + 3)
    row = row_tile * ROWS + tl.arange(0, ROWS)
    valid = row < Q_LEN * NUM_HEADS
    before = tl.load(lengths_ptr + seq) - Q_LEN
    position = before + row // NUM_HEADS
    high = before + tl.minimum(row_tile * ROWS + ROWS - 1, Q_LEN * NUM_HEADS - 1) // NUM_HEADS
    end = tl.minimum(tl.load(item_ptr + 2), high + 1)

    latent_dims = tl.arange(0, LATENT_PADDED)
    rope_dims = tl.arange(0, ROPE_PADDED)
    q_row = seq.to(tl.int64) * (Q_LEN * NUM_HEADS) + row
    q_start = q_ptr + q_row[:, None] * (LATENT + ROPE)
    q_latent = tl.load(q_start + latent_dims[None, :], mask=valid[:, None] & (latent_dims < LATENT)[None, :], other=0.0)
    q_rope = tl.load(q_start + LATENT + rope_dims[None, :], mask=valid[:, None] & (rope_dims < ROPE)[None, :],
                     other=0.0)

    tokens = tl.arange(0, TILE)
    table = table_ptr + seq.to(tl.int64) * table_stride
    factor = scale * LOG2E
    maximum = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    out = tl.zeros([ROWS, LATENT_PADDED], tl.float32)
    block = tl.load(table + (first + tokens) // BLOCK_SIZE, mask=first + tokens < end, other=0)
    for start in tl.range(first, end, TILE):
        token = start + tokens
        stored = token < end  # slots behind the end may hold NaN
        cell = cache_ptr + (block.to(tl.int64) * block_stride + (token % BLOCK_SIZE) * token_stride)[:, None]
        block = tl.load(table + (token + TILE) // BLOCK_SIZE, mask=token + TILE < end, other=0)
        latent = tl.load(cell + latent_dims[None, :], mask=stored[:, None] & (latent_dims < LATENT)[None, :], other=0.0)
        rope = tl.load(cell + LATENT + rope_dims[None, :], mask=stored[:, None] & (rope_dims < ROPE)[None, :],
                       other=0.0)
        latent, rope = latent.to(q_latent.dtype), rope.to(q_rope.dtype)  # exact: every e4m3 value is one of theirs
        if INTERPRET and q_latent.dtype == tl.bfloat16:  # the interpreter multiplies the bits of bf16 operands
            scores = tl.dot(q_latent.to(tl.float32), tl.trans(latent.to(tl.float32)))
            scores = tl.dot(q_rope.to(tl.float32), tl.trans(rope.to(tl.float32)), scores)
        else:
            scores = tl.dot(q_latent, tl.trans(latent), input_precision="ieee")
            scores = tl.dot(q_rope, tl.trans(rope), scores, input_precision="ieee")
        seen = stored[None, :] & (token[None, :] <= position[:, None])
        scores = tl.where(seen, scores, float("-inf"))
        maximum, total, out = accumulate(scores, factor, latent, q_latent, maximum, total, out, True, INTERPRET)

    out = normalise(total, out) * cache_scale
    cell_mask = valid[:, None] & (latent_dims < LATENT)[None, :]
    if part < 0:
        rounded = round_to(out, out_ptr.dtype.element_ty, INTERPRET)
        tl.store(out_ptr + q_row[:, None] * LATENT + latent_dims[None, :], rounded, mask=cell_mask)
    else:
        part_row = part.to(tl.int64) * (Q_LEN * NUM_HEADS) + row
        tl.store(part_out_ptr + part_row[:, None] * LATENT + latent_dims[None, :], out, mask=cell_mask)
        log_sum = tl.where(total == 0, float("-inf"), maximum + tl.log2(tl.where(total == 0, 1.0, total)))
        tl.store(part_log_sum_ptr + part_row, log_sum, mask=valid)
