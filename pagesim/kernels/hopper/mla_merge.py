"""Merging the parts of cut sequences of latents: as many programs as fit on the SMs, however many sequences are cut.

A grid of one program a row would have to be as large as the largest plan that a captured graph may meet.  And small
programs crowd on the SMs that are free first: they come while the decode kernel still runs elsewhere.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

CUT_INTS = tl.constexpr(4)  # sequence, first part, end part, and in the first cut's last word the number of cuts
FEW = tl.constexpr(2)  # parts that are read at once, of 8 rows; where rows are few, 16 parts of one row
CELLS = tl.constexpr(16)  # rows times parts of a program: 32 KiB
PROGRAMS_AN_SM, NUM_WARPS, REGISTERS = 2, 16, 64  # all of an SM's registers


@triton.jit
def _merge_rows(unit, cuts, part_out, part_log_sum, out, NUM_ROWS: tl.constexpr, DIM: tl.constexpr,
                ROWS: tl.constexpr, PARTS: tl.constexpr):
    """ROWS rows of one cut: the mean of their parts weighted by base-2 log sums.

    Threads add up every so many-th part each and meet at the end.  .cg: parts lie powers of two apart, more than the L1
    has ways for.
    """
    UNITS: tl.constexpr = (NUM_ROWS + ROWS - 1) // ROWS
    cut = cuts + unit // UNITS * CUT_INTS
    seq = tl.load(cut)
    first = tl.load(cut + 1)
    end = tl.load(cut + 2)
    row = unit % UNITS * ROWS + tl.arange(0, ROWS)
    valid = row < NUM_ROWS
    dims = tl.arange(0, DIM)
    maximum = tl.full([ROWS, PARTS], float("-inf"), tl.float32)
    for start in range(first, end, PARTS):
        part = start + tl.arange(0, PARTS)
        log_sum = tl.load(part_log_sum + part[None, :] * NUM_ROWS + row[:, None],
                          mask=valid[:, None] & (part < end)[None, :], other=float("-inf"), cache_modifier=".cg")
        maximum = tl.maximum(maximum, log_sum)
    maximum = tl.max(maximum, 1)
    base = tl.where(maximum == float("-inf"), 0.0, maximum)
    total = tl.zeros([ROWS, PARTS], tl.float32)
    result = tl.zeros([ROWS, PARTS, DIM], tl.float32)
    for start in range(first, end, PARTS):
        part = start + tl.arange(0, PARTS)
        at = part.to(tl.int64)[None, :] * NUM_ROWS + row[:, None]
        some = valid[:, None] & (part < end)[None, :]
        values = tl.load(part_out + at[:, :, None] * DIM + dims[None, None, :], mask=some[:, :, None], other=0.0,
                         cache_modifier=".cg")
        log_sum = tl.load(part_log_sum + at, mask=some, other=float("-inf"), cache_modifier=".cg")
        weight = tl.exp2(log_sum - base[:, None])
        total += weight
        result += weight[:, :, None] * values
    total = tl.sum(total, 1)
    result = tl.sum(result, 1) / tl.where(total == 0, 1.0, total)[:, None]  # nobody saw anything: zeros
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
