"""A vLLM command line's flags as keys of a config."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pagesim.config.document import Document
from pagesim.config.overrides import Override
from pagesim.config.schema import SOURCES as MEMORY_SOURCES
from pagesim.config.vllm_command import Flag, flags_of
from pagesim.config.vllm_flags import (
    AUTO_LENGTH, DOES_NOTHING, IN_GIB, KEYS, OF_POOLS, PASSED_OVER, PASSED_OVER_SWITCHES, PREFIX_CACHES, REFUSED,
    REFUSED_SWITCHES, SOURCES, SWITCHES)
from pagesim.core.units import parse_count
from pagesim.errors import ConfigError


class Server(NamedTuple):
    """What a command line says: keys of a config, whether they give the KV memory, and what it says besides."""

    overrides: list[Override]
    gives_kv_memory: bool
    notes: list[str]


def vllm_server(command: str, document: Document) -> Server:
    """The flags of ``vllm serve MODEL --flag value …``, or ``python -m vllm.entrypoints.…``, as overrides.

    Flags mean what they mean to vLLM: a pool loses one block to its null block, ``--block-size`` goes to the paged
    allocators, which have a prefix cache unless ``--no-enable-prefix-caching`` is said, ``--swap-space 4`` is 4 GiB.
    Flags that cannot touch the KV cache are passed over, and named in a note.

    Raises:
        ConfigError: a flag that is not known here, that cannot be followed, or without its value.
    """
    flags = list(flags_of(command))
    sources = [flag for flag in flags if flag.name in SOURCES]
    given = _without_losers(flags, sources)
    overrides = [override for flag in given for override in _overrides(flag, document)]
    if not any(flag.name in PREFIX_CACHES for flag in flags):
        overrides += pool_overrides("prefix_cache", "vllm", "--from-vllm", document)
    if sources:
        overrides += _unset(document, KEYS[_strongest(sources)], sources[-1].label)
    if sources or not _has_its_own_pool(document):
        overrides.append(Override("memory.null_block", "true", "--from-vllm"))
    passed_over = dict.fromkeys(flag.dashes + flag.name for flag in flags if _is_passed_over(flag))
    notes = [f"note: --from-vllm: passed over, as the KV cache does not depend on it: {', '.join(passed_over)}"]
    return Server(overrides, bool(sources), notes if passed_over else [])


def _strongest(sources: Iterable[Flag]) -> str:
    return max((flag.name for flag in sources), key=SOURCES.index)


def _without_losers(flags: list[Flag], sources: list[Flag]) -> list[Flag]:
    """Without the flags that another beats: blocks and bytes beat a GPU's utilization, blocks beat bytes."""
    if not sources:
        return flags
    losers = {*SOURCES, "gpu-memory-utilization", "device-memory-utilization"} - {_strongest(sources)}
    return [flag for flag in flags if flag.name not in losers]


def _unset(document: Document, winner: str, label: str) -> Iterator[Override]:
    """The document's own memory gives way to what the command line says of it."""
    memory = document.data.get("memory")
    for key in memory if isinstance(memory, dict) else ():
        if key in (*MEMORY_SOURCES, "gpu_memory_utilization", "other") and f"memory.{key}" != winner:
            yield Override(f"memory.{key}", "null", label)


def _has_its_own_pool(document: Document) -> bool:
    """The document gives KV memory in its own words, in which all of it can be used."""
    memory = document.data.get("memory")
    return isinstance(memory, dict) and bool({"kv_memory", "kv_tokens", "num_gpu_blocks_override"} & memory.keys())


def _is_passed_over(flag: Flag) -> bool:
    positive = flag.name.removeprefix("no-")
    return flag.name in PASSED_OVER or positive in PASSED_OVER_SWITCHES or _is_refused_switched_off(flag) or (
        flag.name in DOES_NOTHING.get(flag.value, ()))


def _is_refused_switched_off(flag: Flag) -> bool:
    return flag.name.startswith("no-") and flag.name.removeprefix("no-") in REFUSED_SWITCHES


def _overrides(flag: Flag, document: Document) -> Iterator[Override]:
    name, value, label = flag.name, flag.value, flag.label
    if _is_passed_over(flag):
        return
    if name in REFUSED:
        raise ConfigError(f"--from-vllm: {flag.dashes}{name}: {REFUSED[name]}")
    if name in SWITCHES:
        yield Override(*SWITCHES[name], label)
    elif name in KEYS:
        yield Override(KEYS[name], _in_our_words(flag), label)
    elif name in IN_GIB:
        yield Override(IN_GIB[name], f"{value}GiB", label)
    elif name in PREFIX_CACHES:
        yield from pool_overrides("prefix_cache", PREFIX_CACHES[name], label, document)
    elif name in OF_POOLS:
        yield from pool_overrides(OF_POOLS[name], value, label, document)
    elif value == "fp8":   # --quantization
        yield Override("memory.dtype", "fp8", label)
    else:
        raise ConfigError(f"{label}: only fp8 says how large the weights are; leave it out and give --set "
                          "memory.weights=SIZE, or the config.json of the checkpoint, with its index beside it")


def _in_our_words(flag: Flag) -> str:
    if flag.name == "max-model-len" and flag.value in AUTO_LENGTH:
        return "auto"
    if flag.name == "kv-cache-memory-bytes":   # 25g is 25·10⁹ to vLLM, and a size without its unit here
        return str(parse_count(flag.value))
    return flag.value


def pool_overrides(key: str, value: str, label: str, document: Document) -> Iterator[Override]:
    """``key`` for every paged allocator of the document."""
    for number, allocator in enumerate(document.data["allocators"]):
        if isinstance(allocator, dict) and allocator.get("kind") == "paged":
            yield Override(f"allocators.{number}.{key}", value, label)
