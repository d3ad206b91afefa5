"""Keys that the command line puts into a document."""

from collections.abc import Iterable
from pathlib import Path as FilePath
from typing import NamedTuple

from pagesim.config.document import Document, Path, Place, parse, undotted
from pagesim.errors import ConfigError

_AFTER_THE_FILE = 10**9   # line of what the command line says, so that it is reported after the file's


class Override(NamedTuple):
    """``key`` is dotted, ``value`` is YAML, ``label`` is how the user wrote it: ``--set seed=1``, ``--gpu h200``."""

    key: str
    value: str
    label: str


def assignment(text: str) -> Override:
    """``key=value`` of ``--set``.

    Raises:
        ConfigError: no ``=``.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {text}: must be key=value, such as --set seed=1 or --set allocators.0.block_size=32")
    return Override(key.strip(), value, f"--set {text}")


def overridden(document: Document, overrides: Iterable[Override]) -> Document:
    """The document with each override put in its place.

    A key that is set here is not swept any more.  A trace, a config.json or a bench.json that is
    named here by its own key is relative to the current directory, as a shell's user expects.

    Raises:
        ConfigError: a value that is not YAML, or a key that cannot be reached.
    """
    for key, text, label in overrides:
        path, place = undotted(key), Place(_AFTER_THE_FILE, 0, label)
        value = parse(text, label, one_place=True)
        document.problems.extend(value.problems)
        if isinstance(value.data, str) and _is_path(path, value.data):
            value.data = str(FilePath(value.data).absolute())
        try:
            document = _without_sweep_of(key, document.replaced(path, place, value))
        except ConfigError as error:
            raise ConfigError(f"{label}: {error}") from None
    return document


def _is_path(path: Path, value: str) -> bool:
    return path in (("trace", "path"), ("durations", "path")) or (path == ("model",) and value.endswith(".json"))


def _without_sweep_of(key: str, document: Document) -> Document:
    sweep = document.data.get("sweep")
    if not isinstance(sweep, dict) or key not in sweep:
        return document
    rest = {swept: values for swept, values in sweep.items() if swept != key}
    return Document(document.data | {"sweep": rest}, document.keys, document.values, document.problems)
