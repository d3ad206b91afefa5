"""Decode over a latent cache against the definition: keys are whole vectors, values their latent part."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

from cases import Case, make_case
from far import FAR, far_case, far_parts
from guarded import guarded
from pairwise import label, pairwise
from triton.runtime.interpreter import TensorHandle

from pagesim.errors import InputError
from pagesim.kernels.general.decode import make_workspace
from pagesim.kernels.general.mla import decode_mla
from pagesim.kernels.general.split import split
from pagesim.kernels.harness.check import compare, row_errors
from pagesim.kernels.reference import attention, gather

FP16, BF16, FP32 = torch.float16, torch.bfloat16, torch.float32


def run(lengths, *, device, num_heads=16, q_len=1, latent_dim=64, rope_dim=16, block_size=16, dtype=FP32,
        cache_dtype=None, scale=1.0, **options):
    """Output and expected output; unused slots are NaN, as is the output before."""
    case = make_case(lengths, num_q_heads=num_heads, num_kv_heads=1, head_dim=latent_dim + rope_dim, q_len=q_len,
                     dtype=dtype, cache_dtype=cache_dtype, k_scale=scale, block_size=block_size, device=device)
    return attend(case, latent_dim, **options), expected(case, latent_dim)


def attend(case: Case, latent_dim: int, *, item=64, plan=None, workspace=None) -> torch.Tensor:
    num_seqs, q_len, num_heads, dim = case.q.shape
    plan = plan or split(case.lengths, item, device=case.q.device, q_len=q_len)
    if workspace is None:
        workspace = make_workspace(plan.num_parts, q_len, num_heads, latent_dim, case.q.device)
        workspace.out.fill_(float("nan"))
    return decode_mla(case.q, case.cache.k[:, :, 0], case.block_table, case.lengths_tensor(), plan,
                      latent_dim=latent_dim, scale=dim ** -0.5, cache_scale=case.cache.scales[0],
                      out=guarded(case.q.new_full((num_seqs, q_len, num_heads, latent_dim), float("nan"))),
                      workspace=workspace, tile_tokens=None if case.q.is_cuda else 32)


def expected(case: Case, latent_dim: int) -> torch.Tensor:
    k = [gather(case.cache.k, table, length, "NHD").double() * case.cache.scales[0]
         for table, length in zip(case.block_table, case.lengths.tolist(), strict=True)]
    return torch.stack([attention(q.double(), own, own[..., :latent_dim]) for q, own in zip(case.q, k, strict=True)])


MATRIX = pairwise({
    "dtype": [FP16, BF16, FP32],
    "block_size": [1, 3, 8, 16, 24, 64, 256],
    "num_heads": [1, 5, 16, 40],
    "dims": [(512, 64), (256, 32), (96, 24)],
    "q_len": [1, 2],
    "item": [64, 4096],
    "cache": [(None, 1.0), (torch.float8_e4m3fn, 0.125)],
})


@pytest.mark.parametrize("row", MATRIX, ids=label)
def test_latent_decode_equals_the_definition_and_never_sees_poison(row, device):
    b = row["block_size"]
    latent_dim, rope_dim = row["dims"]
    cache_dtype, scale = row["cache"]
    out, expected = run([0, 1, b - 1, b, b + 1, 3 * b + 75], device=device, dtype=row["dtype"], block_size=b,
                        num_heads=row["num_heads"], latent_dim=latent_dim, rope_dim=rope_dim, q_len=row["q_len"],
                        item=row["item"], cache_dtype=cache_dtype, scale=scale)
    verdict = compare(out, expected)
    assert verdict.passed, verdict


def test_parts_beyond_the_length_merge_to_nothing(device):
    out, expected = run([0, 1, 70], device=device, plan=split(np.array([300, 300, 300]), 64, device=device))
    assert compare(out, expected).passed


@pytest.mark.parametrize("item", [1, 11, 80])
@pytest.mark.parametrize("q_len", [1, 4])
def test_any_number_of_parts_gives_the_same_rows(item, q_len, device):
    assert compare(*run([0, 1, 2, 33], item=item, q_len=q_len, num_heads=2, device=device)).passed


def test_a_long_fp32_sequence_is_not_one_long_sum(device, monkeypatch):
    if device == "cpu":
        monkeypatch.setattr("triton.runtime.interpreter.InterpreterBuilder.create_dot", one_after_the_other)
    out, expected = run([4000], item=4096, num_heads=16, device=device)
    assert row_errors(out, expected).mean() < 6e-7


def one_after_the_other(builder, a, b, sums, *_):
    """A product as a GPU's fp32 units make it."""
    total = sums.data.copy()
    for i in range(a.data.shape[1]):
        exact = a.data[:, i:i + 1].astype(np.float64) * b.data[i:i + 1] + total
        total = exact.astype(np.float32)
    return TensorHandle(total, sums.dtype.scalar)


def test_logits_far_below_any_sentinel_are_still_weighed(device):
    case = make_case([40, 3], num_kv_heads=1, head_dim=80, dtype=FP32, device=device)
    far = case.moved(case.cache.k.abs() * -100, case.cache.v, q=case.q.abs() * 1e4)
    assert compare(attend(far, 64), expected(far, 64)).passed


def test_nothing_is_read_behind_a_table_row(device):
    case = make_case([16, 48, 33], num_kv_heads=1, head_dim=80, dtype=FP32, device=device)
    wide = torch.full((3, 7), torch.iinfo(torch.int32).max, dtype=torch.int32, device=device)
    wide[:, :3] = torch.where(case.block_table == 0, torch.iinfo(torch.int32).max, case.block_table)
    assert torch.equal(attend(replace(case, block_table=wide[:, :3]), 64), attend(case, 64))


@pytest.mark.parametrize("block_size", [1, 16, 24])
def test_nothing_is_touched_behind_any_tensor(block_size, device):
    case = make_case([70, 3, 130], num_kv_heads=1, head_dim=80, dtype=FP32, q_len=2, block_size=block_size,
                     spare_blocks=0, device=device)
    inside = case.moved(guarded(case.cache.k), case.cache.v, q=guarded(case.q), block_table=guarded(case.block_table))
    assert compare(attend(inside, 64), expected(case, 64)).passed


@pytest.mark.parametrize(("block_size", "far", "block_stride"), FAR)
def test_addresses_are_64_bit(block_size, far, block_stride, device):
    case = make_case([40, 17], num_q_heads=2, num_kv_heads=1, block_size=block_size, device=device)
    assert torch.equal(attend(far_case(case, far, block_stride), 48), attend(case, 48))


def test_offsets_of_partial_results_are_64_bit(device):
    case = make_case([130], num_q_heads=64, num_kv_heads=1, head_dim=272, device=device)
    plan = split(case.lengths, 64, device=device)
    workspace = far_parts(plan, 64, 256, device)
    assert torch.equal(attend(case, 256, plan=plan, workspace=workspace), attend(case, 256))


def test_what_does_not_fit_is_refused(device):
    case = make_case([5], num_kv_heads=1, head_dim=80, device=device)
    plan = split(case.lengths, 64, device=device)
    cache, rest = case.cache.k[:, :, 0], (case.block_table, case.lengths_tensor(), plan)
    with pytest.raises(InputError, match="got 80, 80 and latent_dim 80"):
        decode_mla(case.q, cache, *rest, latent_dim=80, scale=1.0)
    with pytest.raises(InputError, match="the cache must be torch.float16 or torch.float8_e4m3fn of shape"):
        decode_mla(case.q, case.cache.k, *rest, latent_dim=64, scale=1.0)
    with pytest.raises(InputError, match="q must be contiguous"):
        decode_mla(case.q[0], cache, *rest, latent_dim=64, scale=1.0)
    with pytest.raises(InputError, match="scale must be a number above 0"):
        decode_mla(case.q, cache, *rest, latent_dim=64, scale=0.0)
    with pytest.raises(InputError, match=r"out must be contiguous torch.float16 of shape \(1, 1, 4, 64\)"):
        decode_mla(case.q, cache, *rest, latent_dim=64, scale=1.0, out=torch.empty(1, device=device))
