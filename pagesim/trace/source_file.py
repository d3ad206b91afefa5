"""A trace file as it lies on disk: text or gzip, told apart by its bytes; what is no trace at all is refused here."""

import contextlib
import difflib
import gzip
import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from pagesim.errors import TraceError

_GZIP = b"\x1f\x8b"
_OTHERS = {
    b"PAR1": "a Parquet file; write it as CSV",
    b"ARROW1": "an Arrow file; write it as CSV",
    b"PK\x03\x04": "a zip archive; unpack it",
    b"\x28\xb5\x2f\xfd": "zstd-compressed; unpack it or use gzip",
    b"BZh": "bzip2-compressed; unpack it or use gzip",
    b"\xfd7zXZ\x00": "xz-compressed; unpack it or use gzip",
    b"\xff\xfe": "UTF-16 text; write it as UTF-8",
    b"\xfe\xff": "UTF-16 text; write it as UTF-8",
}
_BOM = b"\xef\xbb\xbf"
_CHUNK_BYTES = 2**22


def sha256(path: Path) -> str:
    """Hex digest of the file as it lies on disk."""
    with _opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def chunks(path: Path) -> Iterator[bytes]:
    """The file's text in pieces of whole lines that end in LF, whatever they end in on disk; without byte order mark.

    A quoted field that spans lines is never cut.

    Raises:
        TraceError: no such file, a directory, a pipe, unreadable, damaged gzip, not text, a Git LFS pointer, or empty.
    """
    with _opened(path) as file:
        head = file.read(8)
        file.seek(0)
        for magic, what in _OTHERS.items():
            if head.startswith(magic):
                raise TraceError(f"{path}: this is {what}")
        zipped = head.startswith(_GZIP)
        try:
            yield from _whole_lines(gzip.GzipFile(fileobj=file) if zipped else file, path)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise TraceError(f"{path}: damaged gzip data ({error}); fetch the file again") from None


def _whole_lines(file: BinaryIO, path: Path) -> Iterator[bytes]:
    rest, first = b"", True
    while True:
        piece = file.read(_CHUNK_BYTES)
        if first:
            piece = piece.removeprefix(_BOM)
            _refuse_other_content(piece, path)
            first = False
        if b"\0" in piece:
            raise TraceError(f"{path}: binary data, not text; a trace is CSV or JSON lines, plain or gzipped")
        rest += piece
        if not piece:
            break
        cut = rest.rfind(b"\n") + 1
        if cut and rest.count(b'"', 0, cut) % 2 == 0:
            yield _unix(rest[:cut])
            rest = rest[cut:]
    if rest:
        yield _unix(rest + b"\n")


def _unix(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in text else text


def _refuse_other_content(head: bytes, path: Path) -> None:
    if not head.strip():
        raise TraceError(f"{path}: the file is empty; a trace has a header and one row a request")
    if head.startswith(b"version https://git-lfs.github.com/spec"):
        raise TraceError(f"{path}:1: a Git LFS pointer, not the data itself; run 'git lfs pull' in its repository, or "
                         "download the file")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    if path.is_fifo():
        raise TraceError(f"{path}: a pipe, and a trace is read twice; write it to a file first")
    try:
        with path.open("rb") as file:
            yield file
    except FileNotFoundError:
        near = difflib.get_close_matches(path.name, _siblings(path), n=1)
        hint = f"; did you mean {path.with_name(near[0])}?" if near else ""
        raise TraceError(f"{path}: no such file{hint}") from None
    except IsADirectoryError:
        raise TraceError(f"{path}: a directory; name one trace file in it") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None


def _siblings(path: Path) -> list[str]:
    return [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
