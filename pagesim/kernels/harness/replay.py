"""Simulated steps on real memory: table entries are uploaded, tokens written and attended to, every row checked.

The simulator has the block tables on the host.  The GPU has a copy that receives only what a step adds, as an engine's
does: rows of sequences that ended stay as they are until another sequence takes them, and blocks keep their old owner's
keys until they are overwritten.  What the pool should hold is kept beside it, so that a stale entry, a write to the
wrong slot or a read behind a sequence's end shows in the output.  In a snapshot every sequence is new.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from pagesim.core.blocktables import BlockTables
from pagesim.errors import InputError
from pagesim.kernels.cache import Cache, poisoned_pool
from pagesim.kernels.dispatch import paged_decode, paged_prefill, plan_decode
from pagesim.kernels.dispatch_mla import paged_decode_mla, plan_decode_mla
from pagesim.kernels.general.cache_write import write_cache
from pagesim.kernels.harness.check import Verdict, compare
from pagesim.kernels.harness.contents import Contents, Model
from pagesim.kernels.reference import attention

WRITE_TOKENS = 65_536  # written at once, so that new keys and values need little memory beside the pool


@dataclass(frozen=True)
class Row:
    """One kernel, one layer, one step.

    Attributes:
        kernel: ``decode (hopper)``, ``decode (general)``, the same with ``mla,`` before the name, or ``prefill``.
        num_seqs, num_tokens: sequences and tokens of their caches that it read.
        where: place of the worst row in the tables, its query and head; () where there are no rows.
    """

    step: int | None
    kernel: str
    layer: int
    num_seqs: int
    num_tokens: int
    verdict: Verdict
    where: tuple[int, ...]


@dataclass
class _Sequence:
    """A running sequence: its row of the table on the GPU, what was uploaded of it, and what its slots hold."""

    row: int
    uploaded: np.ndarray
    contents: Contents


class Replay:
    """The pool, the table on the GPU and its running sequences.

    Args:
        steps: all tables that will be given to ``step``, for the sizes: of one pool, in the order of time.
        device: ``cuda``, or ``cpu`` with Triton's interpreter.
        prefill_tokens: a sequence with several new tokens runs its last so many through the prefill kernel too.
    """

    def __init__(self, steps: list[BlockTables], model: Model, device: str, *, prefill_tokens: int,
                 seed: int = 0) -> None:
        self.model, self.device, self.prefill_tokens = model, torch.device(device), prefill_tokens
        self.num_blocks, self.block_size = steps[0].num_blocks, steps[0].block_size
        for tables in steps:
            if (tables.num_blocks, tables.block_size) != (self.num_blocks, self.block_size):
                raise InputError("the steps of a replay must be of one pool")
            tables.validate()
        if len(steps) > 1 and any(tables.shared for tables in steps):
            raise InputError("a replay of several steps takes no shared blocks: a sequence that joins another's would "
                             "write what they hold again")
        self._generator = torch.Generator(self.device).manual_seed(seed)
        self._caches = [self._make_cache() for _ in range(model.layers)]
        rows = max([1, *(tables.num_seqs for tables in steps)])
        columns = max([1, *(int(np.diff(tables.offsets).max(initial=0)) for tables in steps)])
        self._table = torch.zeros((rows, columns), dtype=torch.int32, device=self.device)
        self._lengths = torch.zeros(rows, dtype=torch.int32, device=self.device)
        self._free_rows = list(range(rows))[::-1]
        self._running: dict[tuple[int, int], _Sequence] = {}
        self.num_slots = 0  # that hold a token of the last step, each once

    def _make_cache(self) -> Cache:
        """K and V of a layer; with MLA one cache, twice."""
        model = self.model
        pools = [poisoned_pool(self.num_blocks, self.block_size, model.num_kv_heads, model.head_dim,
                               layout=model.layout, dtype=model.cache_dtype, device=self.device)
                 for _ in range(2 if model.latent_dim is None else 1)]
        return model.cache(pools[0], pools[-1])

    def step(self, tables: BlockTables) -> list[Row]:
        """Follow the simulation by one step and check every output row of every layer."""
        sequences, num_new = self._follow(tables)
        self._write(tables, sequences, num_new)
        self.num_slots = len(np.unique(tables.slots()))
        rows = self.rows(tables)
        self._lengths.zero_()
        self._lengths[rows] = torch.from_numpy(tables.lengths.astype(np.int32)).to(self.device)
        reports = []
        for layer in range(self.model.layers):
            reports.append(self._decode(tables, sequences, rows, layer))
            if (num_new > 1).any() and self.prefill_tokens > 0 and self.model.latent_dim is None:
                reports.append(self._prefill(tables, sequences, num_new, rows, layer))
        return reports

    def _follow(self, tables: BlockTables) -> tuple[list[_Sequence], np.ndarray]:
        """Give rows to new sequences, take them from ended ones, upload new entries; new tokens of each, int64."""
        keys = _keys(tables.seq_ids)
        before = self._running
        self._running = {}
        for place, key in enumerate(keys):
            old = before.get(key)
            if old is not None and _continues(old, tables.table(place), int(tables.lengths[place])):
                self._running[key] = before.pop(key)
        self._free_rows += sorted((sequence.row for sequence in before.values()), reverse=True)
        uploads = []
        num_new = np.zeros(tables.num_seqs, np.int64)
        for place, key in enumerate(keys):
            if key not in self._running:
                self._running[key] = _Sequence(self._free_rows.pop(), np.empty(0, np.int32),
                                               Contents(self.model, self.device))
            sequence = self._running[key]
            table = tables.table(place)
            have = len(sequence.uploaded)
            columns = np.arange(have, len(table))
            uploads.append(np.stack([np.full(len(columns), sequence.row), columns, table[have:].astype(np.int64)]))
            sequence.uploaded = table
            num_new[place] = tables.lengths[place] - sequence.contents.length
        row, column, block = torch.from_numpy(np.concatenate([np.empty((3, 0), np.int64), *uploads], 1)).to(self.device)
        self._table[row, column] = block.int()
        return [self._running[key] for key in keys], num_new

    def _write(self, tables: BlockTables, sequences: list[_Sequence], num_new: np.ndarray) -> None:
        """Draw keys and values of the new tokens and store them in the slots that the simulator gave them."""
        most = max(WRITE_TOKENS, int(tables.lengths.sum())) if tables.shared else WRITE_TOKENS
        slots = np.split(tables.slots(), np.cumsum(tables.lengths)[:-1]) if tables.num_seqs else []
        batch: list[tuple[_Sequence, np.ndarray]] = []
        for sequence, own, new in zip(sequences, slots, num_new, strict=True):
            for part in np.split(own[len(own) - new:], range(most, new, most)):
                if sum(len(x) for _, x in batch) + len(part) > most:
                    self._write_batch(batch)
                    batch = []
                batch.append((sequence, part))
        self._write_batch(batch)

    def _write_batch(self, batch: list[tuple[_Sequence, np.ndarray]]) -> None:
        counts = [len(slots) for _, slots in batch]
        if not sum(counts):
            return
        model = self.model
        slots = np.concatenate([slots for _, slots in batch])
        shape = (model.layers, 2, len(slots), model.num_kv_heads, model.head_dim)
        new = torch.randn(shape, generator=self._generator, device=self.device).to(model.dtype)
        if model.latent_dim is not None:
            new[:, 1] = new[:, 0]  # both go to the one cache
        _, first, place = np.unique(slots, return_index=True, return_inverse=True)
        if len(first) < len(slots):  # a slot that sequences share holds one token, written once
            new = new[:, :, torch.from_numpy(first[place]).to(self.device)]
            slots = np.where(first[place] == np.arange(len(slots)), slots, -1)
        slots = torch.from_numpy(slots).to(self.device)
        for layer, cache in enumerate(self._caches):
            write_cache(*new[layer], cache, slots)
        for (sequence, _), own in zip(batch, new.split(counts, 2), strict=True):
            sequence.contents.append(own)

    def _decode(self, tables: BlockTables, sequences: list[_Sequence], rows: torch.Tensor, layer: int) -> Row:
        q = self.queries()
        out, kernel = self.decode(q, layer)
        verdict = compare(out[rows], self._expected(q[rows], sequences, layer))
        return self._row(tables, f"decode ({kernel})", layer, np.arange(tables.num_seqs), verdict)

    def queries(self) -> torch.Tensor:
        """Random queries for every row of the table, (rows, 1, num_q_heads, head_dim)."""
        return self._queries(len(self._table))

    def lengths(self) -> np.ndarray:
        """Visible tokens of every row of the table, 0 where no sequence has it, int64."""
        return self._lengths.cpu().numpy().astype(np.int64)

    def rows(self, tables: BlockTables) -> torch.Tensor:
        """Row of each sequence of the last step's tables."""
        return torch.tensor([self._running[key].row for key in _keys(tables.seq_ids)], dtype=torch.int64,
                            device=self.device)

    def cache(self, layer: int) -> Cache:
        return self._caches[layer]

    def overwrite(self, tables: BlockTables, place: int, entry: int, block: int) -> None:
        """Put a wrong block into the GPU's copy of the table."""
        self._table[self.rows(tables)[place], entry] = block

    def prepare(self, q: torch.Tensor, layer: int) -> tuple[Callable[[], torch.Tensor], str]:
        """A call that gives the outputs of all rows of the table, and the name of its kernel."""
        model, cache = self.model, self._caches[layer]
        out = q.new_full((*q.shape[:-1], model.latent_dim or model.head_dim), float("nan"))
        if model.latent_dim is not None:
            vectors = cache.k.squeeze(2 if model.layout == "NHD" else 1)
            plan = plan_decode_mla(q, vectors, self.lengths(), latent_dim=model.latent_dim)
            return lambda: paged_decode_mla(q, vectors, self._table, self._lengths, plan, latent_dim=model.latent_dim,
                                            scale=model.head_dim ** -0.5, cache_scale=model.cache_scale,
                                            out=out), f"mla, {plan.kernel}"
        plan = plan_decode(q, cache, self.lengths(), self._table.cpu().numpy())
        return lambda: paged_decode(q, cache, self._table, self._lengths, plan, out=out), plan.kernel

    def decode(self, q: torch.Tensor, layer: int) -> tuple[torch.Tensor, str]:
        """Outputs of all rows of the table, and the name of the kernel that made them."""
        call, kernel = self.prepare(q, layer)
        return call(), kernel

    def _prefill(self, tables: BlockTables, sequences: list[_Sequence], num_new: np.ndarray, rows: torch.Tensor,
                 layer: int) -> Row:
        places = np.flatnonzero(num_new > 1)
        q_lens = np.minimum(num_new[places], self.prefill_tokens)
        first = np.concatenate([[0], np.cumsum(q_lens)])
        q = self._queries(int(first[-1]))[:, 0]
        own = rows[torch.from_numpy(places).to(self.device)]
        out = paged_prefill(q, self._caches[layer], self._table[own], self._lengths[own],
                            torch.from_numpy(first.astype(np.int32)).to(self.device), int(q_lens.max()),
                            out=torch.full_like(q, float("nan")))
        expected = [self._expected(q[None, a:b], [sequences[place]], layer)[0]
                    for place, a, b in zip(places, first[:-1], first[1:], strict=True)]
        verdict = compare(out, torch.cat(expected))
        query, head = verdict.where
        place = int(np.searchsorted(first, query, side="right")) - 1
        where = (int(places[place]), int(query - first[place]), head)
        return replace(self._row(tables, "prefill", layer, places, verdict), where=where)

    def _queries(self, count: int) -> torch.Tensor:
        shape = (count, 1, self.model.num_q_heads, self.model.head_dim)
        return torch.randn(shape, generator=self._generator, device=self.device).to(self.model.dtype)

    def _expected(self, q: torch.Tensor, sequences: list[_Sequence], layer: int) -> torch.Tensor:
        """The definition in float64 over what the sequences' slots should hold."""
        width = self.model.latent_dim or self.model.head_dim
        out = torch.empty((*q.shape[:-1], width), dtype=torch.float64, device=q.device)
        for i, sequence in enumerate(sequences):
            out[i] = attention(q[i].double(), *sequence.contents.meant(layer))
        return out

    def _row(self, tables: BlockTables, kernel: str, layer: int, places: np.ndarray, verdict: Verdict) -> Row:
        return Row(tables.origin.get("step"), kernel, layer, len(places), int(tables.lengths[places].sum()), verdict,
                   verdict.where)


def _keys(seq_ids: np.ndarray) -> list[tuple[int, int]]:
    """A name for each sequence: its number, and which of the sequences of that number it is (parallel samples)."""
    seen: dict[int, int] = {}
    keys = []
    for seq_id in seq_ids.tolist():
        seen[seq_id] = seen.get(seq_id, -1) + 1
        keys.append((seq_id, seen[seq_id]))
    return keys


def _continues(sequence: _Sequence, table: np.ndarray, length: int) -> bool:
    """Whether the table is that of the step before, possibly longer; else the sequence was preempted and came back."""
    return (length >= sequence.contents.length and len(table) >= len(sequence.uploaded)
            and np.array_equal(table[:len(sequence.uploaded)], sequence.uploaded))
