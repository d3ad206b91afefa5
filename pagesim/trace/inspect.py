"""What a trace holds, in numbers: rates, lengths, blocks, and how far its prompts repeat."""

from collections import OrderedDict
from dataclasses import asdict, dataclass

import numpy as np

from pagesim.core.units import ceil_div, final_tokens
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
    """

    block_tokens: int
    ids: int
    distinct_ids: int
    hits: int
    hit_share_of_prompt_tokens: float


@dataclass(frozen=True)
class Summary:
    """``None`` is a quantity that the trace does not have.

    Attributes:
        rate_per_s: intervals over the span, ``(kept − 1) / span_s``.
        arrival_cv: population deviation of the intervals over their mean.
        total_tokens: prompt + output, what ``max_model_len`` is compared with.
        sessions: conversations of the requests that name one.
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
    sessions: int | None
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
        sequences=len(trace) if trace.num_samples is None else int(trace.num_samples.sum(dtype=np.int64)),
        sessions=None if trace.session is None else len(np.unique(trace.session[trace.session >= 0])),
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
    hits = int(np.minimum(np.minimum(leading, num_ids), (trace.prompt_tokens - 1) // block_tokens).sum())
    prompt_tokens = int(trace.prompt_tokens.sum(dtype=np.int64))
    return PrefixReuse(block_tokens, len(ids), len(first), hits, hits * block_tokens / prompt_tokens)


def lru_hit_rate(trace: Trace, capacity_blocks: int) -> float | None:
    """Share of all prefix ids found in a least-recently-used cache, looked up one by one in order; None without ids."""
    if trace.prefix_ids is None:
        return None
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for block in trace.prefix_ids.tolist():
        if block in cache:
            hits += 1
            cache.move_to_end(block)
        else:
            cache[block] = None
            if len(cache) > capacity_blocks:
                cache.popitem(last=False)
    return hits / len(trace.prefix_ids)


def _arrivals(arrival_s: np.ndarray | None) -> dict[str, float | None]:
    if arrival_s is None or len(arrival_s) < 2 or arrival_s[-1] == 0:
        return {"span_s": None if arrival_s is None else float(arrival_s[-1]), "rate_per_s": None, "arrival_cv": None}
    intervals_s = np.diff(arrival_s)
    return {"span_s": float(arrival_s[-1]), "rate_per_s": len(intervals_s) / float(arrival_s[-1]),
            "arrival_cv": float(intervals_s.std() / intervals_s.mean())}


def _spread(tokens: np.ndarray) -> Spread:
    p50, p99 = np.percentile(tokens, (50, 99), method="inverted_cdf")
    return Spread(float(tokens.mean()), int(tokens.min()), int(p50), int(p99), int(tokens.max()))
