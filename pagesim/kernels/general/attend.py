"""The inner loop of decode and prefill: a tile of query rows attends to a run of tokens through a block table."""

import os
from dataclasses import replace

import torch
import triton
import triton.language as tl

from pagesim.kernels.cache import Cache
from pagesim.kernels.launch import TRITON
from pagesim.kernels.validate import CACHE_8BIT

INTERPRET = os.environ.get("TRITON_INTERPRET") == "1"
INTERPRETED_TILE = 1024  # the interpreter pays for each operation, hardly for its size

LOG2E = tl.constexpr(1.4426950408889634)
HAS_TUPLES = TRITON >= (3, 3)  # in the language


def as_pairs(q: torch.Tensor, cache: Cache) -> Cache:
    """A cache of e4m3 with two values in each int16, where ``attend`` takes it so; another as it is.

    Pairs are multiplied in fp16, which holds every e4m3 value and, with a power of two a row, queries of fp16 and bf16.
    """
    k, v = cache.k, cache.v
    if (k.dtype != CACHE_8BIT or q.dtype == torch.float32 or not HAS_TUPLES
            or q.shape[-1] <= 16  # a product takes 16 pairs at least
            or any(n % 2 for n in (q.shape[-1], *k.stride()[:3], k.data_ptr(), v.data_ptr()))):
        return cache
    return replace(cache, k=k.view(torch.int16), v=v.view(torch.int16))


@triton.jit
def attend(q, k_ptr, v_ptr, table_ptr, position, first, open_first, open_end, end, scale, block_stride, token_stride,
           k_dims, v_dims, K_DIM: tl.constexpr, V_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr,
           WINDOW: tl.constexpr, SOFTCAP: tl.constexpr, INTERPRET: tl.constexpr):
    """Softmax over the tokens [first, end); in the whole tiles of [open_first, open_end) every row sees every token.

    Args:
        q: (rows, padded head_dim); rows beyond the queries may hold anything finite.
        k_ptr, v_ptr: the head's first element in block 0, of K and V as ``as_pairs`` gave them.
        table_ptr: the sequence's block ids.
        position: (rows,) each row's own token; it sees tokens <= position, with WINDOW >= 0 those >= position - WINDOW.
        k_dims, v_dims: 0, 1, 2, … up to a power of two; those >= K_DIM or V_DIM are padding.

    Returns:
        (maximum, total, out): base-2 running maximum and sum of each row, and its unnormalised output.  A row that saw
        nothing has -inf, 0 and zeros.
    """
    rows: tl.constexpr = q.shape[0]
    PAIRS: tl.constexpr = v_ptr.dtype.element_ty == tl.int16
    k_dim: tl.constexpr = K_DIM // 2 if PAIRS else K_DIM
    v_dim: tl.constexpr = V_DIM // 2 if PAIRS else V_DIM
    if PAIRS:
        q, scale = _halve(q, scale)
        k_dims, v_dims = tl.arange(0, k_dims.shape[0] // 2), tl.arange(0, v_dims.shape[0] // 2)
    factor = _factor(scale, SOFTCAP, PAIRS)
    tokens = tl.arange(0, TILE)
    maximum = tl.full([rows], float("-inf"), tl.float32)
    total = tl.zeros([rows], tl.float32)
    out = tl.zeros([rows, v_dims.shape[0]], tl.float32)
    if PAIRS:
        out = out, out
    # The ids of the next tile are loaded one tile ahead: an address that depends on a load in the same round would
    # halve the depth of the pipeline.
    block = tl.load(table_ptr + (first + tokens) // BLOCK_SIZE, mask=first + tokens < end, other=0)
    if WINDOW >= 0:
        block, maximum, total, out = _masked_tiles(
            q, k_ptr, v_ptr, table_ptr, position, first, open_first, end, block, maximum, total, out, scale,
            block_stride, token_stride, k_dims, v_dims, k_dim, v_dim, BLOCK_SIZE, TILE, WINDOW, SOFTCAP, INTERPRET)
    in_block = ((open_first + tokens) % BLOCK_SIZE).to(tl.int64) * token_stride
    for start in tl.range(open_first, open_end, TILE):
        token = start + tokens
        if TILE % BLOCK_SIZE != 0:  # else every tile starts at the same place in a block
            in_block = (token % BLOCK_SIZE).to(tl.int64) * token_stride
        offset = block.to(tl.int64) * block_stride + in_block
        block = tl.load(table_ptr + (token + TILE) // BLOCK_SIZE, mask=token + TILE < end, other=0)
        k = tl.load(k_ptr + offset[:, None] + k_dims[None, :], mask=(k_dims < k_dim)[None, :], other=0.0)
        v = tl.load(v_ptr + offset[:, None] + v_dims[None, :], mask=(v_dims < v_dim)[None, :], other=0.0)
        scores = _scores(q, k, scale, SOFTCAP, INTERPRET)
        maximum, total, out = accumulate(scores, factor, v, q, maximum, total, out, False, INTERPRET)
    block, maximum, total, out = _masked_tiles(
        q, k_ptr, v_ptr, table_ptr, position, open_end, end, end, block, maximum, total, out, scale, block_stride,
        token_stride, k_dims, v_dims, k_dim, v_dim, BLOCK_SIZE, TILE, WINDOW, SOFTCAP, INTERPRET)
    if PAIRS:
        out = tl.reshape(tl.join(out[0], out[1]), (rows, 2 * v_dims.shape[0]))
    return maximum, total, out


@triton.jit
def _halve(q, scale):
    """Even and odd dimensions of fp16 or bf16 queries for a cache of pairs, both in fp16, and each row's scale.

    A row is multiplied by the power of two that brings its largest element to 2^14 or more, so that what fp16 cannot
    hold is below 2^-38 of that.
    """
    q = q.to(tl.float32)
    exponent = tl.max(tl.abs(q), 1).to(tl.int32, bitcast=True) >> 23
    up = tl.minimum(268 - exponent, 253)  # exponents are 127 above the powers that they mean
    q = (q * (up << 23).to(tl.float32, bitcast=True)[:, None]).to(tl.float16)
    even, odd = tl.split(tl.reshape(q, (q.shape[0], q.shape[1] // 2, 2)))
    return (even, odd), scale * ((254 - up) << 23).to(tl.float32, bitcast=True)


@triton.jit
def _e4m3(byte):
    """In the interpreter, which takes e4m3's NaN for 480."""
    value = byte.to(tl.uint8).to(tl.float8e4nv, bitcast=True).to(tl.float16)
    return tl.where((byte & 0x7F) == 0x7F, float("nan"), value)


@triton.jit
def _halves(pairs, INTERPRET: tl.constexpr):
    """First and second values of pairs of e4m3, exact in fp16.

    They meet in one product each, since tensor cores take two tokens (or dims) of 16 bits at a time from shared memory:
    a load of single bytes, and any way to bf16, takes several times as many instructions as the rest of a tile.
    """
    if INTERPRET:
        return _e4m3(pairs & 0xFF), _e4m3((pairs >> 8) & 0xFF)
    else:
        return tl.inline_asm_elementwise("""{
            .reg .b32 sorted;
            .reg .b16 first, second;
            prmt.b32 sorted, $2, 0, 0x3120;
            mov.b32 {first, second}, sorted;
            cvt.rn.f16x2.e4m3x2 $0, first;
            cvt.rn.f16x2.e4m3x2 $1, second;
            }""", "=r,=r,r", [pairs], dtype=(tl.float16, tl.float16), is_pure=True, pack=2)


@triton.jit
def _masked_tiles(q, k_ptr, v_ptr, table_ptr, position, first, last, end, block, maximum, total, out, scale,
                  block_stride, token_stride, k_dims, v_dims, K_DIM: tl.constexpr, V_DIM: tl.constexpr,
                  BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr, WINDOW: tl.constexpr, SOFTCAP: tl.constexpr,
                  INTERPRET: tl.constexpr):
    """The tiles that start in [first, last): at the edge of the window, on the diagonal, or behind the end."""
    factor = _factor(scale, SOFTCAP, v_ptr.dtype.element_ty == tl.int16)
    tokens = tl.arange(0, TILE)
    for start in tl.range(first, last, TILE, num_stages=1):
        token = start + tokens
        stored = token < end
        offset = block.to(tl.int64) * block_stride + (token % BLOCK_SIZE) * token_stride
        block = tl.load(table_ptr + (token + TILE) // BLOCK_SIZE, mask=token + TILE < end, other=0)
        # Slots behind the end may hold NaN: masking the scores is not enough, since 0 · NaN is NaN.
        k = tl.load(k_ptr + offset[:, None] + k_dims[None, :], mask=stored[:, None] & (k_dims < K_DIM)[None, :],
                    other=0.0)
        v = tl.load(v_ptr + offset[:, None] + v_dims[None, :], mask=stored[:, None] & (v_dims < V_DIM)[None, :],
                    other=0.0)
        scores = _scores(q, k, scale, SOFTCAP, INTERPRET)
        seen = stored[None, :] & (token[None, :] <= position[:, None])
        if WINDOW >= 0:
            seen = seen & (token[None, :] >= position[:, None] - WINDOW)
        scores = tl.where(seen, scores, float("-inf"))
        maximum, total, out = accumulate(scores, factor, v, q, maximum, total, out, True, INTERPRET)
    return block, maximum, total, out


@triton.jit
def open_tiles(first, end, low, high, TILE: tl.constexpr, WINDOW: tl.constexpr):
    """Whole tiles of [first, end) in which rows at positions low … high see every token: their start and their end."""
    open_first = first
    if WINDOW >= 0:
        edge = tl.minimum(high - WINDOW, end)
        open_first = first + (tl.maximum(edge - first, 0) + TILE - 1) // TILE * TILE
    open_end = open_first + tl.maximum(tl.minimum(end, low + 1) - open_first, 0) // TILE * TILE
    return open_first, open_end


@triton.jit
def _scores(q, k, scale, SOFTCAP: tl.constexpr, INTERPRET: tl.constexpr):
    """Scores but for ``_factor``, which is multiplied when the maximum is subtracted, in the same instruction."""
    if k.dtype == tl.int16:
        even, odd = _halves(k, INTERPRET)
        scores = tl.dot(q[1], tl.trans(odd), tl.dot(q[0], tl.trans(even)))
        scale = scale[:, None]
    elif INTERPRET and q.dtype == tl.bfloat16:  # the interpreter multiplies the bits of bf16 operands
        scores = tl.dot(q.to(tl.float32), tl.trans(k.to(q.dtype).to(tl.float32)))
    else:
        scores = tl.dot(q, tl.trans(k.to(q.dtype)), input_precision="ieee")
    if SOFTCAP > 0:
        scores = SOFTCAP * tanh(scores * (scale / SOFTCAP))
    return scores


@triton.jit
def _factor(scale, SOFTCAP: tl.constexpr, PAIRS: tl.constexpr):
    """exp2(score · factor) is e to the natural score; above 0, so that the maximum stays the maximum."""
    if SOFTCAP > 0:
        return tl.full(scale.shape, LOG2E, tl.float32) if PAIRS else LOG2E
    else:
        return scale * LOG2E


@triton.jit
def tanh(x):
    """tanh that neither overflows far from 0 nor loses digits near it."""
    square = x * x
    near = x * (1 + square * (-1 / 3 + square * (2 / 15 + square * (-17 / 315 + square * (62 / 2835)))))
    e = tl.exp2(tl.abs(x) * (-2 * LOG2E))
    far = (1 - e) / (1 + e)
    return tl.where(square < 0.04, near, tl.where(x < 0, -far, far))


@triton.jit
def accumulate(scores, factor, v, q, maximum, total, out, MASKED: tl.constexpr, INTERPRET: tl.constexpr):
    """One tile into the running softmax; with MASKED, a row whose scores are all -inf is left as it is."""
    new = tl.maximum(maximum, tl.max(scores, 1) * factor)
    base = new
    if MASKED:
        base = tl.where(new == float("-inf"), 0.0, new)
    weights = tl.exp2(scores * (factor[:, None] if v.dtype == tl.int16 else factor) - base[:, None])
    keep = tl.exp2(maximum - base)
    total = total * keep + tl.sum(weights, 1)
    if v.dtype == tl.int16:
        even, odd = _halves(v, INTERPRET)
        weights = weights.to(tl.float16)
        out = (tl.dot(weights, even, out[0] * keep[:, None]), tl.dot(weights, odd, out[1] * keep[:, None]))
    elif INTERPRET and q.dtype == tl.bfloat16:
        out = tl.dot(weights, v.to(tl.float32), out * keep[:, None])
    elif q.dtype == tl.float32:
        # A product in fp32 adds token after token: were it to go on from out, a sum of n tokens would be rounded n
        # times.  fma, since Triton makes a product and a sum one chain again.
        out = tl.fma(out, keep[:, None], tl.dot(weights.to(q.dtype), v.to(q.dtype), input_precision="ieee"))
    else:
        out = tl.dot(weights.to(q.dtype), v.to(q.dtype), out * keep[:, None], input_precision="ieee")
    return new, total, out


@triton.jit
def add_sink(sink, maximum, total, out):
    """Sum and output, to a new maximum, with a logit more whose weight goes to no value."""
    sink = sink.to(tl.float32) * LOG2E
    new = tl.maximum(maximum, sink)
    keep = tl.exp2(maximum - new)
    return total * keep + tl.exp2(sink - new), out * keep[:, None]


@triton.jit
def normalise(total, out):
    """``out / total``; zeros where nothing was seen."""
    return out / tl.where(total == 0, 1.0, total)[:, None]


@triton.jit
def round_to(x, dtype: tl.constexpr, INTERPRET: tl.constexpr):
    """``x`` of fp32 in ``dtype``, rounded to nearest even; the interpreter cuts bf16 off and rounds fp8's ties up."""
    if INTERPRET and (dtype == tl.bfloat16 or dtype == tl.float8e4nv):
        CUT: tl.constexpr = 16 if dtype == tl.bfloat16 else 20  # mantissa bits that go
        bits = x.to(tl.uint32, bitcast=True)
        bits = (bits + ((1 << (CUT - 1)) - 1) + ((bits >> CUT) & 1)) >> CUT << CUT
        rounded = bits.to(tl.float32, bitcast=True)
        if dtype == tl.float8e4nv:  # subnormals are multiples of 2^-9, the spacing of fp32 around 1.5 · 2^14
            rounded = tl.where(tl.abs(x) < 0.015625, (x + 24576.0) - 24576.0, rounded)
        x = rounded
    return x.to(dtype)
