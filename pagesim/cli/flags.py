"""Flags that say of model, memory and server what a config would, for the commands that do without one."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pagesim.config.question import Said

Model = Annotated[str | None, typer.Option(help="Name in the catalogue, or the path of a config.json.")]
Gpu = Annotated[str | None, typer.Option(help=(
    "GPU of the catalogue; KV memory is what utilization and weights leave of it."))]
KvMemory = Annotated[str | None, typer.Option(metavar="SIZE", help="KV memory itself, such as 12GiB.")]
MaxModelLen = Annotated[str | None, typer.Option(metavar="N", help=(
    "Longest prompt and output together, or auto for the most that fits; the model's own as a default."))]
FromVllm = Annotated[str | None, typer.Option(metavar="FLAGS", help=(
    "A vLLM server's command line (vllm serve, docker run, a container's args: in YAML), or its flags, such as "
    "\"--max-model-len 8192\"."))]


def said(model: str | None, gpu: str | None, kv_memory: str | None, max_model_len: str | None, from_vllm: str | None,
         overrides: list[str]) -> "Said":
    from pagesim.config.question import Said

    options = {"model": model, "memory.gpu": gpu, "memory.kv_memory": kv_memory, "max_model_len": max_model_len}
    return Said(options, tuple(overrides), from_vllm)


def written(said: "Said") -> list[str]:
    """The words of a command line that says the same."""
    words = [word for key, value in said.given.items()
             for word in (f"--{key.removeprefix('memory.').replace('_', '-')}", value)]
    words += [] if said.from_vllm is None else ["--from-vllm", said.from_vllm]
    return words + [word for each in said.overrides for word in ("--set", each)]
