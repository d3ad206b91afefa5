"""Feeding the ring of the Hopper kernel: records posted to the consumer, tiles fetched as far ahead as slots are free.

Two producers.  Where a tile of 16 tokens lies within one block, one warp fetches it by one TMA instruction.  Smaller
and odd blocks are gathered by four warps with 16-byte asynchronous copies, each token looked up in the table.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from pagesim.kernels import plan as p

TILE = gl.constexpr(16)  # tokens of a step: one row of tensor-core operands
MAIL = gl.constexpr(8)  # records posted ahead
GATHER_WARPS = gl.constexpr(4)
RECORD = gl.constexpr(p.RECORD_INTS)
SEQ = gl.constexpr(p.SEQ)
GROUP = gl.constexpr(p.GROUP)
FIRST_TILE = gl.constexpr(p.FIRST_TILE)
NUM_TILES = gl.constexpr(p.NUM_TILES)
TOKENS = gl.constexpr(p.TOKENS)


@gluon.jit
def advance(slot, phase, NUM_SLOTS: gl.constexpr):
    slot += 1
    wrapped = slot == NUM_SLOTS
    return gl.where(wrapped, 0, slot), gl.where(wrapped, phase ^ 1, phase)


@gluon.jit
def _post(record, letter, phase, mail, posted, taken, WARPS: gl.constexpr):
    field = gl.arange(0, RECORD, gl.BlockedLayout([1], [32], [WARPS], [0]))
    mbarrier.wait(taken.index(letter), phase)
    mail.index(letter).store(gl.load(record + field))
    mbarrier.arrive(posted.index(letter), count=1)
    return advance(letter, phase, MAIL)


@gluon.jit
def _post_end(letter, phase, mail, posted, taken, WARPS: gl.constexpr):
    field = gl.arange(0, RECORD, gl.BlockedLayout([1], [32], [WARPS], [0]))
    mbarrier.wait(taken.index(letter), phase)
    mail.index(letter).store(gl.where(field == SEQ, -1, 0))
    mbarrier.arrive(posted.index(letter), count=1)


@gluon.jit
def fetch_boxes(k_desc, v_desc, ring, full, empty, mail, posted, taken, table, first_record, records, table_stride,
                S: gl.constexpr):
    """One warp; a tile is a TMA box (1 block, HEADS heads, 16 tokens, head_dim) of a pool of any strides."""
    BYTES: gl.constexpr = S.HEADS * TILE * S.HEAD_DIM * 2
    box = gl.to_tensor(0)
    box_phase = gl.to_tensor(1)
    letter = gl.to_tensor(0)
    letter_phase = gl.to_tensor(1)
    begin = gl.load(first_record + gl.program_id(0))
    end = gl.load(first_record + gl.program_id(0) + 1)
    for i in range(begin, end):
        record = records + i * RECORD
        letter, letter_phase = _post(record, letter, letter_phase, mail, posted, taken, 1)
        head = gl.load(record + GROUP) * S.HEADS
        first = gl.load(record + FIRST_TILE)
        num_tiles = gl.load(record + NUM_TILES)
        last = first + num_tiles - 1
        some = num_tiles > 0
        row = table + gl.load(record + SEQ).to(gl.int64) * table_stride
        # Block ids are loaded four tiles ahead: their latency would otherwise stall the ring.
        id0 = gl.load(row + first // S.TILES_A_BLOCK, mask=some, other=0)
        id1 = gl.load(row + gl.minimum(first + 1, last) // S.TILES_A_BLOCK, mask=some, other=0)
        id2 = gl.load(row + gl.minimum(first + 2, last) // S.TILES_A_BLOCK, mask=some, other=0)
        id3 = gl.load(row + gl.minimum(first + 3, last) // S.TILES_A_BLOCK, mask=some, other=0)
        for t in range(num_tiles):
            block = id0
            id0 = id1
            id1 = id2
            id2 = id3
            id3 = gl.load(row + gl.minimum(first + t + 4, last) // S.TILES_A_BLOCK)
            token = (first + t) % S.TILES_A_BLOCK * TILE
            mbarrier.wait(empty.index(box), box_phase)
            mbarrier.expect(full.index(box), BYTES)
            tma.async_copy_global_to_shared(k_desc, [block, head, token, 0], full.index(box), ring.index(box))
            box, box_phase = advance(box, box_phase, S.NUM_SLOTS)
            mbarrier.wait(empty.index(box), box_phase)
            mbarrier.expect(full.index(box), BYTES)
            tma.async_copy_global_to_shared(v_desc, [block, head, token, 0], full.index(box), ring.index(box))
            box, box_phase = advance(box, box_phase, S.NUM_SLOTS)
    _post_end(letter, letter_phase, mail, posted, taken, 1)


@gluon.jit
def fetch_tokens(k, v, block_stride, token_stride, head_stride, ring, full, empty, mail, posted, taken, table,
                 first_record, records, table_stride, S: gl.constexpr):
    """Four warps; a tile is 16 tokens looked up one by one, copied in pieces of 16 bytes."""
    WARPS: gl.constexpr = GATHER_WARPS
    LANES: gl.constexpr = S.HEAD_DIM // 8
    SHAPE: gl.constexpr = [S.HEADS, TILE, S.HEAD_DIM]
    layout: gl.constexpr = gl.BlockedLayout([S.HEADS, 1, 8], [1, 32 // LANES, LANES], [1, WARPS, 1], [2, 1, 0])
    in_tile = gl.arange(0, TILE, gl.SliceLayout(0, gl.SliceLayout(2, layout)))
    heads = gl.arange(0, S.HEADS, gl.SliceLayout(1, gl.SliceLayout(2, layout)))
    dims = gl.arange(0, S.HEAD_DIM, gl.SliceLayout(0, gl.SliceLayout(1, layout)))
    inner = heads.to(gl.int64)[:, None, None] * head_stride + dims[None, None, :]
    box = gl.to_tensor(0)
    box_phase = gl.to_tensor(1)
    letter = gl.to_tensor(0)
    letter_phase = gl.to_tensor(1)
    begin = gl.load(first_record + gl.program_id(0))
    end = gl.load(first_record + gl.program_id(0) + 1)
    for i in range(begin, end):
        record = records + i * RECORD
        letter, letter_phase = _post(record, letter, letter_phase, mail, posted, taken, WARPS)
        first_head = gl.load(record + GROUP).to(gl.int64) * S.HEADS
        first = gl.load(record + FIRST_TILE) * TILE
        num_tiles = gl.load(record + NUM_TILES)
        # Slots behind the end are never looked up; the tail repeats the last token and is masked by the consumer.
        last = gl.minimum(gl.load(record + TOKENS), first + num_tiles * TILE) - 1
        some = (in_tile >= 0) & (num_tiles > 0)
        row = table + gl.load(record + SEQ).to(gl.int64) * table_stride
        k_heads = k + first_head * head_stride
        v_heads = v + first_head * head_stride
        id0 = gl.load(row + gl.minimum(first + in_tile, last) // S.BLOCK_SIZE, mask=some, other=0)
        id1 = gl.load(row + gl.minimum(first + TILE + in_tile, last) // S.BLOCK_SIZE, mask=some, other=0)
        id2 = gl.load(row + gl.minimum(first + 2 * TILE + in_tile, last) // S.BLOCK_SIZE, mask=some, other=0)
        for t in range(num_tiles):
            block = id0
            id0 = id1
            id1 = id2
            id2 = gl.load(row + gl.minimum(first + (t + 3) * TILE + in_tile, last) // S.BLOCK_SIZE)
            in_block = gl.minimum(first + t * TILE + in_tile, last) % S.BLOCK_SIZE
            offset = (block.to(gl.int64) * block_stride + in_block * token_stride)[None, :, None] + inner
            mbarrier.wait(empty.index(box), box_phase)
            async_copy.async_copy_global_to_shared(ring.index(box).reshape(SHAPE), k_heads + offset)
            async_copy.mbarrier_arrive(full.index(box), increment_count=False)
            box, box_phase = advance(box, box_phase, S.NUM_SLOTS)
            mbarrier.wait(empty.index(box), box_phase)
            async_copy.async_copy_global_to_shared(ring.index(box).reshape(SHAPE), v_heads + offset)
            async_copy.mbarrier_arrive(full.index(box), increment_count=False)
            box, box_phase = advance(box, box_phase, S.NUM_SLOTS)
    _post_end(letter, letter_phase, mail, posted, taken, WARPS)
