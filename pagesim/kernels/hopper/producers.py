"""Feeding the ring of the Hopper kernel: records posted to the consumer, tiles fetched as far ahead as slots are free.

Two producers.  Where 16 tokens lie within one block, one warp fetches them by TMA, 64 columns at a time: the width of
the swizzle.  Smaller and odd blocks are gathered by four warps with 16-byte asynchronous copies, each token looked up
in the table.

Both look ahead, since a load from memory takes as long as the ring lasts: some tiles before a record's end they ask for
the number of the next if it comes from the pool, a tile later for the record, then for its first block ids.  Not
earlier: what is drawn is gone for CTAs that are faster.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from pagesim.kernels.hopper import plan as p

TILE = gl.constexpr(16)  # tokens of a warp's step: one row of tensor-core operands
PANEL = gl.constexpr(64)  # columns that lie together in shared memory: 128 bytes
MAIL = gl.constexpr(8)  # records posted ahead
AHEAD = gl.constexpr(6)  # tiles before a record's end at which the next one is asked for
GATHER_WARPS = gl.constexpr(4)
KEEP = gl.constexpr("evict_last")  # records and tables stay in the L2 while keys and values stream through it
RECORD = gl.constexpr(p.RECORD_INTS)
SEQ = gl.constexpr(p.SEQ)
GROUP = gl.constexpr(p.GROUP)
FIRST_TOKEN = gl.constexpr(p.FIRST_TOKEN)
NUM_TILES = gl.constexpr(p.NUM_TILES)
TOKENS = gl.constexpr(p.TOKENS)
SLOT = gl.constexpr(p.SLOT)
SHARE = gl.constexpr(p.SHARE)
NEXT = gl.constexpr(p.NEXT)
POOL = gl.constexpr(p.POOL)
POOL_SIZE = gl.constexpr(p.POOL_SIZE)
NUM_DRAWERS = gl.constexpr(p.NUM_DRAWERS)
DRAW = gl.constexpr(p.DRAW)


@gluon.jit
def advance(slot, phase, NUM_SLOTS: gl.constexpr):
    slot += 1
    wrapped = slot == NUM_SLOTS
    return gl.where(wrapped, 0, slot), gl.where(wrapped, phase ^ 1, phase)


@gluon.jit
def read_field(mail, letter, FIELD: gl.constexpr, WARPS: gl.constexpr):
    """One word of a letter, as a scalar for all threads of WARPS warps."""
    return gl.max(mail.index(letter).slice(FIELD, 1).load(gl.BlockedLayout([1], [32], [WARPS], [0])), 0)


@gluon.jit
def _load_record(records, at, WARPS: gl.constexpr):
    """A letter, the record's words with its own number in place of the next one's, and the words a producer needs.

    Of those the first token counts in 16s.

    Behind the last record all are -1.
    """
    some = at >= 0
    field = gl.arange(0, RECORD, gl.BlockedLayout([1], [32], [WARPS], [0]))
    record = records + at * RECORD
    words = gl.load(record + field, mask=some & (field >= 0), other=-1, eviction_policy=KEEP)
    seq = gl.load(record + SEQ, mask=some, other=-1, eviction_policy=KEEP)
    group = gl.load(record + GROUP, mask=some, other=-1, eviction_policy=KEEP)
    first = gl.load(record + FIRST_TOKEN, mask=some, other=-1, eviction_policy=KEEP) // TILE
    num_tiles = gl.load(record + NUM_TILES, mask=some, other=-1, eviction_policy=KEEP)
    tokens = gl.load(record + TOKENS, mask=some, other=-1, eviction_policy=KEEP)
    following = gl.load(record + NEXT, mask=some, other=-1, eviction_policy=KEEP)
    return gl.where(field == NEXT, at, words), seq, group, first, num_tiles, tokens, following


@gluon.jit
def _load_pool(records):
    """First record of the pool, how many it has, and how many CTAs draw from it."""
    record = records + gl.program_id(0) * RECORD  # any would do; this one is on its way anyhow
    return gl.load(record + POOL), gl.load(record + POOL_SIZE), gl.load(record + NUM_DRAWERS)


@gluon.jit
def _draw(counter, some, WARPS: gl.constexpr):
    """Ask for a number; who uses the answer waits for it, so nothing does until ``_load_next``."""
    lane = gl.arange(0, 32 * WARPS, gl.BlockedLayout([1], [32], [WARPS], [0]))
    # Addresses that differ by lane: for one address Triton would hand the answer round at once.
    return gl.atomic_add(counter + lane, lane * 0 + 1, mask=some & (lane == 0), sem="relaxed")


@gluon.jit
def _load_next(records, following, draws, answer, counter, pool, WARPS: gl.constexpr):
    """The record that follows, be it drawn; the last drawer of all leaves the counter at 0."""
    first, size, num_drawers = pool
    lane = gl.arange(0, 32 * WARPS, gl.BlockedLayout([1], [32], [WARPS], [0]))
    number = gl.max(gl.where(lane == 0, answer, -1), 0)
    gl.store(counter + lane, lane * 0, mask=draws & (lane == 0) & (number == size + num_drawers - 1))
    drawn = gl.where(number < size, first + number, -1)
    return _load_record(records, gl.where(draws, drawn, following), WARPS)


@gluon.jit
def post(words, letter, phase, mail, posted, taken, NUM_LETTERS: gl.constexpr):
    """Put the words into the next letter once its last readers are done with it."""
    mbarrier.wait(taken.index(letter), phase)
    mail.index(letter).store(words)
    mbarrier.arrive(posted.index(letter), count=1)
    return advance(letter, phase, NUM_LETTERS)


@gluon.jit
def _last_piece(first, num_tiles, tokens, S: gl.constexpr):
    """The last 16 tokens of a part that exist: of a tile, not all need to."""
    if S.SPLITS == 1:
        return first + num_tiles - 1
    else:
        return gl.minimum(first + num_tiles * S.SPLITS, (tokens + TILE - 1) // TILE) - 1


@gluon.jit
def _ids(row, piece, last, some, S: gl.constexpr):
    """Blocks of a tile's pieces of 16 tokens: a scalar, or SPLITS of them; behind the end that of the last piece."""
    if S.SPLITS > 1:
        piece += gl.arange(0, S.SPLITS, gl.BlockedLayout([1], [32], [1], [0]))
        some = some & (piece >= 0)
    return gl.load(row + gl.minimum(piece, last) // S.TILES_A_BLOCK, mask=some, other=0, eviction_policy=KEEP)


@gluon.jit
def _id_of(ids, J: gl.constexpr, S: gl.constexpr):
    if S.SPLITS == 1:
        return ids
    else:
        piece = gl.arange(0, S.SPLITS, gl.BlockedLayout([1], [32], [1], [0]))
        return gl.max(gl.where(piece == J, ids, 0), 0)


@gluon.jit
def _ids_of_tiles(table, table_stride, seq, first, num_tiles, tokens, S: gl.constexpr):
    """Blocks of the first four tiles."""
    some = num_tiles > 0
    row = table + seq.to(gl.int64) * table_stride
    last = _last_piece(first, num_tiles, tokens, S)
    id0 = _ids(row, first, last, some, S)
    id1 = _ids(row, first + S.SPLITS, last, some, S)
    id2 = _ids(row, first + 2 * S.SPLITS, last, some, S)
    id3 = _ids(row, first + 3 * S.SPLITS, last, some, S)
    return id0, id1, id2, id3


@gluon.jit
def _fetch_tile(desc, ids, head, piece, last, full, boxes, slot, S: gl.constexpr):
    """Pieces of a tile, of all heads of the CTA, into a slot: its panels of 64 columns lie behind each other."""
    PANELS: gl.constexpr = S.DIM // PANEL
    mbarrier.expect(full, S.SPLITS * S.HEADS * TILE * S.DIM * 2)
    for j in gl.static_range(S.SPLITS):
        token = gl.minimum(piece + j, last) % S.TILES_A_BLOCK * TILE
        block = _id_of(ids, j, S)
        for c in gl.static_range(PANELS):
            tma.async_copy_global_to_shared(desc, [block, head, token, c * PANEL], full,
                                            boxes.index((slot * PANELS + c) * S.SPLITS + j))


@gluon.jit
def fetch_boxes(k_desc, v_desc, boxes, full, empty, mail, posted, taken, table, records, counters, table_stride,
                S: gl.constexpr):
    """One warp; a TMA box is (1 block, HEADS heads, 16 tokens, 64 columns) of a pool of any strides."""
    box = gl.to_tensor(0)
    box_phase = gl.to_tensor(1)
    letter = gl.to_tensor(0)
    letter_phase = gl.to_tensor(1)
    words, seq, group, first, num_tiles, tokens, following = _load_record(records, gl.program_id(0), 1)
    pool = _load_pool(records)
    id0, id1, id2, id3 = _ids_of_tiles(table, table_stride, seq, first, num_tiles, tokens, S)
    answer = _draw(counters, False, 1)
    while seq >= 0:
        letter, letter_phase = post(words, letter, letter_phase, mail, posted, taken, MAIL)
        row = table + seq.to(gl.int64) * table_stride
        last = _last_piece(first, num_tiles, tokens, S)
        seq1 = seq
        group1 = group
        first1 = first
        num_tiles1 = num_tiles
        tokens1 = tokens
        next0 = id0
        next1 = id1
        next2 = id2
        next3 = id3
        draws = following == DRAW
        for t in range(gl.maximum(num_tiles, 1)):
            block = id0
            id0 = id1
            id1 = id2
            id2 = id3
            id3 = _ids(row, first + (t + 4) * S.SPLITS, last, num_tiles > 0, S)
            if t < num_tiles:
                piece = first + t * S.SPLITS
                mbarrier.wait(empty.index(box), box_phase)
                _fetch_tile(k_desc, block, group * S.HEADS, piece, last, full.index(box), boxes, box, S)
                box, box_phase = advance(box, box_phase, S.NUM_SLOTS)
                mbarrier.wait(empty.index(box), box_phase)
                _fetch_tile(v_desc, block, group * S.HEADS, piece, last, full.index(box), boxes, box, S)
                box, box_phase = advance(box, box_phase, S.NUM_SLOTS)
            if t == gl.maximum(num_tiles - AHEAD, 0):
                answer = _draw(counters, draws, 1)
            if t == gl.maximum(num_tiles - AHEAD + 1, 0):
                words, seq1, group1, first1, num_tiles1, tokens1, following = _load_next(
                    records, following, draws, answer, counters, pool, 1)
            if t == gl.maximum(num_tiles - AHEAD + 2, 0):
                next0, next1, next2, next3 = _ids_of_tiles(table, table_stride, seq1, first1, num_tiles1, tokens1, S)
        seq = seq1
        group = group1
        first = first1
        num_tiles = num_tiles1
        tokens = tokens1
        id0 = next0
        id1 = next1
        id2 = next2
        id3 = next3
    post(words, letter, letter_phase, mail, posted, taken, MAIL)


@gluon.jit
def _ids_of_tokens(table, table_stride, seq, first, end, in_tile, some, S: gl.constexpr):
    """Blocks of the 16 tokens from ``first``; behind the end, of the last token."""
    row = table + seq.to(gl.int64) * table_stride
    return gl.load(row + gl.minimum(first + in_tile, end - 1) // S.BLOCK_SIZE, mask=some & (in_tile >= 0), other=0,
                   eviction_policy=KEEP)


@gluon.jit
def fetch_tokens(k, v, block_stride, token_stride, head_stride, ring, full, empty, mail, posted, taken, table, records,
                 counters, table_stride, S: gl.constexpr):
    """Four warps; a tile is 16 tokens looked up one by one, copied in pieces of 16 bytes.

    Slots behind the end are never looked up; the tail repeats the last token and is masked by the consumer.
    """
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
    words, seq, group, first, num_tiles, tokens, following = _load_record(records, gl.program_id(0), WARPS)
    pool = _load_pool(records)
    end = gl.minimum(tokens, (first + num_tiles) * TILE)
    id0 = _ids_of_tokens(table, table_stride, seq, first * TILE, end, in_tile, num_tiles > 0, S)
    id1 = _ids_of_tokens(table, table_stride, seq, (first + 1) * TILE, end, in_tile, num_tiles > 0, S)
    answer = _draw(counters, False, WARPS)
    while seq >= 0:
        letter, letter_phase = post(words, letter, letter_phase, mail, posted, taken, MAIL)
        k_heads = k + group.to(gl.int64) * (S.HEADS * head_stride)
        v_heads = v + group.to(gl.int64) * (S.HEADS * head_stride)
        seq1 = seq
        group1 = group
        first1 = first
        num_tiles1 = num_tiles
        end1 = end
        next0 = id0
        next1 = id1
        draws = following == DRAW
        for t in range(gl.maximum(num_tiles, 1)):
            block = id0
            id0 = id1
            id1 = _ids_of_tokens(table, table_stride, seq, (first + t + 2) * TILE, end, in_tile, num_tiles > 0, S)
            if t < num_tiles:
                in_block = gl.minimum((first + t) * TILE + in_tile, end - 1) % S.BLOCK_SIZE
                offset = (block.to(gl.int64) * block_stride + in_block * token_stride)[None, :, None] + inner
                mbarrier.wait(empty.index(box), box_phase)
                async_copy.async_copy_global_to_shared(ring.index(box).reshape(SHAPE), k_heads + offset)
                async_copy.mbarrier_arrive(full.index(box), increment_count=False)
                box, box_phase = advance(box, box_phase, S.NUM_SLOTS)
                mbarrier.wait(empty.index(box), box_phase)
                async_copy.async_copy_global_to_shared(ring.index(box).reshape(SHAPE), v_heads + offset)
                async_copy.mbarrier_arrive(full.index(box), increment_count=False)
                box, box_phase = advance(box, box_phase, S.NUM_SLOTS)
            if t == gl.maximum(num_tiles - AHEAD, 0):
                answer = _draw(counters, draws, WARPS)
            if t == gl.maximum(num_tiles - AHEAD + 1, 0):
                words, seq1, group1, first1, num_tiles1, tokens, following = _load_next(
                    records, following, draws, answer, counters, pool, WARPS)
            if t == gl.maximum(num_tiles - AHEAD + 2, 0):
                end1 = gl.minimum(tokens, (first1 + num_tiles1) * TILE)
                next0 = _ids_of_tokens(table, table_stride, seq1, first1 * TILE, end1, in_tile, num_tiles1 > 0, S)
                next1 = _ids_of_tokens(table, table_stride, seq1, (first1 + 1) * TILE, end1, in_tile, num_tiles1 > 0, S)
        seq = seq1
        group = group1
        first = first1
        num_tiles = num_tiles1
        end = end1
        id0 = next0
        id1 = next1
    post(words, letter, letter_phase, mail, posted, taken, MAIL)
