"""The keys of a config file, their types and defaults.  What they mean together is decided in ``resolve``."""

import ast
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, Union

from pydantic import (
    AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationInfo, create_model, model_validator)

from pagesim import catalog
from pagesim.allocators import Kind, Spec, kind_of, kinds_by_name
from pagesim.case import Routing
from pagesim.catalog import find_model
from pagesim.catalog.models import KV_CACHE_DTYPES, WEIGHT_DTYPES, dtype_name
from pagesim.config.values import Bytes, Count, Flag, Real
from pagesim.engine.durations import Linear
from pagesim.engine.scheduling import Preemption, Scheduling
from pagesim.errors import InputError


class Keys(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _known_model(name: str, info: ValidationInfo) -> str:
    directory = (info.context or {}).get("directory", "")
    model = find_model(name, directory)
    return str(Path(model.name).absolute()) if model.name.endswith(".json") else model.name


def _known_gpu(name: str) -> str:
    return catalog.gpu(name).name


ModelName = Annotated[str, AfterValidator(_known_model)]
GpuName = Annotated[str, AfterValidator(_known_gpu)]
KvSpelling = Literal[(*KV_CACHE_DTYPES, "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2")]
KvDtype = Annotated[KvSpelling, AfterValidator(dtype_name)]
WeightSpelling = Literal[(*WEIGHT_DTYPES, "float16", "half", "bfloat16", "float32", "float")]
WeightDtype = Annotated[WeightSpelling, AfterValidator(dtype_name)]
Share = Annotated[Real, Field(gt=0, le=1)]
Positive = Annotated[Real, Field(gt=0)]
NotNegative = Annotated[Real, Field(ge=0)]
AtLeast1 = Annotated[Count, Field(ge=1)]


class AtItsOwnTimes(Keys):
    kind: Literal["trace"] = "trace"


class Poisson(Keys):
    kind: Literal["poisson"]
    rate: Positive
    """Mean requests per second."""


class Gamma(Keys):
    kind: Literal["gamma"]
    rate: Positive
    """Mean requests per second."""
    cv: Positive | None = None
    """Coefficient of variation of the intervals; 1 is Poisson."""
    burstiness: Positive | None = None
    """vLLM's name: 1 / cv²."""

    @model_validator(mode="after")
    def _one_measure(self) -> "Gamma":
        if (self.cv is None) == (self.burstiness is None):
            raise InputError("give exactly one of cv and burstiness (= 1 / cv²)")
        return self


class Closed(Keys):
    kind: Literal["closed"]
    users: AtLeast1
    """Each has one request in the system at any time."""


class Saturate(Keys):
    kind: Literal["saturate"]


Arrivals = Annotated[AtItsOwnTimes | Poisson | Gamma | Closed | Saturate, Field(discriminator="kind")]


class Trace(Keys):
    path: str
    """File with the requests, relative to this config; the format is detected."""
    arrivals: Arrivals = AtItsOwnTimes()
    speedup: Positive = 1.0
    """2 replays the trace at twice its rate."""
    limit: AtLeast1 | None = None
    """Rows kept, from the start."""
    strict: Flag = False
    """A row without prompt or output is an error, not dropped and counted."""
    until_s: Positive | None = None
    """The run ends here, finished or not."""
    warmup_s: NotNegative = 0.0
    """Figures count from here on."""

    @model_validator(mode="after")
    def _something_counts(self) -> "Trace":
        if self.until_s is not None and self.warmup_s >= self.until_s:
            raise InputError(f"warmup_s {self.warmup_s:g} is not before until_s {self.until_s:g}, nothing would count")
        return self


class KvBytes(Keys):
    kv_bytes_per_token: AtLeast1
    """Bytes of K and V of one token in all layers of one GPU."""


def _model_form(value: Any) -> str:
    return "numbers" if isinstance(value, dict | KvBytes) else "name"


ModelForms = Annotated[ModelName, Tag("name")] | Annotated[KvBytes, Tag("numbers")]
ModelChoice = Annotated[ModelForms, Discriminator(_model_form)]

def _length_form(value: Any) -> str:
    return "auto" if value == "auto" else "count"


Length = Annotated[Annotated[Literal["auto"], Tag("auto")] | Annotated[AtLeast1, Tag("count")],
                   Discriminator(_length_form)]

SOURCES = ("gpu", "gpu_memory", "kv_memory", "kv_tokens", "num_gpu_blocks_override")
_OF_A_GPU = ("gpu", "gpu_memory")
_BESIDE = {"gpu_memory_utilization": _OF_A_GPU, "other": _OF_A_GPU, "block_size": ("num_gpu_blocks_override",)}


class Memory(Keys):
    gpu: GpuName | None = None
    """GPU of the catalogue; KV memory is what utilization, weights and other leave of it."""
    gpu_memory: Bytes | None = None
    """Memory of a GPU that is not in the catalogue, as CUDA reports it; instead of gpu."""
    gpu_memory_utilization: Share | None = None
    """Share of the GPU's memory that the engine may use; 0.92 as in vLLM."""
    weights: Bytes | None = None
    """Weights on one GPU, instead of params × dtype / tensor_parallel_size."""
    other: Bytes | None = None
    """Taken by anything else; 0 as a default."""
    kv_memory: Bytes | None = None
    """KV memory of one GPU, in bytes."""
    kv_tokens: AtLeast1 | None = None
    """KV memory in token slots."""
    num_gpu_blocks_override: AtLeast1 | None = None
    """KV memory in usable blocks, of the pool's own block size; a contiguous arena takes them for 16 slots each."""
    block_size: AtLeast1 | None = None
    """Slots to each of those blocks, for all allocators."""
    null_block: Flag | None = None
    """One block of each paged pool is set aside, as vLLM does: its N blocks are N − 1 here."""
    tensor_parallel_size: AtLeast1 = 1
    pipeline_parallel_size: AtLeast1 | None = None
    """Stages that share the layers among them; what is sized is the stage with the most. 1 as a default."""
    kv_cache_dtype: KvDtype = "auto"
    """auto is what the checkpoint says, else the dtype of the model."""
    dtype: WeightDtype = "auto"
    """Of the weights; auto is as published, float32 in 16 bits as in vLLM. Quantized weights stay as they are."""

    @model_validator(mode="after")
    def _one_source(self) -> "Memory":
        given = [key for key in SOURCES if getattr(self, key) is not None]
        if len(given) != 1:
            extra = " (a roofline's GPU can be named in durations)" if "gpu" in given else ""
            got = ", ".join(given) or "none"
            raise InputError(f"memory needs exactly one of {', '.join(SOURCES)}, got {got}{extra}")
        for key, sources in _BESIDE.items():
            if getattr(self, key) is not None and given[0] not in sources:
                raise InputError(
                    f"{key} goes with {' or '.join(sources)} and means nothing beside {given[0]}; leave it out")
        return self


class SchedulingKeys(Keys):
    max_num_seqs: Count = Scheduling.max_num_seqs
    max_num_batched_tokens: Count | None = None
    """8192; without chunked prefill at least max_model_len."""
    chunked_prefill: Flag = Scheduling.chunked_prefill
    preemption: Preemption = Scheduling.preemption
    reserve_full_isl: Flag = Scheduling.reserve_full_isl
    """Admit a prompt only when all of it fits, though its first chunk takes less."""
    swap_space: Bytes | None = None
    """Host memory that swapped blocks may fill; 4GiB as in vLLM."""
    swap_bandwidth: Bytes | None = None
    """Bytes per second, one way; 0.8 × the GPU's PCIe."""

    @model_validator(mode="after")
    def _possible(self) -> "SchedulingKeys":
        given = {} if self.max_num_batched_tokens is None else {"max_num_batched_tokens": self.max_num_batched_tokens}
        Scheduling(max_num_seqs=self.max_num_seqs, **given)
        if self.swap_bandwidth == 0:
            raise InputError("swap_bandwidth must be above 0")
        return self


class Fixed(Keys):
    kind: Literal["fixed"]
    step_s: Real

    @model_validator(mode="after")
    def _possible(self) -> "Fixed":
        self.spec()
        return self

    def spec(self) -> Linear:
        return Linear(self.step_s)


class LinearKeys(Keys):
    kind: Literal["linear"]
    step_s: Real = 0.0
    prefill_token_s: Real = 0.0
    sequence_s: Real = 0.0
    context_token_s: Real = 0.0

    @model_validator(mode="after")
    def _possible(self) -> "LinearKeys":
        self.spec()
        return self

    def spec(self) -> Linear:
        return Linear(self.step_s, self.prefill_token_s, self.sequence_s, self.context_token_s)


class RooflineKeys(Keys):
    kind: Literal["roofline"]
    overhead_s: NotNegative = 0.0
    gpu: GpuName | None = None
    """Where memory does not name it."""


class Measured(Keys):
    """Linear, with the model's attention as bench-kernel timed it; what is not given of the rest is the roofline's."""

    kind: Literal["measured"]
    path: str
    """The bench.json that bench-kernel -o DIR writes, relative to this config."""
    step_s: NotNegative | None = None
    """Seconds of a step without attention; the time to read the weights once."""
    prefill_token_s: NotNegative | None = None
    """Seconds of a prefill token without attention; 2 × params over 0.6 × the GPU's peak."""
    sequence_s: NotNegative = 0.0
    gpu: GpuName | None = None
    """Where memory does not name it."""


class AllocatorKeys(Keys):
    """The keys of a kind of allocator: the fields of its spec."""

    kind: str

    @model_validator(mode="after")
    def _possible(self) -> "AllocatorKeys":
        kind_of(self.spec())
        return self

    def spec(self) -> Spec:
        return _KINDS[self.kind].spec(**{name: value for name, value in self if name != "kind"})


_KINDS = kinds_by_name()
_FORMS = {int: Count, float: Real, bool: Flag}


def _allocator_keys(kind: Kind) -> type[AllocatorKeys]:
    keys = {each.name: (_FORMS.get(each.type, each.type), each.default) for each in fields(kind.spec)}
    return create_model(f"{kind.spec.__name__}Keys", __base__=AllocatorKeys, kind=(Literal[kind.name], ...), **keys)


DEFAULT_ALLOCATORS = ("contiguous", "paged")
_KEYS = {name: _allocator_keys(kind) for name, kind in _KINDS.items()}
Allocator = Annotated[Union[tuple(_KEYS.values())], Field(discriminator="kind")]  # noqa: UP007 - made from a table
DurationKeys = Annotated[Fixed | LinearKeys | RooflineKeys | Measured, Field(discriminator="kind")]


class Sizing(Keys):
    """The keys that say how much KV memory there is."""

    model: ModelChoice | None = None
    """Name in the catalogue, path of a config.json, or {kv_bytes_per_token: N}."""
    memory: Memory
    max_model_len: Length | None = None
    """Longest prompt and output together; the model's own maximum as a default, auto is the most that also fits."""
    allocators: Annotated[list[Allocator], Field(min_length=1)] = [
        _KEYS[kind](kind=kind) for kind in DEFAULT_ALLOCATORS]


class ReplicasKeys(Keys):
    count: AtLeast1
    """Servers side by side, each with this memory for itself."""
    routing: Routing = "round_robin"
    """Which of them serves a request."""


def _replicas_form(value: Any) -> str:
    return "keys" if isinstance(value, dict | ReplicasKeys) else "count"


ReplicasForms = Annotated[AtLeast1, Tag("count")] | Annotated[ReplicasKeys, Tag("keys")]
ReplicasChoice = Annotated[ReplicasForms, Discriminator(_replicas_form)]


class Config(Sizing):
    """An experiment of pagesim."""

    trace: Trace
    scheduling: SchedulingKeys = SchedulingKeys()
    durations: DurationKeys | None = None
    """A roofline where model and GPU are known, else a fixed 0.03 s."""
    replicas: ReplicasChoice | None = None
    """A number, or {count: N, routing: rule}; one replica as a default."""
    sweep: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}
    """Dotted keys and the values that each takes in turn; every combination runs."""
    seed: Annotated[Count, Field(ge=0)] = 0


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a config file, each key with the sentence that stands under it in the sources.

    pydantic would read them too, but in every run, at a tenth of the time that a start takes.
    """
    schema = Config.model_json_schema()
    described = {**schema["$defs"], "Config": schema, "Sizing": schema}
    _describe(described, __file__, "")
    for kind in _KINDS.values():
        _describe(described, kind.module.__file__, "Keys")
    return schema


def _describe(described: dict[str, Any], source: str, suffix: str) -> None:
    """Give the classes in a source file, whose names there lack the suffix, the sentences under their fields."""
    for node in ast.parse(Path(source).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name + suffix in described:
            properties = described[node.name + suffix]["properties"]
            for key, below in zip(node.body, node.body[1:]):
                if isinstance(key, ast.AnnAssign) and isinstance(below, ast.Expr):
                    properties[key.target.id]["description"] = " ".join(ast.literal_eval(below.value).split())
