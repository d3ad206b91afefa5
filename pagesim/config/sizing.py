"""Model, memory and max_model_len of a config → how many slots of KV memory there are."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from pagesim import catalog
from pagesim.case import Capacity
from pagesim.config.document import Path
from pagesim.config.schema import KvBytes, Sizing
from pagesim.core.units import ceil_div, format_bytes
from pagesim.errors import InputError

GPU_MEMORY_UTILIZATION = 0.92    # vLLM's default; it was 0.9 for years
ARENA_BLOCK_SLOTS = 16           # what a block is to a contiguous arena whose memory is given in blocks
_MOST_SLOTS = 2**53              # what JSON's readers and float64 count exactly


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
        self.gpu_total = _gpu_total(config, self.gpu)
        self.max_model_len: int | None = None
        self.kv_bytes_per_token: int | None = None
        self.slots: int | None = None
        with findings.at("max_model_len"):
            self.max_model_len = _max_model_len(config, self.model)
        with findings.at("model"):
            self.kv_bytes_per_token = self._kv_bytes_per_token()
        with findings.at("memory"):
            self.slots = self._slots()
        if config.max_model_len == "auto" and not findings:
            with findings.at("max_model_len"):
                self.max_model_len = self._longest_that_fits()

    def _kv_bytes_per_token(self) -> int | None:
        if isinstance(self.config.model, KvBytes):
            return self.config.model.kv_bytes_per_token
        if self.model is None or (self.max_model_len is None and self.config.max_model_len != "auto"):
            return None
        memory = self.config.memory
        return catalog.kv_bytes_per_token(
            self.model, memory.kv_cache_dtype, memory.tensor_parallel_size, self.max_model_len)

    def _slots(self) -> int | None:
        """Slots of all KV memory; None where it is in blocks of each pool's own size, or an error is known already."""
        memory = self.config.memory
        if self.model and (memory.pipeline_parallel_size or 1) > catalog.find_model(self.config.model).layers:
            raise InputError(f"pipeline_parallel_size {memory.pipeline_parallel_size} is more than the layers of "
                             f"{self.model.name}")
        if memory.kv_tokens is not None:
            return memory.kv_tokens
        if memory.num_gpu_blocks_override is not None:
            return None if memory.block_size is None else _slots_of(memory.num_gpu_blocks_override, memory.block_size)
        if self.config.model is None:
            raise InputError("memory in bytes needs a model, to know how many bytes a token takes; give model, or "
                             "kv_tokens")
        if self.kv_bytes_per_token is None:
            return None
        slots = self.kv_memory_bytes() // self.kv_bytes_per_token
        if slots == 0:
            raise InputError(f"memory of {self.kv_memory_bytes():,} bytes is less than one token's "
                             f"{self.kv_bytes_per_token:,}")
        return slots

    def kv_memory_bytes(self) -> int:
        """Bytes of KV memory, where memory is given in bytes or by a GPU."""
        memory = self.config.memory
        if memory.kv_memory is not None:
            return memory.kv_memory
        weights, other = self.weights_bytes(), memory.other or 0
        return catalog.kv_memory_bytes(self.gpu_total, self.gpu_memory_utilization, weights, other)

    @property
    def gpu_memory_utilization(self) -> float:
        return self.config.memory.gpu_memory_utilization or GPU_MEMORY_UTILIZATION

    def weights_bytes(self) -> int:
        memory = self.config.memory
        if memory.weights is not None:
            return memory.weights
        if (memory.pipeline_parallel_size or 1) > 1:
            raise InputError(f"pipeline_parallel_size {memory.pipeline_parallel_size}: what a stage weighs is not "
                             "known; give memory.weights, such as weights: 15GiB, of the GPU that holds most")
        if self.model is None:
            key = "gpu" if memory.gpu else "gpu_memory"
            raise InputError(f"{key} needs the size of the weights: name a model, or give memory.weights, such as "
                             "weights: 15GiB")
        return catalog.weight_bytes(self.model, memory.tensor_parallel_size)

    def _longest_that_fits(self) -> int:
        """What the model allows, or less: what the smallest of the allocators has room for."""
        sizes = [getattr(keys.spec(), "block_size", None) for keys in self.config.allocators]
        room = min(self.capacity(block_size).usable_slots for block_size in sizes)
        return room if self.max_model_len is None else min(room, self.max_model_len)

    def capacity(self, block_size: int | None) -> Capacity:
        """The capacity of a pool with blocks of ``block_size`` slots, or of an arena (None).

        vLLM's null block is of a pool alone: an arena has no use for one.
        """
        slots = self.slots
        if slots is None:
            slots = _slots_of(self.config.memory.num_gpu_blocks_override, block_size or ARENA_BLOCK_SLOTS)
        blocks = None if block_size is None else slots // block_size
        if blocks == 0:
            raise InputError(f"block_size {block_size} is more than the {slots:,} slots of KV memory; no block fits")
        if blocks and self.config.memory.null_block:
            blocks -= 1
            if blocks == 0:
                raise InputError(f"the {slots:,} slots of KV memory are one block of {block_size}, which is vLLM's "
                                 "null block; none is left")
        return Capacity(slots, self.kv_bytes_per_token, blocks, block_size)


def _gpu_total(config: Sizing, gpu: catalog.Gpu | None) -> catalog.Total | None:
    if gpu is not None:
        return gpu.total
    given = config.memory.gpu_memory
    return None if given is None else catalog.Total(given, f"{format_bytes(given)} of GPU memory")


def _slots_of(blocks: int, block_size: int) -> int:
    if blocks * block_size > _MOST_SLOTS:
        raise InputError(f"block_size {block_size} times {blocks} blocks are more slots than can be counted")
    return blocks * block_size


def _model(config: Sizing) -> catalog.Model | None:
    if not isinstance(config.model, str):
        return None
    model = catalog.served_in(catalog.find_model(config.model), config.memory.dtype)
    # A pool has as many blocks as the stage with the most layers has room for.
    return replace(model, layers=ceil_div(model.layers, config.memory.pipeline_parallel_size or 1))


def _max_model_len(config: Sizing, model: catalog.Model | None) -> int | None:
    """None where it is as long as fits, and no model says more."""
    longest = None if model is None else model.max_model_len
    if config.max_model_len == "auto":
        return longest
    if config.max_model_len is None and longest is None:
        raise InputError("max_model_len is missing, and no model says how long its sequences can be")
    if config.max_model_len is not None and longest is not None and config.max_model_len > longest:
        raise InputError(f"max_model_len {config.max_model_len} is more than the {longest} of {model.name}; lower it, "
                         "or give the model as {kv_bytes_per_token: N}, which has no limit")
    return config.max_model_len or longest
