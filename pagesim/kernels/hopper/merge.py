"""Merging the parts of a cut row inside the decode kernel, in Triton's Gluon dialect.

A part leaves its normalized output and the base-2 log of its sum of exponents; a row's result is the mean of its parts
weighted by those.  Work is counted in *units* of 32 output columns of one query row.  Of a row in few parts the CTA
that arrives last merges everything; of a row in many, each sharing CTA waits for all parts and merges its share.
Whoever is the last to need a counter leaves it at 0, so a graph can be replayed for ever; uploading a plan clears them.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from pagesim.kernels.hopper import plan as p
from pagesim.kernels.hopper.producers import GROUP, SEQ, SHARE

FIRST_SLOT = gl.constexpr(p.FIRST_SLOT)
NUM_PARTS = gl.constexpr(p.NUM_PARTS)
COUNTER = gl.constexpr(p.COUNTER)
NUM_SHARERS = gl.constexpr(p.NUM_SHARERS)

sync_threads = getattr(gl, "barrier", None) or gl.thread_barrier  # renamed in Triton 3.7


@gluon.jit
def announce(record, counters, partial, lse, out, S: gl.constexpr):
    """Count a part as written; the last arrival merges a row whose merge nobody shares."""
    n = gl.load(record + NUM_PARTS)
    num_sharers = gl.load(record + NUM_SHARERS)
    counter = counters + gl.load(record + COUNTER)
    UNITS: gl.constexpr = S.HEADS * S.ROWS_PADDED * S.UNITS_A_ROW
    UNITS_AT_ONCE: gl.constexpr = min(UNITS, 64 * S.WARPS)
    sync_threads()
    if num_sharers > 0:
        gl.atomic_add(counter, 1, sem="release")  # nobody waits for its answer
    elif gl.atomic_add(counter, 1, sem="acq_rel") == n - 1:
        gl.store(counter, 0)
        sync_threads()
        if n <= 2:
            _merge(record, partial, lse, out, 0, UNITS, n, S, UNITS_AT_ONCE, 2, 4, S.WARPS)
        elif n <= 4:
            _merge(record, partial, lse, out, 0, UNITS, n, S, UNITS_AT_ONCE, 4, 4, S.WARPS)
        elif n <= 8:
            _merge(record, partial, lse, out, 0, UNITS, n, S, UNITS_AT_ONCE // 2, 8, 4, S.WARPS)
        else:
            _merge(record, partial, lse, out, 0, UNITS, n, S, 2 * S.WARPS, 16, 4, S.WARPS // 2)


@gluon.jit
def merge_share(record, counters, partial, lse, out, S: gl.constexpr):
    """Wait until all parts of a row are written, then merge this CTA's share of its units."""
    UNITS: gl.constexpr = S.HEADS * S.ROWS_PADDED * S.UNITS_A_ROW
    n = gl.load(record + NUM_PARTS)
    share = gl.load(record + SHARE)
    num_sharers = gl.load(record + NUM_SHARERS)
    first = share * UNITS // num_sharers
    end = (share + 1) * UNITS // num_sharers
    counter = counters + gl.load(record + COUNTER)
    arrived = gl.atomic_add(counter, 0, sem="acquire")
    while arrived < n:
        arrived = gl.atomic_add(counter, 0, sem="acquire")
    sync_threads()
    if n <= 16:
        _merge(record, partial, lse, out, first, end, n, S, 2 * S.WARPS, 16, 4, S.WARPS // 2)
    elif n <= 64:
        _merge(record, partial, lse, out, first, end, n, S, S.WARPS, 64, 4, S.WARPS // 4)
    else:
        _merge(record, partial, lse, out, first, end, n, S, 1, 256, 1, 1)
    if gl.atomic_add(counter, 1, sem="relaxed") == n + num_sharers - 1:
        gl.store(counter, 0)


@gluon.jit
def _merge(record, partial, lse, out, first_unit, end_unit, num_parts, S: gl.constexpr, U: gl.constexpr,
           P: gl.constexpr, UNIT_THREADS: gl.constexpr, UNIT_WARPS: gl.constexpr):
    """Merge units ``[first_unit, end_unit)`` of a row, U units by P parts at a time."""
    COLUMNS: gl.constexpr = 32
    layout: gl.constexpr = gl.BlockedLayout([1, 1, 4], [UNIT_THREADS, 4 // UNIT_THREADS, 8],
                                            [UNIT_WARPS, S.WARPS // UNIT_WARPS, 1], [2, 1, 0])
    unit_of_lse: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, layout))
    unit_of_out: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(1, layout))
    in_u = gl.arange(0, U, unit_of_lse)
    out_u = gl.arange(0, U, unit_of_out)
    part = gl.arange(0, P, gl.SliceLayout(0, gl.SliceLayout(2, layout)))
    column = gl.arange(0, COLUMNS, gl.SliceLayout(0, gl.SliceLayout(1, layout)))
    first_slot = gl.load(record + FIRST_SLOT)
    out += gl.load(record + SEQ).to(gl.int64) * (S.Q_LEN * S.NUM_Q_HEADS * S.HEAD_DIM)
    first_q_head = gl.load(record + GROUP) * (S.HEADS * S.Q_GROUP)
    for u in range(first_unit, end_unit, U):
        m = gl.full([U], float("-inf"), gl.float32, unit_of_lse)
        total = gl.zeros([U], gl.float32, unit_of_lse)
        acc = gl.zeros([U, COLUMNS], gl.float32, gl.SliceLayout(1, layout))
        for b in range(0, num_parts, P):
            unit = u + in_u
            ok = (unit < end_unit)[:, None] & (b + part < num_parts)[None, :]
            at = (first_slot + b + part)[None, :] * (S.HEADS * S.ROWS_PADDED) + (unit // S.UNITS_A_ROW)[:, None]
            # .cg: other SMs wrote these, so a line in this SM's L1 may be stale.
            e = gl.load(lse + at, mask=ok, other=float("-inf"), cache_modifier=".cg")
            first_column = at.to(gl.int64) * S.HEAD_DIM + (unit % S.UNITS_A_ROW * COLUMNS)[:, None]
            some = ok[:, :, None] & (column >= 0)[None, None, :]
            if S.HEAD_DIM != S.DIM:  # a row's last unit is not full, or empty
                some = some & ((unit % S.UNITS_A_ROW * COLUMNS)[:, None, None] + column[None, None, :] < S.HEAD_DIM)
            o = gl.load(partial + first_column[:, :, None] + column[None, None, :], mask=some, other=0.0,
                        cache_modifier=".cg")
            new_m = gl.maximum(m, gl.max(e, 1))
            safe = gl.where(new_m == float("-inf"), 0.0, new_m)  # no part with a visible token so far
            w = gl.exp2(e - safe[:, None])
            old = gl.exp2(m - safe)
            total = total * old + gl.sum(w, 1)
            acc = acc * gl.convert_layout(old, unit_of_out)[:, None] + gl.sum(w[:, :, None] * o, 1)
            m = new_m
        unit = u + out_u
        row = unit // S.UNITS_A_ROW % S.ROWS_PADDED
        head = first_q_head + unit // (S.UNITS_A_ROW * S.ROWS_PADDED) * S.Q_GROUP + row % S.Q_GROUP
        at_out = (row // S.Q_GROUP * S.NUM_Q_HEADS + head) * S.HEAD_DIM + unit % S.UNITS_A_ROW * COLUMNS
        written = ((unit < end_unit) & (row < S.Q_GROUP * S.Q_LEN))[:, None]
        if S.HEAD_DIM != S.DIM:
            written = written & ((unit % S.UNITS_A_ROW * COLUMNS)[:, None] + column[None, :] < S.HEAD_DIM)
        total = gl.convert_layout(total, unit_of_out)
        result = acc / gl.where(total > 0, total, 1.0)[:, None]
        gl.store(out + at_out[:, None] + column[None, :], result.to(out.dtype.element_ty),
                 mask=written & (column >= 0)[None, :])
