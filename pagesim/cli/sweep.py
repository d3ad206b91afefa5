"""``pagesim sweep`` and ``pagesim merge``: many cases, resumed, in parts, in one table."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagesim.cli.extras import require
from pagesim.errors import InputError

if TYPE_CHECKING:
    from pagesim.case import Experiment
    from pagesim.experiment.sweep import Shard


def sweep(
    config: Annotated[Path, typer.Argument(help="The experiment, a YAML file; its sweep and allocators are the grid.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Where the results go.")],
    overrides: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help=(
        "Replace one key, such as 'sweep.seed=[0, 1, 2]'; may be repeated."))] = [],
    resume: Annotated[bool, typer.Option("--resume", help=(
        "Run only what has no figures there yet: what is missing and what failed."))] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace another sweep in DIR.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cases and what varies, and stop.")] = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; the default is the cores.")] = None,
    cluster: Annotated[str | None, typer.Option(metavar="ADDRESS", help=(
        "Run on the Dask cluster of this scheduler, such as tcp://10.0.0.1:8786; it needs no shared disk."))] = None,
    shard: Annotated[str, typer.Option(metavar="i/N", help=(
        "Run every N-th case from the i-th on, for a batch system; 'pagesim merge' puts the parts together."))] = "1/1",
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress, no notes.")] = False,
) -> None:
    """Run every case of a grid, lose none, and make one table of them."""
    from pagesim.cli.first_use import compile_first
    from pagesim.cli.progress import progress_display
    from pagesim.config import load
    from pagesim.experiment import sweep as sweeps

    part = _shard(shard)
    if cluster is not None:
        require("sweep --cluster", "cluster", "distributed")
        if jobs is not None:
            raise InputError("--jobs is for this machine; a cluster has as many workers as it has")
    experiment = load(config, tuple(overrides))
    plan = sweeps.planned(experiment)
    if dry_run:
        _list(experiment)
        return
    sweeps.begin(output, plan, resume=resume, force=force)
    if cluster is None:
        compile_first((case.allocator for case in experiment.cases), quiet=quiet)
    interrupted = False
    try:
        with progress_display(len(plan[part.index - 1::part.count]), quiet=quiet) as on_progress:
            sweeps.run(experiment, plan, output, part, cluster or jobs or os.cpu_count() or 1, on_progress)
    except KeyboardInterrupt:
        interrupted = True
    raise typer.Exit(130 if _finish(output, plan, part, quiet=quiet, interrupted=interrupted) else (
        1 if sweeps.failures(output, plan) else 0))


def merge(
    sources: Annotated[list[Path], typer.Argument(metavar="PART...", help="Folders that 'sweep --shard i/N' wrote.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Where all of it goes; a new folder.")],
) -> None:
    """Put the parts of a sweep together."""
    from pagesim.experiment import sweep as sweeps

    if output.exists() and any(output.iterdir()):
        raise InputError(f"{output}: is not empty; give a new folder")
    plan = sweeps.merge(sources, output)
    _finish(output, plan, sweeps.Shard(), quiet=False, interrupted=False)
    raise typer.Exit(1 if sweeps.failures(output, plan) else 0)


def _shard(text: str) -> "Shard":
    from pagesim.experiment.sweep import Shard

    index, slash, count = text.partition("/")
    if not slash or not index.isdecimal() or not count.isdecimal():
        raise InputError(f"--shard takes i/N, such as 1/4, got {text!r}")
    return Shard(int(index), int(count))


def _list(experiment: "Experiment") -> None:
    from pagesim.experiment.sweep import planned

    for case in planned(experiment):
        print(f"{case.address[:8]}  {case.name}")
    print(f"{len(experiment.cases):,} cases", file=sys.stderr)


def _finish(folder: Path, plan: list, part: "Shard", *, quiet: bool, interrupted: bool) -> bool:
    """Write the table, say what there is; whether it was interrupted."""
    from pagesim.experiment.sweep import failures, write_tables

    done, failed = write_tables(folder, plan), failures(folder, plan)
    for line in failed:
        print(f"pagesim: error: {line}", file=sys.stderr)
    if not quiet or interrupted:
        rest = len(plan) - done - len(failed)
        told = [f"{done:,} of {len(plan):,} cases have figures"]
        told += [f"{len(failed):,} failed"] if failed else []
        told += [f"{rest:,} are left to {'other shards' if part.count > 1 and not interrupted else '--resume'}"] * (
            rest > 0)
        print(f"{', '.join(told)}; {folder / 'table.csv'}", file=sys.stderr)
    return interrupted
