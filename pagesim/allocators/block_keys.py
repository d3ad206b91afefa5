"""What makes two blocks of prompts equal: the chain of everything up to their end, as a number.

The key of a block is mixed from the key of the block before it and from what the block holds: the prefix ids of the
trace that cover it, or, where it holds tokens without an id, the request itself, which makes it equal to no other's.
Of a session the tokens of the turn before come first, and with them its keys.  A key is 62 bits (two different chains
get the same one with a probability of about 2^-62 a pair).
"""

from typing import NamedTuple

import numpy as np

from pagesim.core.jit import COLD, HOT

_31_BITS = 2**31 - 1
_START, _OWN, _AFTER = 1, 2, 3  # what a chain begins with; what is mixed in before a request's number


class Prefixes(NamedTuple):
    """What a trace says of equal tokens; arrays have length 0 where it says nothing."""

    block_size: int
    granularity: int  # tokens to an id
    blocks_per_id: int  # whole blocks that an id covers, 0 where a block reaches over several
    ids: np.ndarray  # int64, all requests end to end
    offsets: np.ndarray  # int64: request r has ``ids[offsets[r]:offsets[r + 1]]``
    parent: np.ndarray  # int64: the turn before, -1 for none
    history: np.ndarray  # int64: tokens of the prompt that are the turn's before it
    has_child: np.ndarray  # bool
    prompt: np.ndarray  # int32


def make_prefixes(trace, block_size):
    none = np.zeros(0, np.int64)
    parent, history, has_child = none, none, np.zeros(0, np.bool_)
    if trace.session_parent is not None:
        parent = trace.session_parent
        tokens = trace.prompt_tokens.astype(np.int64) + trace.output_tokens
        history = np.where(parent < 0, 0, np.minimum(trace.prompt_tokens, tokens[parent]))
        has_child = np.zeros(len(trace), np.bool_)
        has_child[parent[parent >= 0]] = True
    ids = none if trace.prefix_ids is None else trace.prefix_ids
    offsets = none if trace.prefix_ids is None else trace.prefix_offsets
    granularity = trace.source.hash_block_tokens or 1
    return Prefixes(block_size, granularity, granularity // block_size, ids, offsets, parent, history, has_child,
                    trace.prompt_tokens)


@HOT
def mixed(state, part):
    """Another 62 bits of ``state`` and ``part``, by a Feistel network of six rounds.

    No product exceeds 62 bits: compiled signed integers must not overflow, and Python's do not wrap.
    """
    mixed = state ^ part
    left, right = mixed >> 31, mixed & _31_BITS
    left, right = right, left ^ ((right * 0x5A1FD16B + 0x3779) >> 15 & _31_BITS)
    left, right = right, left ^ ((right * 0x6C8E9CF5 + 0x5BD1) >> 15 & _31_BITS)
    left, right = right, left ^ ((right * 0x4F6CDD1D + 0x1B87) >> 15 & _31_BITS)
    left, right = right, left ^ ((right * 0x7FEB352D + 0x2F01) >> 15 & _31_BITS)
    left, right = right, left ^ ((right * 0x58F38DED + 0x61C9) >> 15 & _31_BITS)
    left, right = right, left ^ ((right * 0x72BE1577 + 0x0D2F) >> 15 & _31_BITS)
    return left << 31 | right


@HOT
def start_of_chain():
    return _START


@HOT
def covered(prefixes, request):
    """Prompt tokens that prefix ids cover."""
    if len(prefixes.offsets) == 0:
        return 0
    count = int(prefixes.offsets[request + 1]) - int(prefixes.offsets[request])
    return min(int(prefixes.prompt[request]), count * prefixes.granularity)


@HOT
def shareable_blocks(prefixes, request):
    """Blocks from the first that another request may hold too."""
    tokens = covered(prefixes, request)
    if len(prefixes.history) > 0:
        tokens = max(tokens, int(prefixes.history[request]))
    return tokens // prefixes.block_size


@HOT
def is_continued(prefixes, request):
    """Whether a later turn begins with this request's tokens."""
    return len(prefixes.has_child) > 0 and prefixes.has_child[request]


@HOT
def next_key(prefixes, key, request, j):
    """The key of block ``j`` of the request; ``key`` is that of the block before."""
    size = prefixes.block_size
    key, end, owner = int(key), int((j + 1) * size), int(request)
    if len(prefixes.parent) > 0:
        while prefixes.parent[owner] >= 0 and end <= prefixes.history[owner]:
            owner = int(prefixes.parent[owner])
        if prefixes.history[owner] > end - size:  # the turn before ends within the block
            key = mixed(mixed(key, _AFTER), int(prefixes.parent[owner]))
    if end > covered(prefixes, owner):
        return mixed(mixed(mixed(key, _OWN), owner), int(j))
    if prefixes.blocks_per_id > 0:
        at = int(j) // prefixes.blocks_per_id
        under_id = int(prefixes.ids[np.uint64(prefixes.offsets[owner] + at)]) + 4
        return mixed(key, under_id * prefixes.blocks_per_id + int(j) - at * prefixes.blocks_per_id)
    return _key_by_ids(prefixes, key, owner, end)


@HOT
def _key_by_ids(prefixes, key, owner, end):
    granularity = prefixes.granularity
    ids = prefixes.ids[prefixes.offsets[owner]:prefixes.offsets[owner + 1]]
    first = begin = end - prefixes.block_size
    if len(prefixes.history) > 0:
        first = max(begin, int(prefixes.history[owner]) // granularity * granularity)
    for k in range(first // granularity, end // granularity):
        key = mixed(key, int(ids[k]) + 4)
    return key


@COLD
def check_divides(block_size, granularity):
    return block_size % granularity == 0 or granularity % block_size == 0
