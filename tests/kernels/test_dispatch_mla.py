"""The rule between the kernels of latents, where no GPU is needed to see it; tests/gpu sees the rest."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

from cases import make_case

from pagesim.errors import InputError
from pagesim.kernels.dispatch_mla import paged_decode_mla, plan_decode_mla, why_general_mla
from pagesim.kernels.harness.check import compare


def test_without_a_gpu_the_general_kernel_runs_and_the_rule_says_why():
    q, cache = torch.zeros(2, 1, 128, 576, dtype=torch.bfloat16), torch.zeros(4, 64, 576, dtype=torch.bfloat16)
    assert why_general_mla(q, cache, latent_dim=512) == "the device is cpu"
    assert plan_decode_mla(q, cache, np.array([5, 7]), latent_dim=512).kernel == "general"
    with pytest.raises(InputError, match="the Hopper kernel does not take this: the device is cpu"):
        plan_decode_mla(q, cache, np.array([5, 7]), latent_dim=512, kernel="hopper")
    with pytest.raises(InputError, match="kernel must be one of hopper, general, got 'fast'"):
        plan_decode_mla(q, cache, np.array([5, 7]), latent_dim=512, kernel="fast")


def test_a_plan_is_updated_for_the_lengths_of_each_step(device):
    case = make_case([70, 3], num_q_heads=4, num_kv_heads=1, head_dim=80, dtype=torch.float16, device=device)
    latents = case.moved(case.cache.k, case.cache.k)
    expected = latents.expected()[..., :64]
    plan = plan_decode_mla(case.q, case.cache.k[:, :, 0], np.array([1, 1]), latent_dim=64)
    plan.update(case.lengths)
    out = paged_decode_mla(case.q, case.cache.k[:, :, 0], case.block_table, case.lengths_tensor(), plan, latent_dim=64,
                           scale=80 ** -0.5)
    assert compare(out, expected).passed
