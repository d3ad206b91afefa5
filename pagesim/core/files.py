"""Files that are whole or absent."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def replacing(path: Path, mode: str = "w") -> Iterator[IO]:
    """A file that takes the place of ``path`` when it is complete; a failure leaves ``path`` as it was.

    Args:
        mode: ``w`` for text in UTF-8, line ends as they are given; ``wb`` for bytes.  A path that is no UTF-8 is
            written with escapes, as JSON has them.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    text = {"encoding": "utf-8", "errors": "backslashreplace", "newline": ""} if mode == "w" else {}
    try:
        with open(part, mode, **text) as file:
            yield file
        os.replace(part, path)
    except OSError as error:
        error.filename, error.filename2 = str(path), None  # a full disk names no file
        raise
    finally:
        part.unlink(missing_ok=True)


def forget_halves(folder: Path) -> None:
    """Delete what writers left that were killed before they could; those that still write go on."""
    for part in folder.glob("*.part"):
        writer = part.suffixes[-2:-1]
        if writer and writer[0][1:].isdigit() and not _runs(int(writer[0][1:])):
            part.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    if os.name != "posix":  # elsewhere the question would end it
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
