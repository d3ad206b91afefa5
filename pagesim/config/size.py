"""How much KV memory there is and how many requests it holds at once under each rule, without a trace."""

from collections.abc import Iterator
from dataclasses import dataclass

from pagesim.allocators import contiguous
from pagesim.allocators.ask import Ask, Demand
from pagesim.allocators.holes import placed_size
from pagesim.case import Capacity
from pagesim.config.check import check, positioned
from pagesim.config.document import Document
from pagesim.config.load import raise_all
from pagesim.config.schema import Config
from pagesim.config.sizing import Findings, Sized
from pagesim.core.units import ceil_div, final_tokens
from pagesim.errors import InputError


@dataclass(frozen=True)
class Request:
    """The lengths of a typical request; ``max_tokens`` is its own output limit, None without one."""

    prompt_tokens: int
    output_tokens: int
    max_tokens: int | None = None

    @property
    def final_tokens(self) -> int:
        return final_tokens(self.prompt_tokens, self.output_tokens)


@dataclass(frozen=True)
class Reservation:
    """Slots that one rule takes for each request, and how many that lets in; with buddy, rounded to powers of two."""

    rule: str
    slots_each: int
    at_once: int
    at_once_buddy: int | None


@dataclass(frozen=True)
class Room:
    """KV memory as one allocator has it."""

    capacity: Capacity
    max_model_len: int

    @property
    def max_concurrency(self) -> float:
        """Full-length requests that fit at once, in tokens: capacity / max_model_len, as vLLM logs it."""
        return self.capacity.usable_slots / self.max_model_len


@dataclass(frozen=True)
class Size:
    """The answer: room in an arena and in each paged pool, and what each rule takes for ``request``.

    Bytes are of one GPU, None where the config does not say; ``gpu_bytes`` is the GPU's total, of which
    ``gpu_memory_utilization`` is used, ``other_bytes`` what is taken besides the weights.
    """

    model: str | None
    gpu: str | None
    max_model_len: int
    kv_memory_bytes: int | None
    gpu_bytes: int | None
    gpu_memory_utilization: float | None
    weights_bytes: int | None
    other_bytes: int | None
    null_block: bool
    arena: Room
    pools: tuple[Room, ...]
    request: Request
    reservations: tuple[Reservation, ...]


def size(document: Document, directory: str, request: Request | None = None) -> Size:
    """Size the model, memory and allocators of ``document``; its other keys may be missing.

    Without ``request`` one of 1,024 + 256 tokens is assumed, neither more than half of ``max_model_len``.

    Raises:
        ConfigError: something is wrong with the keys, each with its place.
        InputError: a request longer than ``max_model_len``.
    """
    config, sized, pools = _sized(document, directory)
    request = request or _typical(sized.max_model_len)
    if request.prompt_tokens + request.output_tokens > sized.max_model_len:
        raise InputError(f"a request of {request.prompt_tokens} + {request.output_tokens} tokens is longer than "
                         f"max_model_len {sized.max_model_len}")
    arena, by_gpu, memory = sized.capacity(None), sized.gpu_total is not None, config.memory
    return Size(
        model=sized.model.name if sized.model else None,
        gpu=sized.gpu.name if sized.gpu else None,
        max_model_len=sized.max_model_len,
        kv_memory_bytes=sized.kv_memory_bytes() if by_gpu or memory.kv_memory is not None else None,
        gpu_bytes=sized.gpu_total.num_bytes if by_gpu else None,
        gpu_memory_utilization=sized.gpu_memory_utilization if by_gpu else None,
        weights_bytes=sized.weights_bytes() if by_gpu else None,
        other_bytes=memory.other or 0 if by_gpu else None,
        null_block=bool(memory.null_block),
        arena=Room(arena, sized.max_model_len),
        pools=tuple(Room(pool, sized.max_model_len) for pool in pools),
        request=request,
        reservations=tuple(_reservations(arena, pools, sized.max_model_len, request)))


def _sized(document: Document, directory: str) -> tuple[Config, Sized, list[Capacity]]:
    """The config, its memory, and a capacity for each block size of its paged allocators."""
    data = {"trace": {"path": "not needed"}} | {key: value for key, value in document.data.items() if key != "sweep"}
    looked_at = Document(data, document.keys, document.values)
    config, problems = check(looked_at, Config, directory)
    raise_all([*document.problems, *problems])
    findings = Findings()
    sized = Sized(config, findings)
    pools: dict[int, Capacity] = {}
    sizes = [] if findings else [getattr(keys, "block_size", None) for keys in config.allocators]
    for number, block_size in enumerate(sizes):
        with findings.at("allocators", number):
            if block_size is not None:
                pools[block_size] = sized.capacity(block_size)
    raise_all(positioned(looked_at, path, message) for path, message in findings)
    return config, sized, list(pools.values())


def _typical(max_model_len: int) -> Request:
    return Request(min(1024, max(1, max_model_len // 2)), min(256, max(1, max_model_len // 2)))


def _reservations(arena: Capacity, pools: list[Capacity], max_model_len: int,
                  request: Request) -> Iterator[Reservation]:
    """One row for each reservation rule; a rule that grows has one at admission and one at its end."""
    for reserve in contiguous.RESERVES:
        for when, tokens in _moments(request) if reserve == "grow" else [("", request.prompt_tokens)]:
            slots, rounded = (_region_slots(contiguous.Contiguous(reserve, placement), max_model_len, request, tokens)
                              for placement in ("first_fit", "buddy"))
            # An arena of C slots, cut into powers of two, has C // n regions of n slots, where n is one of them.
            yield Reservation(f"contiguous {reserve}{when}", slots, arena.slots // slots, arena.slots // rounded)
    for pool in pools:
        for when, tokens in _moments(request):
            blocks = ceil_div(tokens, pool.block_size)
            yield Reservation(f"paged {pool.block_size}{when}", blocks * pool.block_size, pool.blocks // blocks, None)


def _moments(request: Request) -> list[tuple[str, int]]:
    return [(", at first", request.prompt_tokens), (", at its end", request.final_tokens)]


def _region_slots(spec: contiguous.Contiguous, max_model_len: int, request: Request, known: int) -> int:
    """Slots that the allocator takes for the request when it has ``known`` tokens."""
    memory = contiguous.make(spec, max_model_len, Demand(1, max_model_len, known, known, 1), None)
    ask = Ask(0, request.prompt_tokens, request.output_tokens, request.max_tokens or 0, known, 0, 0, 1, known)
    return placed_size(memory.holes, contiguous.reservation(memory, ask))
