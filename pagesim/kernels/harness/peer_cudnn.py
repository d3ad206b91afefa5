"""cuDNN's paged attention through its Python frontend, as a peer to measure."""

from types import ModuleType

import torch

from pagesim.kernels.harness.batch import Batch, Call


def prepare(cudnn: ModuleType, batch: Batch) -> list[Call]:
    """One graph for the batch's shapes; a call runs it with one of the tables."""
    workload, device = batch.workload, batch.q.device
    q, out = batch.q.transpose(1, 2), batch.out.transpose(1, 2)
    # Containers are (blocks, heads, tokens, dim) whatever the layout; cuDNN goes by the strides.
    k, v = (blocks.transpose(1, 2) if batch.cache.layout == "NHD" else blocks
            for blocks in (batch.cache.k, batch.cache.v))
    tables = [table.view(len(table), 1, -1, 1) for table in batch.tables]
    kv_lengths = batch.lengths.view(-1, 1, 1, 1)
    q_lengths = torch.ones_like(kv_lengths)
    handle = cudnn.create_handle()
    data_type = cudnn.data_type.BFLOAT16 if batch.q.dtype == torch.bfloat16 else cudnn.data_type.HALF
    graph = cudnn.pygraph(io_data_type=data_type, intermediate_data_type=cudnn.data_type.FLOAT,
                          compute_data_type=cudnn.data_type.FLOAT, handle=handle)
    gq, gk, gv = graph.tensor_like(q), graph.tensor_like(k), graph.tensor_like(v)
    k_table, v_table = graph.tensor_like(tables[0]), graph.tensor_like(tables[0])
    gq_lengths, gkv_lengths = graph.tensor_like(q_lengths), graph.tensor_like(kv_lengths)
    gout, _ = graph.sdpa(name="decode", q=gq, k=gk, v=gv, is_inference=True, attn_scale=workload.head_dim**-0.5,
                         use_padding_mask=True, seq_len_q=gq_lengths, seq_len_kv=gkv_lengths,
                         paged_attention_k_table=k_table, paged_attention_v_table=v_table,
                         paged_attention_max_seq_len_kv=tables[0].shape[2] * batch.block_size)
    gout.set_output(True).set_dim(list(out.shape)).set_stride(list(out.stride()))
    graph.build([cudnn.heur_mode.A])
    workspace = torch.empty(max(1, graph.get_workspace_size()), dtype=torch.uint8, device=device)

    def call(table: torch.Tensor) -> None:
        cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
        graph.execute({gq: q, gk: k, gv: v, k_table: table, v_table: table, gq_lengths: q_lengths,
                       gkv_lengths: kv_lengths, gout: out}, workspace, handle=handle)

    return [lambda table=table: call(table) for table in tables]
