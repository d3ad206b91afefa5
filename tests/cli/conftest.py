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
    """Run the program in this process, as a shell would: ``pagesim("simulate", config, "-q")``.

    What it says once, when the engine is compiled, is left out of ``err``.
    """

    def run(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["pagesim", *map(str, arguments)])
        monkeypatch.setenv("NUMBA_DISABLE_JIT", "0")  # a lesson sets it for its process, which here is that of other tests
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        said = [line for line in err.splitlines(keepends=True) if "compiling the engine" not in line]
        return Ended(end.value.code or 0, out, "".join(said))

    return run
