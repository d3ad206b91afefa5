"""A trace of request lengths: immutable arrays, one row a request."""

from dataclasses import dataclass, field

import numpy as np

from pagesim.errors import TraceError
from pagesim.trace.instants import NS_PER_S


@dataclass(frozen=True)
class Source:
    """Where a trace came from, and what became of its rows.

    Attributes:
        path: the file as it was named, or a description of the generator.
        format: the reader's name, such as ``azure`` or ``mooncake``.
        sha256: of the file as it lies on disk; None for a trace made in memory.
        read: data rows in the file.
        dropped: rows left out, by reason; ``read == sum(dropped.values()) + rows kept``.
        hash_block_tokens: prompt tokens to one prefix id, where the format has prefix ids.
    """

    path: str
    format: str
    sha256: str | None = None
    read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    hash_block_tokens: int | None = None


@dataclass(frozen=True)
class Trace:
    """Requests in order of arrival; ties keep the order of the file.

    Attributes:
        arrival_ns: nanoseconds after the first arrival, int64, shape (num_requests,); None where there are lengths
            only.
        prompt_tokens: int32, shape (num_requests,), each >= 1.
        output_tokens: int32, shape (num_requests,), each >= 1.
        max_tokens: the request's own output limit, int32, 0 where it has none; None without such a column.
        num_samples: sequences sampled in parallel, int32, each >= 1; None means one each.
        prefix_ids: ids of equal prompt blocks, int64, all requests end to end; None where the format has none.
        prefix_offsets: request i owns ``prefix_ids[prefix_offsets[i]:prefix_offsets[i + 1]]``, int64, shape
            (num_requests + 1,).
        session: id of the conversation, int64; None where the format has none.
        source: provenance and counts.
    """

    arrival_ns: np.ndarray | None
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    max_tokens: np.ndarray | None = None
    num_samples: np.ndarray | None = None
    prefix_ids: np.ndarray | None = None
    prefix_offsets: np.ndarray | None = None
    session: np.ndarray | None = None
    source: Source = Source("memory", "memory")

    def __post_init__(self) -> None:
        for name in ("prompt_tokens", "output_tokens", "arrival_ns", "max_tokens", "num_samples", "session"):
            column = getattr(self, name)
            if column is not None and column.shape != (len(self),):
                raise TraceError(f"{name} has shape {column.shape}, expected ({len(self)},)")
        for name in ("prompt_tokens", "output_tokens", "num_samples"):
            column = getattr(self, name)
            if column is not None and len(column) and column.min() < 1:
                raise TraceError(f"{name} must be at least 1, request {int(column.argmin())} has {column.min()}")
        if self.arrival_ns is not None and self.arrival_ns.dtype != np.int64:
            raise TraceError(f"arrival_ns must be whole nanoseconds, int64, got {self.arrival_ns.dtype}")
        if (self.arrival_ns is not None and len(self)
                and not (self.arrival_ns[0] >= 0 and (np.diff(self.arrival_ns) >= 0).all())):
            raise TraceError("arrival_ns must be sorted and not negative")

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    @property
    def arrival_s(self) -> np.ndarray | None:
        """Seconds after the first arrival, float64, shape (num_requests,)."""
        return None if self.arrival_ns is None else self.arrival_ns / NS_PER_S
