"""Paged causal prefill for Hopper in Triton's Gluon dialect: a persistent CTA of two consumers and two producers.

An *item* is 128 queries of one head of one sequence.  One warp draws items from a counter, a sequence's last queries
first, since they see most, and posts them to the others; it fetches queries and keys, a second warp the values: a tile
of blocks of 16 tokens is 16 TMA instructions, and one warp is slow to issue those of both.  Tiles come from the last
down to the first: those that need a mask come first, and the main loop has none.

Each consumer, a warpgroup, attends to 64 of the rows in the order of FlashAttention-3 (Shah et al. 2024): it issues the
scores of the next tile and the weighted values of this one together, and computes the next weights while the values are
added.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait)

from pagesim.kernels.hopper.producers import advance, post, read_field

ROWS = gl.constexpr(128)  # queries of an item
M = gl.constexpr(64)  # queries of a consumer: what a warpgroup's products take
TILE = gl.constexpr(128)  # tokens of a step
HALF = gl.constexpr(64)  # columns that lie together in shared memory: 128 bytes, the width of the swizzle
PART = gl.constexpr(16)  # tokens of which every block holds a multiple
NUM_SLOTS = gl.constexpr(2)  # tiles of K and of V that shared memory holds
MAIL = gl.constexpr(2)  # items posted ahead
FIELDS = gl.constexpr(8)
SEQ, HEAD, ROW, Q_LEN, BEFORE, FIRST_QUERY = (gl.constexpr(i) for i in range(6))


@gluon.jit
def _post_item(seq, head, row, q_len, before, first_query, letter, phase, letters):
    mail, posted, taken = letters
    field = gl.arange(0, FIELDS, gl.BlockedLayout([1], [32], [1], [0]))
    item = gl.where(field == HEAD, head, seq)
    item = gl.where(field == ROW, row, item)
    item = gl.where(field == Q_LEN, q_len, item)
    item = gl.where(field == BEFORE, before, item)
    item = gl.where(field == FIRST_QUERY, first_query, item)
    return post(item, letter, phase, mail, posted, taken, MAIL)


@gluon.jit
def lookup(table, seq, end, token, table_stride, S: gl.constexpr):
    """Block of each box of the tile at ``token``; what lies behind the last token's block may be anything."""
    entries = table + seq.to(gl.int64) * table_stride
    ids = ()
    for b in gl.static_range(TILE // S.BOX):
        ids = ids + (gl.load(entries + gl.minimum(token + b * S.BOX, end - 1) // S.BLOCK_SIZE),)
    return ids


@gluon.jit
def fetch(desc, ring, slot, phase, ids, kv_head, token, S: gl.constexpr):
    """A tile of one head: BOX tokens and HALF columns at a time."""
    boxes, full, empty = ring
    BOXES: gl.constexpr = TILE // S.BOX
    HALVES: gl.constexpr = S.HEAD_DIM // HALF
    mbarrier.wait(empty.index(slot), phase)
    mbarrier.expect(full.index(slot), TILE * S.HEAD_DIM * 2)
    for b in gl.static_range(BOXES):
        for h in gl.static_range(HALVES):
            tma.async_copy_global_to_shared(desc, [ids[b], kv_head, (token + b * S.BOX) % S.BLOCK_SIZE, h * HALF],
                                            full.index(slot), boxes.index((slot * HALVES + h) * BOXES + b))


@gluon.jit
def _fetch_keys(q, k, queries, keys, letters, counter, table, lengths, first_query, num_seqs, table_stride,
                S: gl.constexpr):
    """Draw items, post them, fetch their queries and keys.

    Items are numbered sequence by sequence.  Those that one CTA draws only rise, so it passes over the sequences once.
    """
    q_boxes, q_full, q_empty = queries
    slot = gl.to_tensor(0)
    phase = gl.to_tensor(1)
    q_phase = gl.to_tensor(1)
    letter = gl.to_tensor(0)
    letter_phase = gl.to_tensor(1)
    seq = gl.to_tensor(-1)
    first_item = gl.to_tensor(0)  # of this sequence
    num_items = gl.to_tensor(0)
    first = gl.to_tensor(0)
    q_len = gl.to_tensor(0)
    item = gl.program_id(0)
    while seq < num_seqs:
        while (seq < num_seqs) & (item >= first_item + num_items):
            seq += 1
            first_item += num_items
            first = gl.load(first_query + seq)
            q_len = gl.load(first_query + gl.minimum(seq + 1, num_seqs)) - first
            num_items = (q_len + ROWS - 1) // ROWS * S.NUM_Q_HEADS
        if seq < num_seqs:
            before = gl.load(lengths + seq) - q_len
            head = (item - first_item) % S.NUM_Q_HEADS
            row = (num_items - 1 - (item - first_item)) // S.NUM_Q_HEADS * ROWS
            letter, letter_phase = _post_item(seq, head, row, q_len, before, first, letter, letter_phase, letters)
            end = before + gl.minimum(row + ROWS, q_len)
            num_tiles = (end + TILE - 1) // TILE
            for t in range(num_tiles - 1, -1, -1):
                ids = lookup(table, seq, end, t * TILE, table_stride, S)
                fetch(k, keys, slot, phase, ids, head // S.GROUP, t * TILE, S)
                slot, phase = advance(slot, phase, NUM_SLOTS)
                if t == num_tiles - 1:
                    mbarrier.wait(q_empty.index(0), q_phase)
                    q_phase ^= 1
                    mbarrier.expect(q_full.index(0), ROWS * S.HEAD_DIM * 2)
                    for c in gl.static_range(ROWS // M):
                        for h in gl.static_range(S.HEAD_DIM // HALF):
                            tma.async_copy_global_to_shared(q, [first + row + c * M, head, h * HALF], q_full.index(0),
                                                            q_boxes.index(c * (S.HEAD_DIM // HALF) + h))
            item = gl.num_programs(0) + gl.atomic_add(counter, 1)
    _post_item(-1, 0, 0, 0, 0, 0, letter, letter_phase, letters)


@gluon.jit
def _fetch_values(v, values, letters, table, table_stride, S: gl.constexpr):
    mail, posted, taken = letters
    slot = gl.to_tensor(0)
    phase = gl.to_tensor(1)
    letter = gl.to_tensor(0)
    letter_phase = gl.to_tensor(0)
    mbarrier.wait(posted.index(letter), letter_phase)
    seq = read_field(mail, letter, SEQ, 1)
    while seq >= 0:
        kv_head = read_field(mail, letter, HEAD, 1) // S.GROUP
        end = read_field(mail, letter, BEFORE, 1)
        end += gl.minimum(read_field(mail, letter, ROW, 1) + ROWS, read_field(mail, letter, Q_LEN, 1))
        mbarrier.arrive(taken.index(letter), count=1)
        letter, letter_phase = advance(letter, letter_phase, MAIL)
        for t in range((end + TILE - 1) // TILE - 1, -1, -1):
            ids = lookup(table, seq, end, t * TILE, table_stride, S)
            fetch(v, values, slot, phase, ids, kv_head, t * TILE, S)
            slot, phase = advance(slot, phase, NUM_SLOTS)
        mbarrier.wait(posted.index(letter), letter_phase)
        seq = read_field(mail, letter, SEQ, 1)


@gluon.jit
def silence(v_parts, slot, tokens, S: gl.constexpr):
    """Zero V from ``tokens`` on: a weight of 0 does not silence a NaN.  Both consumers write the same."""
    PARTS: gl.constexpr = TILE // PART
    HALVES: gl.constexpr = S.HEAD_DIM // HALF
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    token = gl.arange(0, PART, gl.SliceLayout(1, layout))
    for part in range(tokens // PART, PARTS):
        for h in gl.static_range(HALVES):
            v = v_parts.index((slot * HALVES + h) * PARTS + part)
            v.store(gl.where((part * PART + token < tokens)[:, None], v.load(layout), 0.0))
    fence_async_shared()


@gluon.jit
def _exp2(x):
    """2^x without the instructions that keep subnormal results: a weight that small changes nothing."""
    return gl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1)


@gluon.jit
def narrow(x, dtype: gl.constexpr):
    """Two numbers to one register in the order in which products take them; a plain cast swaps the halves first."""
    if dtype == gl.bfloat16:
        return gl.inline_asm_elementwise("cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,r,r", [x], dtype=gl.bfloat16,
                                         is_pure=True, pack=2)
    else:
        return gl.inline_asm_elementwise("cvt.rn.f16x2.f32 $0, $2, $1;", "=r,r,r", [x], dtype=gl.float16, is_pure=True,
                                         pack=2)


@gluon.jit
def weigh(s, m, limit, scale_log2, MASK: gl.constexpr):
    """A tile's weights, the new maximum, and the factor for what was summed before; ``limit`` tokens are visible."""
    if MASK:
        column = gl.arange(0, TILE, gl.SliceLayout(0, s.type.layout))
        s = gl.where(column[None, :] < limit[:, None], s, float("-inf"))
    new_m = gl.maximum(m, gl.max(s, 1) * scale_log2)
    if MASK:
        safe = gl.where(new_m == float("-inf"), 0.0, new_m)  # a row that sees nothing yet
    else:
        safe = new_m
    return _exp2(s * scale_log2 - safe[:, None]), new_m, _exp2(m - safe)


@gluon.jit
def own_sum(w):
    """Sums over the columns that a thread holds, (rows, 4): nothing moves between the four threads of a row."""
    return gl.sum(gl.sum(w.reshape([M, TILE // 8, 4, 2]), 3), 1)


@gluon.jit
def scale_rows(x, factor):
    return x * gl.convert_layout(factor, gl.SliceLayout(1, x.type.layout))[:, None]


@gluon.jit
def step(q, p, o, m, total, slot, phase, keys, values, limit, scale_log2, MASK: gl.constexpr,
          s_layout: gl.constexpr):
    """Scores of the next tile, and values of the tile whose weights ``p`` are."""
    k_tiles, k_full, k_empty = keys
    v_tiles, v_full, v_empty = values
    v_slot, v_phase = slot, phase
    slot, phase = advance(slot, phase, NUM_SLOTS)
    mbarrier.wait(k_full.index(slot), phase)
    s = warpgroup_mma(q, k_tiles.index(slot).permute((1, 0)), gl.zeros([M, TILE], gl.float32, s_layout), use_acc=False,
                      is_async=True)
    mbarrier.wait(v_full.index(v_slot), v_phase)
    o = warpgroup_mma(p, v_tiles.index(v_slot), o, is_async=True)
    s = warpgroup_mma_wait(1, [s])
    mbarrier.arrive(k_empty.index(slot), count=1)
    w, m, old = weigh(s, m, limit, scale_log2, MASK)
    total = scale_rows(total, old) + own_sum(w)
    # Over already, but ptxas moves no instruction across: without it the weights would wait for the values.
    mbarrier.wait(v_full.index(v_slot), v_phase)
    o, p, w, total = warpgroup_mma_wait(0, [o, p, w, total])
    mbarrier.arrive(v_empty.index(v_slot), count=1)
    p = gl.convert_layout(narrow(w, k_tiles.dtype), p.type.layout)
    return p, scale_rows(o, old), m, total, slot, phase


@gluon.jit
def _consumer(queries, keys, values, v_parts, letters, out, scale_log2, C: gl.constexpr, S: gl.constexpr):
    """Attend to rows ``[64 · C, 64 · C + 64)`` of every item."""
    q_tiles, q_full, q_empty = queries
    k_tiles, k_full, k_empty = keys
    v_tiles, v_full, v_empty = values
    mail, posted, taken = letters
    D: gl.constexpr = S.HEAD_DIM
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TILE, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    p_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, 2)
    s_row = gl.arange(0, M, gl.SliceLayout(1, s_layout))
    o_row = gl.arange(0, M, gl.SliceLayout(1, o_layout))
    column = gl.arange(0, D, gl.SliceLayout(0, o_layout))
    q = q_tiles.index(C)
    slot = gl.to_tensor(0)
    phase = gl.to_tensor(0)
    q_phase = gl.to_tensor(0)
    letter = gl.to_tensor(0)
    letter_phase = gl.to_tensor(0)
    mbarrier.wait(posted.index(letter), letter_phase)
    seq = read_field(mail, letter, SEQ, 4)
    while seq >= 0:
        head = read_field(mail, letter, HEAD, 4)
        first_row = read_field(mail, letter, ROW, 4)
        q_len = read_field(mail, letter, Q_LEN, 4)
        before = read_field(mail, letter, BEFORE, 4)
        first_query = read_field(mail, letter, FIRST_QUERY, 4)
        mbarrier.arrive(taken.index(letter), count=1)
        letter, letter_phase = advance(letter, letter_phase, MAIL)
        row = first_row + C * M
        end = before + gl.minimum(first_row + ROWS, q_len)
        num_tiles = (end + TILE - 1) // TILE
        num_full = gl.minimum((before + row + 1) // TILE, num_tiles - 1)  # tiles of which every row sees all
        limit = before + gl.minimum(row + s_row, q_len - 1) + 1  # tokens that a row sees
        tail = (num_tiles - 1) * TILE
        mbarrier.wait(q_full.index(0), q_phase)
        q_phase ^= 1
        mbarrier.wait(k_full.index(slot), phase)
        s = warpgroup_mma(q, k_tiles.index(slot).permute((1, 0)), gl.zeros([M, TILE], gl.float32, s_layout),
                          use_acc=False, is_async=True)
        s = warpgroup_mma_wait(0, [s])
        mbarrier.arrive(k_empty.index(slot), count=1)
        m = gl.full([M], float("-inf"), gl.float32, gl.SliceLayout(1, s_layout))
        w, m, _ = weigh(s, m, limit - tail, scale_log2, True)
        total = own_sum(w)
        p = gl.convert_layout(narrow(w, k_tiles.dtype), p_layout)
        o = gl.zeros([M, D], gl.float32, o_layout)
        if end - tail < TILE:
            mbarrier.wait(v_full.index(slot), phase)
            silence(v_parts, slot, end - tail, S)
        for t in range(num_tiles - 2, num_full - 1, -1):
            p, o, m, total, slot, phase = step(q, p, o, m, total, slot, phase, keys, values, limit - t * TILE,
                                                scale_log2, True, s_layout)
        for t in range(num_full):
            p, o, m, total, slot, phase = step(q, p, o, m, total, slot, phase, keys, values, limit, scale_log2, False,
                                                s_layout)
        mbarrier.arrive(q_empty.index(0), count=1)
        mbarrier.wait(v_full.index(slot), phase)
        o = warpgroup_mma(p, v_tiles.index(slot), o, is_async=True)
        o = warpgroup_mma_wait(0, [o])
        mbarrier.arrive(v_empty.index(slot), count=1)
        slot, phase = advance(slot, phase, NUM_SLOTS)
        o = scale_rows(o, 1 / gl.sum(total, 1))
        at = ((first_query + row + o_row).to(gl.int64) * S.NUM_Q_HEADS + head) * D
        gl.store(out + at[:, None] + column[None, :], o.to(out.dtype.element_ty),
                 mask=(row + o_row < q_len)[:, None] & (column >= 0)[None, :])
        mbarrier.wait(posted.index(letter), letter_phase)
        seq = read_field(mail, letter, SEQ, 4)


@gluon.jit
def barriers(NUM: gl.constexpr, READERS: gl.constexpr):
    """Of slots, each of which one role fills and READERS roles release."""
    full = gl.allocate_shared_memory(gl.int64, [NUM, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [NUM, 1], mbarrier.MBarrierLayout())
    for j in gl.static_range(NUM):
        mbarrier.init(full.index(j), count=1)
        mbarrier.init(empty.index(j), count=READERS)
    return full, empty


@gluon.jit(do_not_specialize=["num_seqs", "table_stride"])
def prefill(q, k, v, table, lengths, first_query, counter, out, num_seqs, table_stride, scale_log2, S: gl.constexpr,
            num_warps: gl.constexpr):
    """``q``, ``k``, ``v`` are TMA descriptors; ``counter`` is an int32 of 0; ``S`` is a ``Shape``."""
    D: gl.constexpr = S.HEAD_DIM
    HALVES: gl.constexpr = D // HALF
    BOXES: gl.constexpr = NUM_SLOTS * HALVES * (TILE // S.BOX)
    dtype: gl.constexpr = out.dtype.element_ty
    plane: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    q_box: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=3)
    kv_box: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=4)
    # The same memory as boxes, which TMA fills, and as tiles, which products take: a tile is its halves end to end.
    q_boxes = gl.allocate_shared_memory(dtype, [ROWS // M * HALVES, M, 1, HALF], q_box)
    k_boxes = gl.allocate_shared_memory(dtype, [BOXES, 1, 1, S.BOX, HALF], kv_box)
    v_boxes = gl.allocate_shared_memory(dtype, [BOXES, 1, 1, S.BOX, HALF], kv_box)
    q_tiles = q_boxes._reinterpret(dtype, [ROWS // M, M, D], plane)
    k_tiles = k_boxes._reinterpret(dtype, [NUM_SLOTS, TILE, D], plane)
    v_tiles = v_boxes._reinterpret(dtype, [NUM_SLOTS, TILE, D], plane)
    v_parts = v_boxes._reinterpret(dtype, [NUM_SLOTS * HALVES * (TILE // PART), PART, HALF], plane)
    mail = gl.allocate_shared_memory(gl.int32, [MAIL, FIELDS], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    q_full, q_empty = barriers(1, 2)
    k_full, k_empty = barriers(NUM_SLOTS, 2)
    v_full, v_empty = barriers(NUM_SLOTS, 2)
    posted, taken = barriers(MAIL, 3)
    letters = (mail, posted, taken)
    queries = (q_tiles, q_full, q_empty)
    keys = (k_tiles, k_full, k_empty)
    values = (v_tiles, v_full, v_empty)
    gl.warp_specialize(
        [(_consumer, (queries, keys, values, v_parts, letters, out, scale_log2, 0, S)),
         (_consumer, (queries, keys, values, v_parts, letters, out, scale_log2, 1, S)),
         (_fetch_keys, (q, k, (q_boxes, q_full, q_empty), (k_boxes, k_full, k_empty), letters, counter, table, lengths,
                        first_query, num_seqs, table_stride, S)),
         (_fetch_values, (v, (v_boxes, v_full, v_empty), letters, table, table_stride, S))],
        [4, 1, 1], [232, 40, 40])
