"""Sequences that share blocks, through both decode kernels on a GPU: each row against the definition in float64."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'pagesim[kernel]'")
pytest.importorskip("triton", reason="triton is not installed: pip install 'pagesim[kernel]' on Linux")

from launching import check, run
from trees import Node, leaves, tree_case

from pagesim.kernels import sharing
from pagesim.kernels.dispatch import Cache, paged_decode, plan_decode

pytestmark = pytest.mark.gpu

SAMPLES = Node(8192, leaves(300, 20))
DOCUMENTS = Node(700, (Node(2000, leaves(150, 5)), Node(40), Node(400, (Node(900, leaves(33, 3)), *leaves(250, 2))),
                       *leaves(1, 2)))
TREES = [SAMPLES, DOCUMENTS, Node(1024, leaves(16, 100)), Node(40_000, leaves(500, 2)), Node(320, leaves(0, 3)),
         Node(0, tuple(Node(500, leaves(90, 3)) for _ in range(40)))]


@pytest.fixture(autouse=True)
def share_all(monkeypatch):
    """However little it saves."""
    monkeypatch.setattr(sharing, "MIN_SAVED_BYTES", 0)


def make_case(tree, seed=0, **shape):
    return tree_case(tree, seed=seed, device="cuda", **{"num_q_heads": 32, "num_kv_heads": 8, "head_dim": 128,
                                                        "dtype": torch.bfloat16} | shape)


def make_plan(case, kernel, **options):
    plan = plan_decode(case.q, case.cache, case.lengths, case.block_table.cpu().numpy(), mask=case.mask, kernel=kernel,
                       **options)
    assert plan.shared.launches
    poison(plan)
    return plan


def poison(plan):
    for results in (plan.partial, plan.lse) if plan.kernel == "hopper" else plan.workspace:
        results.fill_(float("nan"))


@pytest.mark.parametrize("kernel", ["hopper", "general"])
@pytest.mark.parametrize("tree", TREES, ids=range(len(TREES)))
def test_every_sequence_of_a_tree_gets_its_own_rows(hopper, kernel, tree):
    case = make_case(tree)
    check(case, run(case, kernel, plan=make_plan(case, kernel)))


@pytest.mark.parametrize("kernel", ["hopper", "general"])
@pytest.mark.parametrize("shape", [
    {"num_kv_heads": 32}, {"block_size": 8}, {"block_size": 64, "layout": "HND"}, {"head_dim": 64}, {"q_len": 4},
    {"num_q_heads": 20, "num_kv_heads": 4, "q_len": 3, "head_dim": 64, "dtype": torch.float16},
    {"num_q_heads": 8, "num_kv_heads": 1}, {"num_kv_heads": 2, "block_size": 32},
    {"num_q_heads": 12, "num_kv_heads": 6},
    {"num_q_heads": 16, "head_dim": 256}, {"num_kv_heads": 32, "head_dim": 96},
    {"head_dim": 80, "num_q_heads": 10, "num_kv_heads": 2},
    {"num_q_heads": 128}, {"block_size": 24, "num_q_heads": 28, "num_kv_heads": 4}, {"block_size": 1, "layout": "HND"},
], ids=str)
def test_shapes_of_both_kernels_are_right(hopper, kernel, shape):
    case = make_case(DOCUMENTS, **shape)
    check(case, run(case, kernel, plan=make_plan(case, kernel)))


@pytest.mark.parametrize("shape", [
    {"cache_dtype": torch.float8_e4m3fn, "k_scale": 0.5, "v_scale": 3.0}, {"softcap": 5.0}, {"head_dim": 256},
    {"sinks": True}, {"dtype": torch.float32}, {"num_q_heads": 71, "num_kv_heads": 1, "head_dim": 64},
    {"head_dim": 80, "num_kv_heads": 2},
], ids=str)
def test_shapes_of_the_general_kernel_are_right(shape):
    case = make_case(DOCUMENTS, **shape)
    check(case, run(case, "general", plan=make_plan(case, "general")))


@pytest.mark.parametrize("kernel", ["hopper", "general"])
def test_a_replayed_graph_follows_trees_that_change(hopper, kernel):
    flat = Node(0, leaves(700, 20))
    batches = [make_case(tree, seed) for seed, tree in enumerate([SAMPLES, flat, Node(0, (
        Node(3000, leaves(200, 9)), Node(500, leaves(80, 11)))), SAMPLES])]
    largest = max(batches, key=lambda c: c.cache.k.numel())
    k, v = torch.empty_like(largest.cache.k), torch.empty_like(largest.cache.v)
    table = torch.zeros((20, max(c.block_table.shape[1] for c in batches)), dtype=torch.int32, device="cuda")
    lengths, q, out = batches[0].lengths_tensor(), torch.empty_like(batches[0].q), torch.empty_like(batches[0].q)
    plan = make_plan(batches[0], kernel, capacity_tokens=max(int(c.lengths.sum()) for c in batches))
    cache = Cache(k, v)

    def load(case):
        for values, source in ((k, case.cache.k), (v, case.cache.v)):
            values.fill_(float("nan"))
            values[:len(source)] = source
        table.zero_()
        table[:, :case.block_table.shape[1]] = case.block_table
        lengths.copy_(case.lengths_tensor())
        q.copy_(case.q)
        plan.update(case.lengths, case.block_table.cpu().numpy())
        poison(plan)

    def call():
        paged_decode(q, cache, table, lengths, plan, out=out)

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


@pytest.mark.parametrize("kernel", ["hopper", "general"])
def test_a_graph_captured_while_nothing_was_shared_stays_right(hopper, kernel):
    flat, shared = make_case(Node(0, leaves(600, 20)), 1), make_case(Node(512, leaves(88, 20)), 1)
    plan = plan_decode(flat.q, flat.cache, flat.lengths, flat.block_table.cpu().numpy(), kernel=kernel,
                       capacity_tokens=12_000)
    out, table, lengths = flat.poisoned_out(), flat.block_table.clone(), flat.lengths_tensor()
    paged_decode(flat.q, flat.cache, table, lengths, plan, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        paged_decode(flat.q, flat.cache, table, lengths, plan, out=out)
    for values, source in ((flat.cache.k, shared.cache.k), (flat.cache.v, shared.cache.v), (flat.q, shared.q),
                           (table, shared.block_table)):
        values.copy_(source)
    plan.update(shared.lengths, shared.block_table.cpu().numpy())
    graph.replay()
    check(shared, out)


@pytest.mark.parametrize("kernel", ["hopper", "general"])
@pytest.mark.parametrize("shape", [{}, {"num_kv_heads": 32}, {"block_size": 8}, {"q_len": 4}], ids=str)
def test_every_launch_gives_the_same_bits(hopper, kernel, shape):
    case = make_case(DOCUMENTS, **shape)
    plan = make_plan(case, kernel)
    first = run(case, kernel, plan=plan)
    check(case, first)
    outs = torch.full((50, *case.q.shape), float("nan"), dtype=case.q.dtype, device="cuda")
    for _ in range(20):
        for out in outs:
            paged_decode(case.q, case.cache, case.block_table, case.lengths_tensor(), plan, out=out)
        assert (outs == first).all()
        outs.fill_(float("nan"))


@pytest.mark.parametrize("kernel", ["hopper", "general"])
def test_launches_that_overlap_read_what_the_one_before_wrote(hopper, kernel):
    case = make_case(DOCUMENTS)
    plan, lengths = make_plan(case, kernel), case.lengths_tensor()

    def chain(outs, wait):
        for q, out in zip(outs, outs[1:], strict=False):
            paged_decode(q, case.cache, case.block_table, lengths, plan, out=out)
            out.mul_(30)  # so that queries do not become averages
            wait()

    outs = torch.full((31, *case.q.shape), float("nan"), dtype=case.q.dtype, device="cuda")
    outs[0] = case.q
    chain(outs, torch.cuda.synchronize)
    expected = outs.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chain(outs, lambda: None)
    outs[1:] = float("nan")
    graph.replay()
    assert torch.equal(outs, expected)


def test_a_batch_that_saves_little_is_left_alone(monkeypatch):
    monkeypatch.undo()
    case = make_case(Node(256, leaves(100, 3)))
    plan = plan_decode(case.q, case.cache, case.lengths, case.block_table.cpu().numpy())
    assert not plan.shared.launches
    assert torch.equal(run(case, None, plan=plan), run(case, None))
