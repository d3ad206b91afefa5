"""Attention to shared tokens for Hopper in Triton's Gluon dialect: ``general.shared`` by the roles of ``prefill``.

A persistent CTA takes every so many-th pair of an item and a KV head.  Two warps fetch keys and values; each consumer,
a warpgroup, gathers the queries of 64 of the item's 128 rows and attends for them as in prefill, but for the causal
mask: every row sees every token.  An item of 64 rows or fewer leaves the second consumer idle, and memory is the limit.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared, mbarrier, warpgroup_mma, warpgroup_mma_wait)
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from pagesim.kernels import sharing
from pagesim.kernels.hopper.merge import sync_threads
from pagesim.kernels.hopper.prefill import (
    HALF, NUM_SLOTS, PART, ROWS, TILE, M, barriers, fetch, lookup, narrow, own_sum, scale_rows, silence, step, weigh)
from pagesim.kernels.hopper.producers import advance

SEQ = gl.constexpr(sharing.SEQ)
FIRST = gl.constexpr(sharing.FIRST)
END = gl.constexpr(sharing.END)
FIRST_MEMBER = gl.constexpr(sharing.FIRST_MEMBER)
NUM_MEMBERS = gl.constexpr(sharing.NUM_MEMBERS)
FIRST_ROW = gl.constexpr(sharing.FIRST_ROW)
PART_NUMBER = gl.constexpr(sharing.PART)
ITEM = gl.constexpr(sharing.ITEM_INTS)


@gluon.jit
def _pairs(header, S: gl.constexpr):
    """This CTA's pairs of an item and a KV head: end and step of a range."""
    num_programs = gl.load(header + 1)
    return gl.where(gl.program_id(0) < num_programs, gl.load(header) * S.NUM_KV_HEADS, 0), num_programs


@gluon.jit
def _fetch_tiles(desc, ring, table, header, items, table_stride, S: gl.constexpr):
    """Keys, or values, of every pair of this CTA, each from its last tile down to its first."""
    slot = gl.to_tensor(0)
    phase = gl.to_tensor(1)
    end_pair, num_programs = _pairs(header, S)
    for pair in range(gl.program_id(0), end_pair, num_programs):
        item = items + pair // S.NUM_KV_HEADS * ITEM
        seq = gl.load(item + SEQ)
        first = gl.load(item + FIRST)
        end = gl.load(item + END)
        for t in range((end - first + TILE - 1) // TILE - 1, -1, -1):
            ids = lookup(table, seq, end, first + t * TILE, table_stride, S)
            fetch(desc, ring, slot, phase, ids, pair % S.NUM_KV_HEADS, first + t * TILE, S)
            slot, phase = advance(slot, phase, NUM_SLOTS)


@gluon.jit
def _rows(item, members, layout: gl.constexpr, C: gl.constexpr, S: gl.constexpr):
    """Of this consumer's rows: whether there are any, their sequences, and their place in a sequence's queries."""
    row = gl.load(item + FIRST_ROW) + C * M + gl.arange(0, M, layout)
    valid = row < gl.load(item + NUM_MEMBERS) * (S.Q_LEN * S.GROUP)
    seq = gl.load(members + gl.load(item + FIRST_MEMBER) + row // (S.Q_LEN * S.GROUP), mask=valid, other=0)
    return valid, seq, row % (S.Q_LEN * S.GROUP)


@gluon.jit
def _gather_queries(q, q_tile, item, members, head, C: gl.constexpr, S: gl.constexpr):
    D: gl.constexpr = S.HEAD_DIM
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // D, D // 8], [4, 1], [1, 0])
    column = gl.arange(0, D, gl.SliceLayout(0, layout))
    valid, seq, inner = _rows(item, members, gl.SliceLayout(1, layout), C, S)
    at = ((seq.to(gl.int64) * S.Q_LEN + inner // S.GROUP) * S.NUM_KV_HEADS + head) * S.GROUP + inner % S.GROUP
    rows = gl.load(q + at[:, None] * D + column[None, :], mask=valid[:, None] & (column >= 0)[None, :], other=0.0)
    sync_threads()  # the products of the item before are done in all warps
    q_tile.store(rows)
    fence_async_shared()
    sync_threads()


@gluon.jit
def _store_part(o, log_sum, item, members, first_parts, head, partial, lse, C: gl.constexpr, S: gl.constexpr):
    D: gl.constexpr = S.HEAD_DIM
    column = gl.arange(0, D, gl.SliceLayout(0, o.type.layout))
    valid, seq, inner = _rows(item, members, gl.SliceLayout(1, o.type.layout), C, S)
    part = gl.load(first_parts + seq * S.HEAD_GROUPS + head // S.HEADS, mask=valid, other=0)
    part += gl.load(item + PART_NUMBER)
    at = part.to(gl.int64) * S.PART_ROWS + head % S.HEADS * S.HEAD_ROWS
    at += inner // S.GROUP * S.QUERY_ROWS + inner % S.GROUP
    gl.store(partial + at[:, None] * D + column[None, :], o, mask=valid[:, None] & (column >= 0)[None, :])
    gl.store(lse + at, gl.convert_layout(log_sum, gl.SliceLayout(1, o.type.layout)), mask=valid)


@gluon.jit
def _pass_over(keys, values, num_tiles, slot, phase):
    _, k_full, k_empty = keys
    _, v_full, v_empty = values
    for _ in range(num_tiles):
        mbarrier.wait(k_full.index(slot), phase)
        mbarrier.arrive(k_empty.index(slot), count=1)
        mbarrier.wait(v_full.index(slot), phase)
        mbarrier.arrive(v_empty.index(slot), count=1)
        slot, phase = advance(slot, phase, NUM_SLOTS)
    return slot, phase


@gluon.jit
def _consumer(q, q_tiles, keys, values, v_parts, header, first_parts, members, items, partial, lse, scale_log2,
              C: gl.constexpr, S: gl.constexpr):
    """Attend for rows ``[64 · C, 64 · C + 64)`` of every item."""
    k_tiles, k_full, k_empty = keys
    v_tiles, v_full, v_empty = values
    D: gl.constexpr = S.HEAD_DIM
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TILE, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    p_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, 2)
    q_tile = q_tiles.index(C)
    slot = gl.to_tensor(0)
    phase = gl.to_tensor(0)
    end_pair, num_programs = _pairs(header, S)
    for pair in range(gl.program_id(0), end_pair, num_programs):
        item = items + pair // S.NUM_KV_HEADS * ITEM
        head = pair % S.NUM_KV_HEADS
        tokens = gl.load(item + END) - gl.load(item + FIRST)
        num_tiles = (tokens + TILE - 1) // TILE
        if gl.load(item + FIRST_ROW) + C * M >= gl.load(item + NUM_MEMBERS) * (S.Q_LEN * S.GROUP):
            slot, phase = _pass_over(keys, values, num_tiles, slot, phase)
        else:
            _gather_queries(q, q_tile, item, members, head, C, S)
            tail = tokens - (num_tiles - 1) * TILE
            limit = gl.full([M], 0, gl.int32, gl.SliceLayout(1, s_layout)) + tail
            mbarrier.wait(k_full.index(slot), phase)
            s = warpgroup_mma(q_tile, k_tiles.index(slot).permute((1, 0)), gl.zeros([M, TILE], gl.float32, s_layout),
                              use_acc=False, is_async=True)
            s = warpgroup_mma_wait(0, [s])
            mbarrier.arrive(k_empty.index(slot), count=1)
            m = gl.full([M], float("-inf"), gl.float32, gl.SliceLayout(1, s_layout))
            w, m, _ = weigh(s, m, limit, scale_log2, True)
            total = own_sum(w)
            p = gl.convert_layout(narrow(w, k_tiles.dtype), p_layout)
            o = gl.zeros([M, D], gl.float32, o_layout)
            if tail < TILE:
                mbarrier.wait(v_full.index(slot), phase)
                silence(v_parts, slot, tail, S)
            for _ in range(num_tiles - 1):
                p, o, m, total, slot, phase = step(q_tile, p, o, m, total, slot, phase, keys, values, limit, scale_log2,
                                                   False, s_layout)
            mbarrier.wait(v_full.index(slot), phase)
            o = warpgroup_mma(p, v_tiles.index(slot), o, is_async=True)
            o = warpgroup_mma_wait(0, [o])
            mbarrier.arrive(v_empty.index(slot), count=1)
            slot, phase = advance(slot, phase, NUM_SLOTS)
            row_sum = gl.sum(total, 1)
            log_sum = m + gl.convert_layout(gl.log2(row_sum), m.type.layout)
            _store_part(scale_rows(o, 1 / row_sum), log_sum, item, members, first_parts, head, partial, lse, C, S)


@gluon.jit(do_not_specialize=["table_stride"])
def attend_shared(q, k, v, table, header, first_parts, members, items, partial, lse, scale_log2, table_stride,
                  S: gl.constexpr, num_warps: gl.constexpr):
    """``k`` and ``v`` are TMA descriptors; the plan's tensors are as in ``general.shared``; ``S`` is a ``Shape``."""
    D: gl.constexpr = S.HEAD_DIM
    BOXES: gl.constexpr = NUM_SLOTS * (D // HALF) * (TILE // S.BOX)
    dtype: gl.constexpr = q.dtype.element_ty
    plane: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    kv_box: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=4)
    q_tiles = gl.allocate_shared_memory(dtype, [ROWS // M, M, D], plane)
    # The same memory as boxes, which TMA fills, and as tiles, which products take.
    k_boxes = gl.allocate_shared_memory(dtype, [BOXES, 1, 1, S.BOX, HALF], kv_box)
    v_boxes = gl.allocate_shared_memory(dtype, [BOXES, 1, 1, S.BOX, HALF], kv_box)
    k_tiles = k_boxes._reinterpret(dtype, [NUM_SLOTS, TILE, D], plane)
    v_tiles = v_boxes._reinterpret(dtype, [NUM_SLOTS, TILE, D], plane)
    v_parts = v_boxes._reinterpret(dtype, [NUM_SLOTS * (D // HALF) * (TILE // PART), PART, HALF], plane)
    k_full, k_empty = barriers(NUM_SLOTS, 2)
    v_full, v_empty = barriers(NUM_SLOTS, 2)
    gdc_wait()
    gdc_launch_dependents()
    keys = (k_tiles, k_full, k_empty)
    values = (v_tiles, v_full, v_empty)
    gl.warp_specialize(
        [(_consumer, (q, q_tiles, keys, values, v_parts, header, first_parts, members, items, partial, lse,
                      scale_log2, 0, S)),
         (_consumer, (q, q_tiles, keys, values, v_parts, header, first_parts, members, items, partial, lse,
                      scale_log2, 1, S)),
         (_fetch_tiles, (k, (k_boxes, k_full, k_empty), table, header, items, table_stride, S)),
         (_fetch_tiles, (v, (v_boxes, v_full, v_empty), table, header, items, table_stride, S))],
        [4, 1, 1], [232, 40, 40])
