"""``pagesim simulate``: run an experiment, show its tables, write its run folder."""

import shlex
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagesim.cli import flags
from pagesim.cli.overwriting import check_free
from pagesim.errors import InputError

if TYPE_CHECKING:
    from pagesim.config import Experiment


class Format(str, Enum):
    table = "table"
    json = "json"
    csv = "csv"
    markdown = "markdown"


_WHAT_NEXT = """simulate needs an experiment or a trace:
  pagesim config init first.yaml --from quickstart     write one that comes with pagesim, and its trace; then:
  pagesim simulate first.yaml
  pagesim simulate TRACE.csv --model llama-3.1-8b --gpu h200           your trace, without YAML
  pagesim simulate TRACE.csv --from-vllm "vllm serve …" --gpu h200     … with the flags of your server
A trace has the columns arrival_s,prompt_tokens,output_tokens, or is one of the public ones as they come."""


def simulate(
    what: Annotated[Path | None, typer.Argument(metavar="CONFIG|TRACE", help=(
        "An experiment, a YAML file ('pagesim config init' writes one), or a trace alone, with --model and --gpu."))]
    = None,
    model: flags.Model = None,
    gpu: flags.Gpu = None,
    kv_memory: flags.KvMemory = None,
    max_model_len: flags.MaxModelLen = None,
    from_vllm: flags.FromVllm = None,
    overrides: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help=(
        "Replace one key, such as trace.limit=1000 or allocators.0.block_size=32; may be repeated."))] = [],
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="DIR", help=(
        "Write the run folder here."))] = None,
    snapshot: Annotated[list[str], typer.Option(metavar="MOMENT", help=(
        "Write the block tables of a moment into the run folder, for kernel and bench-kernel: peak, end, a step's "
        "number, or a time such as 12.5s; may be repeated."))] = [],
    export_trace: Annotated[Path | None, typer.Option(metavar="FILE.json.gz", help=(
        "Write a timeline for Perfetto or chrome://tracing: requests, preemptions, the ledger."))] = None,
    format: Annotated[Format, typer.Option(help="What is written to stdout.")] = Format.table,
    json: Annotated[bool, typer.Option("--json", help=(
        "Write one JSON object and nothing else: --format json."))] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Add a line on each figure of the tables.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Only the result: no progress, no notes.")] = False,
    jobs: Annotated[int | None, typer.Option(min=1, help=(
        "Processes at most; the default is the cores, where it pays."))] = None,
    resume: Annotated[bool, typer.Option("--resume", help=(
        "Keep the cases that an earlier run into DIR finished."))] = False,
    force: Annotated[bool, typer.Option("--force", help=(
        "Replace another experiment's run in DIR, and FILE.json.gz."))] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cases and stop.")] = False,
) -> None:
    """Replay a trace through the allocators of an experiment and account for every slot of KV memory."""
    from pagesim.cli.console import warn
    from pagesim.config.question import asked, is_trace
    from pagesim.experiment.attempt import check_one_memory
    from pagesim.experiment.occupied import make_room
    from pagesim.experiment.snapshots import moment, write_snapshots
    from pagesim.experiment.trace_export import check_name, write_trace

    if what is None:
        raise InputError(_WHAT_NEXT)
    said = flags.said(model, gpu, kv_memory, max_model_len, from_vllm, overrides)
    experiment, remarks = asked(what, said)
    if dry_run:
        for case in experiment.cases:
            print(case.name)
        return
    if json and format not in (Format.table, Format.json):
        raise InputError(f"--json and --format {format.value} ask for two forms at once; give one of them")
    if explain and (json or format not in (Format.table, Format.markdown)):
        raise InputError("--explain goes with tables; leave it out, or the other form")
    if snapshot and output is None:
        raise InputError("--snapshot needs the run folder that it is written to: give it with -o DIR")
    moments = [moment(text) for text in snapshot]
    if export_trace is not None:
        check_name(export_trace)
        check_free(export_trace, force=force)
    if moments or export_trace is not None:
        for case in experiment.cases:
            check_one_memory(case)
    if output is not None and not resume:
        make_room(output, experiment.cases, force=force)
    if not quiet:
        warn(remarks)
    code = _run(experiment, Format.json if json else format, output, jobs, quiet=quiet, resume=resume, explain=explain)
    if moments and code == 0:
        for path in write_snapshots(experiment.cases, moments, output):
            _note(f"written to {path}", quiet=quiet)
    if export_trace is not None and code == 0:
        write_trace(experiment.cases, export_trace)
        _note(f"written to {export_trace}", quiet=quiet)
    if is_trace(what) and not quiet:
        words = shlex.join(["pagesim", "config", "expand", str(what), *flags.written(said)])
        _note(f"this experiment as YAML, to change and to keep: {words} > experiment.yaml", quiet=quiet)
    raise typer.Exit(code)


def _note(text: str, *, quiet: bool) -> None:
    if not quiet:
        print(text, file=sys.stderr)


def _run(experiment: "Experiment", format: Format, output: Path | None, jobs: int | None, *, quiet: bool,
         resume: bool, explain: bool) -> int:
    """Run and print; the exit code: 1 where nothing completed or a case failed, 130 after Ctrl-C."""
    from pagesim.cli.console import say, warn
    from pagesim.cli.first_use import compile_first
    from pagesim.cli.progress import progress_display
    from pagesim.experiment import run_experiment
    from pagesim.report import notes
    from pagesim.report.explained import explanation
    from pagesim.report.sentences import summary_lines

    readable = format in (Format.table, Format.markdown) and not quiet
    if readable:
        say([*notes.capacity_lines(experiment.cases), *notes.replica_lines(experiment.cases)])
    if not quiet:
        warn([*notes.memory_notes(experiment.cases), *notes.size_warnings(experiment.cases)])
    compile_first((case.allocator for case in experiment.cases), quiet=quiet)
    with progress_display(len(experiment.cases), quiet=quiet) as on_progress:
        simulation = run_experiment(experiment, jobs=jobs, folder=output, resume=resume, on_progress=on_progress)
    document = simulation.metrics
    if readable and document["cases"]:
        say(notes.count_lines(document))
        say(summary_lines(document))
    _print_result(document, format)
    if explain and document["cases"]:
        say(explanation(document))
    code = 1 if document["failed"] or not any(case["requests"]["completed"] for case in document["cases"]) else 0
    warn(notes.result_warnings(document) if not quiet else notes.failures(document) if code else [])
    if simulation.unwritten:
        print("\n".join(f"pagesim: {each}" for each in simulation.unwritten), file=sys.stderr)
        print(f"pagesim: {output} is not whole, the figures above are; free space, then --resume", file=sys.stderr)
        code = 2
    elif output is not None and not quiet:
        print(f"written to {output}/", file=sys.stderr)
    if simulation.interrupted:
        num_finished = len(document["cases"])
        print(f"pagesim: interrupted; {num_finished} of {len(experiment.cases)} cases had finished", file=sys.stderr)
        return 130
    return code


def _print_result(document: dict, format: Format) -> None:
    from pagesim.report import files, tables

    if format is Format.json:
        print(files.json_text(document), end="")
    elif format is Format.csv:
        print(files.csv_text(document), end="")
    elif format is Format.markdown:
        print("\n".join(map(tables.markdown, tables.sheets(document))), end="")
    else:
        from pagesim.cli.console import print_tables

        print_tables(tables.sheets(document))
