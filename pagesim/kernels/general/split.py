"""Cutting the sequences of a batch into work items for the decode kernels that every GPU can run."""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from pagesim.errors import InputError

ITEM_INTS = 4  # sequence, first token, end token, part (-1: the item is the whole sequence)
CUT_INTS = 4   # sequence, first part, end part, unused: 16 bytes, one load

CTAS_PER_SM = 3        # that registers and shared memory leave room for,
CTAS_PER_SM_8BIT = 4   # and with a cache of 8 bits
ITEM_TOKENS = 2048     # what an item of a large batch should be near: shorter merge more, longer balance less
MIN_ITEM_TOKENS = 256  # below this the merge costs more than the cut saves
ALIGN_TOKENS = 64
CPU_SMS = 8            # what the interpreter plans for, so that it meets cut sequences too


@dataclass(frozen=True)
class Split:
    """Work items, and how the parts of a cut sequence merge.

    Attributes:
        items: int32, shape (num_items, 4), longest first: hardware hands them out in this order, so that short ones
            fill the gaps.  A sequence of -1 is padding and does nothing.
        cuts: int32, shape (num_cuts, 4); a sequence of -1 is padding.
        num_parts: partial results; the workspace holds at least so many.
        first_parts: the first part of each sequence, on the host: those of what it shares come first.
    """

    items: torch.Tensor
    cuts: torch.Tensor
    num_parts: int
    first_parts: np.ndarray | None = None


@cache
def num_sms(device: torch.device) -> int:
    """Multiprocessors that a batch is cut for."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else CPU_SMS


def item_tokens(total_tokens: int, num_head_groups: int, num_sms: int, ctas_per_sm: int = CTAS_PER_SM) -> int:
    """How long an item may be: such that all items fill whole waves of CTAs, each near ``ITEM_TOKENS``."""
    share = total_tokens * num_head_groups / (ctas_per_sm * num_sms)
    fair = math.ceil(share / _waves(share) / ALIGN_TOKENS) * ALIGN_TOKENS
    return max(MIN_ITEM_TOKENS, fair)


def most_items(num_seqs: int, total_tokens: int, num_head_groups: int, num_sms: int,
               ctas_per_sm: int = CTAS_PER_SM) -> int:
    """Items that no batch of so many sequences and at most so many tokens is cut into, by ``item_tokens``."""
    share = total_tokens * num_head_groups / (ctas_per_sm * num_sms)
    return num_seqs + math.ceil(_waves(share) * ctas_per_sm * num_sms / num_head_groups)


def _waves(share_tokens: float) -> int:
    return max(1, round(share_tokens / ITEM_TOKENS))


def split(lengths: np.ndarray, max_item_tokens: int, *, device: str | torch.device, q_len: int = 1,
          window: int | None = None, begin: np.ndarray | None = None, shared_parts: np.ndarray | None = None,
          pad_items: int = 0, pad_cuts: int = 0) -> Split:
    """Cut each sequence into equal items of at most ``max_item_tokens``.

    How a sequence is cut depends on nothing but its own length and ``max_item_tokens``: with the latter fixed, a row is
    computed in the same order alone and in any batch, to the last bit.

    Args:
        lengths: visible tokens, shape (num_seqs,), on the host; 0 gets an item too, so that its output is written.
        q_len: queries of each sequence, its last tokens.
        window: tokens before a query's own that it sees; what no query sees is in no item.
        begin, shared_parts: where each sequence's own tokens begin, behind those that it shares, and how many partial
            results it gets of these.
        pad_items, pad_cuts: least rows of ``items`` and ``cuts``, for buffers of a captured graph.

    Raises:
        InputError: a negative length, or no tokens to an item.
    """
    lengths = np.asarray(lengths, np.int64)
    if lengths.size and lengths.min() < 0:
        raise InputError(f"sequence {int(lengths.argmin())} has {int(lengths.min())} tokens; a length is 0 or more")
    if max_item_tokens < 1:
        raise InputError(f"an item needs at least 1 token, got {max_item_tokens}")
    if begin is None:
        begin = np.zeros_like(lengths) if window is None else np.maximum(lengths - q_len - window, 0)
    shared = np.zeros_like(lengths) if shared_parts is None else shared_parts
    seen = lengths - begin
    equal = _ceil_div(seen, np.maximum(_ceil_div(seen, max_item_tokens), 1))
    step = np.clip(_ceil_div(equal, ALIGN_TOKENS) * ALIGN_TOKENS, 1, max_item_tokens)
    count = np.maximum(_ceil_div(seen, step), 1)

    cut = (count > 1) | (shared > 0)
    parts = np.where(cut, count + shared, 0)
    first_part = np.cumsum(parts) - parts
    seq = np.repeat(np.arange(len(lengths)), count)
    index = np.arange(len(seq)) - np.repeat(np.cumsum(count) - count, count)
    first = begin[seq] + index * step[seq]
    end = np.minimum(first + step[seq], lengths[seq])
    part = np.where(cut[seq], first_part[seq] + shared[seq] + index, -1)
    items = np.stack([seq, first, end, part], 1)[np.argsort(first - end, kind="stable")]
    cuts = np.stack([np.arange(len(lengths)), first_part, first_part + parts, np.zeros_like(count)], 1)[cut]
    return Split(_padded(items, pad_items, device), _padded(cuts, pad_cuts, device), int(parts.sum()),
                 first_part)


def _ceil_div(a: np.ndarray, b: np.ndarray | int) -> np.ndarray:
    return (a + b - 1) // b


def _padded(rows: np.ndarray, least: int, device: str | torch.device) -> torch.Tensor:
    full = np.full((max(len(rows), least), rows.shape[1]), -1, np.int32)
    full[:len(rows)] = rows
    return torch.from_numpy(full).to(device)
