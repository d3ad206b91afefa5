"""One launch of a made-up case through either kernel, and its check against the definition."""

from pagesim.kernels.dispatch import paged_decode, plan_decode
from pagesim.kernels.harness.check import compare
from pagesim.kernels.hopper.plan import make_plan

RAGGED = [0, 1, 15, 16, 17, 31, 32, 33, 255, 1000, 0, 47, 2049]


def run(case, kernel, *, plan=None, out=None):
    if plan is None:
        plan = plan_decode(case.q, case.cache, case.lengths, mask=case.mask, kernel=kernel)
    out = case.poisoned_out() if out is None else out
    paged_decode(case.q, case.cache, case.block_table, case.lengths_tensor(), plan, mask=case.mask, out=out)
    return out


def plan_with_pool(case, pool_tiles):
    """A plan for the Hopper kernel, with a pool from this many mean tiles of a CTA on."""
    plan = plan_decode(case.q, case.cache, case.lengths, mask=case.mask, kernel="hopper")
    head_groups = case.cache.geometry.num_kv_heads // plan.shape.HEADS.value
    plan.buffer.upload(make_plan(case.lengths, plan.buffer.num_ctas, head_groups=head_groups, pool_tiles=pool_tiles,
                                 tile_tokens=plan.shape.tile_tokens, begin=plan.first_seen(case.lengths)))
    return plan


def check(case, out):
    bounds = compare(out, case.expected(), eager=case.expected(out.dtype))
    assert bounds.passed, bounds
    return bounds
