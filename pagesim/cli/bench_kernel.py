"""``pagesim bench-kernel``: what decoding over paged memory costs on this GPU."""

import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagesim.errors import InputError, MissingExtra

if TYPE_CHECKING:
    from pagesim.kernels.bench import Case, Row
    from pagesim.kernels.workloads import Workload


class Format(str, Enum):
    table = "table"
    json = "json"
    csv = "csv"


COLUMNS = ("workload", "kernel", "tables", "block size", "layout", "graph µs", "p20", "p80", "eager µs", "GB/s", "of ceiling", "over contiguous",
           "worst row error")


def bench_kernel(
    source: Annotated[Path | None, typer.Argument(help="A snapshot of block tables (.npz); without one, --workload says what to measure.")] = None,
    workload: Annotated[list[str], typer.Option("--workload", metavar="NAME", help="A built-in batch: W1 to W5, R1 to R5 (ragged), W1q4, b1x128, b1x4k, b8x512; repeatable.")] = [],
    kernel: Annotated[list[str], typer.Option("--kernel", metavar="NAME", help=(
        "ours (default), general, gather+sdpa, sdpa, sdpa-flash, flex, flashinfer, flashinfer-batch, flash-attention, cudnn; repeatable."))] = [],
    tables: Annotated[list[str], typer.Option("--tables", metavar="KIND", help="contiguous, simulated, sorted, shuffled, same, repeats; repeatable.")] = [],
    block_size: Annotated[list[int], typer.Option("--block-size", min=1, max=4096, help="Tokens of a block; repeatable. Default: the snapshot's, or 16.")] = [],
    layout: Annotated[list[str], typer.Option("--layout", metavar="NHD|HND", help="Order of a block's dimensions; repeatable.")] = [],
    dtype: Annotated[str, typer.Option(help="bf16 or fp16.")] = "bf16",
    heads: Annotated[str, typer.Option(metavar="Q/KV", help="Heads of a snapshot's model.")] = "32/8",
    head_dim: Annotated[int, typer.Option(help="Head dimension of a snapshot's model.")] = 128,
    filter: Annotated[str, typer.Option("--filter", metavar="TEXT", help="Only cases whose key contains this.")] = "",
    repeat: Annotated[int, typer.Option(min=1, help="Graph replays whose median is taken.")] = 15,
    seed: Annotated[int, typer.Option(help="Of contents and tables.")] = 0,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="DIR", help="Write rows.jsonl, rows.csv, bench.json and bench.png here.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Keep the rows that an earlier run into DIR measured.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cases and stop.")] = False,
    format: Annotated[Format, typer.Option(help="What is written to stdout.")] = Format.table,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Only the result.")] = False,
) -> None:
    """Measure paged decode on this GPU: block sizes × tables × kernels, each checked before it is timed."""
    _require_extra()
    from pagesim.kernels.bench import DTYPES, make_cases
    from pagesim.kernels.pool import LAYOUTS

    if dtype not in DTYPES:
        raise InputError(f"--dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    for name in layout:
        if name not in LAYOUTS:
            raise InputError(f"--layout must be one of {', '.join(LAYOUTS)}, got {name!r}")
    if resume and output is None:
        raise InputError("--resume needs --output, the folder of the earlier run")
    workloads = _workloads(source, workload, heads, head_dim)
    cases = make_cases(workloads, kernel or ["ours"], tables, block_size, layout or ["NHD"], dtype)
    cases = [case for case in cases if filter in case.key]
    if not cases:
        raise InputError(f"no case is left: none of the keys contains {filter!r}; --dry-run without --filter lists them" if filter
                         else "no case is left: simulated tables exist only of a snapshot, at its own block size")
    if dry_run:
        print("\n".join(case.key for case in cases))
        return
    rows = _measure(cases, repeat, seed, output, resume=resume, quiet=quiet)
    _show(rows, Format.json if json else format, quiet=quiet)
    if output is not None:
        _write(output, rows)
    wrong = [row for row in rows if not row.passed]
    for row in wrong:
        print(f"pagesim: {row.key}: wrong: worst row error {row.error_worst:.2e}, mean {row.error_mean:.2e}; not timed", file=sys.stderr)
    raise typer.Exit(1 if wrong else 0)


def _require_extra() -> None:
    try:
        import torch  # noqa: F401
        import triton  # noqa: F401
    except ImportError as error:
        raise MissingExtra(f"bench-kernel needs torch and triton ({error}): pip install 'pagesim[kernel]'") from None


def _workloads(source: Path | None, names: list[str], heads: str, head_dim: int) -> "list[Workload]":
    from pagesim.core.blocktables import load
    from pagesim.kernels.workloads import builtin, from_snapshot

    known = builtin()
    for name in names:
        if name not in known:
            raise InputError(f"--workload must be one of {', '.join(known)}, got {name!r}")
    chosen = [known[name] for name in names]
    if source is not None:
        if source.suffix != ".npz":
            raise InputError(f"{source}: give a snapshot (.npz); pagesim simulate CONFIG --snapshot peak -o DIR writes one")
        query, _, kv = heads.partition("/")
        if not (query.isdigit() and kv.isdigit() and int(kv) > 0 and int(query) % int(kv) == 0 and int(query) > 0):
            raise InputError(f"--heads must be query heads and KV heads that divide them, such as 32/8, got {heads!r}")
        chosen.append(from_snapshot(source.stem, load(source), num_q_heads=int(query), num_kv_heads=int(kv), head_dim=head_dim))
    return chosen or [known[name] for name in ("W1", "W2", "W3", "W4", "W5")]


def _measure(cases: "list[Case]", repeat: int, seed: int, output: Path | None, *, resume: bool, quiet: bool) -> "list[Row]":
    from pagesim.kernels.bench import Bench, read_rows, run_cases, write_row

    bench = Bench([case.workload for case in cases], cases[0].dtype, seed=seed)
    log = output / "rows.jsonl" if output is not None else None
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
        if log is not None and row.key not in done:
            write_row(log, row)
        note(f"{len(rows)} of {len(cases)}: {row.key}: " + (f"{row.graph_us:.1f} µs, {100 * row.ceiling_share:.1f} % of the read ceiling" if row.passed else "WRONG"))
    return rows


def _cells(row: "Row", ratio: float | None) -> tuple[str, ...]:
    def text(value: float | None, form: str, factor: float = 1) -> str:
        return "–" if value is None else format(factor * value, form)
    return (row.workload, row.kernel, row.tables, str(row.block_size), row.layout, text(row.graph_us, ".1f"), text(row.graph_p20_us, ".1f"),
            text(row.graph_p80_us, ".1f"), text(row.eager_us, ".1f"), text(row.gb_per_s, ",.0f"), text(row.ceiling_share, ".1f", 100) + " %",
            text(ratio, ".3f"), f"{row.error_worst:.1e}")


def _show(rows: "list[Row]", form: Format, *, quiet: bool) -> None:
    from pagesim.kernels.bench import advice, over_contiguous

    if form is Format.json:
        print(_document(rows))
        return
    if form is Format.csv:
        print(_csv(rows), end="")
        return
    from pagesim.cli.console import print_tables
    from pagesim.report.tables import Sheet

    ratios = over_contiguous(rows)
    if rows:
        where = rows[0].environment
        title = (f"{where['gpu']}, driver {where['driver']}, torch {where['torch']}, triton {where['triton']}; "
                 f"copy {rows[0].copy_gb_per_s:,.0f} GB/s, {rows[0].dtype}")
        print_tables([Sheet(title, COLUMNS, tuple(_cells(row, ratios.get(row.key)) for row in rows))])
    if not quiet:
        print("\n".join(advice(rows)))


def _document(rows: "list[Row]") -> str:
    import json
    from dataclasses import asdict

    from pagesim.kernels.bench import advice, fit_linear, over_contiguous

    ratios = over_contiguous(rows)
    listed = [{**asdict(row), "over_contiguous": ratios.get(row.key)} for row in rows]
    return json.dumps({"schema": 1, "rows": listed, "advice": advice(rows), "linear_one_layer": fit_linear(rows)}, indent=1)


def _csv(rows: "list[Row]") -> str:
    import csv
    import io
    from dataclasses import asdict

    from pagesim.kernels.bench import over_contiguous

    ratios = over_contiguous(rows)
    text = io.StringIO()
    flat = [{**{k: v for k, v in asdict(row).items() if k != "environment"}, "over_contiguous": ratios.get(row.key), **row.environment} for row in rows]
    if flat:
        writer = csv.DictWriter(text, flat[0])
        writer.writeheader()
        writer.writerows(flat)
    return text.getvalue()


def _write(folder: Path, rows: "list[Row]") -> None:
    (folder / "rows.csv").write_text(_csv(rows))
    (folder / "bench.json").write_text(_document(rows) + "\n")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        print("no picture: matplotlib is not installed", file=sys.stderr)
        return
    from pagesim.kernels.bench_plot import plot
    plot(rows, folder / "bench.png")
