"""Seeded traces: lengths, arrivals, shared prefixes, chats, parallel samples."""

import math
from dataclasses import dataclass, replace

import numpy as np

from pagesim.core.units import ceil_div
from pagesim.errors import InputError
from pagesim.trace.arrivals import draw_arrivals
from pagesim.trace.conversations import Chats, Texts, block_ids, grown
from pagesim.trace.instants import whole_ns
from pagesim.trace.lengths import Lengths, refuse_unless_positive
from pagesim.trace.numbering import by_appearance
from pagesim.trace.sessions import NONE, earliest, permuted
from pagesim.trace.trace import Source, Trace

_ATTEMPTS = 1000
_BATCH = 2**20  # pairs drawn at once: the float64 of a whole week's requests would take gigabytes
_MAX_INT32 = 2**31 - 1


@dataclass(frozen=True)
class Bounds:
    """Requests outside are drawn again, never cut: the lengths that stay are distributed as a filtered trace's.

    None bounds nothing but what int32 holds.
    """

    max_prompt_tokens: int | None = None
    max_output_tokens: int | None = None
    max_total_tokens: int | None = None

    def fits(self, prompt_tokens: np.ndarray, output_tokens: np.ndarray) -> np.ndarray:
        """Which requests are inside, bool."""
        return ((prompt_tokens <= (self.max_prompt_tokens or _MAX_INT32))
                & (output_tokens <= (self.max_output_tokens or _MAX_INT32))
                & (prompt_tokens + output_tokens <= (self.max_total_tokens or _MAX_INT32)))


@dataclass(frozen=True)
class Steady:
    """A renewal process with gamma intervals; ``cv`` 1 is Poisson."""

    rate: float
    cv: float = 1.0

    def __post_init__(self) -> None:
        refuse_unless_positive("an arrival process", rate=self.rate, cv=self.cv)

    def draw(self, rng: np.random.Generator, num: int) -> np.ndarray:
        return draw_arrivals(rng, num, self.rate, self.cv)


@dataclass(frozen=True)
class Bursty:
    """Poisson arrivals in bursts of exponential length, nothing between them; over all ``rate`` requests per second.

    Attributes:
        on_s, off_s: mean length of a burst and of the quiet after it.
    """

    rate: float
    on_s: float
    off_s: float

    def __post_init__(self) -> None:
        refuse_unless_positive("an arrival process", rate=self.rate, on_s=self.on_s, off_s=self.off_s)

    def draw(self, rng: np.random.Generator, num: int) -> np.ndarray:
        # On a clock that stands still in the quiet.
        busy_s = draw_arrivals(rng, num, self.rate * (self.on_s + self.off_s) / self.on_s)
        ends_s = np.zeros(1)
        while ends_s[-1] <= busy_s[-1]:
            ends_s = np.concatenate((ends_s, ends_s[-1] + np.cumsum(rng.exponential(self.on_s, 1 + num // 8))))
        quiet_s = np.concatenate(([0.0], np.cumsum(rng.exponential(self.off_s, len(ends_s)))))
        return busy_s + quiet_s[np.searchsorted(ends_s[1:], busy_s, side="right")]


@dataclass(frozen=True)
class PrefixTree:
    """Prompts begin with the texts on a path from a root to a leaf: system prompt, then tools, then document.

    Attributes:
        depth: texts on a path.
        fanout: roots, and children of every node.
        node_tokens: length of a text, whole blocks of it.
        block_tokens: prompt tokens to one prefix id.
        share: of the requests that begin so; the others share nothing.
    """

    depth: int = 2
    fanout: int = 4
    node_tokens: int = 512
    block_tokens: int = 16
    share: float = 1.0

    def __post_init__(self) -> None:
        if min(self.depth, self.fanout, self.block_tokens) < 1 or not 0 <= self.share <= 1:
            raise InputError("a prefix tree needs depth, fanout and block_tokens of at least 1 and a share in [0, 1], "
                             f"got {self}")
        if self.depth * math.log2(self.fanout) > 60:
            raise InputError(f"a prefix tree of depth {self.depth} and fanout {self.fanout} has more paths than can be "
                             "counted; lower one of them")
        if self.node_tokens < 1 or self.node_tokens % self.block_tokens:
            raise InputError(f"node_tokens must be whole blocks of {self.block_tokens} tokens, got {self.node_tokens}")

    def draw(self, rng: np.random.Generator, prompt_tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ids of all prompts' blocks and each prompt's offset; a block not wholly of shared text has its own id."""
        num = len(prompt_tokens)
        leaf = rng.integers(self.fanout**self.depth, size=num)
        shares = rng.random(num) < self.share
        node_blocks = self.node_tokens // self.block_tokens
        num_blocks = ceil_div(prompt_tokens.astype(np.int64), self.block_tokens)
        offsets = np.concatenate(([0], np.cumsum(num_blocks)))
        owner = np.repeat(np.arange(num), num_blocks)
        block = np.arange(offsets[-1]) - offsets[owner]
        level = np.minimum(block // node_blocks, self.depth - 1)
        node = leaf[owner] // self.fanout ** (self.depth - 1 - level)
        whole = (block + 1) * self.block_tokens <= prompt_tokens[owner]
        is_shared = shares[owner] & whole & (block < self.depth * node_blocks)
        shared_key = -1 - ((level * self.fanout**self.depth + node) * node_blocks + block % node_blocks)
        return by_appearance(np.where(is_shared, shared_key, np.arange(offsets[-1]))), offsets


@dataclass(frozen=True)
class Samples:
    """``num`` parallel samples for a ``share`` of the requests, one for the others."""

    num: int
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.num < 1 or not 0 <= self.share <= 1:
            raise InputError(f"parallel samples need a number of at least 1 and a share in [0, 1], got {self}")

    def draw(self, rng: np.random.Generator, num_requests: int) -> np.ndarray:
        return np.where(rng.random(num_requests) < self.share, self.num, 1).astype(np.int32)


def generate(num_requests: int, prompt: Lengths, output: Lengths, *, arrivals: Steady | Bursty | None = None,
             bounds: Bounds = Bounds(), max_tokens: int | None = None, prefixes: PrefixTree | None = None,
             samples: Samples | None = None, texts: Texts | None = None, chats: Chats | None = None,
             block_tokens: int = 16, seed: int = 0) -> Trace:
    """Draw a trace; arrivals are rounded to milliseconds.

    Args:
        prompt: of a chat's turn, what is new; with shared texts, what stands behind them.
        arrivals: None gives lengths only; of chats, when their first turns arrive.
        max_tokens: the limit every request states; outputs above it are drawn again.
        block_tokens: prompt tokens to one prefix id of texts and chats.

    Raises:
        InputError: no requests asked for, two kinds of prefixes, or bounds that the lengths hardly ever meet.
    """
    if num_requests < 1:
        raise InputError(f"a trace has at least one request, got {num_requests}")
    rng = np.random.Generator(np.random.PCG64(seed))
    if max_tokens is not None:
        bounds = replace(bounds, max_output_tokens=min(bounds.max_output_tokens or max_tokens, max_tokens))
    if texts or chats:
        if prefixes:
            raise InputError("a prefix tree and shared texts or chats both say how prompts begin; draw one of them")
        columns = _conversations(rng, num_requests, prompt, output, arrivals, bounds, texts or Texts(), chats,
                                 block_tokens)
        return _trace(rng, columns, max_tokens, samples, block_tokens, seed)
    prompt_tokens, output_tokens = _draw_lengths(rng, num_requests, prompt, output, bounds)
    arrival_ns = None if arrivals is None else whole_ns(np.round(arrivals.draw(rng, num_requests), 3))
    prefix_ids, prefix_offsets = (None, None) if prefixes is None else prefixes.draw(rng, prompt_tokens)
    columns = {"arrival_ns": arrival_ns, "prompt_tokens": prompt_tokens, "output_tokens": output_tokens,
               "prefix_ids": prefix_ids, "prefix_offsets": prefix_offsets}
    return _trace(rng, columns, max_tokens, samples, prefixes and prefixes.block_tokens, seed)


def _trace(rng: np.random.Generator, columns: dict[str, np.ndarray | None], max_tokens: int | None,
           samples: Samples | None, block_tokens: int | None, seed: int) -> Trace:
    num = len(columns["prompt_tokens"])
    return Trace(**columns, max_tokens=None if max_tokens is None else np.full(num, max_tokens, dtype=np.int32),
                 num_samples=None if samples is None else samples.draw(rng, num),
                 source=Source(f"generated with seed {seed}", "generated", read=num, hash_block_tokens=block_tokens))


def _conversations(rng: np.random.Generator, num: int, prompt: Lengths, output: Lengths,
                   arrivals: Steady | Bursty | None, bounds: Bounds, texts: Texts, chats: Chats | None,
                   block_tokens: int) -> dict[str, np.ndarray | None]:
    """Columns of requests that begin with shared texts, or with the turns before them."""
    left = {name: most and most - texts.tokens for name, most in (("max_prompt_tokens", bounds.max_prompt_tokens),
                                                                  ("max_total_tokens", bounds.max_total_tokens))}
    if any(most is not None and most < 1 for most in left.values()):
        raise InputError(f"the shared texts of {texts.tokens:,} tokens leave no room within {bounds}")
    new_tokens, output_tokens = _draw_lengths(rng, num, prompt, output, replace(bounds, **left))
    turns = np.ones(num, dtype=np.int64) if chats is None else chats.draw_turns(rng, num)
    prompt_tokens, session, parent = grown(new_tokens, output_tokens, turns, texts.tokens, bounds.fits)
    system, document = texts.draw(rng, int(session[-1]) + 1)
    columns = {"prompt_tokens": prompt_tokens, "output_tokens": output_tokens, "arrival_ns": None}
    columns["prefix_ids"], columns["prefix_offsets"] = block_ids(prompt_tokens, session, system, document, texts,
                                                                 block_tokens)
    if chats:
        columns["session"], columns["session_parent"] = session, parent
        columns["think_ns"] = np.where(parent == NONE, NONE, chats.draw_think_ns(rng, num))
    if arrivals is None:
        return columns
    starts_ns = whole_ns(np.round(arrivals.draw(rng, int(session[-1]) + 1), 3))
    columns["arrival_ns"] = starts_ns[session]
    if chats:
        columns["arrival_ns"] = earliest(columns["arrival_ns"], columns["think_ns"], parent, np.arange(num))
        columns = permuted(columns, np.argsort(columns["arrival_ns"], kind="stable"))
        columns["prefix_ids"] = by_appearance(columns["prefix_ids"])
        columns["session"] = by_appearance(columns["session"])
    return columns


def _draw_lengths(rng: np.random.Generator, num: int, prompt: Lengths, output: Lengths,
                  bounds: Bounds) -> tuple[np.ndarray, np.ndarray]:
    """Pairs within the bounds, int32, each count at least 1."""
    kept, missing, in_vain = [], num, 0
    while missing:
        batch = min(missing, _BATCH)
        pairs = np.maximum(np.rint([prompt.draw(rng, batch), output.draw(rng, batch)]), 1)
        fits = bounds.fits(*pairs)
        kept.append(pairs[:, fits].astype(np.int32))
        missing -= int(fits.sum())
        in_vain = 0 if fits.any() else in_vain + 1
        if in_vain == _ATTEMPTS:
            raise InputError(f"{_ATTEMPTS:,} draws in a row gave no request within {bounds}; widen the bounds")
    prompt_tokens, output_tokens = np.concatenate(kept, axis=1)
    return prompt_tokens, output_tokens
