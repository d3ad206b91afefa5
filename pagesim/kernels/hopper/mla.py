"""Paged decode of a latent cache for Hopper in Triton's Gluon dialect: two warpgroups that share every tile.

A row is one query of one head; a CTA takes 64 rows of one sequence and walks its tiles of 64 tokens.  A tile is both
keys, 576 columns, and values, its first 512, and lies once in shared memory, which holds the queries and two tiles.  64
rows of outputs are all registers of two warpgroups: each owns half of the output's columns.

The scores of a tile are computed by one of them: even tiles by the first, odd ones by the second, so that one's softmax
runs while the tensor cores work for the other (the seesaw of FlashMLA, 2025).  Weights go through shared memory, to
where the tile's rope columns were: nobody needs those once the scores are there.  With the weights come the row maxima
that they refer to and their sums, so both warpgroups always know the same maximum and total, and need no meeting at
the end.

A tile's three pieces (columns of either half, and rope) fill and empty on their own barriers: a half is refilled as
soon as its owner has added it.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from pagesim.kernels.hopper.mla_producer import CHUNK, HALF, LATENT, MAIL, ROPE, TILE, M, fetch
from pagesim.kernels.hopper.producers import (
    FIRST_TOKEN,
    NUM_TILES,
    RECORD,
    SEQ,
    SLOT,
    TOKENS,
    advance,
    read_field,
)

PART = gl.constexpr(16)  # tokens that are silenced at a time
# Of a warp's 16 rows of outputs as they are stored, 16 bytes a thread; products leave 2 columns together.
OUT_STORES = gl.constexpr(gl.DistributedLinearLayout(
    [[0, 1], [0, 2], [0, 4], [8, 0], [0, 32], [0, 64], [0, 128]], [[0, 8], [0, 16], [1, 0], [2, 0], [4, 0]],
    [[16, 0], [32, 0]], [], [64, 256]))
PART_STORES = gl.constexpr(gl.DistributedLinearLayout(
    [[0, 1], [0, 2], [8, 0], [0, 16], [0, 32], [0, 64], [0, 128]], [[0, 4], [0, 8], [1, 0], [2, 0], [4, 0]],
    [[16, 0], [32, 0]], [], [64, 256]))


@gluon.jit
def _silence(parts, half, tokens):
    """Zero a half's values from token ``tokens`` on: a weight of 0 does not silence a NaN."""
    PARTS: gl.constexpr = TILE // PART
    CHUNKS: gl.constexpr = HALF // CHUNK
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    token = gl.arange(0, PART, gl.SliceLayout(1, layout))
    for part in range(tokens // PART, PARTS):
        for c in gl.static_range(CHUNKS):
            v = parts.index((half * CHUNKS + c) * PARTS + part)
            v.store(gl.where((part * PART + token < tokens)[:, None], v.load(layout), 0.0))
    fence_async_shared()


@gluon.jit
def _exp2(x):
    """2^x without the instructions that keep subnormal results: a weight that small changes nothing."""
    return gl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1)


@gluon.jit
def _safe(m):
    """A maximum to subtract: 0 for a row that sees nothing yet."""
    return gl.where(m == float("-inf"), 0.0, m)


@gluon.jit
def _zero(phase):
    """0, of which compilers do not know: else they compute more addresses before the loop than there are registers."""
    return gl.inline_asm_elementwise("shr.u32 $0, $1, 1;", "=r,r", [phase], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def _scores(q, tiles, phase, W: gl.constexpr):
    """Scores of the tile in slot W, under way: three products wait for its three pieces."""
    q_half, q_chunks = q
    half, half_full, rope, rope_full = tiles
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TILE, 16])
    mbarrier.wait(half_full.index(2 * W), phase)
    zero = _zero(phase)
    s = warpgroup_mma(q_half.index(zero), half.index(2 * W + zero).permute((1, 0)),
                      gl.zeros([M, TILE], gl.float32, layout), use_acc=False, is_async=True)
    mbarrier.wait(half_full.index(2 * W + 1), phase)
    s = warpgroup_mma(q_half.index(1 + zero), half.index(2 * W + 1 + zero).permute((1, 0)), s, is_async=True)
    mbarrier.wait(rope_full.index(W), phase)
    return warpgroup_mma(q_chunks.index(LATENT // CHUNK + zero), rope.index(W + zero).permute((1, 0)), s,
                         is_async=True)


@gluon.jit
def _publish(s, m, limit, scale_log2, rope, exchange, ready, W: gl.constexpr, MASK: gl.constexpr):
    """Weigh the scores of the tile in slot W for both warpgroups; its maximum, sum, and the factor of what was before.

    With MASK a row sees ``limit`` of the tile's tokens.
    """
    rows: gl.constexpr = gl.SliceLayout(1, s.type.layout)
    if MASK:
        column = gl.arange(0, TILE, gl.SliceLayout(0, s.type.layout))
        s = gl.where(column[None, :] < gl.convert_layout(limit, rows)[:, None], s, float("-inf"))
    before = gl.convert_layout(m, rows)
    new_m = gl.maximum(before, gl.max(s, 1) * scale_log2)
    w = _exp2(s * scale_log2 - _safe(new_m)[:, None])
    total = gl.sum(w, 1)
    rope.index(W).store(w.to(rope.dtype))
    exchange.index(2 * W).store(new_m)
    exchange.index(2 * W + 1).store(total)
    fence_async_shared()
    mbarrier.arrive(ready.index(W), count=1)
    new_m = gl.convert_layout(new_m, m.type.layout)
    return new_m, gl.convert_layout(total, m.type.layout), _exp2(m - _safe(new_m))


@gluon.jit
def _learn(m, exchange, ready, phase, W: gl.constexpr):
    """What ``_publish`` gave of slot W, for the other warpgroup."""
    mbarrier.wait(ready.index(W), phase)
    new_m = exchange.index(2 * W).load(m.type.layout)
    total = exchange.index(2 * W + 1).load(m.type.layout)
    return new_m, total, _exp2(m - _safe(new_m))


@gluon.jit
def _release(half_empty, rope_empty, W: gl.constexpr, C: gl.constexpr):
    mbarrier.arrive(half_empty.index(2 * W + C), count=1)
    mbarrier.arrive(rope_empty.index(W), count=1)


@gluon.jit
def _add(o, half, rope, W: gl.constexpr, C: gl.constexpr):
    """Weighted values of the tile in slot W, under way."""
    return warpgroup_mma(rope.index(W), half.index(2 * W + C), o, is_async=True)


@gluon.jit
def _pair(q, q_empty, o, m, total, phase0, phase1, pieces, exchange, ready, limit, tokens, last, scale_log2,
          C: gl.constexpr, MASK: gl.constexpr):
    """Two tiles, by either warpgroup; ``limit`` and ``tokens`` count from the first, ``last``: of this record."""
    half, half_full, half_empty, rope, rope_full, rope_empty, parts = pieces
    tiles = (half, half_full, rope, rope_full)
    if C == 0:
        s = _scores(q, tiles, phase0, 0)
        s = warpgroup_mma_wait(0, [s])
        m, own, old = _publish(s, m, limit, scale_log2, rope, exchange, ready, 0, MASK)
        total = total * old + own
        o = o * old[:, None]
        o = _add(o, half, rope, 0, C)
        mbarrier.arrive(q_empty.index(0), count=1, pred=last)
        m, own, old = _learn(m, exchange, ready, phase1, 1)
        o = warpgroup_mma_wait(0, [o])
        _release(half_empty, rope_empty, 0, C)
    else:
        s = _scores(q, tiles, phase1, 1)
        m, own, old = _learn(m, exchange, ready, phase0, 0)
        total = total * old + own
        o = o * old[:, None]
        o = _add(o, half, rope, 0, C)
        # Over already, but ptxas moves no instruction across: without it the values would wait for the weights.
        mbarrier.wait(ready.index(0), phase0)
        s = warpgroup_mma_wait(1, [s])
        m, own, old = _publish(s, m, limit - TILE, scale_log2, rope, exchange, ready, 1, MASK)
        mbarrier.arrive(q_empty.index(0), count=1, pred=last)
        o = warpgroup_mma_wait(0, [o])
        _release(half_empty, rope_empty, 0, C)
    total = total * old + own
    o = o * old[:, None]
    if MASK:  # noqa: SIM102 - MASK is the compiler's, the rest the GPU's
        if tokens < 2 * TILE:  # of the GPU, not of the compiler as MASK is
            _silence(parts, 2 + C, tokens - TILE)
    o = _add(o, half, rope, 1, C)
    o = warpgroup_mma_wait(0, [o])
    _release(half_empty, rope_empty, 1, C)
    return o, m, total


@gluon.jit
def _lone(q, q_empty, o, m, total, phase0, pieces, exchange, ready, limit, tokens, scale_log2, C: gl.constexpr):
    """The last of an odd number of tiles."""
    half, half_full, half_empty, rope, rope_full, rope_empty, parts = pieces
    if C == 0:
        s = _scores(q, (half, half_full, rope, rope_full), phase0, 0)
        s = warpgroup_mma_wait(0, [s])
        mbarrier.arrive(q_empty.index(0), count=1)
        m, own, old = _publish(s, m, limit, scale_log2, rope, exchange, ready, 0, True)
    else:
        m, own, old = _learn(m, exchange, ready, phase0, 0)
    total = total * old + own
    o = o * old[:, None]
    if tokens < TILE:
        _silence(parts, C, tokens)
    o = _add(o, half, rope, 0, C)
    o = warpgroup_mma_wait(0, [o])
    _release(half_empty, rope_empty, 0, C)
    return o, m, total


@gluon.jit
def _store(target, before, o, C: gl.constexpr, layout: gl.constexpr, S: gl.constexpr):
    """Half of the columns of a sequence's rows, which lie ``before`` rows behind the target."""
    row = gl.program_id(0) % S.ROW_TILES * M + gl.arange(0, M, gl.SliceLayout(1, layout))
    column = C * HALF + gl.arange(0, HALF, gl.SliceLayout(0, layout))
    gl.store(target + (before + row)[:, None] * LATENT + column[None, :],
             gl.convert_layout(o.to(target.dtype.element_ty), layout),
             mask=(row < S.ROWS)[:, None] & (column >= 0)[None, :])


@gluon.jit
def _consumer(queries, pieces, letters, exchange, ready, partial, lse, out, scale_log2, C: gl.constexpr,
              S: gl.constexpr):
    """Scores of every second tile, and half of the columns of every row's output."""
    q_half, q_chunks, q_full, q_empty = queries
    q = (q_half, q_chunks)
    mail, posted, taken = letters
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HALF, 16])
    row = gl.program_id(0) % S.ROW_TILES * M + gl.arange(0, M, gl.SliceLayout(1, layout))
    behind = S.Q_LEN - 1 - gl.minimum(row // S.NUM_HEADS, S.Q_LEN - 1)  # tokens that the sequence has and a row not
    phase0 = gl.to_tensor(0)
    phase1 = gl.to_tensor(0)
    q_phase = gl.to_tensor(0)
    letter = gl.to_tensor(0)
    letter_phase = gl.to_tensor(0)
    mbarrier.wait(posted.index(letter), letter_phase)
    seq = read_field(mail, letter, SEQ, 4)
    while seq >= 0:
        num_tiles = read_field(mail, letter, NUM_TILES, 4)
        # Tokens from the first tile on.
        left = read_field(mail, letter, TOKENS, 4) - read_field(mail, letter, FIRST_TOKEN, 4)
        slot = read_field(mail, letter, SLOT, 4)
        mbarrier.arrive(taken.index(letter), count=1)
        letter, letter_phase = advance(letter, letter_phase, MAIL)
        m = gl.full([M], float("-inf"), gl.float32, gl.SliceLayout(1, layout))
        total = gl.zeros([M], gl.float32, gl.SliceLayout(1, layout))
        o = gl.zeros([M, HALF], gl.float32, layout)
        if num_tiles > 0:
            mbarrier.wait(q_full.index(0), q_phase)
            q_phase ^= 1
            if C == 1:
                mbarrier.arrive(q_empty.index(0), count=1, pred=num_tiles == 1)
        num_pairs = num_tiles // 2
        num_full = gl.minimum(num_pairs, gl.maximum(left - (S.Q_LEN - 1), 0) // (2 * TILE))  # every row sees all of it
        for pair in range(num_full):
            o, m, total = _pair(q, q_empty, o, m, total, phase0, phase1, pieces, exchange, ready, behind, 0,
                                2 * pair + 2 + C >= num_tiles, scale_log2, C, False)
            phase0 ^= 1
            phase1 ^= 1
        for pair in range(num_full, num_pairs):
            here = left - pair * (2 * TILE)
            o, m, total = _pair(q, q_empty, o, m, total, phase0, phase1, pieces, exchange, ready, here - behind, here,
                                2 * pair + 2 + C >= num_tiles, scale_log2, C, True)
            phase0 ^= 1
            phase1 ^= 1
        if num_tiles % 2 == 1:
            here = left - num_pairs * (2 * TILE)
            o, m, total = _lone(q, q_empty, o, m, total, phase0, pieces, exchange, ready, here - behind, here,
                                scale_log2, C)
            phase0 ^= 1
        o = o * (1 / gl.where(total == 0, 1.0, total))[:, None]  # nothing visible: zeros
        if slot < 0:
            _store(out, seq.to(gl.int64) * S.ROWS, o, C, OUT_STORES, S)
        else:
            before = slot.to(gl.int64) * S.ROWS
            _store(partial, before, o, C, PART_STORES, S)
            if C == 0:
                log_sum = gl.where(total == 0, float("-inf"), m + gl.log2(total))
                gl.store(lse + before + row, log_sum, mask=row < S.ROWS)
        mbarrier.wait(posted.index(letter), letter_phase)
        seq = read_field(mail, letter, SEQ, 4)


@gluon.jit
def _barriers(NUM: gl.constexpr, READERS: gl.constexpr):
    """Of slots, each of which one role fills and READERS roles release."""
    full = gl.allocate_shared_memory(gl.int64, [NUM, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [NUM, 1], mbarrier.MBarrierLayout())
    for j in gl.static_range(NUM):
        mbarrier.init(full.index(j), count=1)
        mbarrier.init(empty.index(j), count=READERS)
    return full, empty


@gluon.jit(do_not_specialize=["table_stride"])
def decode(q, cache, table, records, partial, lse, out, scale_log2, table_stride, S: gl.constexpr,
           num_warps: gl.constexpr):
    """``q`` and ``cache`` are TMA descriptors; ``mla_launch`` says what the arguments are, ``S`` is its ``Shape``."""
    dtype: gl.constexpr = out.dtype.element_ty
    plane: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    box: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=3)
    BOXES: gl.constexpr = TILE // S.BOX
    CHUNKS: gl.constexpr = LATENT // CHUNK
    PARTS: gl.constexpr = TILE // PART
    # The same memory as boxes, which TMA fills, and as halves, which products take: chunks of 64 columns end to end.
    half_boxes = gl.allocate_shared_memory(dtype, [2 * CHUNKS * BOXES, 1, S.BOX, CHUNK], box)
    rope_boxes = gl.allocate_shared_memory(dtype, [2 * BOXES, 1, S.BOX, CHUNK], box)
    q_boxes = gl.allocate_shared_memory(dtype, [(CHUNKS + 1) * (M // S.Q_BOX), S.Q_BOX, CHUNK], plane)
    half = half_boxes._reinterpret(dtype, [4, TILE, HALF], plane)
    parts = half_boxes._reinterpret(dtype, [2 * CHUNKS * PARTS, PART, CHUNK], plane)
    rope = rope_boxes._reinterpret(dtype, [2, TILE, ROPE], plane)
    q_half = q_boxes._reinterpret(dtype, [2, M, HALF], plane)
    q_chunks = q_boxes._reinterpret(dtype, [CHUNKS + 1, M, CHUNK], plane)
    mail = gl.allocate_shared_memory(gl.int32, [MAIL, RECORD], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    exchange = gl.allocate_shared_memory(gl.float32, [4, M], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    half_full, half_empty = _barriers(4, 1)
    rope_full, rope_empty = _barriers(2, 2)
    q_full, q_empty = _barriers(1, 2)
    posted, taken = _barriers(MAIL, 2)
    ready, _ = _barriers(2, 1)
    gdc_launch_dependents()
    gdc_wait()
    queries = (q_half, q_chunks, q_full, q_empty)
    pieces = (half, half_full, half_empty, rope, rope_full, rope_empty, parts)
    letters = (mail, posted, taken)
    gl.warp_specialize(
        [(_consumer, (queries, pieces, letters, exchange, ready, partial, lse, out, scale_log2, 0, S)),
         (_consumer, (queries, pieces, letters, exchange, ready, partial, lse, out, scale_log2, 1, S)),
         (fetch, (q, cache, (q_boxes, q_full, q_empty), (half_boxes, half_full, half_empty),
                   (rope_boxes, rope_full, rope_empty), letters, table, records, table_stride, S))],
        [4, 1], [232, 40])
