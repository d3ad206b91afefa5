"""The help of every command: summaries are whole sentences, each has an example, and -h asks for it too."""

import subprocess
import sys

import pytest
import typer

from pagesim.cli.main import app


def leaves(command, path=()):
    if hasattr(command, "commands"):
        for name, each in command.commands.items():
            yield from leaves(each, (*path, name))
    else:
        yield path, command


COMMANDS = dict(leaves(typer.main.get_command(app)))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_an_example_of_itself(pagesim, path):
    out = " ".join(pagesim(*path, "-h").out.split())
    assert out == " ".join(pagesim(*path, "--help").out.split())
    assert f"Example: pagesim {' '.join(path)}" in out


@pytest.mark.parametrize("group", [(), ("trace",), ("config",), ("explain",)], ids=str)
def test_no_summary_is_cut(pagesim, group):
    out = " ".join(pagesim(*group, "--help").out.split())
    assert "..." not in out.partition("Commands:")[2]
    for path, command in COMMANDS.items():
        if path[:-1] == group:
            assert command.help.partition("\n\n")[0].replace("\n", " ").partition(". ")[0].rstrip(".") in out


def test_the_package_runs_as_a_program():
    ended = subprocess.run([sys.executable, "-m", "pagesim", "--version"], capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("pagesim ")
