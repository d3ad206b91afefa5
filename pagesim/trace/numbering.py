"""A file's own names for texts and conversations → 0, 1, …, in the order in which they first appear."""

import itertools
from collections.abc import Iterable

import numpy as np

_SPARSE = 8  # a table with so many places for each key costs more than sorting the keys


def by_appearance(keys: np.ndarray) -> np.ndarray:
    """Whole numbers numbered anew, int64, shape (num_keys,): equal keys alike, in time and memory linear in the keys
    where they lie dense.
    """
    if not len(keys):
        return np.zeros(0, dtype=np.int64)
    least, highest = int(keys.min()), np.maximum.accumulate(keys)
    if least == keys[0] == 0 and (np.diff(highest) <= 1).all():  # as public files have them
        return keys
    if int(keys.max()) - least > _SPARSE * len(keys):
        keys, least = np.unique(keys, return_inverse=True)[1], 0
    keys = keys - least
    places = np.arange(len(keys))
    first = np.empty(int(keys.max()) + 1, dtype=np.int64)
    first[keys[::-1]] = places[::-1]  # the last one written stays
    is_first = first[keys] == places
    return (np.cumsum(is_first) - 1)[first[keys]]


def of_names(names: Iterable) -> np.ndarray:
    """The same for names of any kind, -1 for None."""
    numbers: dict = {}
    return np.array([-1 if name is None else numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)


def of_parts(parts: list[np.ndarray | list]) -> np.ndarray:
    """Names of the parts end to end: whole numbers as arrays, or lists that hold other names too."""
    if all(isinstance(part, np.ndarray) for part in parts):
        return by_appearance(np.concatenate(parts))
    return of_names(itertools.chain.from_iterable(part if isinstance(part, list) else part.tolist() for part in parts))
