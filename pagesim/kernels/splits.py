"""Splitting a batch for the general decode kernel: one item for each CTA, the longest first.

The general kernel has one CTA for each item and KV head, ``CTAS_PER_SM`` of them on an SM.  The hardware hands out items
in order, so longest first balances ragged batches; equal items in whole waves serve batches of few long sequences.
(``plan`` cuts for the persistent Hopper kernel, which knows its CTAs in advance.)
"""

from dataclasses import dataclass

import numpy as np

from pagesim.errors import InputError

CTAS_PER_SM = 3
MAX_TOKENS = 2048  # of an item: longer ones leave SMs idle at the end of a ragged batch
MIN_TOKENS = 128  # of an item: below, a partial result costs more than the tokens that it saves waiting for


@dataclass(frozen=True)
class Splits:
    """Items of work and the rows to merge; all arrays int32.

    Attributes:
        seq, first_token, end_token: tokens ``[first, end)`` of a sequence, shape (num_items,), longest first.
        slot: where the item leaves its partial result, -1 where it is the whole sequence, shape (num_items,).
        cut_seq: sequences in several items, shape (num_cut,).
        cut_slots: slots of ``cut_seq[i]`` are ``cut_slots[i] : cut_slots[i + 1]``, shape (num_cut + 1,).
    """

    seq: np.ndarray
    first_token: np.ndarray
    end_token: np.ndarray
    slot: np.ndarray
    cut_seq: np.ndarray
    cut_slots: np.ndarray

    @property
    def num_slots(self) -> int:
        return int(self.cut_slots[-1])


def make_splits(lengths: np.ndarray, num_kv_heads: int, num_sms: int, *, tile_tokens: int = 64) -> Splits:
    """Split each sequence into equal items, sized so that all items together fill whole waves of CTAs.

    Args:
        lengths: visible tokens, shape (num_seqs,), int64; a sequence of 0 tokens is one empty item.
        num_sms: of the GPU.
        tile_tokens: items start at multiples of it.

    Raises:
        InputError: a negative length.
    """
    lengths = np.asarray(lengths, np.int64)
    if lengths.size and int(lengths.min()) < 0:
        raise InputError(f"sequence {int(lengths.argmin())} has {int(lengths.min())} tokens; a length is 0 or more")
    per_cta = int(lengths.sum()) * num_kv_heads / (CTAS_PER_SM * num_sms)
    num_waves = max(1, -(-per_cta // MAX_TOKENS))
    return split_at(lengths, max(MIN_TOKENS, int(-(-per_cta // num_waves))), tile_tokens=tile_tokens)


def split_at(lengths: np.ndarray, max_tokens: int, *, tile_tokens: int = 64) -> Splits:
    """Split each sequence into the fewest equal items of about ``max_tokens``, rounded up to whole tiles."""
    lengths = np.asarray(lengths, np.int64)
    size = -(-lengths // np.maximum(1, -(-lengths // max_tokens)))
    size = np.maximum(tile_tokens, -(-size // tile_tokens) * tile_tokens)
    num_items = np.maximum(1, -(-lengths // size))
    seq = np.repeat(np.arange(len(lengths)), num_items)
    nth = np.arange(len(seq)) - np.repeat(np.cumsum(num_items) - num_items, num_items)
    first = nth * size[seq]
    end = np.minimum(lengths[seq], first + size[seq])
    cut = num_items > 1
    slot = np.where(cut[seq], np.cumsum(cut[seq]) - 1, -1)
    order = np.argsort(first - end, kind="stable")
    cut_slots = np.concatenate([[0], np.cumsum(num_items[cut])])
    arrays = (seq[order], first[order], end[order], slot[order], np.flatnonzero(cut), cut_slots)
    return Splits(*(np.ascontiguousarray(a, np.int32) for a in arrays))
