"""One small launch of every kernel, to be watched: ``compute-sanitizer --tool memcheck python tests/gpu/memcheck.py``.

With PYTORCH_NO_CUDA_MEMORY_CACHING=1 each tensor is an allocation of its own, so that an access behind it shows.
"""

import sys
from pathlib import Path

import numpy as np
import torch

HERE = Path(__file__).parent
KERNELS = HERE.parent / "kernels"
sys.path[:0] = map(str, (HERE, HERE.parent, KERNELS, KERNELS / "general", HERE.parents[1]))

import test_gpu_mla
import test_gpu_prefill
import test_gpu_shared
import test_mla
from cases import make_case
from launching import check, plan_with_pool, run

from pagesim.kernels import dispatch, sharing
from pagesim.kernels.harness.check import compare

LENGTHS = [*np.random.default_rng(7).lognormal(6.2, 1, 40).astype(int).tolist(), 0, 1, 17, 9000]
FP8 = torch.float8_e4m3fn


def decode(few_tiles: int = 0, **shape) -> None:
    dispatch.FEW_TILES = few_tiles
    lengths = [length and max(length, shape.get("q_len", 1)) for length in LENGTHS]
    case = make_case(lengths, **{"num_q_heads": 32, "num_kv_heads": 8, "head_dim": 128} | shape, dtype=torch.bfloat16,
                     device="cuda")
    if "cache_dtype" not in shape:
        for pool_tiles in (8, 10**9):
            check(case, run(case, "hopper", plan=plan_with_pool(case, pool_tiles)))
    check(case, run(case, "general"))
    print("decode", shape, flush=True)


def shared(**shape) -> None:
    sharing.MIN_SAVED_BYTES = 0
    for kernel in ("hopper", "general"):
        case = test_gpu_shared.make_case(test_gpu_shared.DOCUMENTS, **shape)
        check(case, run(case, kernel, plan=test_gpu_shared.make_plan(case, kernel)))
    print("shared", shape, flush=True)


def prefill() -> None:
    case = make_case(test_gpu_prefill.LENGTHS, q_len=max(test_gpu_prefill.Q_LENS), num_q_heads=8, num_kv_heads=2,
                     head_dim=128, dtype=torch.bfloat16, device="cuda")
    for kernel in ("hopper", "general"):
        test_gpu_prefill.check(case, test_gpu_prefill.Q_LENS, kernel)
    print("prefill", flush=True)


def mla(dtype: torch.dtype, cache_dtype: torch.dtype | None) -> None:
    assert compare(*test_mla.run([0, 1, 15, 700, 3000], device="cuda", dtype=dtype, cache_dtype=cache_dtype,
                                 scale=0.125 if cache_dtype else 1.0, num_heads=40, latent_dim=512, rope_dim=64,
                                 item=256)).passed
    print("mla", dtype, cache_dtype, flush=True)


def latents() -> None:
    for lengths in (test_gpu_mla.TILES, [9000, 3, 700]):
        case = test_gpu_mla.latents(lengths)
        test_gpu_mla.check(case, test_gpu_mla.attend(case))
    print("latents, hopper", flush=True)


if __name__ == "__main__":
    for shape in ({}, {"few_tiles": 10**6}, {"num_kv_heads": 32}, {"block_size": 8}, {"head_dim": 64}, {"q_len": 4},
                  {"num_q_heads": 8, "num_kv_heads": 1}, {"head_dim": 256, "window": 300}, {"head_dim": 80},
                  {"cache_dtype": FP8, "k_scale": 0.1, "v_scale": 0.1}):
        decode(**shape)
    for shape in ({}, {"block_size": 8}, {"q_len": 4}, {"num_kv_heads": 2, "head_dim": 96}):
        shared(**shape)
    prefill()
    latents()
    for dtypes in ((torch.bfloat16, None), (torch.bfloat16, FP8), (torch.float32, FP8)):
        mla(*dtypes)
