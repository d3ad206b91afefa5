"""The config to start from."""

STARTER = """\
# What does contiguous preallocation waste on this trace, and what does paging win?
# A key that is commented out has the value shown.  pagesim config validate FILE checks, config expand FILE shows all.

trace:
  path: trace.csv            # relative to this file; columns arrival_s,prompt_tokens,output_tokens, or a public trace
  arrivals: {kind: trace}    # or {kind: poisson, rate: 2} · {kind: gamma, rate: 2, cv: 3} · {kind: closed, users: 64}
                             # · {kind: saturate}
  # speedup: 1.0             # 2 is twice the trace's rate
  # limit: null              # keep the first N requests
  # strict: false            # true: rows with 0 tokens are an error, not dropped and counted
  # until_s: null            # end the run here
  # warmup_s: 0.0            # count from here

model: llama-3.1-8b          # or the path of a config.json, or {kv_bytes_per_token: 131072}
memory: {gpu: h200}          # or {kv_memory: 12GiB} · {kv_tokens: 15728} · {num_gpu_blocks_override: 2587}
  # gpu_memory_utilization: 0.92, tensor_parallel_size: 1, kv_cache_dtype: auto, dtype: auto, other: 0
max_model_len: 8192          # the model's own maximum, if left out

# scheduling:
#   max_num_seqs: 256
#   max_num_batched_tokens: 8192
#   chunked_prefill: true
#   preemption: recompute    # or swap, with swap_space: 4GiB
#   reserve_full_isl: true

# durations: {kind: roofline}   # of the model on the GPU; or {kind: fixed, step_s: 0.03}
                                # · {kind: linear, step_s: 0.01, prefill_token_s: 0, sequence_s: 0, context_token_s: 0}
                                # · {kind: measured, path: bench.json}, what bench-kernel -o DIR wrote for this model

allocators:
  # reserve: max_model_len, pow2, exact, max_tokens, grow; placement: first_fit, next_fit, best_fit, worst_fit, buddy
  - {kind: contiguous, reserve: max_model_len, placement: buddy}
  - {kind: contiguous, reserve: exact, placement: first_fit}
  - {kind: paged, block_size: 16}    # reuse: lifo | fifo; watermark: 0.0

# replicas: {count: 4, routing: round_robin}   # servers side by side; or by_session, least_kv_used,
                                               # longest_cached_prefix; 1, if left out
# sweep: {"allocators.2.block_size": [8, 16, 32], seed: [0, 1, 2]}   # every combination runs
# seed: 0
"""
