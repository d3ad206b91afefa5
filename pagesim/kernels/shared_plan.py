"""What the sequences of a batch share, on the GPU: the plan of the kernels of shared tokens."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from pagesim.kernels.cache import Cache
from pagesim.kernels.general.split import num_sms
from pagesim.kernels.launch import Kept, next_power_of_2
from pagesim.kernels.sharing import ITEM_INTS, Items, cut, find_shared, max_items, max_members, max_parts

TILE_BYTES = 740  # of their own keys and values that an SM reads in the time in which a token meets one tile of rows

_HEADER_INTS = 8  # in front: how many items there are, and how many programs take them
_NOTHING = Items(np.zeros(0), np.zeros(0), np.zeros(0), 1)


class Found(NamedTuple):
    """What a decode plan must know.

    Attributes:
        begin: where each sequence's own tokens begin, int64 (num_seqs,).
        num_parts: partial results that each gets of those before, int64 (num_seqs,).
        num_sms: on which decode should run, beside the kernel of shared tokens or after it.
    """

    begin: np.ndarray
    num_parts: np.ndarray
    num_sms: int


@dataclass(frozen=True)
class Places:
    """Where a part's rows are among the rows of partial results.

    Attributes:
        heads: KV heads of a part; the model's are ``head_groups`` times as many, and a sequence has as many parts.
        part_rows: rows of a part.
        head_rows, query_rows: from one KV head, and from one query, to the next.
    """

    heads: int
    head_groups: int
    part_rows: int
    head_rows: int
    query_rows: int


class SharedPlan:
    """Found in each batch, cut, and uploaded to addresses that stay, beside a decode plan of what is not shared.

    A graph that was captured while something was shared launches the kernel in each replay; one that was captured while
    nothing was does not, and from then on nothing is shared.

    Attributes:
        places: of partial results, in the decode plan's tensors.
        max_parts: partial results of all sequences together, for each of their head groups, that no batch exceeds.
        tile_rows: rows that the kernel takes at a time.
        num_programs: its grid; as many as the SMs hold, of which those that are not wanted go at once.
        tensors: number of items and of programs, first part and number of parts of each sequence and head group,
            members, items, all int32.
        kept: what calls compiled, by their shapes.
    """

    def __init__(self, q: torch.Tensor, cache: Cache, places: Places, *, least_rows: int, most_rows: int,
                 beside_decode: bool):
        """
        Args:
            least_rows, most_rows: powers of two between which the kernel's ``tile_rows`` may be.
            beside_decode: decode runs at the same time, on SMs of its own.
        """
        self._beside_decode = beside_decode
        pool, num_seqs = cache.geometry, len(q)
        self.places, self._least_rows, self._most_rows = places, least_rows, most_rows
        self._q_len, self._block_size, self._num_kv_heads = q.shape[1], pool.block_size, pool.num_kv_heads
        self._token_bytes = 2 * pool.num_kv_heads * pool.head_dim * cache.k.dtype.itemsize
        self._rows = q.shape[1] * (q.shape[2] // pool.num_kv_heads)  # of a member
        self._num_sms = num_sms(q.device)
        self.tile_rows, self.num_programs = most_rows, 0
        most = max_items(num_seqs, self._rows, least_rows, -(-2 * self._num_sms // pool.num_kv_heads))
        self.max_parts = max_parts(num_seqs, self._rows, most_rows, -(-self._num_sms // pool.num_kv_heads))
        sizes = _HEADER_INTS, *[num_seqs * places.head_groups] * 2, max_members(num_seqs), ITEM_INTS * most
        self._ints = torch.zeros(sum(sizes), dtype=torch.int32, device=q.device)
        self.tensors = self._ints.split(sizes)
        self._items: Items | None = None
        self._captured: bool | None = None  # with something shared, or without
        self.kept: dict[tuple, Kept] = {}

    @property
    def launches(self) -> bool:
        """Whether there is anything to do, or may be in a later replay."""
        return self._items is not None or bool(self._captured)

    def note_capture(self) -> None:
        """Before a launch, or none: where a graph is captured, what is launched now is launched for ever."""
        if self._ints.is_cuda and torch.cuda.is_current_stream_capturing():
            self._captured = bool(self._captured) or self._items is not None

    def find(self, block_table: np.ndarray | None, lengths: np.ndarray) -> Found | None:
        """Look for what is worth sharing; None if nothing is."""
        self._items = None
        if block_table is None or self._captured is False:
            return None
        sharing = find_shared(block_table, lengths, self._block_size, q_len=self._q_len, token_bytes=self._token_bytes)
        if sharing is None:
            return None
        if self._captured is None:
            rows = next_power_of_2(-(-sharing.member_tokens * self._rows // sharing.tokens))
            self.tile_rows = min(self._most_rows, max(self._least_rows, rows))
            self.num_programs = self._num_sms * self._programs_an_sm
        own_tokens = int(np.sum(lengths - sharing.begin)) * self._token_bytes / TILE_BYTES if self._beside_decode else 0
        self._items = cut(sharing, self._rows, self.tile_rows, self._num_sms, self._programs_an_sm, self._num_kv_heads,
                          self.max_parts, own_tokens)
        # An SM is left: with it the slowest of four batches took 60 µs for 64, and two others 1 to 3 % more.
        left = self._num_sms - self._items.num_sms - 1
        return Found(sharing.begin, self._items.num_parts, left if left > 0 else self._num_sms)

    @property
    def _programs_an_sm(self) -> int:
        return 1 if self.tile_rows > 64 else 2

    def upload(self, first_parts: np.ndarray, num_parts: np.ndarray) -> None:
        """Give parts their places: of each sequence and head group, (num_seqs · head_groups,).

        Args:
            num_parts: with those of its own tokens; 0 where nothing is merged.
        """
        if not self.launches:
            return
        items, members, _, num_sms = self._items or _NOTHING
        host = np.zeros(len(self._ints) - len(self.tensors[-1]) + items.size, np.int32)
        host[:2] = len(items), num_sms * self._programs_an_sm
        _, first, count, member, _ = np.split(host, np.cumsum([len(x) for x in self.tensors[:-1]]))
        first[:], count[:], member[:len(members)] = first_parts, num_parts, members
        host[len(host) - items.size:] = items.ravel()
        self._ints[:len(host)].copy_(torch.from_numpy(host), non_blocking=True)
