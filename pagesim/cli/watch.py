"""``pagesim watch``: a run played live in the terminal."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagesim.cli.extras import require
from pagesim.errors import InputError

if TYPE_CHECKING:
    from pagesim.case import Case

_MOST_PANELS = 3
_TERMS_WITHOUT_A_CURSOR = ("", "dumb", "unknown")


def watch(
    config: Annotated[Path, typer.Argument(help="The experiment, a YAML file.")],
    case: Annotated[list[str], typer.Option(metavar="NAME", help=(
        "A case to show, up to 3 times; by default the first contiguous and the first paged one."))] = [],
    overrides: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help=(
        "Replace one key of the config; may be repeated."))] = [],
    speed: Annotated[float, typer.Option(min=1 / 64, max=1024, help="Simulated seconds a second.")] = 4.0,
    paused: Annotated[bool, typer.Option("--paused", help="Begin paused; → takes a step.")] = False,
) -> None:
    """Watch memory fill, strand and come free: cases side by side on the same requests and the same clock."""
    require("watch", "watch", "textual")
    from pagesim.cli.first_use import compile_first
    from pagesim.config import load
    from pagesim.experiment.attempt import start
    from pagesim.watch.app import WatchApp
    from pagesim.watch.player import Player

    chosen = choose(load(config, tuple(overrides)).cases, case)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError("watch plays on a terminal, and this is none; pagesim simulate works anywhere")
    if os.name == "posix" and os.environ.get("TERM", "") in _TERMS_WITHOUT_A_CURSOR:
        raise InputError(f"watch draws all over the terminal, and TERM={os.environ.get('TERM', '')} says that this one "
                         "cannot; set TERM, such as TERM=xterm-256color, or use pagesim simulate")
    compile_first((each.allocator for each in chosen), quiet=False)
    players = [Player(each.name, start(each)) for each in chosen]
    app = WatchApp(players, speed, colour=not os.environ.get("NO_COLOR"), paused=paused)
    app.run()
    raise typer.Exit(app.return_code or 0)


def choose(cases: "tuple[Case, ...]", names: list[str]) -> "list[Case]":
    """The cases of these names; without any, the first of each kind of allocator, or the only one.

    Raises:
        InputError: a name that no case has, or more than fit side by side.
    """
    by_name = {case.name: case for case in cases}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise InputError(f"there is no case {unknown[0]!r}; the cases are {', '.join(map(repr, by_name))}")
    if len(names) > _MOST_PANELS:
        raise InputError(f"{_MOST_PANELS} cases fit side by side, got {len(names)}")
    if names:
        return [by_name[name] for name in names]
    first_of_kind = {}
    for case in cases:
        first_of_kind.setdefault(type(case.allocator), case)
    return list(first_of_kind.values())
