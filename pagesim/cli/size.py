"""``pagesim size``: how much KV memory there is, and how many requests fit, without a trace."""

import json as jsonlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagesim.cli import flags
from pagesim.errors import InputError

if TYPE_CHECKING:
    from pagesim.config.document import Document
    from pagesim.config.question import Said
    from pagesim.config.size import Request, Room, Size
    from pagesim.report.tables import Sheet


def size(
    config: Annotated[Path | None, typer.Argument(help=(
        "An experiment: its model, memory, max_model_len and allocators count, the sweep does not."))] = None,
    model: flags.Model = None,
    gpu: flags.Gpu = None,
    gpu_memory: Annotated[str | None, typer.Option(metavar="SIZE", help=(
        "Memory of a GPU that the catalogue does not have, as CUDA reports it, such as 79.18GiB."))] = None,
    kv_memory: flags.KvMemory = None,
    kv_tokens: Annotated[str | None, typer.Option(metavar="N", help="KV memory in token slots.")] = None,
    max_model_len: flags.MaxModelLen = None,
    tensor_parallel_size: Annotated[str | None, typer.Option(metavar="N", help=(
        "GPUs that share each layer; what is sized is one of them."))] = None,
    kv_cache_dtype: Annotated[str | None, typer.Option(metavar="DTYPE", help="auto, bf16, fp16 or fp8.")] = None,
    block_size: Annotated[str | None, typer.Option(metavar="N", help="Of the paged pools.")] = None,
    prompt_tokens: Annotated[int | None, typer.Option(min=1, help="Prompt of a typical request.")] = None,
    output_tokens: Annotated[int | None, typer.Option(min=1, help="Its output.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Its limit, for reserve: max_tokens.")] = None,
    from_vllm: flags.FromVllm = None,
    overrides: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help=(
        "Any key, such as memory.gpu_memory_utilization=0.9; may be repeated."))] = [],
    list_known: Annotated[bool, typer.Option("--list", help="List the models and GPUs of the catalogue.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Write one JSON object and nothing else.")] = False,
) -> None:
    """Blocks, tokens and concurrency of a model on a GPU, and what each reservation rule would allow."""
    from pagesim.cli.console import warn
    from pagesim.config.question import Said
    from pagesim.config.size import size as size_of

    if list_known:
        _list(json)
        return
    options = {"model": model, "memory.gpu": gpu, "memory.gpu_memory": gpu_memory, "memory.kv_memory": kv_memory,
               "memory.kv_tokens": kv_tokens, "max_model_len": max_model_len,
               "memory.tensor_parallel_size": tensor_parallel_size, "memory.kv_cache_dtype": kv_cache_dtype}
    document, remarks = _document(config, Said(options, tuple(overrides), from_vllm, block_size))
    answer = size_of(document, str(config.parent) if config else "", _request(prompt_tokens, output_tokens, max_tokens))
    if json:
        print(jsonlib.dumps(_as_dict(answer), indent=2, allow_nan=False))
    else:
        _print(answer)
    warn([*remarks, *_warnings(answer)])


def _list(json: bool) -> None:
    from pagesim.cli.console import print_tables
    from pagesim.cli.size_list import list_sheets, listed

    if json:
        print(jsonlib.dumps(listed(), indent=2, allow_nan=False))
    else:
        print_tables(list_sheets())


def _document(config: Path | None, said: "Said") -> "tuple[Document, list[str]]":
    """What is to be sized, and what was passed over on the way."""
    from pagesim.config.load import empty, read
    from pagesim.config.question import followed, gives_memory

    document, remarks = followed(read(config) if config else empty("pagesim size"), said)
    if config is None and not gives_memory(document):
        raise InputError("how much memory is there? Give --gpu NAME (--list has them), --gpu-memory SIZE, --kv-memory "
                         "SIZE or --kv-tokens N")
    return document, remarks


def _request(prompt_tokens: int | None, output_tokens: int | None, max_tokens: int | None) -> "Request | None":
    from pagesim.config.size import Request

    if prompt_tokens is None and output_tokens is None and max_tokens is None:
        return None
    output_tokens = output_tokens or 256
    if max_tokens is not None and max_tokens < output_tokens:
        raise InputError(f"--max-tokens {max_tokens} is below the output of {output_tokens} tokens; give "
                         "--output-tokens too")
    return Request(prompt_tokens or 1024, output_tokens, max_tokens)


def _as_dict(answer: "Size") -> dict:
    from dataclasses import asdict

    rooms = {"arena": _room(answer.arena), "pools": [_room(pool) for pool in answer.pools]}
    return {"schema_version": 1} | asdict(answer) | rooms


def _room(room: "Room") -> dict:
    capacity = room.capacity
    return {
        "slots": capacity.slots,
        "usable_slots": capacity.usable_slots,
        "remainder_slots": capacity.slots - capacity.usable_slots,
        "bytes": capacity.bytes,
        "kv_bytes_per_token": capacity.kv_bytes_per_token,
        "blocks": capacity.blocks,
        "block_size": capacity.block_size,
        "max_concurrency": room.max_concurrency,
        "fits_one": room.max_concurrency >= 1}


def _print(answer: "Size") -> None:
    from pagesim.cli.console import print_tables, say
    from pagesim.report import notes

    rooms = answer.pools or (answer.arena,)
    say([_source_line(answer), *_gpu_lines(answer), *notes.capacity_lines(rooms), *_vllm_note(answer)])
    print_tables([_sheet(answer)])


def _warnings(answer: "Size") -> list[str]:
    from pagesim.report import notes

    return notes.size_warnings(answer.pools or (answer.arena,))


def _source_line(answer: "Size") -> str:
    from pagesim.core.units import format_bytes

    per_token = answer.arena.capacity.kv_bytes_per_token
    parts = [answer.model or "no model"]
    parts += [] if per_token is None else [f"{per_token:,} bytes of KV per token on each GPU"]
    if answer.gpu_bytes is None and answer.kv_memory_bytes is not None:
        parts.append(f"KV memory {format_bytes(answer.kv_memory_bytes)}")
    return "; ".join(parts)


def _gpu_lines(answer: "Size") -> list[str]:
    """How a GPU's memory comes to KV memory, and what of it is not counted."""
    from pagesim.catalog import gpu
    from pagesim.core.units import format_bytes
    from pagesim.report.notes import NOT_COUNTED

    if answer.gpu_bytes is None:
        return []
    total = gpu(answer.gpu).total.words if answer.gpu else f"{format_bytes(answer.gpu_bytes)} of GPU memory"
    other = f" − other {format_bytes(answer.other_bytes)}" if answer.other_bytes else ""
    line = (f"KV memory {format_bytes(answer.kv_memory_bytes)} = {answer.gpu_memory_utilization:g} × {total} − weights "
            f"{format_bytes(answer.weights_bytes)}{other}")
    return [line] if answer.other_bytes else [line, f"at most: {NOT_COUNTED}"]


def _vllm_note(answer: "Size") -> list[str]:
    if not answer.pools:
        return []
    blocks = answer.pools[0].capacity.blocks
    if answer.null_block:
        return [f"one block is set aside as vLLM's null block: of num_gpu_blocks {blocks + 1:,} there, {blocks:,} are "
                "usable, and counted here"]
    return [f"vLLM counts its null block too: num_gpu_blocks {blocks + 1:,} there is {blocks:,} here"]


def _sheet(answer: "Size") -> "Sheet":
    from pagesim.report.tables import Sheet

    request = answer.request
    limit = "" if request.max_tokens is None else f", max_tokens {request.max_tokens:,}"
    title = (f"Requests at once, each of {request.prompt_tokens:,} prompt and {request.output_tokens:,} output tokens"
             f"{limit}")
    rows = tuple((row.rule, f"{row.slots_each:,}", f"{row.at_once:,}",
                  "" if row.at_once_buddy is None else f"{row.at_once_buddy:,}") for row in answer.reservations)
    return Sheet(title, ("rule", "slots each", "requests at once", "with buddy"), rows)
