"""Lesson: one wrong entry in a block table, through the real decode kernel.

The importer chooses Triton's interpreter, or a GPU, before this module is imported.
"""

import numpy as np
import torch

from pagesim.allocators.ask import Ask, Demand
from pagesim.allocators.paged import Paged, admit, ids, make
from pagesim.core.blocktables import BlockTables, from_rows
from pagesim.errors import InputError
from pagesim.explain.lesson import Lesson, Question
from pagesim.kernels.cache import Cache, poisoned_pool
from pagesim.kernels.dispatch import paged_decode, plan_decode, write_cache

NAMES = "ABC"
_LENGTHS = np.array([40, 50, 20])
_BLOCK = 16
_NUM_BLOCKS = 12
_KV_HEADS, _Q_HEADS, _HEAD_DIM = 2, 4, 32
B, ENTRY = 1, 1


class Batch:
    """Three sequences whose keys and values the kernels wrote into a pool; slots that nobody owns hold NaN."""

    def __init__(self) -> None:
        slots = _NUM_BLOCKS * _BLOCK
        pool = make(Paged(_BLOCK), slots, Demand(len(NAMES), slots, slots, slots, len(NAMES)), None)
        for row, length in enumerate(_LENGTHS):
            admit(pool, row, Ask.of(length), length, step=0)
        rows = [ids(pool, row) for row in range(len(NAMES))]
        self.tables = from_rows(rows, _LENGTHS, _BLOCK, _NUM_BLOCKS)
        generator = torch.Generator().manual_seed(0)
        k, v = torch.randn((2, int(_LENGTHS.sum()), _KV_HEADS, _HEAD_DIM), generator=generator)
        self._q = torch.randn((len(NAMES), 1, _Q_HEADS, _HEAD_DIM), generator=generator)
        self._cache = Cache(*(poisoned_pool(_NUM_BLOCKS, _BLOCK, _KV_HEADS, _HEAD_DIM, layout="NHD",
                                            dtype=torch.float32, device="cpu") for _ in range(2)))
        write_cache(k, v, self._cache, torch.from_numpy(self.tables.slots()))

    def decode(self, table: np.ndarray) -> torch.Tensor:
        """Output of each sequence's newest token by this table, shape (3, query heads, head_dim)."""
        plan = plan_decode(self._q, self._cache, _LENGTHS)
        lengths = torch.from_numpy(_LENGTHS.astype(np.int32))
        return paged_decode(self._q, self._cache, torch.from_numpy(table), lengths, plan)[:, 0]


def corrupt() -> Lesson:
    """Entry 1 of B's table is set to a block of A's, then to one that nobody owns; then two entries change places."""
    batch = Batch()
    dense = batch.tables.dense()
    foreign, unowned = int(dense[0, 0]), _NUM_BLOCKS - 1
    right = batch.decode(dense)
    lines = [
        f"Three sequences, blocks of {_BLOCK} slots, real keys and values in the pool:",
        "",
        *(f"  {name}  {length} tokens   table {batch.tables.table(i).tolist()}"
          for i, (name, length) in enumerate(zip(NAMES, _LENGTHS))),
        "",
        "The paged decode kernel runs with these tables, then with a wrong entry of B's:",
        "",
        f"  B[{ENTRY}] = {foreign}, a block of A's:",
        _changes(right, batch.decode(_with_entry(dense, foreign))),
        f"  B[{ENTRY}] = {unowned}, which nobody has written:",
        _changes(right, batch.decode(_with_entry(dense, unowned))),
        "",
        "Nothing crashed and nobody was told: in the first case B's answer was made from",
        "A's text.  A and C are as they were, bit for bit.  The tables show the mistake,",
        "so they are checked before a kernel runs:",
        "",
        f"  {_complaint(batch.tables, foreign)}",
    ]
    swapped = dense.copy()
    swapped[B, [0, 1]] = dense[B, [1, 0]]
    change = float((batch.decode(swapped)[B] - right[B]).abs().max())
    return Lesson("One wrong entry in a block table", tuple(lines), Question(
        "B's entries 0 and 1 change places; both blocks are full.  Does B's output change? (yes or no)",
        "yes" if change > 1e-5 else "no",
        "attention sums over all stored tokens in any order, and a token's position went into its key before it was "
        f"stored; the kernel's largest change is {change:.0e}, rounding"))


def _with_entry(dense: np.ndarray, block: int) -> np.ndarray:
    wrong = dense.copy()
    wrong[B, ENTRY] = block
    return wrong


def _changes(right: torch.Tensor, wrong: torch.Tensor) -> str:
    changes = []
    for name, before, after in zip(NAMES, right, wrong):
        if torch.equal(before, after):
            changes.append(f"{name} unchanged")
        elif after.isnan().any():
            changes.append(f"{name} NaN")
        else:
            changes.append(f"{name} changed by up to {(after - before).abs().max():.2f}")
    return f"      {', '.join(changes)}"


def _complaint(tables: BlockTables, block: int) -> str:
    """What ``BlockTables.validate`` says of the table with the foreign block."""
    rows = [tables.table(i).copy() for i in range(tables.num_seqs)]
    rows[B][ENTRY] = block
    try:
        from_rows(rows, tables.lengths, tables.block_size, tables.num_blocks).validate()
    except InputError as error:
        return str(error)
    raise AssertionError("a block owned twice must be refused")
