"""What ``from pagesim import …`` offers, and what it costs."""

import subprocess
import sys
from pathlib import Path

import pytest

import pagesim


@pytest.mark.parametrize("name", pagesim.__all__)
def test_each_name_is_there_and_is_documented(name):
    assert name in dir(pagesim) and getattr(pagesim, name).__doc__


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        pagesim.simulat  # noqa: B018


def test_importing_the_package_imports_nothing_heavy():
    script = "import sys, pagesim; print(sorted({'numpy', 'numba', 'pydantic', 'yaml', 'typer'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_type_checkers_are_told_that_it_is_typed():
    assert (Path(pagesim.__file__).parent / "py.typed").is_file()
