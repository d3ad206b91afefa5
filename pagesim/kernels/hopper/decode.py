"""Paged decode for Hopper in Triton's Gluon dialect: persistent CTAs, each with a ring of tiles in shared memory.

An SM holds one CTA of 8 warps or two of 4.  A warp works on 16 tokens of one KV head: of another head than the other
warps, or where a CTA has fewer heads than warps, of other tokens (a *lane* is a head and every so many-th 16 tokens).
So neither softmax nor products move data between warps until a part ends, when the lanes of a head are added up.  A
producer (``producers``) walks the CTA's records (``plan``), then those that it draws, and keeps the ring full across
their boundaries: the memory pipeline never drains.  96 KiB of an SM are in flight: a deeper ring queues more in the
memory system and shares bandwidth less evenly, and was slower.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from pagesim.kernels.hopper.merge import announce, merge_share, sync_threads
from pagesim.kernels.hopper.producers import (
    FIRST_TOKEN, GATHER_WARPS, GROUP, MAIL, NEXT, NUM_TILES, PANEL, RECORD, SEQ, SHARE, SLOT, TILE, TOKENS, advance,
    fetch_boxes, fetch_tokens, read_field)

M = gl.constexpr(16)  # query rows of a product, the least that a tensor core takes


@gluon.jit
def _take(ring, full, empty, box, phase, rhs: gl.constexpr, KEYS: gl.constexpr, S: gl.constexpr):
    """A tile of K, transposed, or V from the ring into registers."""
    mbarrier.wait(full.index(box), phase)
    tile = ring.index(box).reshape([S.LANES, TILE, S.DIM])
    if KEYS:
        tile = tile.permute((0, 2, 1))
    tile = tile.load(rhs)
    fence_async_shared()  # or the slot's next tile can arrive before a load is done
    mbarrier.arrive(empty.index(box), count=1)
    box, phase = advance(box, phase, S.NUM_SLOTS)
    return tile, box, phase


@gluon.jit
def _step(q, m, total, acc, box, phase, limit, tokens, row_token, scale_log2, ring, full, empty, MASK: gl.constexpr,
          mma: gl.constexpr, S: gl.constexpr):
    """Attend to one tile.

    With MASK, ``tokens`` exist, and row r sees those before ``limit + row_token[r]``, with a window of them the last
    WINDOW + 1.
    """
    rhs: gl.constexpr = gl.DotOperandLayout(1, mma, 2)
    k, box, phase = _take(ring, full, empty, box, phase, rhs, True, S)
    s = mma_v2(q, k, gl.zeros([S.LANES, M, TILE], gl.float32, mma)) * scale_log2
    if MASK:
        column = gl.arange(0, TILE, gl.SliceLayout(0, gl.SliceLayout(1, mma)))[None, None, :]
        if S.SPLITS > 1:
            lane = gl.arange(0, S.LANES, gl.SliceLayout(1, gl.SliceLayout(2, mma)))
            column = column + (lane // S.HEADS * TILE)[:, None, None]
        end = (limit + row_token)[None, :, None]
        seen = column < end
        if S.WINDOW >= 0:
            seen = seen & (column >= end - (S.WINDOW + 1))
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
    v, box, phase = _take(ring, full, empty, box, phase, rhs, False, S)
    if MASK:
        # A weight of 0 does not silence a NaN in an unused slot: V itself must be 0 there.
        token = gl.arange(0, TILE, gl.SliceLayout(0, gl.SliceLayout(2, rhs)))[None, :, None]
        if S.SPLITS > 1:
            lane = gl.arange(0, S.LANES, gl.SliceLayout(1, gl.SliceLayout(2, rhs)))
            token = token + (lane // S.HEADS * TILE)[:, None, None]
        stored = token < tokens
        if S.WINDOW >= 0:
            stored = stored & (token >= limit - (S.WINDOW + 1))
        v = gl.where(stored, v, 0.0)
    w = gl.convert_layout(w.to(v.dtype), gl.DotOperandLayout(0, mma, 2))
    acc = mma_v2(w, v, acc)
    return new_m, total, acc, box, phase


@gluon.jit
def _add_lanes(m, row_sum, acc, meeting, OUT: gl.constexpr, S: gl.constexpr):
    """Maximum, sum and output of each head's first OUT_ROWS rows, over its lanes, which meet in shared memory."""
    maxima, sums, outs = meeting
    maxima.store(m)
    sums.store(row_sum)
    outs.store(acc)
    sync_threads()
    rows: gl.constexpr = gl.SliceLayout(2, OUT)
    best = gl.full([S.HEADS, S.OUT_ROWS], float("-inf"), gl.float32, rows)
    for j in gl.static_range(S.SPLITS):
        best = gl.maximum(best, maxima.slice(j * S.HEADS, S.HEADS, 0).slice(0, S.OUT_ROWS, 1).load(rows))
    safe = gl.where(best == float("-inf"), 0.0, best)
    total = gl.zeros([S.HEADS, S.OUT_ROWS], gl.float32, rows)
    result = gl.zeros([S.HEADS, S.OUT_ROWS, S.DIM], gl.float32, OUT)
    for j in gl.static_range(S.SPLITS):
        w = gl.exp2(maxima.slice(j * S.HEADS, S.HEADS, 0).slice(0, S.OUT_ROWS, 1).load(rows) - safe)
        total += w * sums.slice(j * S.HEADS, S.HEADS, 0).slice(0, S.OUT_ROWS, 1).load(rows)
        result += w[:, :, None] * outs.slice(j * S.HEADS, S.HEADS, 0).slice(0, S.OUT_ROWS, 1).load(OUT)
    sync_threads()  # before another part's lanes come here
    return best, total, result


@gluon.jit
def _read(mail, letter, S: gl.constexpr):
    """What the consumer needs of a record: first where its first query, and its output, lie; last its number."""
    seq = read_field(mail, letter, SEQ, S.WARPS)
    group = read_field(mail, letter, GROUP, S.WARPS)
    offset = seq.to(gl.int64) * (S.Q_LEN * S.NUM_Q_HEADS * S.HEAD_DIM) + group * (S.HEADS * S.Q_GROUP * S.HEAD_DIM)
    first = read_field(mail, letter, FIRST_TOKEN, S.WARPS)
    num_tiles = read_field(mail, letter, NUM_TILES, S.WARPS)
    tokens = read_field(mail, letter, TOKENS, S.WARPS)
    slot = read_field(mail, letter, SLOT, S.WARPS)
    return seq, offset, first, num_tiles, tokens, slot, read_field(mail, letter, NEXT, S.WARPS)


@gluon.jit
def _consumer(q_ptr, ring, full, empty, mail, posted, taken, meeting, records, counters, partial, lse, out, scale_log2,
              S: gl.constexpr):
    """Attend to the tiles that arrive, record by record; write whole rows, merge cut ones."""
    LANES: gl.constexpr = S.LANES
    D: gl.constexpr = S.HEAD_DIM
    ROWS: gl.constexpr = S.Q_LEN * S.Q_GROUP
    TILE_TOKENS: gl.constexpr = S.SPLITS * TILE
    mma: gl.constexpr = gl.NVMMADistributedLayout(version=[2, 0], warps_per_cta=[LANES, 1, 1], instr_shape=[1, 16, 8])
    lhs: gl.constexpr = gl.DotOperandLayout(0, mma, 2)
    # Where a head's output is in its own lane's warp it is stored as it is; else it is spread over all warps.
    OUT: gl.constexpr = mma if S.SPLITS == 1 else gl.BlockedLayout(
        [1, 1, 4], [1, 128 // S.DIM, S.DIM // 4], [1, S.WARPS, 1], [2, 1, 0])
    qh = gl.arange(0, LANES, gl.SliceLayout(1, gl.SliceLayout(2, lhs))) % S.HEADS
    qr = gl.arange(0, M, gl.SliceLayout(0, gl.SliceLayout(2, lhs)))
    qd = gl.arange(0, S.DIM, gl.SliceLayout(0, gl.SliceLayout(1, lhs)))
    q_at = (qr // S.Q_GROUP * (S.NUM_Q_HEADS * D) + qr % S.Q_GROUP * D)[None, :, None] \
        + (qh * (S.Q_GROUP * D))[:, None, None] + qd[None, None, :]
    q_mask = (qr < ROWS)[None, :, None] & (qh >= 0)[:, None, None] & (qd < D)[None, None, :]
    oh = gl.arange(0, S.HEADS, gl.SliceLayout(1, gl.SliceLayout(2, OUT)))
    orow = gl.arange(0, S.OUT_ROWS, gl.SliceLayout(0, gl.SliceLayout(2, OUT)))
    od = gl.arange(0, S.DIM, gl.SliceLayout(0, gl.SliceLayout(1, OUT)))
    o_at = (orow // S.Q_GROUP * (S.NUM_Q_HEADS * D) + orow % S.Q_GROUP * D)[None, :, None] \
        + (oh * (S.Q_GROUP * D))[:, None, None] + od[None, None, :]
    o_mask = (orow < ROWS)[None, :, None] & (oh >= 0)[:, None, None] & (od < D)[None, None, :]
    lse_at = (oh * S.ROWS_PADDED)[:, None] + orow[None, :]
    lse_mask = (orow < S.ROWS_PADDED)[None, :] & (oh >= 0)[:, None]
    partial_at = lse_at[:, :, None] * D + od[None, None, :]
    partial_mask = lse_mask[:, :, None] & (od < D)[None, None, :]
    srow = gl.arange(0, M, gl.SliceLayout(0, gl.SliceLayout(2, mma)))
    row_token = gl.minimum(srow // S.Q_GROUP, S.Q_LEN - 1)

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
        limit = tokens - (S.Q_LEN - 1) - first  # tokens from here that the first query token sees
        left = tokens - first
        num_full = gl.minimum(num_tiles, gl.maximum(limit, 0) // TILE_TOKENS)
        m = gl.full([LANES, M], float("-inf"), gl.float32, gl.SliceLayout(2, mma))
        total = gl.zeros([LANES, M, TILE], gl.float32, mma)
        acc = gl.zeros([LANES, M, S.DIM], gl.float32, mma)
        begin = gl.to_tensor(0)
        if S.WINDOW >= 0:  # tiles that a window begins in
            begin = gl.minimum(num_tiles, (gl.maximum(left - 1 - S.WINDOW, 0) + TILE_TOKENS - 1) // TILE_TOKENS)
            num_full = gl.maximum(num_full, begin)
            for t in range(begin):
                m, total, acc, box, phase = _step(q, m, total, acc, box, phase, limit - t * TILE_TOKENS,
                                                  left - t * TILE_TOKENS, row_token, scale_log2, ring, full, empty,
                                                  True, mma, S)
        for t in range(begin, num_full):
            m, total, acc, box, phase = _step(q, m, total, acc, box, phase, TILE, TILE, row_token, scale_log2, ring,
                                              full, empty, False, mma, S)
        for t in range(num_full, num_tiles):
            m, total, acc, box, phase = _step(q, m, total, acc, box, phase, limit - t * TILE_TOKENS,
                                              left - t * TILE_TOKENS, row_token, scale_log2, ring, full, empty, True,
                                              mma, S)
        row_sum = gl.sum(total, 2)
        if S.SPLITS > 1:
            best, row_sum, o = _add_lanes(m, row_sum, acc, meeting, OUT, S)
        else:
            best = m
            o = acc
        o = o / gl.where(row_sum > 0, row_sum, 1.0)[:, :, None]  # nothing visible: zeros
        if slot < 0:
            gl.store(out + q_offset + o_at, o.to(out.dtype.element_ty), mask=o_mask)
        else:
            at = slot.to(gl.int64) * (S.HEADS * S.ROWS_PADDED)
            gl.store(partial + at * D + partial_at, o, mask=partial_mask)
            gl.store(lse + at + lse_at, best + gl.log2(row_sum), mask=lse_mask)
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
    # The same memory as boxes, which TMA fills, and as tiles, which warps read: panels of 64 columns end to end.
    swizzled: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=4)
    boxes = gl.allocate_shared_memory(out.dtype.element_ty,
                                      [S.NUM_SLOTS * S.SPLITS * S.DIM // PANEL, 1, S.HEADS, TILE, PANEL], swizzled)
    ring = boxes._reinterpret(out.dtype.element_ty, [S.NUM_SLOTS, 1, S.LANES, TILE, S.DIM], swizzled)
    full = gl.allocate_shared_memory(gl.int64, [S.NUM_SLOTS, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [S.NUM_SLOTS, 1], mbarrier.MBarrierLayout())
    mail = gl.allocate_shared_memory(gl.int32, [MAIL, RECORD], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    posted = gl.allocate_shared_memory(gl.int64, [MAIL, 1], mbarrier.MBarrierLayout())
    taken = gl.allocate_shared_memory(gl.int64, [MAIL, 1], mbarrier.MBarrierLayout())
    if S.SPLITS > 1:
        # Swizzled so that the 8 rows that a warp's threads store at once lie in different banks.
        rows_apart: gl.constexpr = gl.SwizzledSharedLayout(8, 1, 8, [2, 1, 0])
        flat: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
        meeting = (gl.allocate_shared_memory(gl.float32, [S.LANES, M], flat),
                   gl.allocate_shared_memory(gl.float32, [S.LANES, M], flat),
                   gl.allocate_shared_memory(gl.float32, [S.LANES, M, S.DIM], rows_apart))
    else:
        meeting = ()
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
            [(_consumer, (q, ring, full, empty, mail, posted, taken, meeting, records, counters, partial, lse, out,
                          scale_log2, S)),
             (fetch_boxes, (k, v, boxes, full, empty, mail, posted, taken, table, records, counters, table_stride, S))],
            [1], [40])
    else:
        gl.warp_specialize(
            [(_consumer, (q, ring, full, empty, mail, posted, taken, meeting, records, counters, partial, lse, out,
                          scale_log2, S)),
             (fetch_tokens, (k, v, block_stride, token_stride, head_stride, ring, full, empty, mail, posted, taken,
                             table, records, counters, table_stride, S))],
            [GATHER_WARPS], [96])
