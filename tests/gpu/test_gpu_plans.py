"""Plans on a GPU: replayed graphs, reused buffers, batch-mates, and the rule between the kernels."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'pagesim[kernel]'")
pytest.importorskip("triton", reason="triton is not installed: pip install 'pagesim[kernel]' on Linux")

from cases import make_case
from launching import check, plan_with_pool, run

from pagesim.kernels import dispatch
from pagesim.kernels.dispatch import Cache, Mask, paged_decode, plan_decode, why_general
from pagesim.kernels.hopper.plan import NUM_PARTS, POOL_SIZE

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("kernel", ["hopper", "general"])
def test_a_replayed_graph_follows_changed_lengths_tables_and_plans(hopper, kernel):
    batches = [make_case(lengths, num_q_heads=32, num_kv_heads=8, head_dim=128, dtype=torch.bfloat16, device="cuda",
                         seed=seed)
               for seed, lengths in enumerate([[2048] * 24, [40_000] + [5] * 23, [0, 1, 17, 4000] * 6, [2048] * 24,
                                               [100] * 24])]
    largest = max(batches, key=lambda c: c.cache.k.numel())
    k, v = torch.empty_like(largest.cache.k), torch.empty_like(largest.cache.v)
    table = torch.zeros((24, max(c.block_table.shape[1] for c in batches)), dtype=torch.int32, device="cuda")
    lengths, q, out = batches[0].lengths_tensor(), torch.empty_like(batches[0].q), torch.empty_like(batches[0].q)
    capacity = max(int(c.lengths.sum()) for c in batches)
    plan = plan_decode(q, Cache(k, v), batches[0].lengths, kernel=kernel, capacity_tokens=capacity)

    def load(case):
        for cache, source in ((k, case.cache.k), (v, case.cache.v)):
            cache.fill_(float("nan"))
            cache[:len(source)] = source
        table.zero_()
        table[:, :case.block_table.shape[1]] = case.block_table
        lengths.copy_(case.lengths_tensor())
        q.copy_(case.q)
        plan.update(case.lengths)

    def call():
        paged_decode(q, Cache(k, v), table, lengths, plan, out=out)

    load(batches[0])
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    for case in batches + batches[::-1]:
        load(case)
        for _ in range(2):
            out.fill_(float("nan"))
            graph.replay()
            check(case, out)


def test_a_launch_leaves_its_counters_at_0_so_that_a_graph_can_be_replayed_for_ever(hopper):
    for lengths in ([40_000], [33_000, 17, 20_000], [700] * 100):  # rows in many parts, in many and few, in few
        case = make_case(lengths, num_q_heads=32, num_kv_heads=8, head_dim=128, dtype=torch.bfloat16, device="cuda")
        plan = plan_decode(case.q, case.cache, case.lengths, kernel="hopper")
        assert (plan.buffer.records[:, NUM_PARTS] > 1).any(), "no row is cut"
        for _ in range(3):
            check(case, run(case, "hopper", plan=plan))
            assert (plan.buffer.counters == 0).all()


@pytest.mark.parametrize("kernel", ["hopper", "general"])
def test_stale_plan_entries_counters_and_partials_are_never_read(hopper, kernel):
    case = make_case([4000, 3, 900, 0], num_q_heads=32, num_kv_heads=8, head_dim=128, dtype=torch.bfloat16,
                     device="cuda")
    plan = plan_decode(case.q, case.cache, case.lengths, kernel=kernel)
    if kernel == "hopper":
        plan.buffer.ints.fill_(-7)
        plan.partial.fill_(float("nan"))
        plan.lse.fill_(float("nan"))
        plan.update(case.lengths)
    else:
        plan.workspace.out.fill_(float("nan"))
        plan.workspace.log_sum.fill_(float("nan"))
    first = run(case, kernel, plan=plan)
    check(case, first)
    assert torch.equal(run(case, kernel, plan=plan), first), "a second launch on the same buffers differs"


@pytest.mark.parametrize("kernel", ["hopper", "general"])
def test_two_updates_without_a_wait_leave_each_launch_its_own_plan(hopper, kernel):
    a = make_case([3000] * 16, num_q_heads=32, num_kv_heads=8, head_dim=128, dtype=torch.bfloat16, device="cuda",
                  seed=1)
    b = make_case([20_000, 7] + [0] * 14, num_q_heads=32, num_kv_heads=8, head_dim=128, dtype=torch.bfloat16,
                  device="cuda", seed=2)
    plan = plan_decode(a.q, a.cache, a.lengths, kernel=kernel, capacity_tokens=48_000)
    arguments = [(c.q, c.cache, c.block_table, c.lengths_tensor(), c.poisoned_out(), c)
                 for c in (a, b) * 10]
    torch.cuda.synchronize()
    for q, cache, table, lengths, out, case in arguments:
        plan.update(case.lengths)
        paged_decode(q, cache, table, lengths, plan, out=out)
    for *_, out, case in arguments:
        check(case, out)


@pytest.mark.parametrize("kernel", ["hopper", "general"])
@pytest.mark.parametrize("lengths", [[40, 3], [4000] * 40])  # of the general kernel the small grid overlaps
def test_launches_that_overlap_read_what_the_one_before_wrote(hopper, kernel, lengths):
    case = make_case(lengths, num_q_heads=32, num_kv_heads=8, head_dim=128, dtype=torch.bfloat16, device="cuda")
    plan = plan_decode(case.q, case.cache, case.lengths, kernel=kernel)
    table_lengths = case.lengths_tensor()

    def chain(outs, wait):
        for q, out in zip(outs, outs[1:], strict=False):
            # At this scale an output is one value rather than an average, so that the next one depends on which.
            paged_decode(q, case.cache, case.block_table, table_lengths, plan, mask=Mask(scale=8.0),
                         out=out)
            wait()

    outs = torch.full((51, *case.q.shape), float("nan"), dtype=case.q.dtype, device="cuda")
    outs[0] = case.q
    chain(outs, torch.cuda.synchronize)
    expected = outs.clone()
    assert expected[-1].float().std() > 0.5, "the outputs have become averages"
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # in which nothing but the GPU keeps them apart
        chain(outs, lambda: None)
    outs[1:] = float("nan")
    graph.replay()
    assert torch.equal(outs, expected)


@pytest.mark.parametrize("kernel", ["hopper", "hopper with a pool", "general"])
@pytest.mark.parametrize("shape", [{}, {"num_kv_heads": 32}, {"block_size": 8}, {"head_dim": 64}, {"q_len": 4},
                                   {"num_q_heads": 8, "num_kv_heads": 1}, {"head_dim": 256, "window": 2047},
                                   {"head_dim": 96}], ids=str)
def test_every_launch_gives_the_same_bits(hopper, kernel, shape):
    kernel, *pool = kernel.split(" with a ")
    lengths = np.random.default_rng(7).lognormal(6.5, 1, 64).astype(int) + 4
    case = make_case(lengths.tolist(), **{"num_q_heads": 32, "num_kv_heads": 8, "head_dim": 128} | shape,
                     dtype=torch.bfloat16, device="cuda")
    if pool:
        plan = plan_with_pool(case, 2)
        assert plan.buffer.records[0, POOL_SIZE] > 0
    else:
        plan = plan_decode(case.q, case.cache, case.lengths, mask=case.mask, kernel=kernel)
    table_lengths = case.lengths_tensor()
    outs = torch.full((50, *case.q.shape), float("nan"), dtype=case.q.dtype, device="cuda")
    first = run(case, kernel, plan=plan)
    check(case, first)
    for _ in range(20):
        for out in outs:
            paged_decode(case.q, case.cache, case.block_table, table_lengths, plan, mask=case.mask, out=out)
        differing = (outs != first).flatten(1).any(1).nonzero().flatten().tolist()
        assert not differing, f"launches {differing} of 50 differ"
        outs.fill_(float("nan"))


@pytest.mark.parametrize("shape", [{}, {"num_kv_heads": 32}, {"head_dim": 64}, {"head_dim": 80, "q_len": 4},
                                   {"window": 500}, {"layout": "HND", "q_len": 3}, {"num_q_heads": 128}], ids=str)
def test_a_small_batch_whose_ctas_take_a_head_each_is_right_in_every_launch(hopper, monkeypatch, shape):
    monkeypatch.setattr(dispatch, "FEW_TILES", 10**6)
    lengths = np.random.default_rng(8).lognormal(6.5, 1, 24).astype(int) + 4
    for few in (lengths.tolist() + [0, 1, 17] * ("q_len" not in shape), [700] * 16, [9000] + [5] * 20):
        case = make_case(few, **{"num_q_heads": 32, "num_kv_heads": 8, "head_dim": 128} | shape, dtype=torch.bfloat16,
                         device="cuda")
        plan = plan_decode(case.q, case.cache, case.lengths, mask=case.mask, kernel="hopper")
        assert plan.shape.HEADS.value == 1
        first = run(case, "hopper", plan=plan)
        check(case, first)
        for _ in range(200):
            assert torch.equal(run(case, "hopper", plan=plan), first)
            assert (plan.buffer.counters == 0).all()


@pytest.mark.parametrize("kernel", ["hopper", "general"])
def test_a_row_alone_and_in_a_batch_differ_by_rounding_only(hopper, kernel):
    batch = make_case([5000, 300, 2000, 64], num_q_heads=32, num_kv_heads=8, head_dim=128, dtype=torch.bfloat16,
                      device="cuda")
    out = run(batch, kernel)
    for seq in range(4):
        lengths = batch.lengths[seq:seq + 1]
        plan = plan_decode(batch.q[seq:seq + 1], batch.cache, lengths, kernel=kernel)
        alone = paged_decode(batch.q[seq:seq + 1], batch.cache, batch.block_table[seq:seq + 1],
                             batch.lengths_tensor()[seq:seq + 1], plan)
        torch.testing.assert_close(alone[0].float(), out[seq].float(), rtol=0.02, atol=1e-3)


def test_the_rule_takes_large_common_batches_to_the_hopper_kernel_and_says_why_not_others(hopper):
    def reason(lengths, head_dim=128, heads=(32, 8), block_size=16, **options):
        q = torch.empty((len(lengths), 1, heads[0], head_dim), dtype=torch.bfloat16, device="cuda")
        k = torch.empty((4, block_size, heads[1], head_dim), dtype=torch.bfloat16, device="cuda")
        return why_general(q, Cache(k, k), np.array(lengths), Mask(**options))

    assert reason([4096] * 64) is None
    assert reason([128]) == "the batch is small"
    assert reason([4096] * 64, 80) is None and reason([4096] * 64, 256) is None
    assert "head_dim is 72" in reason([4096] * 64, 72)
    assert reason([4096] * 64, heads=(8, 1)) is None
    assert "head_dim is 256 and 1 KV heads" in reason([4096] * 64, 256, heads=(8, 1))
    assert "blocks of 8 tokens" in reason([4096] * 64, heads=(8, 1), block_size=8)
    assert reason([4096] * 64, window=4000) is None
    assert reason([4096] * 64, window=100) == "the batch is small"
    assert "soft cap" in reason([4096] * 64, softcap=30.0)
