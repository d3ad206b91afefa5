"""What is measured is right: kernels of a small batch against the definition, and what each peer does not take."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'pagesim[kernel]'")
pytest.importorskip("triton", reason="triton is not installed: pip install 'pagesim[kernel]' on Linux")

from cases import make_case

from pagesim.kernels.cache import Cache
from pagesim.kernels.harness.bench import DTYPES
from pagesim.kernels.harness.check import compare
from pagesim.kernels.harness.peers import PREPARE, Batch, NotHere, _prefill
from pagesim.kernels.harness.workloads import Workload

LENGTHS = [40, 7, 33]


def make_batch(dtype, device, q_len=1):
    scales = {"k_scale": 2.0**-5, "v_scale": 2.0**-4} if dtype == "fp8" else {}
    case = make_case(LENGTHS, q_len=q_len, block_size=8, dtype=torch.bfloat16 if scales else DTYPES[dtype],
                     cache_dtype=DTYPES[dtype], device=device, **scales)
    workload = Workload("small", np.array(LENGTHS), num_q_heads=4, num_kv_heads=2, head_dim=64, q_len=q_len)
    return case, Batch(workload, case.cache, [case.block_table], "shuffled", case.lengths_tensor(), case.q,
                       case.poisoned_out())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", ["ours", "general"])
def test_our_kernels_write_what_the_definition_says_in_every_dtype(kernel, dtype, device):
    case, batch = make_batch(dtype, device)
    (call,) = PREPARE[kernel](batch)
    call()
    verdict = compare(batch.out, case.expected())
    assert verdict.passed, verdict


@pytest.mark.parametrize("dtype", DTYPES)
def test_prefill_writes_what_the_definition_says_in_every_dtype(dtype, device):
    case, batch = make_batch(dtype, device, q_len=7)
    (call,) = _prefill(batch)
    call()
    assert compare(batch.out, case.expected()).passed


@pytest.mark.parametrize("kernel", [name for name in PREPARE if name not in ("ours", "general")])
def test_peers_say_that_they_do_not_take_an_fp8_cache(kernel, device):
    _, batch = make_batch("fp8", device)
    with pytest.raises(NotHere, match="a cache in bfloat16 or float16.* only, not in float8_e4m3fn"):
        PREPARE[kernel](batch)


def make_latents(dtype, device):
    case = make_case(LENGTHS, num_q_heads=5, num_kv_heads=1, head_dim=80, block_size=8, cache_dtype=DTYPES[dtype],
                     dtype=torch.bfloat16 if dtype == "fp8" else DTYPES[dtype], k_scale=2.0**-5, device=device)
    cache = Cache(case.cache.k, case.cache.k, "NHD", (2.0**-5, 2.0**-5))
    workload = Workload("small", np.array(LENGTHS), 5, 1, 80, latent_dim=64)
    expected = replace(case, cache=cache).expected()[..., :64]
    return expected, Batch(workload, cache, [case.block_table], "shuffled", case.lengths_tensor(), case.q,
                           case.q.new_full((3, 1, 5, 64), float("nan")))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", ["ours", "general"])
def test_our_kernels_write_what_the_definition_says_of_latents(kernel, dtype, device):
    expected, batch = make_latents(dtype, device)
    (call,) = PREPARE[kernel](batch)
    call()
    verdict = compare(batch.out, expected)
    assert verdict.passed, verdict


@pytest.mark.parametrize("kernel", [name for name in PREPARE if name not in ("ours", "general")])
def test_peers_say_that_they_do_not_take_these_latents(kernel, device):
    _, batch = make_latents("bf16", device)
    with pytest.raises(NotHere, match="K and V heads only, not a latent|a latent of 512 and a rope part of 64 only"):
        PREPARE[kernel](batch)
