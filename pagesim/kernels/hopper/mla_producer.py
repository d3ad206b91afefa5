"""Feeding the Hopper kernel of latents: records posted to both warpgroups, queries and tiles fetched by TMA."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from pagesim.kernels.hopper.producers import FIRST_TOKEN, KEEP, NEXT, NUM_TILES, RECORD, SEQ, TOKENS, post

M = gl.constexpr(64)  # rows of a CTA: what a warpgroup's products take
TILE = gl.constexpr(64)  # tokens of a step
LATENT = gl.constexpr(512)
ROPE = gl.constexpr(64)
HALF = gl.constexpr(256)  # columns of the latent that one warpgroup adds up
CHUNK = gl.constexpr(64)  # columns that lie together in shared memory: 128 bytes, the width of the swizzle
MAIL = gl.constexpr(2)  # records posted ahead


@gluon.jit
def _load_record(records, at):
    """A letter, the record's words, and what the producer needs; behind the last record all are -1."""
    some = at >= 0
    field = gl.arange(0, RECORD, gl.BlockedLayout([1], [32], [1], [0]))
    record = records + at * RECORD
    words = gl.load(record + field, mask=some & (field >= 0), other=-1, eviction_policy=KEEP)
    seq = gl.load(record + SEQ, mask=some, other=-1, eviction_policy=KEEP)
    first = gl.load(record + FIRST_TOKEN, mask=some, other=-1, eviction_policy=KEEP) // TILE
    num_tiles = gl.load(record + NUM_TILES, mask=some, other=-1, eviction_policy=KEEP)
    tokens = gl.load(record + TOKENS, mask=some, other=-1, eviction_policy=KEEP)
    following = gl.load(record + NEXT, mask=some, other=-1, eviction_policy=KEEP)
    return words, seq, first, num_tiles, tokens, following


@gluon.jit
def _lookup(table, table_stride, seq, tile, tokens, S: gl.constexpr):
    """Block of each box of a tile; behind the last token, of that token: the table may hold anything there."""
    row = table + seq.to(gl.int64) * table_stride
    ids = ()
    for b in gl.static_range(TILE // S.BOX):
        token = gl.minimum(tile * TILE + b * S.BOX, tokens - 1)
        ids = ids + (gl.load(row + token // S.BLOCK_SIZE, eviction_policy=KEEP),)
    return ids


@gluon.jit
def _fetch_piece(desc, boxes, full, empty, phase, ids, tile, at, column, CHUNKS: gl.constexpr, S: gl.constexpr):
    """CHUNKS chunks of a tile from ``column`` on, to the chunks of shared memory from ``at`` on."""
    BOXES: gl.constexpr = TILE // S.BOX
    mbarrier.wait(empty, phase)
    mbarrier.expect(full, TILE * CHUNKS * CHUNK * 2)
    for c in gl.static_range(CHUNKS):
        for b in gl.static_range(BOXES):
            token = (tile * TILE + b * S.BOX) % S.BLOCK_SIZE
            tma.async_copy_global_to_shared(desc, [ids[b], token, column + c * CHUNK],
                                            full, boxes.index((at + c) * BOXES + b))


@gluon.jit
def _fetch_tile(desc, halves, rope, phase, ids, tile, W: gl.constexpr, S: gl.constexpr):
    half_boxes, half_full, half_empty = halves
    rope_boxes, rope_full, rope_empty = rope
    CHUNKS: gl.constexpr = HALF // CHUNK
    for h in gl.static_range(2):
        _fetch_piece(desc, half_boxes, half_full.index(2 * W + h), half_empty.index(2 * W + h), phase, ids, tile,
                     (2 * W + h) * CHUNKS, h * HALF, CHUNKS, S)
    _fetch_piece(desc, rope_boxes, rope_full.index(W), rope_empty.index(W), phase, ids, tile, W, LATENT, 1, S)


@gluon.jit
def fetch(q_desc, desc, queries, halves, rope, letters, table, records, table_stride, S: gl.constexpr):
    """One warp: post records, fetch their queries, and tiles as pieces are free."""
    q_boxes, q_full, q_empty = queries
    mail, posted, taken = letters
    Q_BOXES: gl.constexpr = M // S.Q_BOX
    row_tile = gl.program_id(0) % S.ROW_TILES
    phase0 = gl.to_tensor(1)
    phase1 = gl.to_tensor(1)
    q_phase = gl.to_tensor(1)
    letter = gl.to_tensor(0)
    letter_phase = gl.to_tensor(1)
    words, seq, first, num_tiles, tokens, following = _load_record(records, gl.program_id(0) // S.ROW_TILES)
    while seq >= 0:
        letter, letter_phase = post(words, letter, letter_phase, mail, posted, taken, MAIL)
        if num_tiles > 0:
            mbarrier.wait(q_empty.index(0), q_phase)
            q_phase ^= 1
            mbarrier.expect(q_full.index(0), S.Q_BOX * (LATENT + ROPE) * 2)
            for c in gl.static_range((LATENT + ROPE) // CHUNK):
                tma.async_copy_global_to_shared(q_desc, [seq * S.ROWS + row_tile * M, c * CHUNK], q_full.index(0),
                                                q_boxes.index(c * Q_BOXES))
            for pair in range((num_tiles + 1) // 2):
                tile = first + 2 * pair
                ids = _lookup(table, table_stride, seq, tile, tokens, S)  # while the pieces are awaited
                _fetch_tile(desc, halves, rope, phase0, ids, tile, 0, S)
                phase0 ^= 1
                if tile + 1 < first + num_tiles:
                    ids = _lookup(table, table_stride, seq, tile + 1, tokens, S)
                    _fetch_tile(desc, halves, rope, phase1, ids, tile + 1, 1, S)
                    phase1 ^= 1
        words, seq, first, num_tiles, tokens, following = _load_record(records, following)
    post(words, letter, letter_phase, mail, posted, taken, MAIL)
