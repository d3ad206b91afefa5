"""The block tables of many sequences at one instant: what the simulator exports and the kernels take."""

import json
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from pagesim.core.files import replacing
from pagesim.errors import InputError

FORMAT = "pagesim block tables 1"
_ARRAYS = {"block_ids": np.int32, "offsets": np.int64, "lengths": np.int64, "seq_ids": np.int64}


@dataclass(frozen=True)
class BlockTables:
    """Token ``p`` of sequence ``i`` lies in slot ``p % block_size`` of block ``table(i)[p // block_size]``.

    A sequence may own more blocks than its tokens fill.  A contiguous region is a table of block size 1.

    Attributes:
        block_ids: all tables end to end, int32, shape (num_entries,).
        offsets: sequence i owns ``block_ids[offsets[i]:offsets[i + 1]]``, int64, shape (num_seqs + 1,).
        lengths: tokens stored, int64, shape (num_seqs,).
        block_size: slots in a block, >= 1.
        num_blocks: blocks in the pool; ids are in [0, num_blocks).
        seq_ids: the simulator's number of each sequence, int64, shape (num_seqs,).
        origin: where the tables came from (trace, allocator, step, time, model shape): plain values that JSON can hold.
        shared: a block may stand in several tables (a prefix that they share), though never twice in one.

    Raises:
        InputError: dtypes or shapes that do not fit together.  Contents are checked by ``validate``.
    """

    block_ids: np.ndarray
    offsets: np.ndarray
    lengths: np.ndarray
    block_size: int
    num_blocks: int
    seq_ids: np.ndarray
    origin: dict = field(default_factory=dict)
    shared: bool = False

    def __post_init__(self) -> None:
        for name, dtype in _ARRAYS.items():
            array = getattr(self, name)
            if array.dtype != dtype or array.ndim != 1:
                raise InputError(f"{name} must be {np.dtype(dtype)} of one dimension, "
                                 f"got {array.dtype} of shape {array.shape}")
        if self.block_size < 1 or self.num_blocks < 0:
            raise InputError("block_size must be at least 1 and num_blocks at least 0, "
                             f"got {self.block_size} and {self.num_blocks}")
        if len(self.offsets) != len(self.lengths) + 1 or len(self.seq_ids) != len(self.lengths):
            raise InputError(f"{len(self.lengths)} lengths need {len(self.lengths) + 1} offsets and as many seq_ids, "
                             f"got {len(self.offsets)} and {len(self.seq_ids)}")
        if self.offsets[0] != 0 or self.offsets[-1] != len(self.block_ids) or (np.diff(self.offsets) < 0).any():
            raise InputError(f"offsets must rise from 0 to the {len(self.block_ids)} entries of block_ids")

    @property
    def num_seqs(self) -> int:
        return len(self.lengths)

    def table(self, seq: int) -> np.ndarray:
        """Block ids of the sequence at position ``seq``, int32, in the order of its tokens."""
        return self.block_ids[self.offsets[seq]:self.offsets[seq + 1]]

    def slots(self) -> np.ndarray:
        """Slot of every stored token, ``block · block_size + place in it``, sequence after sequence, int64."""
        token = np.arange(self.lengths.sum()) - np.repeat(np.cumsum(self.lengths) - self.lengths, self.lengths)
        entry = np.repeat(self.offsets[:-1], self.lengths) + token // self.block_size
        return self.block_ids[entry].astype(np.int64) * self.block_size + token % self.block_size

    def validate(self) -> None:
        """Check what the kernels rely on: an id out of range would read foreign memory.

        Raises:
            InputError: an id outside the pool, too few entries for a length, or a block owned twice that may not be.
                The message names sequence and entry, both counted from 0.
        """
        entries = np.diff(self.offsets)
        needed = -(-self.lengths // self.block_size)
        wrong = np.flatnonzero((self.lengths < 0) | (needed > entries))
        if len(wrong):
            seq = int(wrong[0])
            raise InputError(f"sequence {seq} has {self.lengths[seq]} tokens and {entries[seq]} table entries of "
                             f"{self.block_size} slots; a length is at least 0 and fits its entries")
        wrong = np.flatnonzero((self.block_ids < 0) | (self.block_ids >= self.num_blocks))
        if len(wrong):
            raise InputError(f"{self._place(wrong[0])} is block {self.block_ids[wrong[0]]}, "
                             f"outside the pool of {self.num_blocks} blocks")
        self._refuse_twice_owned()

    def _refuse_twice_owned(self) -> None:
        keys = self.block_ids.astype(np.int64)
        if self.shared:
            keys += self._owners() * self.num_blocks
        order = np.argsort(keys, kind="stable")
        twice = np.flatnonzero(np.diff(keys[order]) == 0)
        if len(twice):
            first, second = order[twice[0]], order[twice[0] + 1]
            raise InputError(f"block {self.block_ids[first]} is owned twice: "
                             f"by {self._place(first)} and by {self._place(second)}")

    def _owners(self) -> np.ndarray:
        return np.repeat(np.arange(self.num_seqs), np.diff(self.offsets))

    def _place(self, index: int) -> str:
        seq = int(np.searchsorted(self.offsets, index, side="right")) - 1
        return f"sequence {seq} entry {int(index - self.offsets[seq])}"

    def dense(self, *, fill: int = 0) -> np.ndarray:
        """Tables as rows of equal width, int32, shape (num_seqs, max_blocks); ``fill`` stands behind a row's end."""
        entries = np.diff(self.offsets)
        table = np.full((self.num_seqs, int(entries.max(initial=0))), fill, np.int32)
        columns = np.arange(len(self.block_ids)) - np.repeat(self.offsets[:-1], entries)
        table[self._owners(), columns] = self.block_ids
        return table

    def select(self, seqs: np.ndarray) -> "BlockTables":
        """The sequences at these positions, in this order, in the same pool."""
        rows = [self.table(int(seq)) for seq in seqs]
        return from_rows(rows, self.lengths[seqs], self.block_size, self.num_blocks, seq_ids=self.seq_ids[seqs],
                         origin=self.origin, shared=self.shared)

    def save(self, path: str | Path) -> None:
        """Write an ``.npz`` without pickled objects; the name is kept as it is given."""
        with replacing(Path(path), "wb") as file:
            np.savez_compressed(file, format=FORMAT, **{name: getattr(self, name) for name in _ARRAYS},
                                block_size=self.block_size, num_blocks=self.num_blocks, shared=self.shared,
                                origin=json.dumps(self.origin))


def from_rows(rows: list, lengths, block_size: int, num_blocks: int, *, seq_ids=None,
              origin: dict | None = None, shared: bool = False) -> BlockTables:
    """Tables from one sequence of block ids a row; ``seq_ids`` defaults to 0, 1, 2, …"""
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    ids = np.concatenate([np.asarray(row, np.int32) for row in rows]) if rows else np.empty(0, np.int32)
    seq_ids = np.arange(len(rows)) if seq_ids is None else seq_ids
    return BlockTables(ids, offsets, np.asarray(lengths, np.int64), block_size, num_blocks,
                       np.asarray(seq_ids, np.int64), origin or {}, shared)


def renumbered(steps: list[BlockTables]) -> list[BlockTables]:
    """The same tables in the smallest pool that holds them all: ids keep their order and become 0, 1, 2, …"""
    used = np.unique(np.concatenate([np.empty(0, np.int32), *(tables.block_ids for tables in steps)]))
    return [replace(tables, block_ids=np.searchsorted(used, tables.block_ids).astype(np.int32), num_blocks=len(used))
            for tables in steps]


def load(path: str | Path) -> BlockTables:
    """Read what ``save`` wrote.

    Raises:
        InputError: the file is missing, is not such an ``.npz``, or holds what ``validate`` refuses.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            if "format" not in file or str(file["format"]) != FORMAT:
                raise InputError(f"{path}: not a snapshot of block tables ('{FORMAT}'); "
                                 "pagesim simulate --snapshot peak writes one")
            arrays = {name: file[name] for name in _ARRAYS}
            tables = BlockTables(**arrays, block_size=int(file["block_size"]), num_blocks=int(file["num_blocks"]),
                                 origin=json.loads(str(file["origin"])), shared=bool(file.get("shared", False)))
            tables.validate()
            return tables
    except InputError as error:
        raise error if str(path) in str(error) else InputError(f"{path}: {error}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (KeyError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: cannot be read as a snapshot of block tables: {error}") from None
