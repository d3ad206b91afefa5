"""Trace files for tests: written into a temporary folder, or the public ones beside the repository."""

from pathlib import Path

import pytest

PUBLIC = Path(__file__).parents[2] / ".." / "shared" / "traces"


def public(name: str) -> Path:
    """The path of a public trace; skips the test where they are not at hand."""
    path = PUBLIC / name
    if not path.is_file():
        pytest.skip(f"the public trace {name} is not at ../shared/traces")
    return path


def write(folder: Path, text: str | bytes, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path
