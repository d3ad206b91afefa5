"""Paged decode over a latent cache for users: one rule says which kernel runs, and says why.

    plan = plan_decode_mla(q, cache, lengths, latent_dim=512)    # once for a batch; lengths on the host
    plan.update(lengths)                                         # each step
    paged_decode_mla(q, cache, block_table, lengths_on_gpu, plan, latent_dim=512, scale=192 ** -0.5, out=out)

The Hopper kernel takes DeepSeek's vectors on its GPU, the general one everything else.
"""

import numpy as np
import torch
import triton

from pagesim.errors import InputError
from pagesim.kernels.dispatch import KERNELS
from pagesim.kernels.general.mla import GeneralMlaPlan, check_mla, decode_mla
from pagesim.kernels.general.split import num_sms
from pagesim.kernels.launch import NEW_TRITON

VECTOR = (512, 64)  # latent and rope: of DeepSeek-V2, V3 and R1, and of Kimi K2
MAX_ROWS = 1024  # of a sequence, a row being one query of one head


def why_general_mla(q: torch.Tensor, cache: torch.Tensor, *, latent_dim: int) -> str | None:
    """The rule: what keeps a call from the Hopper kernel; None where that kernel runs.  Arguments: ``decode_mla``'s."""
    if q.device.type != "cuda":
        return f"the device is {q.device.type}"
    found = torch.cuda.get_device_capability(q.device)
    rows = q.shape[1] * q.shape[2]
    reasons = [
        (found != (9, 0), f"compute capability is {found[0]}.{found[1]}, not 9.0"),
        (not NEW_TRITON, f"Triton is {triton.__version__}, older than 3.6"),
        (q.dtype not in (torch.bfloat16, torch.float16) or cache.dtype != q.dtype,
         f"dtypes are {q.dtype} and {cache.dtype}, not bf16 or fp16"),
        ((latent_dim, q.shape[3] - latent_dim) != VECTOR,
         f"latent and rope are {latent_dim} and {q.shape[3] - latent_dim}, not 512 and 64"),
        (cache.shape[1] % 8 != 0, f"blocks of {cache.shape[1]} tokens are not a multiple of 8"),
        (not 0 < rows <= MAX_ROWS, f"{rows} query rows to a sequence are not 1 to {MAX_ROWS}"),
        (any(stride % 8 for stride in cache.stride()[:2]) or (cache.data_ptr() | q.data_ptr()) % 16 != 0,
         "the queries, or a vector of the cache, do not start at a multiple of 16 bytes")]
    return next((reason for holds, reason in reasons if holds), None)


def plan_decode_mla(q: torch.Tensor, cache: torch.Tensor, lengths: np.ndarray, *, latent_dim: int,
                    kernel: str | None = None):
    """Choose a kernel by ``why_general_mla`` and plan for it.

    Args:
        q, cache: like those of the calls; see ``decode_mla``.
        lengths: visible tokens, the queries' own included, int64 on the host.
        kernel: take this one, whatever the rule says.

    Raises:
        InputError: an unknown kernel, or one that does not take this shape.
    """
    reason = why_general_mla(q, cache, latent_dim=latent_dim)
    if kernel not in (None, *KERNELS):
        raise InputError(f"kernel must be one of {', '.join(KERNELS)}, got {kernel!r}")
    if kernel == "hopper" and reason is not None:
        raise InputError(f"the Hopper kernel does not take this: {reason}")
    lengths = np.asarray(lengths, np.int64)
    if kernel == "general" or reason is not None:
        return GeneralMlaPlan(q, latent_dim, lengths)
    from pagesim.kernels.hopper import mla_launch  # Gluon is imported only where it can run

    return mla_launch.HopperMlaPlan(mla_launch.make_shape(q.shape[1], q.shape[2], cache.shape[1]), lengths,
                                    num_sms(q.device), q.device)


def paged_decode_mla(q: torch.Tensor, cache: torch.Tensor, block_table: torch.Tensor, lengths: torch.Tensor, plan, *,
                     latent_dim: int, scale: float, cache_scale: float = 1.0,
                     out: torch.Tensor | None = None) -> torch.Tensor:
    """Attention of each sequence's last ``q_len`` tokens over its latent cache; arguments as for ``decode_mla``.

    ``plan`` must have been made or updated from the same lengths.
    """
    if plan.kernel == "general":
        return decode_mla(q, cache, block_table, lengths, plan.split, latent_dim=latent_dim, scale=scale,
                          cache_scale=cache_scale, out=out, workspace=plan.workspace)
    from pagesim.kernels.hopper import mla_launch

    out = q.new_empty((*q.shape[:3], latent_dim)) if out is None else out
    check_mla(q, cache, block_table, lengths, latent_dim, scale, cache_scale, out)
    if plan.num_seqs != len(q) or cache_scale != 1.0:
        raise InputError(f"the plan is for {plan.num_seqs} sequences and a cache without a scale")
    mla_launch.decode(q, cache, block_table, plan, scale=scale, out=out)
    return out
