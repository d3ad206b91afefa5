"""Attention of many sequences' queries to tokens that they share: each tile of them is read once for up to 128 rows.

A row is one query of one head of a KV head's group; those of a stretch's members lie one after another in the rows of a
product.  A member gets a partial result from each chunk of a stretch, to be merged with what its own tokens give.
"""

import torch
import triton
import triton.language as tl

from pagesim.kernels.cache import Cache
from pagesim.kernels.general.attend import INTERPRET, INTERPRETED_TILE, as_pairs, attend, normalise, round_to
from pagesim.kernels.general.prefill import limits
from pagesim.kernels.launch import gdc_launch_dependents, gdc_wait, launch, next_power_of_2, overlaps
from pagesim.kernels.mask import Mask
from pagesim.kernels.shared_plan import Places, SharedPlan
from pagesim.kernels.sharing import ITEM_INTS

LEAST_ROWS = 16


def make_plan(q: torch.Tensor, cache: Cache, places: Places, *, beside_decode: bool = False) -> SharedPlan:
    most_rows = limits(next_power_of_2(cache.geometry.head_dim), q.dtype)[0]
    return SharedPlan(q, cache, places, least_rows=LEAST_ROWS, most_rows=most_rows, beside_decode=beside_decode)


def attend_shared(q: torch.Tensor, cache: Cache, block_table: torch.Tensor, mask: Mask, plan: SharedPlan,
                  partial: torch.Tensor, log_sum: torch.Tensor) -> None:
    """Write the partial results of what ``plan`` has found; arguments as of ``decode``, and checked there.

    Args:
        partial, log_sum: of the decode plan, fp32, in rows of the plan's ``places``.
    """
    key = (plan.tile_rows, cache.layout, mask.softcap,
           *((x.shape, x.stride(), x.dtype, x.data_ptr() % 16 == 0) for x in (q, cache.k, cache.v, block_table)))
    kept = None if INTERPRET else plan.kept.setdefault(key, {})
    cache = as_pairs(q, cache)
    pool, places = cache.geometry, plan.places
    q_len, num_q_heads, head_dim = q.shape[1:]
    padded = next_power_of_2(head_dim)
    _, tile, stages = limits(padded, q.dtype)
    header, first_parts, _, members, items = plan.tensors
    arguments = (q, cache.k, cache.v, block_table, header, first_parts, members, items, partial, log_sum,
                 mask.scale_of(head_dim) * cache.scales[0], cache.scales[1],
                 block_table.stride(0), pool.block_stride, pool.token_stride, pool.head_stride)
    constants = dict(
        Q_LEN=q_len, GROUP=num_q_heads // pool.num_kv_heads, NUM_KV_HEADS=pool.num_kv_heads, HEAD_DIM=head_dim,
        PADDED=padded, BLOCK_SIZE=pool.block_size, TILE=INTERPRETED_TILE if INTERPRET else tile, ROWS=plan.tile_rows,
        SOFTCAP=mask.softcap or 0.0, HEADS=places.heads, HEAD_GROUPS=places.head_groups, PART_ROWS=places.part_rows,
        HEAD_ROWS=places.head_rows, QUERY_ROWS=places.query_rows, ITEM_INTS=ITEM_INTS, INTERPRET=INTERPRET,
        OVERLAPS=overlaps(q.device))
    launch(_shared, plan.num_programs, arguments, constants, kept, num_warps=8 if plan.tile_rows > 64 else 4,
           num_stages=stages)


@triton.jit(do_not_specialize=["table_stride"])
def _shared(q_ptr, k_ptr, v_ptr, table_ptr, header_ptr, first_parts_ptr, members_ptr, items_ptr, part_out_ptr,
            part_log_sum_ptr, scale, v_scale, table_stride, block_stride: tl.int64, token_stride: tl.int64,
            head_stride: tl.int64, Q_LEN: tl.constexpr, GROUP: tl.constexpr, NUM_KV_HEADS: tl.constexpr,
            HEAD_DIM: tl.constexpr, PADDED: tl.constexpr, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr,
            ROWS: tl.constexpr, SOFTCAP: tl.constexpr, HEADS: tl.constexpr, HEAD_GROUPS: tl.constexpr,
            PART_ROWS: tl.constexpr, HEAD_ROWS: tl.constexpr, QUERY_ROWS: tl.constexpr, ITEM_INTS: tl.constexpr,
            INTERPRET: tl.constexpr, OVERLAPS: tl.constexpr):
    """A program takes every so many-th pair of an item and a KV head; the grid is the same whatever is shared."""
    if OVERLAPS:
        gdc_wait()
        gdc_launch_dependents()
    dims = tl.arange(0, PADDED)
    num_programs = tl.load(header_ptr + 1)
    end_pair = tl.where(tl.program_id(0) < num_programs, tl.load(header_ptr) * NUM_KV_HEADS, 0)
    for pair in tl.range(tl.program_id(0), end_pair, num_programs):
        head = pair % NUM_KV_HEADS
        item_ptr = items_ptr + pair // NUM_KV_HEADS * ITEM_INTS
        seq = tl.load(item_ptr)
        first = tl.load(item_ptr + 1)
        end = tl.load(item_ptr + 2)
        row = tl.load(item_ptr + 5) + tl.arange(0, ROWS)
        valid = row < tl.load(item_ptr + 4) * (Q_LEN * GROUP)
        member = tl.load(members_ptr + tl.load(item_ptr + 3) + row // (Q_LEN * GROUP), mask=valid, other=0)
        query = row % (Q_LEN * GROUP) // GROUP
        cell = valid[:, None] & (dims < HEAD_DIM)[None, :]
        q_row = ((member.to(tl.int64) * Q_LEN + query) * NUM_KV_HEADS + head) * GROUP + row % GROUP
        q = tl.load(q_ptr + q_row[:, None] * HEAD_DIM + dims[None, :], mask=cell, other=0.0)
        open_end = first + (end - first) // TILE * TILE
        maximum, total, out = attend(
            q, k_ptr + head * head_stride, v_ptr + head * head_stride, table_ptr + seq.to(tl.int64) * table_stride,
            row * 0 + end, first, first, open_end, end, scale, block_stride, token_stride, dims, dims, HEAD_DIM,
            HEAD_DIM, BLOCK_SIZE, TILE, -1, SOFTCAP, INTERPRET)
        out = normalise(total, out) * v_scale
        part = tl.load(first_parts_ptr + member * HEAD_GROUPS + head // HEADS, mask=valid, other=0)
        part += tl.load(item_ptr + 6)
        part_row = part.to(tl.int64) * PART_ROWS + head % HEADS * HEAD_ROWS + query * QUERY_ROWS + row % GROUP
        tl.store(part_out_ptr + part_row[:, None] * HEAD_DIM + dims[None, :], out, mask=cell)
        tl.store(part_log_sum_ptr + part_row, maximum + tl.log2(total), mask=valid)


def merge_parts(plan: SharedPlan, partial: torch.Tensor, log_sum: torch.Tensor, out: torch.Tensor) -> None:
    """Merge all parts of each sequence that has any, into ``out``, (num_seqs, q_len, num_q_heads, head_dim)."""
    places, (num_seqs, q_len, num_q_heads, head_dim) = plan.places, out.shape
    num_kv_heads = places.heads * places.head_groups
    rows = next_power_of_2(q_len * num_q_heads // num_kv_heads)
    constants = dict(
        Q_LEN=q_len, GROUP=num_q_heads // num_kv_heads, NUM_KV_HEADS=num_kv_heads, HEAD_DIM=head_dim,
        PADDED=next_power_of_2(head_dim), ROWS=rows, PARTS=max(1, min(8, 32 // rows)), HEADS=places.heads,
        HEAD_GROUPS=places.head_groups, PART_ROWS=places.part_rows, HEAD_ROWS=places.head_rows,
        QUERY_ROWS=places.query_rows, INTERPRET=INTERPRET, OVERLAPS=overlaps(out.device))
    _, first_parts, num_parts, _, _ = plan.tensors
    kept = None if INTERPRET else plan.kept.setdefault(("merge", out.dtype, out.data_ptr() % 16), {})
    launch(_merge, num_seqs * num_kv_heads, (first_parts, num_parts, partial, log_sum, out), constants, kept,
           num_warps=4)


@triton.jit
def _merge(first_parts_ptr, num_parts_ptr, part_out_ptr, log_sum_ptr, out_ptr, Q_LEN: tl.constexpr, GROUP: tl.constexpr,
           NUM_KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr,
           PARTS: tl.constexpr, HEADS: tl.constexpr, HEAD_GROUPS: tl.constexpr, PART_ROWS: tl.constexpr,
           HEAD_ROWS: tl.constexpr, QUERY_ROWS: tl.constexpr, INTERPRET: tl.constexpr, OVERLAPS: tl.constexpr):
    """A program merges the parts of one sequence's rows of one KV head; parts that saw nothing weigh nothing."""
    if OVERLAPS:
        gdc_launch_dependents()
        gdc_wait()
    head = tl.program_id(0) % NUM_KV_HEADS
    seq = tl.program_id(0) // NUM_KV_HEADS
    num_parts = tl.load(num_parts_ptr + seq * HEAD_GROUPS + head // HEADS)
    if num_parts == 0:
        return
    first = tl.load(first_parts_ptr + seq * HEAD_GROUPS + head // HEADS)
    row = tl.arange(0, ROWS)
    dims = tl.arange(0, PADDED)
    valid = row < Q_LEN * GROUP
    inner = head % HEADS * HEAD_ROWS + row // GROUP * QUERY_ROWS + row % GROUP
    maximum = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    out = tl.zeros([ROWS, PADDED], tl.float32)
    for start in tl.range(0, num_parts, PARTS):
        part = start + tl.arange(0, PARTS)
        there = (part < num_parts)[None, :] & valid[:, None]
        at = (first + part).to(tl.int64)[None, :] * PART_ROWS + inner[:, None]
        log_sum = tl.load(log_sum_ptr + at, mask=there, other=float("-inf"))
        part_out = tl.load(part_out_ptr + at[:, :, None] * HEAD_DIM + dims[None, None, :],
                           mask=there[:, :, None] & (dims < HEAD_DIM)[None, None, :], other=0.0)
        new = tl.maximum(maximum, tl.max(log_sum, 1))
        base = tl.where(new == float("-inf"), 0.0, new)
        weights = tl.exp2(log_sum - base[:, None])
        keep = tl.exp2(maximum - base)
        total = total * keep + tl.sum(weights, 1)
        out = out * keep[:, None] + tl.sum(weights[:, :, None] * part_out, 1)
        maximum = new
    out = round_to(normalise(total, out), out_ptr.dtype.element_ty, INTERPRET)
    out_row = ((seq.to(tl.int64) * Q_LEN + row // GROUP) * NUM_KV_HEADS + head) * GROUP + row % GROUP
    tl.store(out_ptr + out_row[:, None] * HEAD_DIM + dims[None, :], out,
             mask=valid[:, None] & (dims < HEAD_DIM)[None, :])
