"""The ``pagesim`` program: one typer application; heavy imports happen inside the commands."""

import sys

import typer

from pagesim.cli import trace
from pagesim.errors import PagesimError

app = typer.Typer(name="pagesim", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None,
                  help="Where every slot of KV-cache memory goes, under contiguous and under paged allocation.")
app.add_typer(trace.app)


def main() -> None:
    """Run the program; a user's mistake ends in one message and its exit code, without a traceback."""
    try:
        app()
    except PagesimError as error:
        print(f"pagesim: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("pagesim: interrupted", file=sys.stderr)
        sys.exit(130)
