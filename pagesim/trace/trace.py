"""A trace of request lengths: immutable arrays, one row a request."""

from dataclasses import dataclass, field

import numpy as np

from pagesim.core.units import NS_PER_S
from pagesim.errors import TraceError


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
        beam_width: beams of a beam search, int32, each >= 1; None means one each.
        prefix_ids: ids of equal prompt blocks, int64, all requests end to end; None where the format has none.
        prefix_offsets: request i owns ``prefix_ids[prefix_offsets[i]:prefix_offsets[i + 1]]``, int64, shape
            (num_requests + 1,).
        session: id of the conversation, int64, -1 for a request outside any; None where the format has none.
        session_parent: row of the turn before, int64, -1 for a first turn; None without ``session``.  A prompt of p
            tokens begins with the ``min(p, p' + o')`` tokens of the turn before, its prompt and its output.
        think_ns: how long after the end of the turn before the request arrives, int64, -1 where it arrives by itself;
            None where no request waits.  ``arrival_ns`` of such a one is the earliest possible: that of the turn before
            and the think time.
        file_row: place among the rows of the file that were kept, int64; None where they are in the file's order.
        source: provenance and counts.
    """

    arrival_ns: np.ndarray | None
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    max_tokens: np.ndarray | None = None
    num_samples: np.ndarray | None = None
    beam_width: np.ndarray | None = None
    prefix_ids: np.ndarray | None = None
    prefix_offsets: np.ndarray | None = None
    session: np.ndarray | None = None
    session_parent: np.ndarray | None = None
    think_ns: np.ndarray | None = None
    file_row: np.ndarray | None = None
    source: Source = Source("memory", "memory")

    def __post_init__(self) -> None:
        for name in ("prompt_tokens", "output_tokens", "arrival_ns", "max_tokens", "num_samples", "beam_width",
                     "session", "session_parent", "think_ns", "file_row"):
            column = getattr(self, name)
            if column is not None and column.shape != (len(self),):
                raise TraceError(f"{name} has shape {column.shape}, expected ({len(self)},)")
        for name in ("prompt_tokens", "output_tokens", "num_samples", "beam_width"):
            column = getattr(self, name)
            if column is not None and len(column) and column.min() < 1:
                raise TraceError(f"{name} must be at least 1, request {int(column.argmin())} has {column.min()}")
        if self.arrival_ns is not None and self.arrival_ns.dtype != np.int64:
            raise TraceError(f"arrival_ns must be whole nanoseconds, int64, got {self.arrival_ns.dtype}")
        if (self.arrival_ns is not None and len(self)
                and not (self.arrival_ns[0] >= 0 and (np.diff(self.arrival_ns) >= 0).all())):
            raise TraceError("arrival_ns must be sorted and not negative")

        self._check_sessions()

    def _check_sessions(self) -> None:
        if self.session_parent is None:
            if self.think_ns is not None:
                raise TraceError("think_ns needs session_parent: the turn after which the request arrives")
            return
        later = np.flatnonzero((self.session_parent < -1) | (self.session_parent >= np.arange(len(self))))
        if len(later):
            raise TraceError(f"session_parent must be an earlier row or -1, request {later[0]} has "
                             f"{self.session_parent[later[0]]}")
        if self.think_ns is not None and (bad := (self.think_ns < -1) | (self.think_ns >= 0)
                                          & (self.session_parent < 0)).any():
            raise TraceError("think_ns must be -1, or at least 0 in a row with session_parent, request "
                             f"{int(bad.argmax())} has {self.think_ns[bad.argmax()]}")

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    @property
    def arrival_s(self) -> np.ndarray | None:
        """Seconds after the first arrival, float64, shape (num_requests,)."""
        return None if self.arrival_ns is None else self.arrival_ns / NS_PER_S
