import sys
from typing import NamedTuple

import pytest

from pagesim.cli.main import main


class Ended(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def pagesim(monkeypatch, capsys):
    """Run the program in this process, as a shell would: ``pagesim("simulate", config, "-q")``."""

    def run(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["pagesim", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        return Ended(end.value.code or 0, *capsys.readouterr())

    return run
