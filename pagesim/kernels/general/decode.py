"""Paged decode for every shape: a few query tokens a sequence attend to its cache through the block table.

One kernel for every block size, group, head_dim and dtype, written for memory bandwidth and not for one GPU.
Sequences are cut into items (``split``); an item that is not a whole sequence leaves a partial result, and a second
kernel merges.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from pagesim.errors import InputError
from pagesim.kernels.cache import Cache
from pagesim.kernels.general.attend import (
    INTERPRET, INTERPRETED_TILE, LOG2E, add_sink, as_pairs, attend, normalise, open_tiles, round_to)
from pagesim.kernels.general.split import CUT_INTS, ITEM_INTS, Split, num_sms
from pagesim.kernels.launch import Kept, gdc_launch_dependents, gdc_wait, launch, next_power_of_2, overlaps
from pagesim.kernels.mask import CAUSAL, Mask
from pagesim.kernels.validate import check_decode

MERGE_PARTS = 8
MAX_ROWS = 64


class Workspace(NamedTuple):
    """Partial results of cut sequences: fp32 outputs (parts, q_len, num_q_heads, head_dim) and base-2 log sums."""

    out: torch.Tensor
    log_sum: torch.Tensor


def make_workspace(num_parts: int, q_len: int, num_q_heads: int, head_dim: int, device: torch.device) -> Workspace:
    out = torch.empty((num_parts, q_len, num_q_heads, head_dim), dtype=torch.float32, device=device)
    return Workspace(out, torch.empty(out.shape[:-1], dtype=torch.float32, device=device))


def fitting_workspace(workspace: Workspace | None, plan: Split, out: torch.Tensor) -> Workspace:
    """The given workspace, or a new one, for a plan and outputs (num_seqs, q_len, num_heads, head_dim).

    Raises:
        InputError: the given one is too small or of another shape.
    """
    if workspace is None:
        return make_workspace(plan.num_parts, *out.shape[1:], out.device)
    if workspace.out.shape[0] < plan.num_parts or workspace.out.shape[1:] != out.shape[1:]:
        raise InputError(f"the workspace must hold {plan.num_parts} parts of {tuple(out.shape[1:])}, "
                         f"got {tuple(workspace.out.shape)}")
    return workspace


def decode(q: torch.Tensor, cache: Cache, block_table: torch.Tensor, lengths: torch.Tensor, plan: Split, *,
           mask: Mask = CAUSAL, out: torch.Tensor | None = None, workspace: Workspace | None = None,
           tile_tokens: int | None = None, kept: Kept | None = None) -> torch.Tensor:
    """Attention of each sequence's last ``q_len`` tokens over its paged cache, causal.

    Args:
        q: (num_seqs, q_len, num_q_heads, head_dim), contiguous, fp16, bf16 or fp32.
        cache: of q's dtype or fp8 e4m3.
        block_table: int32 (num_seqs, max_blocks), rows contiguous.
        lengths: int32 (num_seqs,), visible tokens, the queries' own included; may be 0.
        plan: items that cover each sequence; those of a plan made for longer sequences do nothing beyond the length.
        workspace: reused partial results; must hold the plan's parts.
        tile_tokens: a power of two instead of ``default_tile``.
        kept: what the first call with it compiled, for later ones that differ from it in contents and scales alone:
            they are not checked again and go round Triton's own launch, which takes longer than a small batch's kernel.

    Returns:
        ``out``, shape and dtype of ``q``; zeros for queries that see nothing.

    Raises:
        InputError: arguments that do not fit together; on the CPU also wrong table entries.
    """
    if not kept:
        check_decode(q, cache, block_table, lengths, mask, out)
    cache = as_pairs(q, cache)
    pool = cache.geometry
    q_len, num_q_heads, head_dim = q.shape[1:]
    out = torch.empty_like(q) if out is None else out
    workspace = fitting_workspace(workspace, plan, out)
    group = num_q_heads // pool.num_kv_heads
    max_rows = 16 if q.dtype == torch.float32 else MAX_ROWS  # fp32 products take no tensor core but many registers
    rows = min(max_rows, max(16, next_power_of_2(q_len * group)))  # 16: the least side of a tensor-core product
    row_tiles = -(-q_len * group // rows)
    padded = next_power_of_2(head_dim)
    sinks = q if mask.sinks is None else mask.sinks  # which is not read then
    num_programs = plan.items.shape[0] * row_tiles * pool.num_kv_heads
    # A larger grid would fill the SMs unevenly while the kernel before still holds some.
    overlap = overlaps(q.device) and num_programs <= num_sms(q.device)
    if num_programs:
        arguments = (
            q, cache.k, cache.v, block_table, lengths, plan.items, sinks, out, workspace.out, workspace.log_sum,
            mask.scale_of(head_dim) * cache.scales[0], cache.scales[1],
            block_table.stride(0), pool.block_stride, pool.token_stride, pool.head_stride)
        constants = dict(
            Q_LEN=q_len, GROUP=group, NUM_KV_HEADS=pool.num_kv_heads, HEAD_DIM=head_dim, PADDED=padded,
            BLOCK_SIZE=pool.block_size,
            TILE=tile_tokens or default_tile(next_power_of_2(pool.head_dim), cache.k.dtype), ROWS=rows,
            ROW_TILES=row_tiles, WINDOW=-1 if mask.window is None else mask.window, SOFTCAP=mask.softcap or 0.0,
            SINKS=mask.sinks is not None, ITEM_INTS=ITEM_INTS, INTERPRET=INTERPRET, OVERLAPS=overlap)
        launch(_decode, num_programs, arguments, constants, kept,
               num_warps=8 if q.dtype == torch.float32 or rows * padded > 64 * 128 else 4, num_stages=3)
    merge(plan, workspace, out, kept, overlap, mask.sinks)
    return out


def merge(plan: Split, workspace: Workspace, out: torch.Tensor, kept: Kept | None = None, overlap: bool = False,
          sinks: torch.Tensor | None = None) -> None:
    """Merge the parts of cut sequences, and sinks, into ``out``, (num_seqs, q_len, num_heads, head_dim)."""
    num_cuts = plan.cuts.shape[0]
    if num_cuts:
        rows, head_dim = out.shape[1] * out.shape[2], out.shape[3]
        constants = dict(ROWS=rows, HEAD_DIM=head_dim, PADDED=next_power_of_2(head_dim), PARTS=MERGE_PARTS,
                         NUM_HEADS=out.shape[2], SINKS=sinks is not None, CUT_INTS=CUT_INTS, INTERPRET=INTERPRET,
                         OVERLAPS=overlap)
        arguments = plan.cuts, workspace.out, workspace.log_sum, out if sinks is None else sinks, out
        launch(_merge, num_cuts * rows, arguments, constants, kept, num_warps=2)


def default_tile(padded_head_dim: int, dtype: torch.dtype) -> int:
    """Tokens of a tile: two buffers of K and V tiles, with what else an SM holds, leave room for two or three CTAs."""
    if INTERPRET:
        return INTERPRETED_TILE
    return 64 if padded_head_dim * dtype.itemsize <= 256 else 32


@triton.jit(do_not_specialize=["table_stride"])
def _decode(q_ptr, k_ptr, v_ptr, table_ptr, lengths_ptr, items_ptr, sinks_ptr, out_ptr, part_out_ptr,
            part_log_sum_ptr, scale, v_scale, table_stride, block_stride: tl.int64, token_stride: tl.int64,
            head_stride: tl.int64,
            Q_LEN: tl.constexpr, GROUP: tl.constexpr, NUM_KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
            PADDED: tl.constexpr, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr, ROWS: tl.constexpr,
            ROW_TILES: tl.constexpr, WINDOW: tl.constexpr, SOFTCAP: tl.constexpr, SINKS: tl.constexpr,
            ITEM_INTS: tl.constexpr, INTERPRET: tl.constexpr, OVERLAPS: tl.constexpr):
    """A program takes one item, one KV head and up to ROWS rows: one query of one of the head's GROUP heads each."""
    if OVERLAPS:
        gdc_launch_dependents()
        gdc_wait()
    pid = tl.program_id(0)
    head = pid % NUM_KV_HEADS
    row_tile = pid // NUM_KV_HEADS % ROW_TILES
    item_ptr = items_ptr + (pid // (NUM_KV_HEADS * ROW_TILES)) * ITEM_INTS
    seq = tl.load(item_ptr)
    if seq < 0:
        return
    first = tl.load(item_ptr + 1)
    end = tl.load(item_ptr + 2)
    part = tl.load(item_ptr + 3)
    row = row_tile * ROWS + tl.arange(0, ROWS)
    query = row // GROUP
    valid = row < Q_LEN * GROUP
    before = tl.load(lengths_ptr + seq) - Q_LEN  # tokens in front of the first query
    low = before + row_tile * ROWS // GROUP      # positions of this tile's first and last query
    high = before + tl.minimum(row_tile * ROWS + ROWS - 1, Q_LEN * GROUP - 1) // GROUP
    end = tl.minimum(end, high + 1)
    if WINDOW >= 0:
        first = tl.maximum(first, low - WINDOW)  # what lies before may be evicted
    open_first, open_end = open_tiles(first, end, low, high, TILE, WINDOW)

    dims = tl.arange(0, PADDED)
    cell = valid[:, None] & (dims < HEAD_DIM)[None, :]
    offset = query * (NUM_KV_HEADS * GROUP) + head * GROUP + row % GROUP  # row within the sequence's block of outputs
    out_row = seq.to(tl.int64) * (Q_LEN * NUM_KV_HEADS * GROUP) + offset
    q = tl.load(q_ptr + out_row[:, None] * HEAD_DIM + dims[None, :], mask=cell, other=0.0)
    maximum, total, out = attend(
        q, k_ptr + head * head_stride, v_ptr + head * head_stride, table_ptr + seq.to(tl.int64) * table_stride,
        before + query, first, open_first, open_end, end, scale, block_stride, token_stride, dims, dims, HEAD_DIM,
        HEAD_DIM, BLOCK_SIZE, TILE, WINDOW, SOFTCAP, INTERPRET)
    if SINKS:  # noqa: SIM102 - known when compiling, the next one when running
        if part < 0:  # else it is merged in
            sink = tl.load(sinks_ptr + head * GROUP + row % GROUP, mask=valid, other=0.0)
            total, out = add_sink(sink, maximum, total, out)
    out = normalise(total, out) * v_scale
    if part < 0:
        tl.store(out_ptr + out_row[:, None] * HEAD_DIM + dims[None, :],
                 round_to(out, out_ptr.dtype.element_ty, INTERPRET), mask=cell)
    else:
        part_row = part.to(tl.int64) * (Q_LEN * NUM_KV_HEADS * GROUP) + offset
        tl.store(part_out_ptr + part_row[:, None] * HEAD_DIM + dims[None, :], out, mask=cell)
        # NaN stays NaN: poison that was read must show.
        log_sum = tl.where(total == 0, float("-inf"), maximum + tl.log2(tl.where(total == 0, 1.0, total)))
        tl.store(part_log_sum_ptr + part_row, log_sum, mask=valid)


@triton.jit
def _merge(cuts_ptr, part_out_ptr, part_log_sum_ptr, sinks_ptr, out_ptr, ROWS: tl.constexpr, HEAD_DIM: tl.constexpr,
           PADDED: tl.constexpr, PARTS: tl.constexpr, NUM_HEADS: tl.constexpr, SINKS: tl.constexpr,
           CUT_INTS: tl.constexpr, INTERPRET: tl.constexpr, OVERLAPS: tl.constexpr):
    """A program merges the parts of one output row of a cut sequence; parts that saw nothing weigh nothing."""
    if OVERLAPS:
        gdc_launch_dependents()
        gdc_wait()
    pid = tl.program_id(0)
    row = pid % ROWS
    cut_ptr = cuts_ptr + pid // ROWS * CUT_INTS
    seq = tl.load(cut_ptr)
    if seq < 0:
        return
    first = tl.load(cut_ptr + 1)
    end = tl.load(cut_ptr + 2)
    dims = tl.arange(0, PADDED)
    maximum = tl.full([1], float("-inf"), tl.float32)
    total = tl.zeros([1], tl.float32)
    if SINKS:
        maximum = tl.zeros([1], tl.float32) + tl.load(sinks_ptr + row % NUM_HEADS).to(tl.float32) * LOG2E
        total += 1.0
    out = tl.zeros([PADDED], tl.float32)
    for start in tl.range(first, end, PARTS):
        part = start + tl.arange(0, PARTS)
        part_row = part.to(tl.int64) * ROWS + row
        log_sum = tl.load(part_log_sum_ptr + part_row, mask=part < end, other=float("-inf"))
        part_out = tl.load(part_out_ptr + part_row[:, None] * HEAD_DIM + dims[None, :],
                           mask=(part < end)[:, None] & (dims < HEAD_DIM)[None, :], other=0.0)
        new = tl.maximum(maximum, tl.max(log_sum, 0))
        base = tl.where(new == float("-inf"), 0.0, new)
        weights = tl.exp2(log_sum - base)
        keep = tl.exp2(maximum - base)
        total = total * keep + tl.sum(weights, 0)
        out = out * keep + tl.sum(weights[:, None] * part_out, 0)
        maximum = new
    out = out / tl.where(total == 0, 1.0, total)
    tl.store(out_ptr + (seq.to(tl.int64) * ROWS + row) * HEAD_DIM + dims,
             round_to(out, out_ptr.dtype.element_ty, INTERPRET), mask=dims < HEAD_DIM)
