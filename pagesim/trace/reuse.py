"""What a prefix cache would find in a trace, by its size, without simulating: LRU, no limit, and the optimum.

Requests come one by one, in order of arrival.  Each hits the leading whole blocks of its prompt that the cache holds,
such that at least one prompt token stays to compute; then all its whole blocks are used and the cache keeps of all it
knows what its policy says.  Left out: while requests run their blocks cannot be dropped, and generated tokens and last,
partial blocks take room too, so that a real pool of this many blocks hits less; and where a next turn finds what the
turn before it generated, it hits more.
"""

from dataclasses import dataclass

import numpy as np

from pagesim.errors import TraceError
from pagesim.trace import reuse_pass
from pagesim.trace.numbering import by_appearance
from pagesim.trace.trace import Trace

LEFT_OUT = ("Left out: running requests hold their blocks, and generated tokens and partial blocks take room (a pool "
            "of this size hits less); a next turn finds what the one before generated (it hits more).")


@dataclass(frozen=True)
class Reuse:
    """Hits of caches of every size.

    Attributes:
        block_tokens: prompt tokens to one block.
        prompt_tokens: of all requests, what hit rates are shares of.
        num_blocks, num_distinct: whole blocks of all prompts, and how many differ.
        lru_blocks: blocks that an LRU cache of so many blocks hits, int64, shape (num_distinct + 1,).
    """

    block_tokens: int
    prompt_tokens: int
    num_blocks: int
    num_distinct: int
    lru_blocks: np.ndarray
    _uses: tuple[np.ndarray, np.ndarray, np.ndarray]

    def lru(self, capacity_blocks: int) -> float:
        """Hit rate by tokens of a least-recently-used cache: Σ hit tokens / Σ prompt tokens."""
        return self._rate(self.lru_blocks[min(capacity_blocks, self.num_distinct)])

    def optimal(self, capacity_blocks: int) -> float:
        """The most that any cache of this size can reach, which knows what will come (Belady)."""
        return self._rate(reuse_pass.optimal_hits(*self._uses, capacity_blocks))

    @property
    def unlimited(self) -> float:
        """Hit rate of a cache without limit."""
        return self._rate(self.lru_blocks[-1])

    @property
    def enough_blocks(self) -> int:
        """The smallest LRU cache that hits as much as one without limit."""
        return int(np.searchsorted(self.lru_blocks, self.lru_blocks[-1]))

    def _rate(self, hit_blocks: int) -> float:
        return int(hit_blocks) * self.block_tokens / self.prompt_tokens


def reuse(trace: Trace) -> Reuse:
    """One pass over the block ids in order: time n log n, some 40 bytes an id.

    Raises:
        TraceError: a trace without prefix ids.
    """
    if trace.prefix_ids is None:
        raise TraceError(f"{trace.source.path}: no prefix ids, and nothing else says which prompts are alike; "
                         "'pagesim trace generate --prefix-depth' draws a trace with some")
    tokens, prompt = trace.source.hash_block_tokens, trace.prompt_tokens.astype(np.int64)
    ids, offsets = trace.prefix_ids, trace.prefix_offsets
    if len(ids) and not 0 <= ids.min() <= ids.max() < len(ids):
        ids = by_appearance(ids)
    num_full = np.minimum(np.diff(offsets), prompt // tokens)
    num_countable = np.minimum(num_full, (prompt - 1) // tokens)
    blocks = ids, offsets, num_full, num_countable, int(ids.max(initial=-1)) + 1
    hits, num_distinct = reuse_pass.lru_hits(*blocks)
    return Reuse(tokens, int(prompt.sum()), int(num_full.sum()), num_distinct, np.cumsum(hits[:num_distinct + 1]),
                 (reuse_pass.next_uses(*blocks), offsets, num_full))


def sizes(reuse: Reuse, per_octave: int = 1) -> list[int]:
    """Ten doublings of size in blocks, up to the first power of two that hits all there is to hit."""
    last = max(reuse.enough_blocks - 1, 0).bit_length()
    steps = range(max(last - 10, 0) * per_octave, last * per_octave + 1)
    return sorted({round(2 ** (step / per_octave)) for step in steps})
