"""Kernels of latent caches that can be measured, made ready for one batch as ``peers`` says."""

import torch

from pagesim.kernels.dispatch_mla import paged_decode_mla, plan_decode_mla
from pagesim.kernels.harness.batch import HALF, Batch, Call, NotHere

FLASHINFER_WORKSPACE_BYTES = 128 * 2**20
FLASHMLA_BLOCK = 64


def ours(batch: Batch, kernel: str | None = None) -> list[Call]:
    w = batch.workload
    plan = plan_decode_mla(batch.q, batch.vectors, w.lengths, latent_dim=w.latent_dim, kernel=kernel)
    return [lambda table=table: paged_decode_mla(batch.q, batch.vectors, table, batch.lengths, plan,
                                                 latent_dim=w.latent_dim, scale=_scale(batch),
                                                 cache_scale=batch.cache.scales[0], out=batch.out)
            for table in batch.tables]


def _scale(batch: Batch) -> float:
    """The definition's, of random vectors that were never projected."""
    return batch.workload.head_dim ** -0.5


def _need_deepseek(batch: Batch) -> None:
    batch.need(*HALF, latent=True)
    w = batch.workload
    if (w.latent_dim, w.head_dim) != (512, 576):
        raise NotHere("a latent of 512 and a rope part of 64 only")


def flashmla(batch: Batch) -> list[Call]:
    """DeepSeek's kernel; what it schedules in its first call is kept for the others of these lengths."""
    _need_deepseek(batch)
    if batch.block_size != FLASHMLA_BLOCK:
        raise NotHere(f"blocks of {FLASHMLA_BLOCK} tokens only")
    try:
        import flash_mla as package
    except ImportError:
        raise NotHere("FlashMLA is not installed: https://github.com/deepseek-ai/FlashMLA") from None
    w, pool = batch.workload, batch.vectors.unsqueeze(2)
    metadata, splits = package.get_mla_metadata(batch.lengths, w.q_len * w.num_q_heads, 1)
    to_check = [batch.out]

    def call(table: torch.Tensor) -> None:
        out, _ = package.flash_mla_with_kvcache(batch.q, pool, table, batch.lengths, w.latent_dim, metadata, splits,
                                                softmax_scale=_scale(batch), causal=True)
        if to_check:  # it has no argument for where to write, and a copy would be timed with it
            to_check.pop().copy_(out)

    return [lambda table=table: call(table) for table in batch.tables]


def flashinfer(batch: Batch) -> list[Call]:
    """FlashInfer's paged MLA, of the backend that it chooses."""
    _need_deepseek(batch)
    if (batch.workload.lengths < 1).any():
        raise NotHere("no empty sequence")
    try:
        import flashinfer as package
    except ImportError:
        raise NotHere("flashinfer is not installed: pip install flashinfer-python") from None
    w = batch.workload
    q, out = batch.q.flatten(0, 1), batch.out.flatten(0, 1)
    counts = (batch.lengths + batch.block_size - 1) // batch.block_size
    offsets = torch.zeros(len(counts) + 1, dtype=torch.int32, device=q.device)
    offsets[1:] = counts.cumsum(0)
    shared = torch.empty(FLASHINFER_WORKSPACE_BYTES, dtype=torch.uint8, device=q.device)
    latent, rope = batch.vectors[..., :w.latent_dim], batch.vectors[..., w.latent_dim:]
    calls = []
    for table in batch.tables:
        used = torch.arange(table.shape[1], device=q.device)[None, :] < counts[:, None]
        wrapper = package.mla.BatchMLAPagedAttentionWrapper(shared)
        wrapper.plan(batch.first_query, offsets, table[used], batch.lengths, w.num_q_heads, w.latent_dim,
                     w.head_dim - w.latent_dim, batch.block_size, True, _scale(batch), q.dtype, q.dtype)
        calls.append(lambda wrapper=wrapper: wrapper.run(q[..., :w.latent_dim], q[..., w.latent_dim:], latent, rope,
                                                         out=out))
    return calls
