"""The ``pagesim`` program: one typer application; heavy imports happen inside the commands."""

import atexit
import gc
import io
import os
import select
import signal
import sys
from typing import Annotated

import typer

from pagesim import __version__
from pagesim.cli import config, explain, trace
from pagesim.cli.bench_kernel import bench_kernel
from pagesim.cli.compare import compare
from pagesim.cli.doctor import doctor
from pagesim.cli.group import Group
from pagesim.cli.kernel import kernel
from pagesim.cli.plot import plot
from pagesim.cli.report import report
from pagesim.cli.simulate import simulate
from pagesim.cli.size import size
from pagesim.cli.sweep import merge, sweep
from pagesim.cli.watch import watch
from pagesim.errors import Interrupted, PagesimError


class _Program(Group):
    """Commands whose Ctrl-C ends in a message, where typer would end without a word, and whose reader may leave."""

    def invoke(self, ctx: typer.Context) -> object:
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except KeyboardInterrupt:
            raise Interrupted("interrupted") from None
        except BrokenPipeError:
            if os.name != "posix" or not _reader_has_left():
                raise
            raise typer.Exit(0) from None


def _reader_has_left() -> bool:
    """Nobody reads what is printed, as after ``| head``; what is still to be written goes nowhere then."""
    stdout = sys.stdout.fileno()
    watcher = select.poll()
    watcher.register(stdout, 0)
    left = any(event & select.POLLERR for _, event in watcher.poll(0))
    if left:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout)
    return left


app = typer.Typer(name="pagesim", cls=_Program, no_args_is_help=True, pretty_exceptions_enable=False,
                  rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]},
                  help="Where every slot of KV-cache memory goes, under contiguous and under paged allocation.")
for _command, _example in (
    (simulate, "simulate configs/quickstart.yaml -o runs/first"),
    (sweep, "sweep configs/block_size_sweep.yaml -o sweeps/first"),
    (merge, "merge part1 part2 -o whole"),
    (compare, "compare runs/before runs/after --case 'paged 16'"),
    (report, "report runs/first -o page.html"),
    (plot, "plot runs/first --kind ledger -o ledger.pdf"),
    (kernel, "kernel runs/first --case 'paged 16'"),
    (bench_kernel, "bench-kernel --help"),
    (size, "size --model llama-3.1-8b --gpu h100-sxm"),
    (watch, "watch configs/external_fragmentation.yaml --speed 8"),
    (doctor, "doctor"),
):
    app.command(epilog=f"Example: pagesim {_example}")(_command)
for _commands in (trace.app, config.app, explain.app):
    app.add_typer(_commands)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"pagesim {__version__}")
        raise typer.Exit


@app.callback()
def options(version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help=(
        "Print the version and stop."))] = False) -> None:
    pass


def main() -> None:
    """Run the program; a user's mistake ends in one message and its exit code, without a traceback."""
    for stream in ("stdin", "stdout", "stderr"):
        if getattr(sys, stream) is None:  # closed by the shell, as with >&-
            setattr(sys, stream, open(os.devnull, "r" if stream == "stdin" else "w"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a question mark where its encoding lacks a sign
    # Starting makes hundreds of thousands of objects that all live on; looking among them for garbage takes 0.1 s, and
    # 0.3 s at the end, when the system takes them back anyway.
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what has finished is written, workers end
    try:
        app()
    except PagesimError as error:
        print(f"pagesim: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        print(f"pagesim: {error.filename or 'the output'}: {error.strerror}", file=sys.stderr)
        sys.exit(2)
