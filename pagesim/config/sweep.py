"""One document into many: the combinations of a sweep."""

import re
from collections.abc import Iterator
from itertools import product
from math import prod
from typing import NamedTuple

from pagesim.config.document import Document, Problem, undotted
from pagesim.config.values import shown
from pagesim.errors import ConfigError


MOST_COMBINATIONS = 100_000


class Variant(NamedTuple):
    """A document for one case: allocator number ``allocator`` of it, and what the sweep set for all allocators."""

    document: Document
    allocator: int
    swept: dict[str, object]


def variants(document: Document) -> Iterator[Variant | Problem]:
    """Every case that the sweep asks for, or what is wrong with a key of it.

    Keys under ``allocators.N`` concern that allocator only: the others do not repeat for them.
    """
    data = {key: value for key, value in document.data.items() if key != "sweep"}
    base = Document(data, document.keys, document.values)
    keys = []
    for key, problem in _swept(document, base):
        if problem is None:
            keys.append(key)
        else:
            yield problem
    too_many = _too_many(document, keys)
    if too_many is not None:
        yield too_many
        return
    own = {key: undotted(key)[1] for key in keys if re.match(r"allocators\.[0-9]+(\.|$)", key)}
    shared = [key for key in keys if key not in own]
    for common, swept in _combinations(document, base, shared):
        allocators = common.data.get("allocators")
        for number in range(len(allocators) if isinstance(allocators, list) and allocators else 1):
            for single, _ in _combinations(document, common, [key for key in own if own[key] == number]):
                yield Variant(single, number, swept)


def _too_many(document: Document, keys: list[str]) -> Problem | None:
    """Combinations are counted before any is made: a few lists of some hundred values make millions."""
    count = prod(len(document.data["sweep"][key]) for key in keys)
    if count <= MOST_COMBINATIONS:
        return None
    return Problem(document.place(("sweep",)), f"the sweep has {count:,} combinations, and at most "
                   f"{MOST_COMBINATIONS:,} are run at once; leave out values or keys, or sweep a part of them")


def _swept(document: Document, base: Document) -> Iterator[tuple[str, Problem | None]]:
    """The keys of the sweep, each with what is wrong with it."""
    sweep = document.data.get("sweep")
    if sweep is None:
        return
    if not isinstance(sweep, dict):
        yield "", Problem(document.place(("sweep",)), f"sweep must map keys to lists of values, got {shown(sweep)}")
        return
    for key, values in sweep.items():
        if not isinstance(values, list) or not values:
            yield key, Problem(document.place(("sweep", key)),
                               f"sweep over {key} must be a list of one value or more, got {shown(values)}")
        else:
            yield key, _unreachable(document, base, key)


def _combinations(source: Document, target: Document, keys: list[str]) -> Iterator[tuple[Document, dict[str, object]]]:
    """``target`` with each combination of the values that the sweep of ``source`` has for ``keys``."""
    for indices in product(*(range(len(source.data["sweep"][key])) for key in keys)):
        document = target
        for key, index in zip(keys, indices):
            document = _set(source, document, key, index)
        yield document, {key: source.data["sweep"][key][index] for key, index in zip(keys, indices)}


def _set(source: Document, target: Document, key: str, index: int) -> Document:
    return target.replaced(undotted(key), source.place(("sweep", key), of_key=True), source.part(("sweep", key, index)))


def _unreachable(source: Document, base: Document, key: str) -> Problem | None:
    if key.split(".")[0] == "sweep":
        return Problem(source.place(("sweep", key), of_key=True), "a sweep cannot sweep itself")
    try:
        _set(source, base, key, 0)
    except ConfigError as error:
        return Problem(source.place(("sweep", key), of_key=True), str(error))
    return None
