"""``pagesim bench-kernel``: what decoding over paged memory costs on this GPU."""

import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagesim.cli.extras import require
from pagesim.cli.shape import attention_shape
from pagesim.errors import InputError

if TYPE_CHECKING:
    from pagesim.core.blocktables import BlockTables
    from pagesim.kernels.harness.bench import Case
    from pagesim.kernels.harness.measurement import Row
    from pagesim.kernels.harness.workloads import Workload

_DEFAULT_WORKLOADS = ("W1", "W2", "W3", "W4", "W5")


class Format(str, Enum):
    table = "table"
    json = "json"
    csv = "csv"


def bench_kernel(
    sources: Annotated[list[Path], typer.Argument(metavar="[CONFIG|SNAPSHOT]...", help=(
        "Snapshots of block tables (.npz), or configs, each case of which is simulated up to --snapshot. "
        "Without any, the built-in batches W1 to W5."))] = [],
    workload: Annotated[list[str], typer.Option("--workload", metavar="NAME", help=(
        "A built-in batch: W1 to W5; R1 to R5 are ragged; W1q4; b1x128, b1x4k, b8x512, b4x1k, b4x4k, b16x1k; S1 to S3 "
        "share a prefix, T1 a prompt and documents; P1 and P4 are prefill; M1 to M5 of DeepSeek-V3's latents, M4 and "
        "M5 of a GPU of eight; repeatable."
    ))] = [],
    kernel: Annotated[list[str], typer.Option("--kernel", metavar="NAME", help=(
        "ours (default), general, gather+sdpa, sdpa, sdpa-flash, flex, flashinfer, flashinfer-batch, flash-attention, "
        "cudnn, and of latents flashmla, flashinfer-mla; repeatable."))] = [],
    tables: Annotated[list[str], typer.Option("--tables", metavar="KIND", help=(
        "contiguous, simulated, sorted, shuffled; same and repeats are unreal and show what such a measurement hides; "
        "repeatable. Default: contiguous and shuffled, of a snapshot simulated too."))] = [],
    block_size: Annotated[list[int], typer.Option("--block-size", min=1, max=4096, help=(
        "Tokens of a block; repeatable. Default: the snapshot's, or 16, of M1 to M5 64."))] = [],
    layout: Annotated[list[str], typer.Option("--layout", metavar="NHD|HND", help=(
        "Order of a block's dimensions; repeatable."))] = [],
    dtype: Annotated[str, typer.Option(metavar="bf16|fp16|fp32|fp8", help=(
        "Of queries and cache; fp8 is a cache in e4m3 with scales, under queries in bf16."))] = "bf16",
    when: Annotated[str | None, typer.Option("--snapshot", metavar="MOMENT", help=(
        "Of a config: peak (default), end, a step's number, or a time such as 12.5s."))] = None,
    overrides: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help=(
        "Replace one key of a config; may be repeated."))] = [],
    heads: Annotated[str | None, typer.Option(metavar="Q/KV", help=(
        "Query and KV heads of a snapshot; by default its model's."))] = None,
    head_dim: Annotated[int | None, typer.Option(min=1, max=256, help="By default the model's.")] = None,
    filter: Annotated[str, typer.Option("--filter", metavar="TEXT", help="Only cases whose key contains this.")] = "",
    repeat: Annotated[int, typer.Option(min=1, help="Graph replays whose median is taken.")] = 15,
    seed: Annotated[int, typer.Option(help="Of contents and tables.")] = 0,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="DIR", help=(
        "Write rows.jsonl, rows.csv, bench.png and bench.json here; a config's durations: {kind: measured, path: "
        "bench.json} reads the last."))] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Keep rows that an earlier run into DIR measured.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cases and stop.")] = False,
    format: Annotated[Format, typer.Option(help="What is written to stdout.")] = Format.table,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Only the result.")] = False,
) -> None:
    """Measure paged decode on this GPU: block sizes × tables × kernels, each checked before it is timed."""
    require("bench-kernel", "kernel", "torch", "triton")
    from pagesim.kernels.cache import LAYOUTS
    from pagesim.kernels.harness.bench import DTYPES, make_cases
    from pagesim.kernels.harness.workloads import TABLES

    for option, value, allowed in [("--dtype", dtype, DTYPES), *(("--layout", name, LAYOUTS) for name in layout),
                                   *(("--tables", kind, TABLES) for kind in tables)]:
        if value not in allowed:
            raise InputError(f"{option} must be one of {', '.join(allowed)}, got {value!r}")
    if resume and output is None:
        raise InputError("--resume needs --output, the folder of the earlier run")
    if not sources and (heads, head_dim, when, overrides) != (None, None, None, []):
        raise InputError("--heads, --head-dim, --snapshot and --set need a config or snapshot; built-in batches are "
                         "what they are")
    chosen = _builtin(workload or ([] if sources else _DEFAULT_WORKLOADS))
    for source in sources:
        chosen += [_simulated(name, found, heads, head_dim)
                   for name, found in _tables(source, when, tuple(overrides), quiet=quiet)]
    cases = make_cases(chosen, kernel or ["ours"], tables, block_size, layout or ["NHD"], dtype)
    cases = [case for case in cases if filter in case.key]
    if not cases:
        raise InputError(f"no case is left: none of the keys contains {filter!r}; --dry-run without --filter lists them"
                         if filter else "no case is left: simulated tables exist only of a snapshot, at its block size")
    if dry_run:
        print("\n".join(case.key for case in cases))
        return
    rows = _measure(cases, repeat, seed, output, resume=resume, quiet=quiet)
    _show(rows, Format.json if json else format, quiet=quiet)
    if output is not None:
        _write(output, rows)
    for row in rows:
        if not row.passed:
            print(f"pagesim: {row.key}: wrong: worst row error {row.error_worst:.2e}, mean {row.error_mean:.2e}; "
                  "not timed", file=sys.stderr)
    raise typer.Exit(0 if all(row.passed for row in rows) else 1)


def _builtin(names: "list[str] | tuple[str, ...]") -> "list[Workload]":
    from pagesim.kernels.harness.workloads import builtin

    known = builtin()
    for name in names:
        if name not in known:
            raise InputError(f"--workload must be one of {', '.join(known)}, got {name!r}")
    return [known[name] for name in names]


def _tables(source: Path, when: str | None, overrides: tuple[str, ...], *,
            quiet: bool) -> "list[tuple[str, BlockTables]]":
    """Named block tables: of a snapshot, or of each case of a config at that moment."""
    from pagesim.core.blocktables import load

    if source.suffix == ".npz":
        if overrides or when is not None:
            raise InputError(f"{source} is a snapshot; --snapshot and --set need a config")
        tables = load(source)
        return [(_named(tables, source.stem), tables)]
    from pagesim.cli.first_use import compile_first
    from pagesim.config import load as load_config
    from pagesim.experiment.snapshots import moment, snapshot

    cases = load_config(source, overrides).cases
    compile_first([case.allocator for case in cases], quiet=quiet)
    made = [snapshot(case, moment(when or "peak")) for case in cases]
    return [(_named(tables, source.stem), tables) for tables in made]


def _named(tables: "BlockTables", otherwise: str) -> str:
    """The case that tables come from, and their step: two moments of a case are two batches."""
    name = str(tables.origin.get("case", otherwise))
    if "step" in tables.origin:
        name += f" step {tables.origin['step']}"
    return name.replace(" ", "-").replace("/", "-")


def _simulated(name: str, tables: "BlockTables", heads: str | None, head_dim: int | None) -> "Workload":
    from pagesim.kernels.harness.workloads import from_snapshot

    if not (tables.lengths > 0).any():
        raise InputError(f"{name}: no sequence holds a token at that moment; choose another with --snapshot")
    shape = attention_shape(tables.origin.get("model"), heads, head_dim)
    if "latent_dim" in shape and not (heads is None and head_dim is None):
        raise InputError(f"{name}: --heads and --head-dim are of K and V heads, and {shape['name']} caches a latent")
    keys = ("num_q_heads", "num_kv_heads", "head_dim", "latent_dim")
    return from_snapshot(name, tables, **{key: shape[key] for key in keys if key in shape})


def _measure(cases: "list[Case]", repeat: int, seed: int, output: Path | None, *, resume: bool,
             quiet: bool) -> "list[Row]":
    from pagesim.kernels.harness.bench import Bench, run_cases
    from pagesim.kernels.harness.measurement import read_rows, write_row

    bench = Bench([case.workload for case in cases], cases[0].dtype, seed=seed)
    log = None if output is None else output / "rows.jsonl"
    done = read_rows(log) if resume and log is not None else {}
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        if not resume:
            log.unlink(missing_ok=True)

    def note(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr, flush=True)

    rows = []
    for row in run_cases(bench, cases, repeat, done, note):
        rows.append(row)
        if log is not None and row is not done.get(row.key):
            write_row(log, row)
        said = f"{row.graph_us:.1f} µs, {100 * row.ceiling_share:.1f} % of the read ceiling" if row.passed else "WRONG"
        note(f"{len(rows)} of {len(cases)}: {row.key}: {said}")
    return rows


def _show(rows: "list[Row]", form: Format, *, quiet: bool) -> None:
    from pagesim.cli.console import print_tables
    from pagesim.kernels.harness.measurement import advice, as_csv, as_json
    from pagesim.report.tables import Sheet

    if form is Format.json:
        print(as_json(rows))
    elif form is Format.csv:
        print(as_csv(rows), end="")
    elif rows:
        from pagesim.cli.bench_table import COLUMNS, cells, title

        print_tables([Sheet(title(rows), COLUMNS, cells(rows), num_keys=5)])
        if not quiet:
            print("\n".join(advice(rows)))


def _write(folder: Path, rows: "list[Row]") -> None:
    from pagesim.kernels.harness.measurement import as_csv, as_json

    (folder / "rows.csv").write_text(as_csv(rows))
    (folder / "bench.json").write_text(as_json(rows) + "\n")
    try:
        import matplotlib
    except ImportError:
        print("pagesim: no bench.png: matplotlib is not installed", file=sys.stderr)
        return
    del matplotlib
    from pagesim.kernels.harness.bench_plot import plot

    plot(rows, folder / "bench.png")
