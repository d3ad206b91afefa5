"""The floors of the package, and what a start may import."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_each_floor_imports_only_those_below_it():
    done = subprocess.run([Path(sys.executable).parent / "lint-imports", "--config", ROOT / "pyproject.toml"], cwd=ROOT,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_help_imports_nothing_heavy():
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "from pagesim.cli.main import main; main()", "--help"],
        capture_output=True, text=True)
    assert done.returncode == 0
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "typer" in imported
    heavy = {"numpy", "numba", "yaml", "pydantic", "torch", "triton", "matplotlib", "rich.table", "pagesim.engine"}
    assert not heavy & imported
