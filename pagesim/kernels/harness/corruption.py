"""What one wrong table entry does to the outputs of a replayed step."""

from dataclasses import dataclass

import numpy as np

from pagesim.core.blocktables import BlockTables
from pagesim.core.units import ceil_div
from pagesim.errors import InputError
from pagesim.kernels.harness.replay import Replay


@dataclass(frozen=True)
class Corruption:
    """Two entries exchanged on the GPU: whose outputs changed and whose did not.

    Attributes:
        place, entry, block: the entry that was asked for, and the block that it named.
        other_place, other_entry, other_block: what it was exchanged with; place and entry are None for a free block.
        changed, unchanged: places of sequences.
    """

    place: int
    entry: int
    block: int
    other_place: int | None
    other_entry: int | None
    other_block: int
    changed: list[int]
    unchanged: list[int]


def corrupt(replay: Replay, tables: BlockTables, place: int, entry: int) -> Corruption:
    """Exchange an entry with one of the next sequence, or with a free block, and decode again.

    Attention does not know the order of its tokens, so an exchange within one sequence would not show.

    Raises:
        InputError: no such entry, or no other block to exchange it with.
    """
    used = ceil_div(tables.lengths, tables.block_size)
    if not 0 <= place < tables.num_seqs:
        raise InputError(f"there is no sequence {place} to corrupt; they are 0 to {tables.num_seqs - 1}")
    if not 0 <= entry < used[place]:
        raise InputError(f"there is no entry {entry} to corrupt; the sequence uses entries 0 to {used[place] - 1}")
    block = int(tables.table(place)[entry])
    other_place, other_entry, other_block = _partner(tables, used, place, entry)
    q = replay.queries()
    right, _ = replay.decode(q, 0)
    replay.overwrite(tables, place, entry, other_block)
    if other_place is not None:
        replay.overwrite(tables, other_place, other_entry, block)
    wrong, _ = replay.decode(q, 0)
    rows = replay.rows(tables)
    differs = (right[rows] != wrong[rows]).flatten(1).any(1).tolist()
    return Corruption(place, entry, block, other_place, other_entry, other_block,
                      [i for i, d in enumerate(differs) if d], [i for i, d in enumerate(differs) if not d])


def _partner(tables: BlockTables, used: np.ndarray, place: int, entry: int) -> tuple[int | None, int | None, int]:
    own = tables.table(place)
    for step in range(1, tables.num_seqs):
        other = (place + step) % tables.num_seqs
        other_entry, theirs = min(entry, int(used[other]) - 1), tables.table(other)
        # A block that they share is not exchanged: a table never holds a block twice.
        if used[other] and theirs[other_entry] not in own and own[entry] not in theirs:
            return other, other_entry, int(theirs[other_entry])
    free = np.setdiff1d(np.arange(tables.num_blocks), tables.block_ids)
    if not len(free):
        raise InputError("there is no other sequence and no free block to exchange the entry with")
    return None, None, int(free[0])
