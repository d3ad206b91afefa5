"""The kernels that can be measured, each made ready for one batch: ours, and what one would use instead.

``PREPARE[name](batch)`` returns one call for each of the batch's tables; a call writes ``batch.out``.  Where a kernel
does not take the batch, or its package is missing, it raises ``NotHere`` with the reason.
"""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from pagesim.kernels.dispatch import paged_decode, paged_prefill, plan_decode
from pagesim.kernels.harness import peer_cudnn, peers_mla
from pagesim.kernels.harness.batch import HALF, Batch, Call, NotHere

FLASHINFER_WORKSPACE_BYTES = 256 * 2**20


def ours(batch: Batch, kernel: str | None = None) -> list[Call]:
    """The kernel that the rule chooses, of decode, of latents or, where there are many queries, of prefill."""
    if batch.workload.latent_dim is not None:
        return peers_mla.ours(batch, kernel)
    if batch.workload.is_prefill:
        return _prefill(batch, kernel)
    # Of what sequences share a plan holds who shares how much and not which blocks: one serves all tables.
    plan = plan_decode(batch.q, batch.cache, batch.workload.lengths, batch.tables[0].cpu().numpy(), kernel=kernel)
    return [lambda table=table: paged_decode(batch.q, batch.cache, table, batch.lengths, plan, out=batch.out)
            for table in batch.tables]


def _prefill(batch: Batch, kernel: str | None = None) -> list[Call]:
    q, out, first_query = batch.q.flatten(0, 1), batch.out.flatten(0, 1), batch.first_query
    return [lambda table=table: paged_prefill(q, batch.cache, table, batch.lengths, first_query, batch.workload.q_len,
                                              out=out, kernel=kernel)
            for table in batch.tables]


def general(batch: Batch) -> list[Call]:
    return ours(batch, "general")


def gather_then_sdpa(batch: Batch) -> list[Call]:
    """Copy every sequence into a contiguous, padded cache, then torch's attention with a mask."""
    batch.need(*HALF, torch.float32, one_query=True)
    width = batch.tables[0].shape[1] * batch.block_size
    uniform = bool((batch.workload.lengths == width).all())
    mask = (None if uniform
            else (torch.arange(width, device=batch.q.device)[None, :] < batch.lengths[:, None])[:, None, None, :])
    q = batch.q.transpose(1, 2)

    def call(table: torch.Tensor) -> None:
        k, v = (_in_order(cache[table.flatten()], batch) for cache in (batch.cache.k, batch.cache.v))
        batch.out.copy_(F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True).transpose(1, 2))

    return [lambda table=table: call(table) for table in batch.tables]


def _in_order(blocks: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Gathered blocks as (num_seqs, num_kv_heads, tokens, head_dim)."""
    if batch.cache.layout == "NHD":
        return blocks.view(len(batch.q), -1, *blocks.shape[2:]).transpose(1, 2)
    return blocks.view(len(batch.q), -1, *blocks.shape[1:]).transpose(1, 2).flatten(2, 3)


def sdpa(batch: Batch, backend: SDPBackend = SDPBackend.CUDNN_ATTENTION) -> list[Call]:
    """Torch's attention on a contiguous cache, without any table: what paging is held against."""
    batch.need(*HALF)
    q, causal = batch.q.transpose(1, 2), batch.workload.q_len > 1

    def call(k: torch.Tensor, v: torch.Tensor) -> None:
        with sdpa_kernel(backend):
            out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
        batch.out.copy_(out.transpose(1, 2))

    return [lambda k=k, v=v: call(k, v) for k, v in _contiguous(batch)]


def sdpa_flash(batch: Batch) -> list[Call]:
    return sdpa(batch, SDPBackend.FLASH_ATTENTION)


def flex(batch: Batch) -> list[Call]:
    """Compiled flex_attention on a contiguous cache."""
    batch.need(*HALF, torch.float32, one_query=True)
    from torch.nn.attention.flex_attention import flex_attention

    compiled = torch.compile(flex_attention)
    q = batch.q.transpose(1, 2).contiguous()

    def call(k: torch.Tensor, v: torch.Tensor) -> None:
        batch.out.copy_(compiled(q, k, v, enable_gqa=True).transpose(1, 2))

    return [lambda k=k, v=v: call(k, v) for k, v in _contiguous(batch)]


def _contiguous(batch: Batch) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """K and V of each table as (num_seqs, num_kv_heads, tokens, head_dim): views, since the tables are contiguous."""
    lengths, size = batch.workload.lengths, batch.block_size
    if batch.table_kind != "contiguous" or batch.cache.layout != "NHD":
        raise NotHere("contiguous NHD tables only")
    if (lengths != lengths[0]).any() or lengths[0] % size or batch.workload.q_len not in (1, lengths[0]) \
            or batch.workload.shared:
        raise NotHere("sequences of one length, in whole blocks of their own, one query token or a whole prompt only")
    blocks = len(lengths) * int(lengths[0]) // size

    def view(cache: torch.Tensor, copy: int) -> torch.Tensor:
        part = cache[copy * blocks:(copy + 1) * blocks]
        return part.view(len(lengths), -1, *cache.shape[2:]).transpose(1, 2)

    return [(view(batch.cache.k, i), view(batch.cache.v, i)) for i in range(len(batch.tables))]


def _csr(batch: Batch, table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """FlashInfer's form of a table: offsets, ids, tokens of each last block."""
    counts = -(-batch.workload.lengths // batch.block_size)
    used = (torch.arange(table.shape[1], device=table.device)[None, :]
            < torch.from_numpy(counts).to(table.device)[:, None])
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    last = (batch.workload.lengths - 1) % batch.block_size + 1
    device = table.device
    return torch.from_numpy(offsets).to(device), table[used], torch.from_numpy(last.astype(np.int32)).to(device)


def flashinfer(batch: Batch) -> list[Call]:
    """FlashInfer's decode on tensor cores."""
    batch.need(*HALF)
    if batch.workload.q_len != 1 or (batch.workload.lengths < 1).any():
        raise NotHere("one query token and no empty sequence")
    try:
        import flashinfer as package
    except ImportError:
        raise NotHere("flashinfer is not installed: pip install flashinfer-python") from None
    shared = torch.empty(FLASHINFER_WORKSPACE_BYTES, dtype=torch.uint8, device=batch.q.device)
    w, q, out = batch.workload, batch.q.squeeze(1), batch.out.squeeze(1)
    calls = []
    for table in batch.tables:
        wrapper = package.BatchDecodeWithPagedKVCacheWrapper(shared, batch.cache.layout, use_tensor_cores=True)
        wrapper.plan(*_csr(batch, table), w.num_q_heads, w.num_kv_heads, w.head_dim, batch.block_size,
                     q_data_type=batch.q.dtype, kv_data_type=batch.cache.k.dtype)
        calls.append(lambda wrapper=wrapper: wrapper.run(q, (batch.cache.k, batch.cache.v), out=out))
    return calls


def flashinfer_batch(batch: Batch) -> list[Call]:
    """FlashInfer's persistent BatchAttention."""
    batch.need(*HALF)
    if (batch.workload.lengths < 1).any() or batch.workload.is_prefill:
        raise NotHere("decode without an empty sequence only")
    try:
        import flashinfer as package
    except ImportError:
        raise NotHere("flashinfer is not installed: pip install flashinfer-python") from None
    w = batch.workload
    q, out = batch.q.flatten(0, 1), batch.out.flatten(0, 1)
    lse = torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)
    starts = batch.first_query
    calls, scratch = [], None
    for table in batch.tables:
        wrapper = package.BatchAttention(kv_layout=batch.cache.layout)
        # The scratch of all calls is one: each brings 384 MB, and small batches are measured on hundreds of tables.
        scratch = wrapper.float_workspace_buffer = scratch if calls else wrapper.float_workspace_buffer
        offsets, ids, _ = _csr(batch, table)
        try:
            wrapper.plan(starts, offsets, ids, batch.lengths, w.num_q_heads, w.num_kv_heads, w.head_dim, w.head_dim,
                         batch.block_size, causal=True, q_data_type=batch.q.dtype, kv_data_type=batch.cache.k.dtype)
        except RuntimeError as error:  # its workspace is of a fixed size
            raise NotHere(f"flashinfer: {error}") from None
        calls.append(lambda wrapper=wrapper: wrapper.run(q, (batch.cache.k, batch.cache.v), out=out, lse=lse))
    return calls


def flash_attention(batch: Batch) -> list[Call]:
    """FlashAttention 3 over pages, as vLLM ships and calls it: the sequences are cut ahead, once for a batch."""
    batch.need(*HALF)
    if batch.cache.layout != "NHD":
        raise NotHere("NHD only")
    try:
        from vllm.vllm_flash_attn import flash_attn_varlen_func, get_scheduler_metadata
    except ImportError:
        raise NotHere("FlashAttention 3 is not installed: pip install vllm") from None
    w = batch.workload
    q, out = batch.q.flatten(0, 1), batch.out.flatten(0, 1)
    starts = batch.first_query
    longest = int(w.lengths.max())
    cuts = get_scheduler_metadata(batch_size=len(w.lengths), max_seqlen_q=w.q_len, max_seqlen_k=longest,
                                  num_heads_q=w.num_q_heads, num_heads_kv=w.num_kv_heads, headdim=w.head_dim,
                                  cache_seqlens=batch.lengths, qkv_dtype=q.dtype, cu_seqlens_q=starts,
                                  page_size=batch.block_size, causal=True)
    return [lambda table=table: flash_attn_varlen_func(q, batch.cache.k, batch.cache.v, max_seqlen_q=w.q_len,
                                                       cu_seqlens_q=starts, max_seqlen_k=longest,
                                                       seqused_k=batch.lengths, block_table=table, causal=True, out=out,
                                                       scheduler_metadata=cuts, fa_version=3)
            for table in batch.tables]


def cudnn(batch: Batch) -> list[Call]:
    """cuDNN's paged attention through its frontend."""
    batch.need(*HALF, one_query=True)
    try:
        import cudnn as package
    except ImportError:
        raise NotHere("cudnn is not installed: pip install nvidia-cudnn-frontend") from None
    return peer_cudnn.prepare(package, batch)


PREPARE: dict[str, Callable[[Batch], list[Call]]] = {
    "ours": ours,
    "general": general,
    "gather+sdpa": gather_then_sdpa,
    "sdpa": sdpa,
    "sdpa-flash": sdpa_flash,
    "flex": flex,
    "flashinfer": flashinfer,
    "flashinfer-batch": flashinfer_batch,
    "flash-attention": flash_attention,
    "cudnn": cudnn,
    "flashmla": peers_mla.flashmla,
    "flashinfer-mla": peers_mla.flashinfer,
}
