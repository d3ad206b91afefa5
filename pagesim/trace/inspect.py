"""What a trace holds, in numbers: rates, lengths, blocks, and how far its prompts repeat."""

from dataclasses import asdict, dataclass

import numpy as np

from pagesim.core.units import ceil_div, final_tokens
from pagesim.trace.instants import NS_PER_S
from pagesim.trace.sessions import num_shorter_than_history
from pagesim.trace.trace import Trace


@dataclass(frozen=True)
class Spread:
    """Percentiles are nearest rank: values that occur."""

    mean: float
    min: int
    p50: int
    p99: int
    max: int


@dataclass(frozen=True)
class PrefixReuse:
    """What a cache without limit would find, requests in order of arrival.

    Attributes:
        block_tokens: prompt tokens to one id.
        ids, distinct_ids: blocks of all prompts, and how many differ.
        hits: leading blocks of a prompt seen in earlier requests, such that at least one prompt token stays to compute.
        hit_share_of_prompt_tokens: ``hits · block_tokens / prompt tokens``.
        requests_that_hit: at least one block.
    """

    block_tokens: int
    ids: int
    distinct_ids: int
    hits: int
    hit_share_of_prompt_tokens: float
    requests_that_hit: int


@dataclass(frozen=True)
class Sessions:
    """Conversations.

    Attributes:
        sessions, requests: how many there are, and their turns.
        next_turns: turns with one before them.
        waiting_turns: those of them that arrive so long after it.
        mean_think_s: mean of that time; None where none waits.
        history_share_of_prompt_tokens: what the prompts repeat of the turn before, ``Σ min(p, p' + o')``, of all prompt
            tokens.
        shorter_than_history: next turns with fewer prompt tokens than ``p' + o'``; they share what they have.
    """

    sessions: int
    requests: int
    next_turns: int
    waiting_turns: int
    mean_think_s: float | None
    history_share_of_prompt_tokens: float
    shorter_than_history: int


@dataclass(frozen=True)
class Summary:
    """``None`` is a quantity that the trace does not have.

    Attributes:
        rate_per_s: intervals over the span, ``(kept − 1) / span_s``.
        arrival_cv: population deviation of the intervals over their mean.
        total_tokens: prompt + output, what ``max_model_len`` is compared with.
        sequences: what the requests sample in parallel or search with beams.
        num_samples, beam_width: how many requests have so many.
        block_size: of the next three.
        prompt_blocks: Σ ceil(p / block_size).
        final_blocks: Σ ceil((p + o − 1) / block_size), what the requests own when they end.
        last_block_waste: empty share of those.
    """

    path: str
    format: str
    sha256: str | None
    read: int
    kept: int
    dropped: dict[str, int]
    span_s: float | None
    rate_per_s: float | None
    arrival_cv: float | None
    prompt_tokens: Spread
    output_tokens: Spread
    total_tokens: Spread
    with_max_tokens: int | None
    sequences: int
    num_samples: dict[int, int] | None
    beam_width: dict[int, int] | None
    sessions: Sessions | None
    block_size: int
    prompt_blocks: int
    final_blocks: int
    last_block_waste: float
    prefix_reuse: PrefixReuse | None

    def as_dict(self) -> dict:
        return asdict(self)


def summarize(trace: Trace, block_size: int = 16) -> Summary:
    """Describe a trace of at least one request."""
    prompt, output = trace.prompt_tokens.astype(np.int64), trace.output_tokens.astype(np.int64)
    stored = final_tokens(prompt, output)
    final_blocks = num_blocks(stored, block_size)
    return Summary(
        path=trace.source.path, format=trace.source.format, sha256=trace.source.sha256,
        read=trace.source.read, kept=len(trace), dropped=trace.source.dropped, **_arrivals(trace.arrival_s),
        prompt_tokens=_spread(prompt), output_tokens=_spread(output), total_tokens=_spread(prompt + output),
        with_max_tokens=None if trace.max_tokens is None else int(np.count_nonzero(trace.max_tokens)),
        sequences=_num_sequences(trace), num_samples=_counts(trace.num_samples), beam_width=_counts(trace.beam_width),
        sessions=_sessions(trace),
        block_size=block_size, prompt_blocks=num_blocks(prompt, block_size), final_blocks=final_blocks,
        last_block_waste=1 - int(stored.sum()) / (final_blocks * block_size), prefix_reuse=prefix_reuse(trace))


def num_blocks(tokens: np.ndarray, block_size: int) -> int:
    """Σ ceil(tokens / block_size)."""
    return int(ceil_div(tokens.astype(np.int64), block_size).sum())


def num_accepted(trace: Trace, max_model_len: int) -> int:
    """Requests with prompt + output ≤ max_model_len."""
    return int(np.count_nonzero(trace.prompt_tokens.astype(np.int64) + trace.output_tokens <= max_model_len))


def prefix_reuse(trace: Trace) -> PrefixReuse | None:
    """Hits in a cache without limit; None for a trace without prefix ids."""
    if trace.prefix_ids is None:
        return None
    block_tokens, ids, offsets = trace.source.hash_block_tokens, trace.prefix_ids, trace.prefix_offsets
    num_ids = np.diff(offsets)
    owner = np.repeat(np.arange(len(trace)), num_ids)
    _, first, which = np.unique(ids, return_index=True, return_inverse=True)
    unseen = np.flatnonzero(first[which] >= offsets[owner])  # not in any earlier request
    leading = np.concatenate((unseen, [len(ids)]))[np.searchsorted(unseen, offsets[:-1])] - offsets[:-1]
    own_hits = np.minimum(np.minimum(leading, num_ids), (trace.prompt_tokens - 1) // block_tokens)
    hits, prompt_tokens = int(own_hits.sum()), int(trace.prompt_tokens.sum(dtype=np.int64))
    return PrefixReuse(block_tokens, len(ids), len(first), hits, hits * block_tokens / prompt_tokens,
                       int(np.count_nonzero(own_hits)))


def _num_sequences(trace: Trace) -> int:
    each = np.ones(len(trace), dtype=np.int64)
    for copies in (trace.num_samples, trace.beam_width):
        each = each if copies is None else np.maximum(each, copies)
    return int(each.sum())


def _counts(copies: np.ndarray | None) -> dict[int, int] | None:
    if copies is None:
        return None
    return {int(value): int(count) for value, count in zip(*np.unique(copies, return_counts=True))}


def _sessions(trace: Trace) -> Sessions | None:
    if trace.session is None or trace.session_parent is None:
        return None
    follows = np.flatnonzero(trace.session_parent >= 0)
    before = trace.session_parent[follows]
    prompt = trace.prompt_tokens.astype(np.int64)
    history = prompt[before] + trace.output_tokens[before]
    think_ns = np.zeros(0) if trace.think_ns is None else trace.think_ns[trace.think_ns >= 0]
    inside = trace.session[trace.session >= 0]
    return Sessions(len(np.unique(inside)), len(inside), len(follows), len(think_ns),
                    float(think_ns.mean()) / NS_PER_S if len(think_ns) else None,
                    int(np.minimum(prompt[follows], history).sum()) / int(prompt.sum()),
                    num_shorter_than_history(trace))


def _arrivals(arrival_s: np.ndarray | None) -> dict[str, float | None]:
    if arrival_s is None or len(arrival_s) < 2 or arrival_s[-1] == 0:
        return {"span_s": None if arrival_s is None else float(arrival_s[-1]), "rate_per_s": None, "arrival_cv": None}
    intervals_s = np.diff(arrival_s)
    return {"span_s": float(arrival_s[-1]), "rate_per_s": len(intervals_s) / float(arrival_s[-1]),
            "arrival_cv": float(intervals_s.std() / intervals_s.mean())}


def _spread(tokens: np.ndarray) -> Spread:
    p50, p99 = np.percentile(tokens, (50, 99), method="inverted_cdf")
    return Spread(float(tokens.mean()), int(tokens.min()), int(p50), int(p99), int(tokens.max()))
