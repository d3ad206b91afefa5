"""A validated config and one of its allocators → a case: defaults that depend on other keys, the engine's rules."""

from dataclasses import asdict
from os.path import abspath, join, normpath

from pagesim import catalog
from pagesim.case import Case, Replicas, TraceOptions
from pagesim.config.measured import measured
from pagesim.config.schema import Config, Gamma, KvBytes, Measured, Memory, RooflineKeys, SchedulingKeys
from pagesim.config.sizing import GPU_MEMORY_UTILIZATION, Findings, Sized
from pagesim.engine.durations import Durations, Linear, Roofline
from pagesim.engine.scheduling import Scheduling
from pagesim.errors import InputError

SWAP_SPACE_BYTES = 4 * 2**30     # vLLM's, while it had a swap space
STEP_S = 0.03
PCIE_SHARE = 0.8                 # of the data sheet's, in practice


def case(config: Config, number: int, name: str, directory: str) -> tuple[Case | None, Findings]:
    """The case of allocator ``number``, or None and what does not fit together."""
    findings = Findings()
    sized = Sized(config, findings)
    keys = config.allocators[number]
    allocator = keys.spec()
    capacity = scheduling = durations = None
    with findings.at("memory"):
        if (config.memory.pipeline_parallel_size or 1) > 1:
            raise InputError("pipeline_parallel_size is for pagesim size; stages side by side are not simulated")
    if not findings:
        with findings.at("allocators", number):
            capacity = sized.capacity(getattr(keys, "block_size", None))
        with findings.at("scheduling"):
            scheduling = _scheduling(config, sized)
        with findings.at("durations"):
            durations = _durations(config, sized, directory)
    with findings.at("trace"):
        trace = _trace(config, directory)
    with findings.at("replicas"):
        replicas = _replicas(config, number)
    if findings:
        return None, findings
    gpu = _roofline_gpu(config, sized)
    resolved = _resolved(config, sized, scheduling, durations, number, directory)
    if config.replicas is not None:
        resolved["replicas"] = asdict(replicas)
    return Case(name, resolved, trace, allocator, capacity, sized.max_model_len, scheduling, durations,
                None if sized.model is None else sized.model.name, None if gpu is None else gpu.name,
                replicas), findings


def _replicas(config: Config, number: int) -> Replicas:
    keys = config.replicas
    replicas = Replicas(keys) if isinstance(keys, int) else Replicas() if keys is None else Replicas(**dict(keys))
    if replicas.count > 1 and config.trace.arrivals.kind == "closed":
        raise InputError("count must be 1 for arrivals of kind closed, whose users would choose a server each time; "
                         "take another kind, such as poisson")
    cache = getattr(config.allocators[number], "prefix_cache", "none")
    if replicas.routing == "longest_cached_prefix" and cache == "none":
        raise InputError(f"routing longest_cached_prefix needs a prefix cache, and allocator {number} has none; give "
                         "it prefix_cache: vllm or radix, or choose another routing")
    return replicas


def _trace(config: Config, directory: str) -> TraceOptions:
    arrivals, trace = config.trace.arrivals, config.trace
    if trace.speedup != 1 and arrivals.kind != "trace":
        raise InputError(f"speedup scales the trace's own times, and arrivals of kind {arrivals.kind} do not use them; "
                         "leave it out")
    cv = getattr(arrivals, "cv", None)
    if isinstance(arrivals, Gamma) and cv is None:
        cv = arrivals.burstiness ** -0.5
    return TraceOptions(
        normpath(join(directory, trace.path)), arrivals.kind, getattr(arrivals, "rate", None), cv,
        getattr(arrivals, "users", None), trace.speedup, trace.limit, trace.strict, trace.until_s, trace.warmup_s,
        config.seed)


def _scheduling(config: Config, sized: Sized) -> Scheduling:
    keys = config.scheduling
    budget = keys.max_num_batched_tokens
    if budget is None:
        budget = Scheduling.max_num_batched_tokens
        if not keys.chunked_prefill:
            budget = max(budget, sized.max_model_len)
    if not keys.chunked_prefill and budget < sized.max_model_len:
        raise InputError(f"max_num_batched_tokens {budget} is less than max_model_len {sized.max_model_len}, so a long "
                         "prompt could never be computed in one step; raise it, or set chunked_prefill: true")
    if keys.preemption == "recompute":
        return Scheduling(keys.max_num_seqs, budget, keys.chunked_prefill, "recompute", keys.reserve_full_isl)
    if sized.kv_bytes_per_token is None:
        raise InputError("preemption by swap needs to know how many bytes a token takes; give model, or "
                         "model: {kv_bytes_per_token: N}")
    space = SWAP_SPACE_BYTES if keys.swap_space is None else keys.swap_space
    return Scheduling(keys.max_num_seqs, budget, keys.chunked_prefill, "swap", keys.reserve_full_isl,
                      space // sized.kv_bytes_per_token, sized.kv_bytes_per_token / _swap_bytes_per_s(config, sized))


def _swap_bytes_per_s(config: Config, sized: Sized) -> float:
    if config.scheduling.swap_bandwidth is not None:
        return config.scheduling.swap_bandwidth
    gpu = _roofline_gpu(config, sized)
    if gpu is None:
        raise InputError("preemption by swap needs the bandwidth to the host; give swap_bandwidth (bytes per second, "
                         "such as 25GB), or a GPU")
    return PCIE_SHARE * gpu.pcie_bytes_per_s


def _roofline_gpu(config: Config, sized: Sized) -> catalog.Gpu | None:
    named = getattr(config.durations, "gpu", None)
    return catalog.gpu(named) if named else sized.gpu


def _durations(config: Config, sized: Sized, directory: str) -> Durations:
    keys = config.durations
    if isinstance(keys, Measured):
        return measured(keys, sized, _roofline_gpu(config, sized), join(directory, keys.path))
    if keys is None and not _roofline_is_known(config, sized):
        return Linear(STEP_S)
    if keys is not None and not isinstance(keys, RooflineKeys):
        return keys.spec()
    gpu, tp = _roofline_gpu(config, sized), config.memory.tensor_parallel_size
    if sized.model is None:
        raise InputError("kind roofline needs a model of the catalogue or a config.json; or use linear or fixed")
    if gpu is None:
        raise InputError("kind roofline needs a GPU: name it in memory or in durations; or use linear or fixed")
    return Roofline(sized.weights_bytes(), sized.kv_bytes_per_token, catalog.flops_per_token(sized.model, tp),
                    catalog.flops_per_context_token(sized.model, tp), gpu.bandwidth_bytes_per_s, gpu.peak_flops_per_s,
                    0.0 if keys is None else keys.overhead_s)


def _resolved(config: Config, sized: Sized, scheduling: Scheduling, durations: Durations, number: int,
              directory: str) -> dict:
    """The config of this case alone, with every key that has an effect; reading it again gives the same case."""
    memory, rules = config.memory.model_dump(exclude_none=True), config.scheduling.model_dump(exclude_none=True)
    if config.memory.gpu is not None or config.memory.gpu_memory is not None:
        memory = {"gpu_memory_utilization": GPU_MEMORY_UTILIZATION, "other": 0} | memory
    rules["max_num_batched_tokens"] = scheduling.max_num_batched_tokens
    if scheduling.preemption == "swap":
        rules = {"swap_space": SWAP_SPACE_BYTES, "swap_bandwidth": round(_swap_bytes_per_s(config, sized))} | rules
    else:
        rules = {key: value for key, value in rules.items() if not key.startswith("swap_")}
    return {
        "trace": config.trace.model_dump() | {"path": abspath(join(directory, config.trace.path)),
                                              "arrivals": config.trace.arrivals.model_dump(exclude_none=True)},
        "model": config.model.model_dump() if isinstance(config.model, KvBytes) else config.model,
        "memory": {key: memory[key] for key in Memory.model_fields if key in memory},
        "max_model_len": sized.max_model_len,
        "scheduling": {key: rules[key] for key in SchedulingKeys.model_fields if key in rules},
        "durations": _resolved_durations(config, sized, durations),
        "allocators": [config.allocators[number].model_dump()],
        "seed": config.seed}


def _resolved_durations(config: Config, sized: Sized, durations: Durations) -> dict:
    if isinstance(config.durations, Measured):  # by its numbers, so that the case runs again without the file
        return {"kind": "linear"} | vars(durations)
    if config.durations is not None:
        return config.durations.model_dump(exclude_none=True)
    if _roofline_is_known(config, sized):
        return {"kind": "roofline", "overhead_s": 0.0}
    return {"kind": "fixed", "step_s": STEP_S}


def _roofline_is_known(config: Config, sized: Sized) -> bool:
    return sized.model is not None and _roofline_gpu(config, sized) is not None
