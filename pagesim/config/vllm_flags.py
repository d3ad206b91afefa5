"""The flags of ``vllm serve``, of 0.33 and older ones that people still paste, and what each is to the KV cache."""

# Each is a key of a config.
KEYS = {
    "model": "model",
    "max-model-len": "max_model_len",
    "seed": "seed",
    "gpu-memory-utilization": "memory.gpu_memory_utilization",
    "device-memory-utilization": "memory.gpu_memory_utilization",
    "tensor-parallel-size": "memory.tensor_parallel_size",
    "tp": "memory.tensor_parallel_size",
    "pipeline-parallel-size": "memory.pipeline_parallel_size",
    "pp": "memory.pipeline_parallel_size",
    "kv-cache-dtype": "memory.kv_cache_dtype",
    "dtype": "memory.dtype",
    "num-gpu-blocks-override": "memory.num_gpu_blocks_override",
    "kv-cache-memory-bytes": "memory.kv_memory",
    "max-num-seqs": "scheduling.max_num_seqs",
    "max-num-batched-tokens": "scheduling.max_num_batched_tokens",
    "preemption-mode": "scheduling.preemption"}
IN_GIB = {"swap-space": "scheduling.swap_space"}
# Keys of every paged allocator.
OF_POOLS = {"block-size": "block_size", "watermark": "watermark"}
SWITCHES = {
    "enable-chunked-prefill": ("scheduling.chunked_prefill", "true"),
    "no-enable-chunked-prefill": ("scheduling.chunked_prefill", "false"),
    "scheduler-reserve-full-isl": ("scheduling.reserve_full_isl", "true"),
    "no-scheduler-reserve-full-isl": ("scheduling.reserve_full_isl", "false")}
# On every paged allocator; without either flag it is on, as in vLLM.
PREFIX_CACHES = {"enable-prefix-caching": "vllm", "no-enable-prefix-caching": "none"}
# Where they say how much KV memory there is, the last wins over those before it, and any over the utilization of a GPU.
SOURCES = ("kv-cache-memory-bytes", "num-gpu-blocks-override")
AUTO_LENGTH = {"auto", "-1"}   # --max-model-len: the longest that fits
QUANTIZATION = ("quantization", "q")

# Refused by name: each changes the cache, or what is left for it, in a way that is not computed here; unless it has the
# value that does nothing.  What to do instead.
_NOT_MODELLED = "its effect on the KV cache is not modelled; leave it out, or give --set model.kv_bytes_per_token=N"
_WEIGHTS = "what it leaves of the weights on a GPU is not known; leave it out and give --set memory.weights=SIZE"
_MORE = "what it takes of a GPU's memory is not known; leave it out and give --set memory.other=SIZE"
_DRAFT = "the cache of a draft model is not modelled; leave it out to size the model alone"
REFUSED = {
    "speculative-config": _DRAFT, "sc": _DRAFT, "spec-method": _DRAFT, "spec-model": _DRAFT, "spec-tokens": _DRAFT,
    "speculative-model": _DRAFT, "num-speculative-tokens": _DRAFT, "num-lookahead-slots": _DRAFT,
    "decode-context-parallel-size": _NOT_MODELLED, "dcp": _NOT_MODELLED, "prefill-context-parallel-size": _NOT_MODELLED,
    "pcp": _NOT_MODELLED, "kv-cache-dtype-skip-layers": _NOT_MODELLED, "kv-sharing-fast-prefill": _NOT_MODELLED,
    "kv-transfer-config": _NOT_MODELLED, "kv-offloading-size": _NOT_MODELLED, "attention-config": _NOT_MODELLED,
    "ac": _NOT_MODELLED, "diffusion-config": _NOT_MODELLED, "dc": _NOT_MODELLED, "engram-config": _NOT_MODELLED,
    "hf-overrides": _NOT_MODELLED, "hf-config-path": _NOT_MODELLED, "rope-scaling": _NOT_MODELLED,
    "rope-theta": _NOT_MODELLED, "additional-config": _NOT_MODELLED, "convert": _NOT_MODELLED,
    "disable-sliding-window": "layers with a window are not modelled; for a model without them leave it out",
    "disable-hybrid-kv-cache-manager": "layers with a window are not modelled; for a model without them leave it out",
    "data-parallel-size": "for a dense model leave it out: each replica has its own KV memory; experts are shared out "
                          "among replicas: give --set memory.weights=SIZE instead",
    "cpu-offload-gb": _WEIGHTS, "cpu-offload-params": _WEIGHTS, "offload-backend": _WEIGHTS, "offload-params": _WEIGHTS,
    "offload-group-size": _WEIGHTS, "offload-num-in-group": _WEIGHTS, "enable-eplb": _WEIGHTS, "eplb-config": _WEIGHTS,
    "language-model-only": _WEIGHTS, "mm-encoder-only": _WEIGHTS, "quantization-config": _WEIGHTS,
    "model-class-overrides": _WEIGHTS, "enable-lora": _MORE, "mm-ipc-gpu-memory-gb": _MORE, "runner": _NOT_MODELLED,
    "config": "pagesim does not read vLLM's own files; give the flags that are in it"}
REFUSED["dp"] = REFUSED["data-parallel-size"]
REFUSED_SWITCHES = {"kv-sharing-fast-prefill", "disable-sliding-window", "disable-hybrid-kv-cache-manager",
                    "enable-eplb", "language-model-only", "mm-encoder-only", "enable-lora"}
DOES_NOTHING = {"1": {"decode-context-parallel-size", "dcp", "prefill-context-parallel-size", "pcp", "dp",
                      "data-parallel-size"},
                "0": {"cpu-offload-gb"}, "{}": {"hf-overrides", "attention-config", "ac", "additional-config"},
                "auto": {"runner", "convert"}, "generate": {"runner"}, "none": {"convert"}}

# Passed over, for none can touch the KV cache: they move activations and graphs, which are not counted, the order in
# which requests are served, or nothing on the GPU.
_SWITCHES = """
    aggregate-engine-logging allow-credentials allow-deprecated-quantization async-scheduling calculate-kv-scales
    cohere-is-reasoning-model cudagraph-metrics data-parallel-external-lb data-parallel-hybrid-lb
    data-parallel-multi-port-external-lb dcp-q-replicate disable-async-output-proc disable-cascade-attn
    disable-chunked-mm-input disable-custom-all-reduce disable-fastapi-docs disable-frontend-multiprocessing
    disable-log-requests disable-log-stats disable-mm-preprocessor-cache disable-nccl-for-dp-synchronization
    disable-uvicorn-access-log dpe dph dpm enable-auto-tool-choice enable-batch-sharded-sampling enable-cumem-allocator
    enable-dbo enable-elastic-ep enable-ep-weight-filter enable-expert-parallel enable-fault-tolerance
    enable-flash-late-interaction enable-flashinfer-autotune enable-force-include-usage enable-hc-sp
    enable-layerwise-nvtx-tracing enable-log-deltas enable-log-outputs enable-log-requests
    enable-logging-iteration-details enable-mamba-cache-stochastic-rounding enable-mamba-shared-prefix-checkpoint
    enable-mfu-metrics enable-mixed-moe-lora-format enable-mm-embeds enable-moe-shared-loras enable-nccl-comm-suspend
    enable-offline-docs enable-per-request-metrics enable-prompt-embeds
    enable-prompt-tokens-details enable-reasoning enable-request-id-headers enable-return-routed-experts
    enable-scale-out enable-server-load-tracking enable-shm-tensor-arena enable-sleep-mode enable-ssl-refresh
    enable-tokenizer-info-endpoint enable-tower-connector-lora enable-trace-replay enforce-eager ep
    exclude-tools-when-tool-choice-none fail-on-environ-validation fully-sharded-loras grpc headless
    interleave-mm-strings jit-monitor-verbose kv-cache-metrics log-error-stack long-prefill-token-threshold-adaptive
    mm-device-do-normalize monokernel numa-bind ray-workers-use-nsight return-sampling-mask return-tokens-as-token-ids
    skip-mm-profiling skip-tokenizer-init sleep-mode-offload-cudagraph specialize-active-lora swa-bounded-replay
    tokens-only trust-remote-code trust-request-chat-template trust-request-mm-kwargs use-fp64-gumbel use-replayssm
    use-tqdm-on-load use-v2-block-manager"""
_WITH_VALUE = """
    O all2all-backend allowed-local-media-path anthropic-disabled-thinking-effort api-server-count asc attention-backend
    aux-output-config block-manager cc chat-template chat-template-content-format code-revision cohere-format
    collect-detailed-traces compilation-config config-format cp-kv-cache-interleave-size cpu-distributed-timeout-seconds
    cuda-graph-sizes custom-histogram-buckets data-parallel-address data-parallel-backend data-parallel-rank
    data-parallel-rpc-port data-parallel-size-local data-parallel-start-rank data-parallel-supervisor-port
    dbo-decode-token-threshold dbo-prefill-token-threshold dcp-comm-backend dcp-kv-cache-interleave-size
    default-chat-template-kwargs default-mm-loras device disable-access-log-for-endpoints distributed-executor-backend
    distributed-timeout-seconds download-dir dp-supervisor-probe-failure-threshold dp-supervisor-probe-interval-s
    dp-supervisor-probe-timeout-s dp-sync-interval dpa dpb dpl dpn dpp dpr ec-manager-config ec-transfer-config
    elastic-ep-max-dp-size expert-placement-strategy fault-tolerance-config fingerprint-mode fingerprint-value
    gdn-prefill-backend generation-config grpc-port guided-decoding-backend h11-max-header-count
    h11-max-incomplete-event-size host io-processor-plugin ir-op-priority jit-monitor-mode kda-decode-backend
    kda-prefill-backend kernel-config kv-cache-metrics-sample kv-events-config kv-offloading-backend limit-mm-per-prompt
    linear-backend load-format log-config-file log-level logging-config logits-processor-pattern logprobs-mode
    long-prefill-token-threshold lora-dtype mamba-backend mamba-block-size mamba-cache-dtype mamba-cache-mode
    mamba-cache-philox-rounds mamba-ssm-cache-dtype mamba-ssu-algorithm master-addr master-port max-cpu-loras
    max-cudagraph-capture-size max-log-len max-logprobs max-long-partial-prefills max-lora-cls-labels max-lora-rank
    max-loras max-num-active-seqs max-num-partial-prefills max-num-queued-reqs max-num-queued-tokens
    max-num-scheduled-tokens max-parallel-loading-workers max-seq-len-to-capture media-io-kwargs mm-encoder-attn-backend
    mm-encoder-attn-dtype mm-encoder-fp8-scale-path mm-encoder-fp8-scale-save-margin mm-encoder-fp8-scale-save-path
    mm-encoder-tp-mode mm-hasher-algorithm mm-processor-cache-gb mm-processor-cache-type mm-processor-device
    mm-processor-kwargs mm-shm-cache-max-object-size-mb mm-tensor-ipc model-impl model-loader-extra-config moe-backend n
    nnodes node-rank num-scheduler-steps offload-prefetch-step optimization-level otlp-traces-endpoint
    override-generation-config per-request-spec-decode-metrics performance-mode pooler-config port
    prefill-schedule-interval prefix-cache-retention-interval prefix-caching-hash-algo prefix-match-unit profiler-config
    pt-load-map-location r reasoning-config reasoning-effort-map reasoning-parser reasoning-parser-plugin
    renderer-num-workers replayssm-buffer-len response-role revision root-path safetensors-load-strategy
    safetensors-prefetch-block-size safetensors-prefetch-num-threads scheduler-cls scheduling-policy
    show-hidden-metrics-for-version shutdown-timeout sleep-mode-backend sparse-indexer-topk-backend
    sse-keep-alive-interval ssl-ca-certs ssl-cert-reqs ssl-certfile ssl-ciphers ssl-keyfile stream-interval
    structured-outputs-config task tokenizer tokenizer-mode tokenizer-pool-size tokenizer-revision tool-call-parser
    tool-parser-plugin tool-server tool-strict-level ubatch-size uds uvicorn-log-level video-pruning-method
    video-pruning-rate watchdog-config watermark-config weight-transfer-config worker-cls worker-extension-cls"""
_WITH_VALUES = """
    allowed-headers allowed-media-domains allowed-methods allowed-origins api-key cudagraph-capture-sizes device-ids
    hf-token ignore-patterns logits-processors lora-modules lora-target-modules middleware numa-bind-cpus
    numa-bind-nodes served-model-name sleep-preserve-parameter-names"""
PASSED_OVER_SWITCHES = set(_SWITCHES.split())
PASSED_OVER_WITH_VALUES = set(_WITH_VALUES.split())   # any number of them
PASSED_OVER = {*PASSED_OVER_SWITCHES, *_WITH_VALUE.split(), *PASSED_OVER_WITH_VALUES}
