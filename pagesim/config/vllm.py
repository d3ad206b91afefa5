"""A vLLM command line's flags as keys of a config."""

import shlex
from collections.abc import Iterator
from difflib import get_close_matches

from pagesim.config.document import Document
from pagesim.config.overrides import Override
from pagesim.errors import ConfigError

_KEYS = {
    "model": "model",
    "max-model-len": "max_model_len",
    "seed": "seed",
    "gpu-memory-utilization": "memory.gpu_memory_utilization",
    "tensor-parallel-size": "memory.tensor_parallel_size",
    "tp": "memory.tensor_parallel_size",
    "kv-cache-dtype": "memory.kv_cache_dtype",
    "dtype": "memory.dtype",
    "num-gpu-blocks-override": "memory.num_gpu_blocks_override",
    "kv-cache-memory-bytes": "memory.kv_memory",
    "max-num-seqs": "scheduling.max_num_seqs",
    "max-num-batched-tokens": "scheduling.max_num_batched_tokens",
    "preemption-mode": "scheduling.preemption"}
_IN_GIB = {"swap-space": "scheduling.swap_space"}
_SWITCHES = {"enable-chunked-prefill": ("scheduling.chunked_prefill", "true"),
             "no-enable-chunked-prefill": ("scheduling.chunked_prefill", "false")}
_SOURCES = {"num-gpu-blocks-override", "kv-cache-memory-bytes"}  # vLLM lets these win over gpu-memory-utilization
_BLOCK_SIZE = "block-size"
_QUANTIZATION = "quantization"
# Of no consequence for KV memory; the switches among them take no value.
_WITHOUT_EFFECT = {"host", "port", "served-model-name", "tokenizer", "api-key", "download-dir", "load-format",
                   "chat-template", "revision"}
_SWITCHES_WITHOUT_EFFECT = {"trust-remote-code", "disable-log-requests", "disable-log-stats", "enforce-eager",
                            "no-enable-prefix-caching"}
_EVERY = (*_KEYS, *_IN_GIB, *_SWITCHES, _BLOCK_SIZE, _QUANTIZATION, *_WITHOUT_EFFECT, *_SWITCHES_WITHOUT_EFFECT)


def vllm_overrides(command: str, document: Document) -> list[Override]:
    """The flags of ``vllm serve MODEL --flag value …``, or ``python -m vllm.entrypoints.…``, as overrides.

    ``--block-size`` goes to its paged allocators.  Sizes mean what they mean to vLLM: ``--swap-space 4`` is 4 GiB,
    ``--kv-cache-memory-bytes`` is in bytes.

    Raises:
        ConfigError: a flag that is not known here, or without its value.
    """
    flags = dict(_flags(command))
    if _SOURCES & flags.keys():
        flags.pop("gpu-memory-utilization", None)
    return [override for flag, (value, label) in flags.items() for override in _overrides(flag, value, label, document)]


def _flags(command: str) -> Iterator[tuple[str, tuple[str | None, str]]]:
    """Flags with their values and how they were written."""
    try:
        words = shlex.split(command.replace("\\\n", " "))  # lines as a shell continues them
    except ValueError as error:
        raise ConfigError(f"--from-vllm: {error} in {command!r}") from None
    begins = [at for at, word in enumerate(words, 1) if word == "serve" or word.startswith("vllm.entrypoints.")]
    words = words[begins[0] :] if begins else words
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            yield "model", (word, f"--from-vllm {word}")
            continue
        name, equals, value = word.lstrip("-").partition("=")
        flag = name.replace("_", "-")
        if flag not in _EVERY:
            near = get_close_matches(flag, _EVERY, n=1)
            taken = ", --".join((*_KEYS, *_IN_GIB, *_SWITCHES, _BLOCK_SIZE))
            hint = f"did you mean --{near[0]}?" if near else f"taken are --{taken}"
            raise ConfigError(f"--from-vllm: unknown flag --{flag}; {hint}")
        if flag in _SWITCHES or flag in _SWITCHES_WITHOUT_EFFECT:
            yield flag, (None, f"--from-vllm --{flag}")
            continue
        if not equals and (not words or words[0].startswith("--")):
            raise ConfigError(f"--from-vllm: --{flag} needs a value")
        value = value if equals else words.pop(0)
        yield flag, (value, f"--from-vllm --{flag} {value}")


def _overrides(flag: str, value: str | None, label: str, document: Document) -> Iterator[Override]:
    if flag in _SWITCHES:
        yield Override(*_SWITCHES[flag], label)
    elif flag in _KEYS:
        yield Override(_KEYS[flag], value, label)
    elif flag in _IN_GIB:
        yield Override(_IN_GIB[flag], f"{value}GiB", label)
    elif flag == _BLOCK_SIZE:
        yield from block_size_overrides(value, label, document)
    elif flag == _QUANTIZATION and value == "fp8":
        yield Override("memory.dtype", "fp8", label)
    elif flag == _QUANTIZATION:
        raise ConfigError(f"{label}: only fp8 says how large the weights are; leave it out and give --set "
                          "memory.weights=SIZE")


def block_size_overrides(value: str, label: str, document: Document) -> Iterator[Override]:
    """``block_size`` for every paged allocator of the document."""
    for number, allocator in enumerate(document.data["allocators"]):
        if isinstance(allocator, dict) and allocator.get("kind") == "paged":
            yield Override(f"allocators.{number}.block_size", value, label)
