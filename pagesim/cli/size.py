"""``pagesim size``: how much KV memory there is, and how many requests fit, without a trace."""

import json as jsonlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagesim.errors import InputError

if TYPE_CHECKING:
    from pagesim.config.document import Document
    from pagesim.config.size import Request, Room, Size
    from pagesim.report.tables import Sheet


def size(
    config: Annotated[Path | None, typer.Argument(help=(
        "An experiment: its model, memory, max_model_len and allocators count, the sweep does not."))] = None,
    model: Annotated[str | None, typer.Option(help="Name in the catalogue, or the path of a config.json.")] = None,
    gpu: Annotated[str | None, typer.Option(help=(
        "GPU of the catalogue; KV memory is what utilization and weights leave of it."))] = None,
    kv_memory: Annotated[str | None, typer.Option(metavar="SIZE", help="KV memory itself, such as 12GiB.")] = None,
    kv_tokens: Annotated[str | None, typer.Option(metavar="N", help="KV memory in token slots.")] = None,
    max_model_len: Annotated[str | None, typer.Option(metavar="N", help=(
        "Longest prompt and output together; the model's own as a default."))] = None,
    block_size: Annotated[str | None, typer.Option(metavar="N", help="Of the paged pools.")] = None,
    prompt_tokens: Annotated[int | None, typer.Option(min=1, help="Prompt of a typical request.")] = None,
    output_tokens: Annotated[int | None, typer.Option(min=1, help="Its output.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Its limit, for reserve: max_tokens.")] = None,
    from_vllm: Annotated[str | None, typer.Option(metavar="FLAGS", help=(
        "A vLLM command line's flags, such as \"--max-model-len 8192\"."))] = None,
    overrides: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help=(
        "Any key, such as memory.tensor_parallel_size=2; may be repeated."))] = [],
    json: Annotated[bool, typer.Option("--json", help="Write one JSON object and nothing else.")] = False,
) -> None:
    """Blocks, tokens and concurrency of a model on a GPU, and what each reservation rule would allow."""
    from pagesim.config.size import size as size_of

    options = {"model": model, "memory.gpu": gpu, "memory.kv_memory": kv_memory, "memory.kv_tokens": kv_tokens,
               "max_model_len": max_model_len}
    given = {key: value for key, value in options.items() if value is not None}
    document = _document(config, given, block_size, from_vllm, overrides)
    answer = size_of(document, str(config.parent) if config else "", _request(prompt_tokens, output_tokens, max_tokens))
    if json:
        print(jsonlib.dumps(_as_dict(answer), indent=2, allow_nan=False))
    else:
        _print(answer)


def _document(config: Path | None, options: dict[str, str], block_size: str | None, from_vllm: str | None,
              overrides: list[str]) -> "Document":
    from pagesim.config.load import empty, read
    from pagesim.config.overrides import Override, assignment, overridden
    from pagesim.config.vllm import block_size_overrides, vllm_overrides

    document = read(config) if config else empty("pagesim size")
    given = vllm_overrides(from_vllm, document) if from_vllm else []
    given += [Override(key, value, f"--{key.removeprefix('memory.').replace('_', '-')} {value}")
              for key, value in options.items()]
    given += block_size_overrides(block_size, f"--block-size {block_size}", document) if block_size else []
    return overridden(document, [*given, *map(assignment, overrides)])


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
    from pagesim.cli.console import print_tables, say, warn
    from pagesim.experiment import notes

    rooms = answer.pools or (answer.arena,)
    say([_source_line(answer), *notes.capacity_lines(rooms), *_vllm_note(answer)])
    print_tables([_sheet(answer)])
    warn(notes.size_warnings(rooms))


def _source_line(answer: "Size") -> str:
    from pagesim.core.units import format_bytes

    per_token = answer.arena.capacity.kv_bytes_per_token
    parts = [answer.model or "no model"]
    parts += [] if per_token is None else [f"{per_token:,} bytes of KV per token on each GPU"]
    parts += [] if answer.gpu is None else [f"{answer.gpu}, weights {format_bytes(answer.weights_bytes)}"]
    parts += [] if answer.kv_memory_bytes is None else [f"KV memory {format_bytes(answer.kv_memory_bytes)}"]
    return "; ".join(parts)


def _vllm_note(answer: "Size") -> list[str]:
    if not answer.pools:
        return []
    blocks = answer.pools[0].capacity.blocks
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
