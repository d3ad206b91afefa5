"""Paged decode for Hopper in Triton's Gluon dialect: persistent CTAs, each with a ring of tiles in shared memory.

An SM holds one CTA that works on 8 KV heads at once or two of 4: 16 tokens of 8 heads are 32 KiB.  Warp h computes head
h alone, so neither softmax nor products move data between warps.  A producer (``producers``) walks the CTA's
records (``plan``), then those that it draws, and keeps the ring full across their boundaries: the memory pipeline never
drains.  Three slots: a deeper ring queues more in the memory system and shares bandwidth less evenly, and was slower.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from pagesim.kernels.hopper.merge import announce, merge_share
from pagesim.kernels.hopper.producers import (
    FIRST_TILE, GATHER_WARPS, GROUP, MAIL, NEXT, NUM_TILES, RECORD, SEQ, SHARE, SLOT, TILE, TOKENS, advance,
    fetch_boxes, fetch_tokens, read_field)

M = gl.constexpr(16)  # query rows of a product, the least that a tensor core takes


@gluon.jit
def _step(q, m, total, acc, box, phase, limit, tokens, row_token, scale_log2, ring, full, empty, MASK: gl.constexpr,
          mma: gl.constexpr, S: gl.constexpr):
    """Attend to one tile.  With MASK, row r sees its first ``limit + row_token[r]`` tokens, and ``tokens`` exist."""
    SHAPE: gl.constexpr = [S.HEADS, TILE, S.HEAD_DIM]
    rhs: gl.constexpr = gl.DotOperandLayout(1, mma, 2)
    mbarrier.wait(full.index(box), phase)
    k = ring.index(box).reshape(SHAPE).permute((0, 2, 1)).load(rhs)
    fence_async_shared()  # or the slot's next tile can arrive before a load is done
    mbarrier.arrive(empty.index(box), count=1)
    box, phase = advance(box, phase, S.NUM_SLOTS)
    s = mma_v2(q, k, gl.zeros([S.HEADS, M, TILE], gl.float32, mma)) * scale_log2
    if MASK:
        column = gl.arange(0, TILE, gl.SliceLayout(0, gl.SliceLayout(1, mma)))
        seen = column[None, None, :] < (limit + row_token)[None, :, None]
        s = gl.where(seen, s, float("-inf"))
    new_m = gl.maximum(m, gl.max(s, 2))
    if MASK:
        safe = gl.where(new_m == float("-inf"), 0.0, new_m)  # a row that sees nothing yet
    else:
        safe = new_m
    w = gl.exp2(s - safe[:, :, None])
    old = gl.exp2(m - safe)
    total = total * old[:, :, None] + w  # summed over columns once, at the end
    acc = acc * old[:, :, None]
    mbarrier.wait(full.index(box), phase)
    v = ring.index(box).reshape(SHAPE).load(rhs)
    fence_async_shared()
    mbarrier.arrive(empty.index(box), count=1)
    box, phase = advance(box, phase, S.NUM_SLOTS)
    if MASK:
        # A weight of 0 does not silence a NaN in an unused slot: V itself must be 0 there.
        token = gl.arange(0, TILE, gl.SliceLayout(0, gl.SliceLayout(2, rhs)))
        v = gl.where((token < tokens)[None, :, None], v, 0.0)
    w = gl.convert_layout(w.to(v.dtype), gl.DotOperandLayout(0, mma, 2))
    acc = mma_v2(w, v, acc)
    return new_m, total, acc, box, phase


@gluon.jit
def _read(mail, letter, S: gl.constexpr):
    """What the consumer needs of a record: first where its first query, and its output, lie; last its number."""
    seq = read_field(mail, letter, SEQ, S.HEADS)
    group = read_field(mail, letter, GROUP, S.HEADS)
    offset = seq.to(gl.int64) * (S.Q_LEN * S.NUM_Q_HEADS * S.HEAD_DIM) + group * (S.HEADS * S.Q_GROUP * S.HEAD_DIM)
    first = read_field(mail, letter, FIRST_TILE, S.HEADS)
    num_tiles = read_field(mail, letter, NUM_TILES, S.HEADS)
    tokens = read_field(mail, letter, TOKENS, S.HEADS)
    slot = read_field(mail, letter, SLOT, S.HEADS)
    return seq, offset, first, num_tiles, tokens, slot, read_field(mail, letter, NEXT, S.HEADS)


@gluon.jit
def _consumer(q_ptr, ring, full, empty, mail, posted, taken, records, counters, partial, lse, out, scale_log2,
              S: gl.constexpr):
    """Attend to the tiles that arrive, record by record; write whole rows, merge cut ones."""
    HEADS: gl.constexpr = S.HEADS
    D: gl.constexpr = S.HEAD_DIM
    ROWS: gl.constexpr = S.Q_LEN * S.Q_GROUP
    mma: gl.constexpr = gl.NVMMADistributedLayout(version=[2, 0], warps_per_cta=[HEADS, 1, 1], instr_shape=[1, 16, 8])
    lhs: gl.constexpr = gl.DotOperandLayout(0, mma, 2)
    qh = gl.arange(0, HEADS, gl.SliceLayout(1, gl.SliceLayout(2, lhs)))
    qr = gl.arange(0, M, gl.SliceLayout(0, gl.SliceLayout(2, lhs)))
    qd = gl.arange(0, D, gl.SliceLayout(0, gl.SliceLayout(1, lhs)))
    q_at = (qr // S.Q_GROUP * (S.NUM_Q_HEADS * D) + qr % S.Q_GROUP * D)[None, :, None] \
        + (qh * (S.Q_GROUP * D))[:, None, None] + qd[None, None, :]
    q_mask = (qr < ROWS)[None, :, None] & (qh >= 0)[:, None, None] & (qd >= 0)[None, None, :]
    oh = gl.arange(0, HEADS, gl.SliceLayout(1, gl.SliceLayout(2, mma)))
    orow = gl.arange(0, M, gl.SliceLayout(0, gl.SliceLayout(2, mma)))
    od = gl.arange(0, D, gl.SliceLayout(0, gl.SliceLayout(1, mma)))
    o_at = (orow // S.Q_GROUP * (S.NUM_Q_HEADS * D) + orow % S.Q_GROUP * D)[None, :, None] \
        + (oh * (S.Q_GROUP * D))[:, None, None] + od[None, None, :]
    o_mask = (orow < ROWS)[None, :, None] & (oh >= 0)[:, None, None] & (od >= 0)[None, None, :]
    lse_at = (oh * S.ROWS_PADDED)[:, None] + orow[None, :]
    lse_mask = (orow < S.ROWS_PADDED)[None, :] & (oh >= 0)[:, None]
    partial_at = lse_at[:, :, None] * D + od[None, None, :]
    partial_mask = lse_mask[:, :, None] & (od >= 0)[None, None, :]
    row_token = gl.minimum(orow // S.Q_GROUP, S.Q_LEN - 1)

    box = gl.to_tensor(0)
    phase = gl.to_tensor(0)
    letter = gl.to_tensor(0)
    letter_phase = gl.to_tensor(0)
    shared0 = gl.to_tensor(-1)  # records of the two rows in many parts that this CTA may share the merge of
    shared1 = gl.to_tensor(-1)
    mbarrier.wait(posted.index(letter), letter_phase)
    seq, q_offset, first, num_tiles, tokens, slot, number = _read(mail, letter, S)
    mbarrier.arrive(taken.index(letter), count=1)
    while seq >= 0:
        q = gl.load(q_ptr + q_offset + q_at, mask=q_mask, other=0.0)
        limit = tokens - (S.Q_LEN - 1) - first * TILE  # tokens from here that the first query token sees
        left = tokens - first * TILE
        num_full = gl.minimum(num_tiles, gl.maximum(limit, 0) // TILE)
        m = gl.full([HEADS, M], float("-inf"), gl.float32, gl.SliceLayout(2, mma))
        total = gl.zeros([HEADS, M, TILE], gl.float32, mma)
        acc = gl.zeros([HEADS, M, D], gl.float32, mma)
        for t in range(num_full):
            m, total, acc, box, phase = _step(q, m, total, acc, box, phase, TILE, TILE, row_token, scale_log2, ring,
                                              full, empty, False, mma, S)
        for t in range(num_full, num_tiles):
            m, total, acc, box, phase = _step(q, m, total, acc, box, phase, limit - t * TILE, left - t * TILE,
                                              row_token, scale_log2, ring, full, empty, True, mma, S)
        row_sum = gl.sum(total, 2)
        o = acc / gl.where(row_sum > 0, row_sum, 1.0)[:, :, None]  # nothing visible: zeros
        if slot < 0:
            gl.store(out + q_offset + o_at, o.to(out.dtype.element_ty), mask=o_mask)
        else:
            at = slot.to(gl.int64) * (HEADS * S.ROWS_PADDED)
            gl.store(partial + at * D + partial_at, o, mask=partial_mask)
            gl.store(lse + at + lse_at, m + gl.log2(row_sum), mask=lse_mask)
        cut = slot >= 0
        done = number
        # The next record's queries are on their way while this part is counted.
        letter, letter_phase = advance(letter, letter_phase, MAIL)
        mbarrier.wait(posted.index(letter), letter_phase)
        seq, q_offset, first, num_tiles, tokens, slot, number = _read(mail, letter, S)
        mbarrier.arrive(taken.index(letter), count=1)
        if not S.BESIDE_SHARED:  # noqa: SIM102 - known when compiling, the next one when running
            if cut:
                announce(records + done * RECORD, counters, partial, lse, out, S)
                if gl.load(records + done * RECORD + SHARE) >= 0:
                    shared1 = shared0
                    shared0 = done
    if S.BESIDE_SHARED:
        gdc_wait()  # the end of this kernel is that of both; the next one merges
    else:
        if shared0 >= 0:
            merge_share(records + shared0 * RECORD, counters, partial, lse, out, S)
        if shared1 >= 0:
            merge_share(records + shared1 * RECORD, counters, partial, lse, out, S)


@gluon.jit(do_not_specialize=["table_stride"])
def decode(q, k, v, block_stride, token_stride, head_stride, table, records, counters, partial, lse, out, scale_log2,
           table_stride, S: gl.constexpr, num_warps: gl.constexpr):
    """Decode attention of one launch; ``decode_launch`` says what the arguments are, ``S`` is its ``Shape``.

    ``k`` and ``v`` are TMA descriptors, or pointers where S.BOXES is False.
    """
    swizzled: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=4)
    ring = gl.allocate_shared_memory(out.dtype.element_ty, [S.NUM_SLOTS, 1, S.HEADS, TILE, S.HEAD_DIM], swizzled)
    full = gl.allocate_shared_memory(gl.int64, [S.NUM_SLOTS, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [S.NUM_SLOTS, 1], mbarrier.MBarrierLayout())
    mail = gl.allocate_shared_memory(gl.int32, [MAIL, RECORD], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    posted = gl.allocate_shared_memory(gl.int64, [MAIL, 1], mbarrier.MBarrierLayout())
    taken = gl.allocate_shared_memory(gl.int64, [MAIL, 1], mbarrier.MBarrierLayout())
    for j in gl.static_range(S.NUM_SLOTS):
        # A TMA copy completes once; of a gathered tile each thread reports its own copies.
        mbarrier.init(full.index(j), count=1 if S.BOXES else 32 * GATHER_WARPS)
        mbarrier.init(empty.index(j), count=1)
    for j in gl.static_range(MAIL):
        mbarrier.init(posted.index(j), count=1)
        mbarrier.init(taken.index(j), count=1)
    # The next kernel's CTAs may come as ours go; what a kernel before wrote is read from here on.  The kernel of shared
    # tokens has waited for those before it, and this one needs nothing of it.
    gdc_launch_dependents()
    if not S.BESIDE_SHARED:
        gdc_wait()
    if S.BOXES:
        gl.warp_specialize(
            [(_consumer, (q, ring, full, empty, mail, posted, taken, records, counters, partial, lse, out, scale_log2,
                          S)),
             (fetch_boxes, (k, v, ring, full, empty, mail, posted, taken, table, records, counters, table_stride, S))],
            [1], [40])
    else:
        gl.warp_specialize(
            [(_consumer, (q, ring, full, empty, mail, posted, taken, records, counters, partial, lse, out, scale_log2,
                          S)),
             (fetch_tokens, (k, v, block_stride, token_stride, head_stride, ring, full, empty, mail, posted, taken,
                             table, records, counters, table_stride, S))],
            [GATHER_WARPS], [96])
