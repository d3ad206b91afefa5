"""Merging the parts of cut sequences of latents: one large program on each SM, however many sequences the plan has cut.

A grid of one program a row would have to be as large as the largest plan that a captured graph may meet.  And small
programs crowd on the SMs that are free first: they come while the decode kernel still runs elsewhere.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

CUT_INTS = tl.constexpr(4)  # sequence, first part, end part, and in the first cut's last word the number of cuts
FEW = tl.constexpr(4)  # parts that are read at once, of 16 rows; where rows are few, 64 parts of one row
CELLS = tl.constexpr(64)  # rows times parts of a program: 128 KiB
NUM_WARPS = 32  # with them, an SM holds one program


@triton.jit
def _merge_rows(unit, cuts, part_out, part_log_sum, out, NUM_ROWS: tl.constexpr, DIM: tl.constexpr,
                ROWS: tl.constexpr, PARTS: tl.constexpr):
    """ROWS rows of one cut: the mean of their parts weighted by base-2 log sums, PARTS at a time."""
    UNITS: tl.constexpr = (NUM_ROWS + ROWS - 1) // ROWS
    cut = cuts + unit // UNITS * CUT_INTS
    seq = tl.load(cut)
    first = tl.load(cut + 1)
    end = tl.load(cut + 2)
    row = unit % UNITS * ROWS + tl.arange(0, ROWS)
    valid = row < NUM_ROWS
    dims = tl.arange(0, DIM)
    maximum = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    result = tl.zeros([ROWS, DIM], tl.float32)
    for start in range(first, end, PARTS):
        part = start + tl.arange(0, PARTS)
        at = part.to(tl.int64)[None, :] * NUM_ROWS + row[:, None]
        some = valid[:, None] & (part < end)[None, :]
        log_sum = tl.load(part_log_sum + at, mask=some, other=float("-inf"))
        values = tl.load(part_out + at[:, :, None] * DIM + dims[None, None, :], mask=some[:, :, None], other=0.0)
        new = tl.maximum(maximum, tl.max(log_sum, 1))
        base = tl.where(new == float("-inf"), 0.0, new)
        weight = tl.exp2(log_sum - base[:, None])
        keep = tl.exp2(maximum - base)
        total = total * keep + tl.sum(weight, 1)
        result = result * keep[:, None] + tl.sum(weight[:, :, None] * values, 1)
        maximum = new
    result = result / tl.where(total == 0, 1.0, total)[:, None]  # nobody saw anything: zeros
    at = (seq.to(tl.int64) * NUM_ROWS + row)[:, None] * DIM + dims[None, :]
    tl.store(out + at, result.to(out.dtype.element_ty), mask=valid[:, None])


@triton.jit
def merge(cuts, part_out, part_log_sum, out, NUM_ROWS: tl.constexpr, DIM: tl.constexpr):
    """Parts are (part, NUM_ROWS, DIM) in fp32."""
    gdc_launch_dependents()
    gdc_wait()
    num_cuts = tl.load(cuts + CUT_INTS - 1)
    if num_cuts * NUM_ROWS <= tl.num_programs(0):
        if tl.program_id(0) < num_cuts * NUM_ROWS:
            _merge_rows(tl.program_id(0), cuts, part_out, part_log_sum, out, NUM_ROWS, DIM, 1, CELLS)
    else:
        num_units = num_cuts * ((NUM_ROWS + CELLS // FEW - 1) // (CELLS // FEW))
        for unit in range(tl.program_id(0), num_units, tl.num_programs(0)):
            _merge_rows(unit, cuts, part_out, part_log_sum, out, NUM_ROWS, DIM, CELLS // FEW, FEW)
