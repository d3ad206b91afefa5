"""Nothing that is there already is replaced unless the user says so."""

from pathlib import Path
from typing import Annotated

import typer

from pagesim.errors import InputError

Force = Annotated[bool, typer.Option("--force", help="Replace what is there already.")]


def check_free(path: Path | None, *, force: bool) -> None:
    """Raises InputError where a file lies at ``path``; without a path nothing is written."""
    if path is not None and path.is_file() and not force:
        raise InputError(f"{path}: exists already and is left as it is; give another name, or --force to replace it")
