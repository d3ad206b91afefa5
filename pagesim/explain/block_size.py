"""Lesson: what a large block costs, and what a small one."""

import numpy as np

from pagesim.allocators import Paged
from pagesim.explain.lesson import Lesson, Question
from pagesim.explain.scene import region, run_of

_SIZES = (1, 16, 64, 256)
_LENGTHS = tuple(1 + 37 * k % 800 for k in range(100))
_HEAD_BYTES = 128 * 2  # K of a token in one head: 128 dimensions, bf16
_ASKED, _SEQUENCES = 33, 1000


def block_size() -> Lesson:
    """A hundred sequences of 1 to 800 tokens in blocks of 1, 16, 64 and 256."""
    stored = sum(_LENGTHS)
    rows = []
    for size in _SIZES:
        run = run_of([region(length, 1) for length in _LENGTHS], Paged(size), 2 * stored)
        run.advance(1)
        blocks = int(np.count_nonzero(run.num_owners()))
        empty = blocks * size - stored
        rows.append(f"  {size:6}  {empty / len(_LENGTHS):12.1f}  {(size - 1) / 2:9.1f}  "
                    f"{100 * empty / (blocks * size):6.1f} %  {blocks:7,}  {_bytes(size * _HEAD_BYTES):>9}")
    answer = (_ASKED - 1) / 2 * _SEQUENCES
    lines = (
        f"A hundred sequences of 1 to 800 tokens, {stored:,} in all, in blocks of four sizes:",
        "",
        "   block  empty slots of           share of     table  bytes that",
        "    size  a sequence     (B−1)/2   memory     entries  are adjacent",
        *rows,
        "",
        "Only the last block of a sequence has room left, half of it on average: large",
        "blocks waste memory, the more the shorter the sequences.  Small blocks cost on",
        "the way: every block is an entry of a table that the kernel looks up, and a",
        "piece of memory by itself; reading small pieces is slow, and so is a block that",
        "is no multiple of what a tensor core takes at once.  vLLM's 16 is a compromise.",
    )
    return Lesson("What a block size costs", lines, Question(
        f"{_SEQUENCES:,} sequences in blocks of {_ASKED}: about how many slots are empty, by the rule of (B−1)/2?",
        int(answer), f"({_ASKED} − 1) / 2 = {(_ASKED - 1) // 2} a sequence, {_SEQUENCES:,} sequences"))


def _bytes(count: int) -> str:
    return f"{count // 1024} KiB" if count >= 1024 else f"{count} B"
