"""A validated config and one of its allocators → a case: defaults that depend on other keys, capacity, rules of the engine."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from os.path import abspath, join, normpath

from pagesim import catalog
from pagesim.config.case import Capacity, Case, TraceOptions
from pagesim.config.document import Path
from pagesim.config.schema import Config, Fixed, Gamma, KvBytes, Measured, RooflineKeys, Sizing, find_model
from pagesim.engine.rules import Durations, Linear, Roofline, Scheduling
from pagesim.errors import InputError

GPU_MEMORY_UTILIZATION = 0.92    # vLLM's default since 0.2x; it was 0.9 for years
MAX_NUM_BATCHED_TOKENS = 8192
SWAP_SPACE_BYTES = 4 * 2**30     # vLLM's, while it had a swap space
STEP_S = 0.03
PCIE_SHARE = 0.8                 # of the data sheet's, in practice
ARENA_BLOCK_SLOTS = 16           # what a block is to a contiguous arena whose memory is given in blocks


class Findings(list[tuple[Path, str]]):
    """Problems met on the way, by the path that they are about; the way goes on."""

    @contextmanager
    def at(self, *path: str | int) -> Iterator[None]:
        try:
            yield
        except InputError as error:
            self.append((path, str(error)))


class Sized:
    """What model, memory and max_model_len of a config come to; ``findings`` has what does not fit together."""

    def __init__(self, config: Sizing, findings: Findings) -> None:
        memory = config.memory
        self.config = config
        self.model = _model(config)
        self.gpu = catalog.gpu(memory.gpu) if memory.gpu else None
        self.max_model_len: int | None = config.max_model_len
        self.kv_bytes_per_token: int | None = None
        self.slots: int | None = None
        with findings.at("max_model_len"):
            self.max_model_len = _max_model_len(config, self.model)
        with findings.at("model"):
            self.kv_bytes_per_token = self._kv_bytes_per_token()
        with findings.at("memory"):
            self.slots = self._slots()

    def _kv_bytes_per_token(self) -> int | None:
        if isinstance(self.config.model, KvBytes):
            return self.config.model.kv_bytes_per_token
        if self.model is None or self.max_model_len is None:
            return None
        memory = self.config.memory
        return catalog.kv_bytes_per_token(self.model, memory.kv_cache_dtype, memory.tensor_parallel_size, self.max_model_len)

    def _slots(self) -> int | None:
        """Slots of all KV memory; None where it is in blocks of each pool's own size, or where an error is known already."""
        memory = self.config.memory
        if memory.kv_tokens is not None:
            return memory.kv_tokens
        if memory.num_gpu_blocks_override is not None:
            return None if memory.block_size is None else memory.num_gpu_blocks_override * memory.block_size
        if self.config.model is None:
            raise InputError("memory in bytes needs a model, to know how many bytes a token takes; give model, or kv_tokens")
        if self.kv_bytes_per_token is None:
            return None
        slots = self.kv_memory_bytes() // self.kv_bytes_per_token
        if slots == 0:
            raise InputError(f"memory of {self.kv_memory_bytes():,} bytes is less than one token's {self.kv_bytes_per_token:,}")
        return slots

    def kv_memory_bytes(self) -> int:
        """Bytes of KV memory, where memory is given in bytes or by a GPU."""
        memory = self.config.memory
        if memory.kv_memory is not None:
            return memory.kv_memory
        return catalog.kv_memory_bytes(self.gpu, memory.gpu_memory_utilization or GPU_MEMORY_UTILIZATION, self.weights_bytes(), memory.other or 0)

    def weights_bytes(self) -> int:
        memory = self.config.memory
        if memory.weights is not None:
            return memory.weights
        if self.model is None:
            raise InputError("gpu needs the size of the weights: name a model, or give memory.weights, such as weights: 15GiB")
        return catalog.weight_bytes(self.model, memory.tensor_parallel_size)

    def capacity(self, block_size: int | None) -> Capacity:
        """The capacity of a pool with blocks of ``block_size`` slots, or of an arena (None)."""
        slots = self.slots
        if slots is None:
            slots = self.config.memory.num_gpu_blocks_override * (block_size or ARENA_BLOCK_SLOTS)
        blocks = None if block_size is None else slots // block_size
        if blocks == 0:
            raise InputError(f"block_size {block_size} is more than the {slots:,} slots of KV memory; not one block fits")
        return Capacity(slots, self.kv_bytes_per_token, blocks, block_size)


def _model(config: Sizing) -> catalog.Model | None:
    if not isinstance(config.model, str):
        return None
    model, dtype = find_model(config.model), config.memory.dtype
    return model if dtype == "auto" else replace(model, weights=dtype, weight_bytes=None)


def _max_model_len(config: Sizing, model: catalog.Model | None) -> int:
    longest = None if model is None else model.max_model_len
    if config.max_model_len is None and longest is None:
        raise InputError("max_model_len is missing, and no model says how long its sequences can be")
    if config.max_model_len is not None and longest is not None and config.max_model_len > longest:
        raise InputError(f"max_model_len {config.max_model_len} is more than the {longest} of {model.name}; lower it, or give the model as "
                         "{kv_bytes_per_token: N}, which has no limit")
    return config.max_model_len or longest


def case(config: Config, number: int, name: str, directory: str) -> tuple[Case | None, Findings]:
    """The case of allocator ``number``, or None and what does not fit together."""
    findings = Findings()
    sized = Sized(config, findings)
    keys = config.allocators[number]
    allocator = keys.spec()
    capacity = scheduling = durations = None
    if not findings:
        with findings.at("allocators", number):
            capacity = sized.capacity(getattr(allocator, "block_size", None))
        with findings.at("scheduling"):
            scheduling = _scheduling(config, sized)
        with findings.at("durations"):
            durations = _durations(config, sized)
    with findings.at("trace"):
        trace = _trace(config, directory)
    if findings:
        return None, findings
    gpu = _roofline_gpu(config, sized)
    resolved = _resolved(config, sized, scheduling, number, directory)
    return Case(name, resolved, trace, allocator, capacity, sized.max_model_len, scheduling, durations,
                None if sized.model is None else sized.model.name, None if gpu is None else gpu.name), findings


def _trace(config: Config, directory: str) -> TraceOptions:
    arrivals, trace = config.trace.arrivals, config.trace
    if trace.speedup != 1 and arrivals.kind != "trace":
        raise InputError(f"speedup scales the trace's own times, and arrivals of kind {arrivals.kind} do not use them; leave it out")
    cv = getattr(arrivals, "cv", None)
    if isinstance(arrivals, Gamma) and cv is None:
        cv = arrivals.burstiness ** -0.5
    return TraceOptions(normpath(join(directory, trace.path)), arrivals.kind, getattr(arrivals, "rate", None), cv, getattr(arrivals, "users", None),
                        trace.speedup, trace.limit, trace.strict, trace.until_s, trace.warmup_s, config.seed)


def _scheduling(config: Config, sized: Sized) -> Scheduling:
    keys = config.scheduling
    budget = keys.max_num_batched_tokens
    if budget is None:
        budget = MAX_NUM_BATCHED_TOKENS if keys.chunked_prefill else max(MAX_NUM_BATCHED_TOKENS, sized.max_model_len)
    if not keys.chunked_prefill and budget < sized.max_model_len:
        raise InputError(f"max_num_batched_tokens {budget} is less than max_model_len {sized.max_model_len}, so a long prompt could never be "
                         "computed in one step; raise it, or set chunked_prefill: true")
    if keys.preemption == "recompute":
        return Scheduling(keys.max_num_seqs, budget, keys.chunked_prefill, "recompute", keys.reserve_full_isl)
    if sized.kv_bytes_per_token is None:
        raise InputError("preemption by swap needs to know how many bytes a token takes; give model, or model: {kv_bytes_per_token: N}")
    space = SWAP_SPACE_BYTES if keys.swap_space is None else keys.swap_space
    return Scheduling(keys.max_num_seqs, budget, keys.chunked_prefill, "swap", keys.reserve_full_isl,
                      space // sized.kv_bytes_per_token, sized.kv_bytes_per_token / _swap_bytes_per_s(config, sized))


def _swap_bytes_per_s(config: Config, sized: Sized) -> float:
    if config.scheduling.swap_bandwidth is not None:
        return config.scheduling.swap_bandwidth
    gpu = _roofline_gpu(config, sized)
    if gpu is None:
        raise InputError("preemption by swap needs the bandwidth to the host; give swap_bandwidth (bytes per second, such as 25GB), or a GPU")
    return PCIE_SHARE * gpu.pcie_bytes_per_s


def _roofline_gpu(config: Config, sized: Sized) -> catalog.Gpu | None:
    named = getattr(config.durations, "gpu", None)
    return catalog.gpu(named) if named else sized.gpu


def _durations(config: Config, sized: Sized) -> Durations:
    keys = config.durations
    if isinstance(keys, Measured):
        raise InputError("kind measured is not built yet; use roofline, linear or fixed")
    if keys is None and (sized.model is None or sized.gpu is None):
        return Linear(STEP_S)
    if keys is not None and not isinstance(keys, RooflineKeys):
        return keys.spec()
    gpu, tp = _roofline_gpu(config, sized), config.memory.tensor_parallel_size
    if sized.model is None or gpu is None:
        missing = "a model of the catalogue or a config.json" if sized.model is None else "a GPU: name it in memory or in durations"
        raise InputError(f"kind roofline needs {missing}; or use linear or fixed")
    return Roofline(sized.weights_bytes(), sized.kv_bytes_per_token, catalog.flops_per_token(sized.model, tp),
                    catalog.flops_per_context_token(sized.model, tp), gpu.bandwidth_bytes_per_s, gpu.peak_flops_per_s,
                    0.0 if keys is None else keys.overhead_s)


def _resolved(config: Config, sized: Sized, scheduling: Scheduling, number: int, directory: str) -> dict:
    """The config of this case alone, with every key that has an effect; reading it again gives the same case."""
    plain = config.model_dump(exclude_none=True, exclude={"sweep"})
    if config.memory.gpu is not None:
        plain["memory"].setdefault("gpu_memory_utilization", GPU_MEMORY_UTILIZATION)
        plain["memory"].setdefault("other", 0)
    plain["trace"] = {**config.trace.model_dump(), "path": abspath(join(directory, config.trace.path))}
    plain["trace"]["arrivals"] = config.trace.arrivals.model_dump(exclude_none=True)
    plain["scheduling"]["max_num_batched_tokens"] = scheduling.max_num_batched_tokens
    if scheduling.preemption == "swap":
        plain["scheduling"].setdefault("swap_space", SWAP_SPACE_BYTES)
        plain["scheduling"].setdefault("swap_bandwidth", round(_swap_bytes_per_s(config, sized)))
    else:
        plain["scheduling"] = {key: value for key, value in plain["scheduling"].items() if not key.startswith("swap_")}
    if config.durations is None:
        known = sized.model is not None and sized.gpu is not None
        plain["durations"] = {"kind": "roofline", "overhead_s": 0.0} if known else {"kind": "fixed", "step_s": STEP_S}
    order = ("trace", "model", "memory", "max_model_len", "scheduling", "durations", "allocators", "seed")
    plain |= {"model": plain.get("model"), "max_model_len": sized.max_model_len, "allocators": [plain["allocators"][number]]}
    return {key: plain[key] for key in order}
