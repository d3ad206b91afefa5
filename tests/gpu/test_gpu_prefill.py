"""Both prefill kernels on a GPU, every unused slot NaN, each row against the definition in float64."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'pagesim[kernel]'")
pytest.importorskip("triton", reason="triton is not installed: pip install 'pagesim[kernel]' on Linux")

from cases import make_case

from pagesim.kernels.dispatch import Cache, Mask, paged_prefill, why_general_prefill
from pagesim.kernels.harness.check import compare

pytestmark = pytest.mark.gpu

# Tiles hold 128 tokens, items 128 queries, and a consumer takes 64 of them.
LENGTHS = [1, 15, 64, 127, 128, 129, 200, 256, 300, 333, 0, 1025, 700, 90]
Q_LENS = [1, 15, 64, 127, 128, 129, 129, 65, 0, 300, 0, 129, 1, 33]

SHAPES = [
    (16, "NHD", "bfloat16", 4, 128),
    (16, "HND", "float16", 1, 128),
    (32, "NHD", "bfloat16", 8, 128),
    (48, "HND", "bfloat16", 3, 128),
    (64, "NHD", "float16", 4, 128),
    (80, "NHD", "bfloat16", 7, 128),
    (128, "HND", "bfloat16", 4, 128),
    (256, "HND", "float16", 8, 128),
    (16, "NHD", "bfloat16", 4, 64),
    (96, "HND", "float16", 3, 64),
]


def flat(rows, q_lens):
    """The last ``q_lens[i]`` rows of each sequence, end to end."""
    return torch.cat([own[len(own) - n:] for own, n in zip(rows, q_lens, strict=True)])


def run(case, q_lens, kernel):
    q = flat(case.q, q_lens)
    first = torch.tensor([0, *q_lens], dtype=torch.int32).cumsum(0, dtype=torch.int32).to(q.device)
    out = paged_prefill(q, case.cache, case.block_table, case.lengths_tensor(), first, max(q_lens), mask=case.mask,
                        out=torch.full_like(q, float("nan")), kernel=kernel)
    return compare(out, flat(case.expected(), q_lens))


def check(case, q_lens, kernel):
    verdict = run(case, q_lens, kernel)
    assert verdict.passed, verdict


@pytest.mark.parametrize("kernel", ["hopper", "general"])
@pytest.mark.parametrize("block_size, layout, dtype, group, head_dim", SHAPES)
def test_ragged_chunks_behind_prefixes_are_right(request, kernel, block_size, layout, dtype, group, head_dim):
    if kernel == "hopper":
        request.getfixturevalue("hopper")
    case = make_case(LENGTHS, q_len=max(Q_LENS), num_q_heads=2 * group, num_kv_heads=2, head_dim=head_dim,
                     dtype=getattr(torch, dtype), block_size=block_size, layout=layout, device="cuda", seed=block_size)
    check(case, Q_LENS, kernel)


def test_more_items_than_the_gpu_has_sms_are_drawn_once_each(hopper):
    case = make_case([900, 1, 2048], q_len=2048, num_q_heads=32, num_kv_heads=8, head_dim=128, device="cuda")
    check(case, [900, 0, 2048], "hopper")


@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_a_pool_of_packed_layers_is_read_by_its_strides(hopper, layout):
    case = make_case([300, 77], q_len=150, num_q_heads=8, head_dim=128, layout=layout, device="cuda")
    packed = torch.full((len(case.cache.k), 3, 2, *case.cache.k.shape[1:]), float("nan"), dtype=case.q.dtype)
    packed = packed.to("cuda")
    k_cache, v_cache = packed[:, 1, 0], packed[:, 1, 1]
    k_cache.copy_(case.cache.k)
    v_cache.copy_(case.cache.v)
    check(case.moved(k_cache, v_cache), [150, 40], "hopper")


def test_table_entries_behind_the_last_block_may_be_anything(hopper):
    case = make_case([130, 40, 257], q_len=130, num_q_heads=8, head_dim=128, device="cuda")
    used = (torch.arange(case.block_table.shape[1])[None, :] * 16 < torch.from_numpy(case.lengths)[:, None]).cuda()
    case.block_table[~used] = 2**31 - 1
    check(case, [130, 40, 100], "hopper")


@pytest.mark.parametrize("kernel", ["hopper", "general"])
def test_logits_far_below_any_sentinel_are_still_weighed(request, kernel):
    if kernel == "hopper":
        request.getfixturevalue("hopper")
    # Of this seed each row has one logit far above its others: fp32 does not say by how much logits of -1e5 differ, where
    # its numbers are 2^-7 and more apart, nor that the one weight left is exactly 1.
    case = make_case([300], q_len=100, num_q_heads=4, head_dim=128, dtype=torch.bfloat16, device="cuda", seed=15)
    case.q.copy_(case.q.abs() * 150)
    case.cache.k.copy_(case.cache.k.abs() * -100)
    verdict = run(case, [100], kernel)
    assert verdict.worst < 0.01, verdict


def test_a_replayed_graph_reads_new_lengths_and_draws_every_item_again(hopper):
    case = make_case([400, 300], q_len=200, num_q_heads=32, num_kv_heads=8, head_dim=128, device="cuda")
    q, lengths = flat(case.q, [200, 100]), case.lengths_tensor()
    first = torch.tensor([0, 200, 300], dtype=torch.int32, device="cuda")
    out = torch.empty_like(q)

    def call():
        return paged_prefill(q, case.cache, case.block_table, lengths, first, 200, out=out, kernel="hopper")

    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    for lengths_now in ([400, 300], [250, 130]):
        lengths.copy_(torch.tensor(lengths_now, dtype=torch.int32))
        out.fill_(float("nan"))
        graph.replay()
        replayed = out.clone()
        assert torch.equal(replayed, call())
        assert replayed.isfinite().all()


def test_the_rule_takes_the_hopper_kernel_where_it_is_right_and_faster(hopper):
    def why(num_queries, num_seqs=1, block_size=16, **options):
        q = torch.empty(num_queries, 32, 128, dtype=torch.bfloat16, device="cuda")
        cache = torch.empty(4, block_size, 8, 128, dtype=torch.bfloat16, device="cuda")
        return why_general_prefill(q, Cache(cache, cache), num_seqs, Mask(**options))

    assert why(8192) is None
    assert "window" in why(8192, window=5)
    assert "blocks of 24" in why(8192, block_size=24)
    assert "small" in why(128)
    assert "few queries" in why(8192, num_seqs=128)
