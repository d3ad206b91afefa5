"""A recording of SGLang's radix cache: its requests with their tokens, and its operations in order."""

import gzip
import json
from pathlib import Path

FOLDER = Path(__file__).parent / "sglang"
NAMES = ("a_tiny", "b_tree", "c_page16", "d_sessions", "e_chunked", "f_lfu", "f_fifo")


def read(name: str) -> dict:
    return json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))


def tokens_of(segments: list[list[int]]) -> list[int]:
    return [1000 * segment + i for segment, count in segments for i in range(count)]


def runs(slots: list[int]) -> list[list[int]]:
    """Neighbours ``first, first + 1, …`` as one ``[first, count]``."""
    found = []
    for slot in slots:
        if found and slot == sum(found[-1]):
            found[-1][1] += 1
        else:
            found.append([slot, 1])
    return found
