"""Batches to measure, and the ways in which their block tables may lie in the pool."""

from dataclasses import dataclass, field

import numpy as np

from pagesim.core.blocktables import BlockTables
from pagesim.errors import InputError

REAL_TABLES = ("contiguous", "simulated", "sorted", "shuffled")
UNREAL_TABLES = ("same", "repeats")  # other profilers': every sequence on the same blocks; random ids with repeats
MAX_DECODE_QUERIES = 16  # of a sequence; more are prefill
TABLES = REAL_TABLES + UNREAL_TABLES


@dataclass(frozen=True)
class Workload:
    """One step of a batch, for one layer.

    Attributes:
        lengths: visible tokens, int64, shape (num_seqs,).
        num_q_heads, num_kv_heads, head_dim: of the model; the default is Llama-3-8B.
        latent_dim: of an MLA model, whose heads share one cached vector of head_dim values, the first so many of which
            are the values too.
        q_len: query tokens of each sequence.
        shared: tokens that sequences have in common, in levels of (groups, tokens): each level divides the sequences
            in order into equal groups, each with so many tokens of its own behind those of the level before.
        snapshot: simulated tables of just these sequences, where there are any.
    """

    name: str
    lengths: np.ndarray = field(repr=False)
    num_q_heads: int = 32
    num_kv_heads: int = 8
    head_dim: int = 128
    q_len: int = 1
    latent_dim: int | None = None
    shared: tuple[tuple[int, int], ...] = ()
    snapshot: BlockTables | None = field(default=None, repr=False)

    @property
    def is_prefill(self) -> bool:
        return self.q_len > MAX_DECODE_QUERIES

    @property
    def flops(self) -> int:
        """Operations of both products, over the pairs of query and visible token."""
        pairs = self.q_len * self.lengths - self.q_len * (self.q_len - 1) // 2
        return 2 * self.num_q_heads * (self.head_dim + self.value_dim) * int(pairs.sum())

    @property
    def value_dim(self) -> int:
        return self.latent_dim or self.head_dim

    @property
    def kv_elements(self) -> int:
        """What is cached of every visible token of every sequence, read once for each."""
        return self._token_elements * int(self.lengths.sum())

    @property
    def unique_kv_elements(self) -> int:
        """The same, of what sequences share once for all of them."""
        if self.snapshot is not None:
            tokens = len(np.unique(self.snapshot.slots()))
        else:
            tokens = int(self.lengths.sum()) - sum((len(self.lengths) - groups) * n for groups, n in self.shared)
        return self._token_elements * tokens

    @property
    def _token_elements(self) -> int:
        """K and V, or with MLA one vector."""
        return (2 if self.latent_dim is None else 1) * self.num_kv_heads * self.head_dim


def ragged(num_seqs: int, mean_tokens: int, sigma: float, seed: int) -> np.ndarray:
    """Lognormal lengths of this mean; ``sigma`` is the deviation of their logarithm."""
    draws = np.random.default_rng(seed).lognormal(np.log(mean_tokens) - sigma**2 / 2, sigma, num_seqs)
    return np.maximum(1, np.rint(draws)).astype(np.int64)


def _stragglers() -> np.ndarray:
    lengths = ragged(128, 870, 1.0, 4)
    lengths[:5] = 16384, 1, 16, 17, 31
    return lengths


def _uniform(num_seqs: int, tokens: int) -> np.ndarray:
    return np.full(num_seqs, tokens, np.int64)


def _latents(name: str, lengths: np.ndarray, num_q_heads: int = 128) -> Workload:
    """Of DeepSeek-V3; 16 of its 128 heads are those of one GPU of eight."""
    return Workload(name, lengths, num_q_heads, 1, 576, latent_dim=512)


def builtin() -> dict[str, Workload]:
    """W1–W5, ragged R, small ones, several query tokens, shared prefixes S, a tree T, prefill P, MLA M, by name."""
    workloads = [
        Workload("W1", _uniform(64, 4096)),
        Workload("W2", _uniform(256, 1024)),
        Workload("W3", _uniform(1, 131072)),
        Workload("W4", _stragglers()),
        Workload("W5", _uniform(64, 2048), num_kv_heads=32),
        Workload("b1x128", _uniform(1, 128)),
        Workload("b1x4k", _uniform(1, 4096)),
        Workload("b8x512", _uniform(8, 512)),
        Workload("b4x1k", _uniform(4, 1024)),
        Workload("b4x4k", _uniform(4, 4096)),
        Workload("b16x1k", _uniform(16, 1024)),
        Workload("W1q4", _uniform(64, 4096), q_len=4),
        Workload("S1", _uniform(64, 8192 + 512), shared=((1, 8192),)),
        Workload("S2", _uniform(256, 2048 + 256), shared=((1, 2048),)),
        Workload("S3", _uniform(16, 32768 + 1024), shared=((1, 32768),)),
        Workload("T1", _uniform(128, 4096 + 4096 + 256), shared=((1, 4096), (16, 4096))),
        Workload("P1", _uniform(1, 8192), q_len=8192),
        Workload("P4", _uniform(4, 8192), q_len=2048),
        _latents("M1", _uniform(64, 4096)),
        _latents("M2", ragged(128, 2000, 1.0, 300)),
        _latents("M3", _uniform(1, 65536)),
        _latents("M4", _uniform(128, 4096), num_q_heads=16),
        _latents("M5", ragged(256, 2000, 1.0, 301), num_q_heads=16),
    ]
    shapes = [(128, 1024, 1.0), (128, 1024, 1.0), (128, 1024, 1.5), (64, 2048, 1.0), (256, 512, 1.0)]
    workloads += [Workload(f"R{i + 1}", ragged(*shape, seed=200 + i)) for i, shape in enumerate(shapes)]
    return {w.name: w for w in workloads}


def from_snapshot(name: str, tables: BlockTables, **model) -> Workload:
    """Every stored token of a simulated moment is visible to one query a sequence."""
    kept = tables.select(np.flatnonzero(tables.lengths > 0))
    return Workload(name, kept.lengths, snapshot=kept, **model)


def num_blocks_for(workload: Workload, block_size: int, kind: str, copies: int) -> int:
    """Blocks of the smallest pool that ``make_tables`` takes."""
    if kind == "simulated":
        return copies * workload.snapshot.num_blocks
    return copies * int(_blocks(workload, block_size).max(initial=-1) + 1)


def _blocks(workload: Workload, block_size: int) -> np.ndarray:
    """Which of a table's blocks each entry is, the entries of all rows end to end; shared ones are one block.

    Only whole blocks are shared.
    """
    counts = -(-workload.lengths // block_size)
    row = np.repeat(np.arange(len(counts)), counts)
    column = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    owner, end = row.copy(), 0
    for groups, tokens in workload.shared:
        first, end = end, end + tokens
        common = (column >= first // block_size) & (column < end // block_size)
        size = len(counts) // groups
        owner[common] = row[common] // size * size
    return np.unique(owner * (counts.max(initial=0) + 1) + column, return_inverse=True)[1]


def make_tables(workload: Workload, block_size: int, num_blocks: int, kind: str, copies: int,
                seed: int = 0) -> list[np.ndarray]:
    """``copies`` tables over one pool: int32, shape (num_seqs, max_blocks), 0 behind a row's end.

    They are disjoint but for the unreal kinds.
    Measuring them in turn keeps each from finding the last one's blocks in the cache.

    Raises:
        InputError: a kind that does not exist or does not fit this workload, or a pool too small.
    """
    if kind not in TABLES:
        raise InputError(f"tables must be one of {', '.join(TABLES)}, got {kind!r}")
    if kind == "simulated" and (workload.snapshot is None or workload.snapshot.block_size != block_size):
        size = f"its block size is {workload.snapshot.block_size}" if workload.snapshot else "it was not simulated"
        raise InputError(f"{workload.name} has no simulated tables of block size {block_size}: {size}")
    if num_blocks_for(workload, block_size, kind, copies) > num_blocks:
        raise InputError(f"a pool of {num_blocks} blocks is too small for {copies} tables of {workload.name}")
    if kind == "sorted" and workload.shared:
        raise InputError(f"sorted tables would take apart what the sequences of {workload.name} share")
    rng = np.random.default_rng(seed)
    if kind == "simulated":
        return [workload.snapshot.dense() + copy * workload.snapshot.num_blocks for copy in range(copies)]
    counts = -(-workload.lengths // block_size)
    blocks = _blocks(workload, block_size)
    total = int(blocks.max(initial=-1) + 1)
    ids = rng.permutation(num_blocks) if kind in ("shuffled", "sorted") else np.arange(num_blocks)
    used = np.arange(counts.max(initial=0))[None, :] < counts[:, None]
    tables = []
    for copy in range(copies):
        table = np.zeros(used.shape, np.int32)
        if kind == "repeats":
            table[used] = rng.integers(0, num_blocks, total)[blocks]
        elif kind == "same":
            table[:] = copy * total + np.arange(used.shape[1])
        else:
            table[used] = ids[copy * total:(copy + 1) * total][blocks]
        if kind == "sorted":
            table = np.where(used, np.sort(np.where(used, table, np.iinfo(np.int32).max), 1), 0).astype(np.int32)
        tables.append(table)
    return tables
