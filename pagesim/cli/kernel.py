"""``pagesim kernel``: simulated block tables through real paged attention, every output row checked."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagesim.cli.console import say
from pagesim.cli.kernel_report import Outcome, headlines, show
from pagesim.cli.shape import attention_shape
from pagesim.errors import InputError, MissingExtra

if TYPE_CHECKING:
    from types import ModuleType

    from pagesim.case import Case
    from pagesim.core.blocktables import BlockTables
    from pagesim.kernels.harness.contents import Model
    from pagesim.kernels.harness.corruption import Corruption
    from pagesim.kernels.harness.replay import Replay, Row
    from pagesim.kernels.harness.speed import Speed

_CPU_SEQUENCES = 4
_CPU_PREFILL_TOKENS = 16
_GPU_PREFILL_TOKENS = 256


def kernel(
    source: Annotated[Path, typer.Argument(metavar="RUN|SNAPSHOT|CONFIG", help=(
        "A run folder, whose snapshot is read if it has one, or a config, which is simulated, or a snapshot of block "
        "tables (.npz)."))],
    case: Annotated[str | None, typer.Option(metavar="NAME", help=(
        "The case of a config or run; by default its only one, or its only paged one."))] = None,
    overrides: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help=(
        "Replace one key of the config; may be repeated."))] = [],
    when: Annotated[str | None, typer.Option("--snapshot", metavar="MOMENT", help=(
        "peak (default), end, a step's number, or a time such as 12.5s."))] = None,
    steps: Annotated[int, typer.Option(min=1, help="Replay so many steps from the moment on.")] = 1,
    sequences: Annotated[int | None, typer.Option(min=1, help=(
        "Take so many sequences; by default all on a GPU, 4 in the interpreter."))] = None,
    heads: Annotated[str | None, typer.Option(metavar="Q/KV", help=(
        "Query and KV heads; by default the model's."))] = None,
    head_dim: Annotated[int | None, typer.Option(min=1, max=256, help="By default the model's.")] = None,
    layers: Annotated[int, typer.Option(min=1, help="Layers, each with a pool of its own.")] = 1,
    dtype: Annotated[str, typer.Option(metavar="bf16|fp16|fp32", help="Of queries, keys and values.")] = "bf16",
    kv_cache_dtype: Annotated[str, typer.Option(metavar="auto|fp8", help="fp8 is e4m3 with a scale.")] = "auto",
    layout: Annotated[str, typer.Option(metavar="NHD|HND", help="Order of a block's dimensions.")] = "NHD",
    prefill_tokens: Annotated[int | None, typer.Option(min=0, help=(
        "Last new tokens of a sequence that go through the prefill kernel; by default 256, or 16 in the interpreter."
    ))] = None,
    corrupt: Annotated[str | None, typer.Option(metavar="SEQ:BLOCK", help=(
        "Then exchange this table entry with another sequence's, and show whose outputs change."))] = None,
    seed: Annotated[int, typer.Option(help="Of queries, keys and values.")] = 0,
    device: Annotated[str, typer.Option(metavar="auto|cuda|cpu", help="cpu is Triton's interpreter.")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Write one JSON object and nothing else.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Only the result.")] = False,
) -> None:
    """Carry simulated block tables through real paged attention and check every output row."""
    device = _choose_device(device)
    from pagesim.kernels.harness.choice import choose

    entry = _place_and_entry(corrupt)
    tables, snapshot = _tables(source, case, tuple(overrides), when, steps, quiet=quiet)
    if not any(step.num_seqs for step in tables):
        raise InputError(f"{source}: no sequence runs at that moment; choose another with --snapshot")
    model = _model(tables[0].origin.get("model"), heads, head_dim, layers, dtype, kv_cache_dtype, layout)
    count = sequences or (max(step.num_seqs for step in tables) if device == "cuda" else _CPU_SEQUENCES)
    if prefill_tokens is None:
        prefill_tokens = _GPU_PREFILL_TOKENS if device == "cuda" else _CPU_PREFILL_TOKENS
    chosen, places = choose(tables, count, entry)
    if not quiet and not json:
        say(headlines(tables, chosen, snapshot, model, device))
    rows, speed, corruption = _run(chosen, places, model, device, prefill_tokens, entry, seed, quiet=quiet)
    outcome = Outcome(tables[0].origin, snapshot, rows, speed, corruption, _left_out(tables))
    show(outcome, json=json)
    raise typer.Exit(0 if outcome.passed and outcome.corruption is None else 1)


def _choose_device(wanted: str) -> str:
    """``cuda`` or ``cpu``; triton must be told of its interpreter before it is imported."""
    if wanted not in ("auto", "cuda", "cpu"):
        raise InputError(f"--device must be auto, cuda or cpu, got {wanted!r}")
    try:
        import torch

        device = "cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu"
        if device == "cpu":
            os.environ["TRITON_INTERPRET"] = "1"
        import numpy
        import triton
    except ImportError as error:
        raise MissingExtra(f"kernel needs torch and triton ({error}): pip install 'pagesim[kernel]'") from None
    if wanted == "cuda" and device == "cpu":
        raise MissingExtra("--device cuda needs a CUDA GPU and finds none; --device cpu runs Triton's interpreter")
    if device == "cpu" and _version(triton) < (3, 7) and _version(numpy) >= (2, 4):
        raise MissingExtra(f"the interpreter of triton {triton.__version__} does not work with numpy "
                           f"{numpy.__version__}: pip install 'numpy<2.4', or a torch that brings triton 3.7")
    return device


def _version(module: "ModuleType") -> tuple[int, ...]:
    return tuple(map(int, module.__version__.split(".")[:2]))


def _place_and_entry(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    place, _, entry = text.partition(":")
    if not (place.isdigit() and entry.isdigit()):
        raise InputError("--corrupt must be a sequence's place and a table entry, both from 0, such as 3:7; "
                         f"got {text!r}")
    return int(place), int(entry)


def _tables(source: Path, case: str | None, overrides: tuple[str, ...], when: str | None, steps: int, *,
            quiet: bool) -> "tuple[list[BlockTables], Path | None]":
    """Tables of consecutive steps, and the snapshot that they were read from; None where they were simulated."""
    from pagesim.core.blocktables import load

    if source.suffix == ".npz":
        if steps > 1 or overrides or (case, when) != (None, None):
            raise InputError(f"{source} is a snapshot of one step; --steps, --snapshot, --case and --set need the "
                             "config or run")
        return [load(source)], source
    from pagesim.cli.first_use import compile_first
    from pagesim.experiment.snapshots import consecutive, moment

    wanted = moment(when or "peak")
    chosen, folder = _case(source, case, overrides)
    if folder is not None and steps == 1 and not overrides:
        snapshot = folder / f"snapshot-{wanted.name}.npz"
        if snapshot.exists():
            return [load(snapshot)], snapshot
    compile_first([chosen.allocator], quiet=quiet)
    found = list(consecutive(chosen, wanted, steps))
    if len(found) < steps and not quiet:
        print(f"pagesim: the run ends after {len(found)} of {steps} steps", file=sys.stderr)
    return found, None


def _case(source: Path, name: str | None, overrides: tuple[str, ...]) -> "tuple[Case, Path | None]":
    """The case of a config, or of a run folder, whose resolved config gives the same run again, and its folder."""
    from pagesim.config import load

    configs = [source]
    if source.is_dir():
        configs = sorted(source.glob("cases/*/config.yaml")) or [source / "config.yaml"]
    cases = [(case, config.parent) for config in configs for case in load(config, overrides).cases]
    if name is None:
        fitting = cases if len(cases) == 1 else [each for each in cases if each[0].capacity.block_size is not None]
    else:
        fitting = [each for each in cases if each[0].name == name]
    if len(fitting) != 1:
        raise InputError(f"{source}: choose one case with --case: {', '.join(repr(case.name) for case, _ in cases)}")
    case, folder = fitting[0]
    return case, folder if source.is_dir() else None


def _model(known: dict | None, heads: str | None, head_dim: int | None, layers: int, dtype: str, kv_cache_dtype: str,
           layout: str) -> "Model":
    import torch

    from pagesim.kernels.cache import LAYOUTS
    from pagesim.kernels.harness.contents import DTYPES, Model

    for option, value, allowed in (("--dtype", dtype, DTYPES), ("--kv-cache-dtype", kv_cache_dtype, ("auto", "fp8")),
                                   ("--layout", layout, LAYOUTS)):
        if value not in allowed:
            raise InputError(f"{option} must be one of {', '.join(allowed)}, got {value!r}")
    shape = attention_shape(known, heads, head_dim)
    cache_dtype = DTYPES[dtype] if kv_cache_dtype == "auto" else torch.float8_e4m3fn
    return Model(shape["num_q_heads"], shape["num_kv_heads"], shape["head_dim"], layers, DTYPES[dtype], cache_dtype,
                 layout, shape.get("latent_dim"))


def _left_out(tables: "list[BlockTables]") -> list[str]:
    """What the model's own attention does to these sequences that the kernels are not asked to do here."""
    from pagesim.catalog import find_model

    known = tables[0].origin.get("model")
    if known is None:
        return []
    try:
        model = find_model(known["name"])
    except InputError:   # tables from elsewhere
        return ["soft cap, window, sinks or ALiBi, should it have any: the model is not known here"]
    return model.beyond_plain_attention(max(int(step.lengths.max()) for step in tables if step.num_seqs))


def _run(tables: "list[BlockTables]", places: list[list[int]], model: "Model", device: str, prefill_tokens: int,
         entry: tuple[int, int] | None, seed: int, *,
         quiet: bool) -> "tuple[list[Row], Speed | None, Corruption | None]":
    """Replay the steps; sequences are named by their places before some were chosen."""
    from pagesim.kernels.harness.replay import Replay

    replay = Replay(tables, model, device, prefill_tokens=prefill_tokens, seed=seed)
    rows = []
    for number, step in enumerate(tables):
        found = replay.step(step)
        rows += [replace(row, where=(places[number][row.where[0]], *row.where[1:])) if row.where else row
                 for row in found]
        if not quiet and len(tables) > 1:
            print(f"step {number + 1} of {len(tables)}: {step.num_seqs} sequences, "
                  f"{'right' if all(row.verdict.passed for row in found) else 'WRONG'}", file=sys.stderr)
    speed = None
    if device == "cuda" and all(row.verdict.passed for row in rows):  # no time for what is wrong
        from pagesim.kernels.harness.speed import time_decode

        speed = time_decode(replay)
    return rows, speed, None if entry is None else _corruption(replay, tables[-1], places[-1], entry)


def _corruption(replay: "Replay", tables: "BlockTables", places: list[int], entry: tuple[int, int]) -> "Corruption":
    from pagesim.kernels.harness.corruption import corrupt

    if entry[0] not in places:
        raise InputError(f"there is no sequence {entry[0]} to corrupt among the {len(places)} that are taken")
    found = corrupt(replay, tables, places.index(entry[0]), entry[1])
    other = None if found.other_place is None else places[found.other_place]
    return replace(found, place=entry[0], other_place=other, changed=[places[i] for i in found.changed],
                   unchanged=[places[i] for i in found.unchanged])
