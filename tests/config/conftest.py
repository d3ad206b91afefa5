"""A config in a directory of its own, with a trace beside it."""

import textwrap
from pathlib import Path

import pytest

from pagesim.config import load
from pagesim.errors import ConfigError

MINIMAL = """
trace: {path: trace.csv}
memory: {kv_tokens: 15728}
max_model_len: 2048
"""


@pytest.fixture
def write(tmp_path):
    """Write YAML to a file and return its path."""

    def written(text: str) -> Path:
        (tmp_path / "trace.csv").write_text("prompt_tokens,output_tokens\n1,1\n")
        path = tmp_path / "bad.yaml"
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        return path

    return written


@pytest.fixture
def cases(write):
    """Cases of a YAML text; keyword: overrides."""
    return lambda text, *overrides: load(write(text), overrides).cases


@pytest.fixture
def case(cases):
    def only(text: str, *overrides: str):
        (one,) = cases(text, *overrides)
        return one

    return only


@pytest.fixture
def problems(write, tmp_path):
    """What is wrong with a YAML text, one line each, with the directory taken off."""

    def found(text: str, *overrides: str) -> list[str]:
        with pytest.raises(ConfigError) as error:
            load(write(text), overrides)
        return str(error.value).replace(f"{tmp_path}/", "").split("\n")

    return found
