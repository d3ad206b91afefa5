"""The Hopper kernel of latents against the definition, on a GPU."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'pagesim[kernel]'")
pytest.importorskip("triton", reason="triton is not installed: pip install 'pagesim[kernel]' on Linux")

from cases import make_case

from pagesim.errors import InputError
from pagesim.kernels.dispatch_mla import paged_decode_mla, plan_decode_mla, why_general_mla
from pagesim.kernels.harness.check import compare
from pagesim.kernels.reference import paged_attention

pytestmark = pytest.mark.gpu

LATENT, DIM = 512, 576
SCALE = 192 ** -0.5
TILES = [0, 1, 15, 63, 64, 65, 127, 128, 129, 191, 193, 1000, 0, 47, 2049]  # about whole tiles, and pairs of them


def latents(lengths, *, num_heads=128, q_len=1, block_size=64, dtype=torch.bfloat16, seed=0):
    return make_case(lengths, num_q_heads=num_heads, num_kv_heads=1, head_dim=DIM, q_len=q_len, dtype=dtype,
                     block_size=block_size, device="cuda", seed=seed)


def plan_for(case, kernel="hopper"):
    return plan_decode_mla(case.q, case.cache.k[:, :, 0], case.lengths, latent_dim=LATENT, kernel=kernel)


def attend(case, plan=None, out=None):
    out = case.q.new_full((*case.q.shape[:3], LATENT), float("nan")) if out is None else out
    return paged_decode_mla(case.q, case.cache.k[:, :, 0], case.block_table, case.lengths_tensor(),
                            plan or plan_for(case), latent_dim=LATENT, scale=SCALE, out=out)


def check(case, out):
    expected = paged_attention(case.q, replace(case.cache, v=case.cache.k), case.block_table, case.lengths.tolist(),
                               replace(case.mask, scale=SCALE))[..., :LATENT]
    verdict = compare(out, expected)
    assert verdict.passed, verdict


@pytest.mark.parametrize(("num_heads", "q_len", "block_size", "dtype"), [
    (128, 1, 64, torch.bfloat16), (16, 1, 64, torch.bfloat16), (128, 2, 64, torch.float16),
    (16, 4, 16, torch.bfloat16), (128, 4, 128, torch.bfloat16), (5, 1, 32, torch.bfloat16), (40, 3, 8, torch.float16),
    (64, 1, 24, torch.bfloat16)])
def test_it_equals_the_definition_and_never_sees_poison(hopper, num_heads, q_len, block_size, dtype):
    case = latents(TILES, num_heads=num_heads, q_len=q_len, block_size=block_size, dtype=dtype)
    assert why_general_mla(case.q, case.cache.k[:, :, 0], latent_dim=LATENT) is None
    check(case, attend(case))


@pytest.mark.parametrize("lengths", [[20_000], [9000, 3, 700], [30_000, 2], [777] * 40, [300] * 200])
def test_sequences_in_many_parts_merge_and_every_launch_gives_the_same_bits(hopper, lengths):
    case = latents(lengths, num_heads=16 if len(lengths) > 10 else 128)
    plan = plan_for(case)
    plan.partial.fill_(float("nan"))
    first = attend(case, plan)
    check(case, first)
    for _ in range(50):
        assert torch.equal(attend(case, plan), first)


def test_a_replayed_graph_follows_changed_lengths_tables_and_plans(hopper):
    batches = [latents(lengths, seed=seed) for seed, lengths in enumerate([[4096] * 12, [40_000] + [5] * 11,
                                                                           [0, 1, 65, 4000] * 3, [100] * 12])]
    largest = max((case.cache.k for case in batches), key=len)
    cache = torch.empty_like(largest[:, :, 0])
    table = torch.zeros((12, max(case.block_table.shape[1] for case in batches)), dtype=torch.int32, device="cuda")
    q, lengths = torch.empty_like(batches[0].q), batches[0].lengths_tensor()
    out = q.new_empty((*q.shape[:3], LATENT))
    plan = plan_decode_mla(q, cache, batches[0].lengths, latent_dim=LATENT, kernel="hopper")

    def load(case):
        cache.fill_(float("nan"))
        cache[:len(case.cache.k)] = case.cache.k[:, :, 0]
        table.zero_()
        table[:, :case.block_table.shape[1]] = case.block_table
        q.copy_(case.q)
        lengths.copy_(case.lengths_tensor())
        plan.update(case.lengths)

    def call():
        paged_decode_mla(q, cache, table, lengths, plan, latent_dim=LATENT, scale=SCALE, out=out)

    load(batches[0])
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    for case in batches + batches[::-1]:
        load(case)
        out.fill_(float("nan"))
        graph.replay()
        check(case, out)


def test_pools_reach_past_2_to_the_32_elements(hopper):
    case = latents([700, 65, 3])
    first = 2 ** 32 // (64 * DIM) + 1
    pool = case.cache.k.new_empty((first + len(case.cache.k), 64, 1, DIM))
    pool[first:] = case.cache.k
    far = case.moved(pool, pool, block_table=case.block_table + first)
    assert torch.equal(attend(far), attend(case))


def test_it_agrees_with_the_general_kernel_and_refuses_what_it_does_not_take(hopper):
    case = latents([300, 4100, 17])
    check(case, attend(case, plan_for(case, "general")))
    odd = latents([300], block_size=4)
    assert plan_for(odd, None).kernel == "general"
    with pytest.raises(InputError, match="blocks of 4 tokens are not a multiple of 8"):
        plan_for(odd)
    plan = plan_for(case)
    with pytest.raises(InputError, match="the plan is for 3 sequences, got 2"):
        plan.update(np.array([1, 2]))
