"""Which sequences of a batch share which leading blocks, seen from their block tables alone, and what is worth sharing.

Sequences whose tables begin with the same ids form a tree: a node is a run of blocks and the sequences that have it in
common (a system prompt; below it the documents; below each the questions asked of it).  A node that pays becomes a
*stretch*: its tokens are attended to once for the queries of all its *members*, and the results are merged with what
each member's own tokens give.  One that does not pay is left to the nodes below it, and in the end to each sequence.

The rule: a stretch of t tokens with m members pays if it saves ``PART_TOKENS`` token reads for each member, that is if
``(m − 1)·t >= PART_TOKENS·m``: so much its partial result costs, written and read again, and its start.  And all
stretches together must save ``MIN_SAVED_BYTES`` of keys and values, which is what one more launch costs.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from pagesim.errors import InputError

PART_TOKENS = 64
MIN_SAVED_BYTES = 128 * 2**20
ALIGN_TOKENS = 16  # a stretch ends at a multiple, since Hopper's decode goes on with a whole tile
MEMBERS_A_SEQUENCE = 4  # stretches that a sequence is in, on average at most; of deeper trees only those that save most
CHUNK_TOKENS = 128  # a stretch is cut into chunks of multiples
MIN_CHUNK_TOKENS = 256
ITEM_TOKENS = 512  # what starting and ending an item costs, in tokens
HALF_ITEM_COST = 0.75  # of an item with half of its rows or fewer: it takes less arithmetic and as many bytes
MAX_CHUNKS = 40  # of a stretch
MAX_WAVES = 8  # items that a program takes one after another, where that balances

# Columns of a stretch, and of an item.
SEQ, FIRST, END, FIRST_MEMBER, NUM_MEMBERS, FIRST_ROW, PART = range(7)
ITEM_INTS = 8

_GROUP_ENTRIES = 32  # of a table, compared at a time


@dataclass(frozen=True)
class Sharing:
    """What is computed once.

    Attributes:
        stretches: int64, (num_stretches, 5): a member whose table is read, first token, end token, where the members
            begin, and how many they are.  A node comes before those below it.
        members: int64, sequences of each stretch one after another, rising within a stretch.
        begin: int64, (num_seqs,): where each sequence's own tokens begin; 0 where it shares nothing.
        tokens: of all stretches.
        member_tokens: of all stretches, a token once for each member.
    """

    stretches: np.ndarray
    members: np.ndarray
    begin: np.ndarray
    tokens: int
    member_tokens: int

    @property
    def saved_tokens(self) -> int:
        """Token reads saved, of one KV head."""
        return self.member_tokens - self.tokens


class Items(NamedTuple):
    """Stretches cut for a launch.

    Attributes:
        items: int32, (num_items, 8), columns as named in this module: a run of tokens of a stretch, ``tile_rows`` rows
            of its members from ``FIRST_ROW`` on (a row is one query of one head of a KV head's group, member after
            member), and the number of the part that it leaves for each of these members.
        members: int32.
        num_parts: int64, (num_seqs,), partial results that each sequence gets from stretches.
        num_sms: on which they take as long as what runs beside them.
    """

    items: np.ndarray
    members: np.ndarray
    num_parts: np.ndarray
    num_sms: int


def find_shared(block_table: np.ndarray, lengths: np.ndarray, block_size: int, *, q_len: int = 1,
                token_bytes: int = 0, part_tokens: int = PART_TOKENS) -> Sharing | None:
    """What of a decode step's tokens is worth computing once; None if nothing is.

    Args:
        block_table: int32 (num_seqs, max_blocks), on the host; what lies behind a sequence's end may be anything.
        lengths: visible tokens of each sequence, the queries' own included, int64.
        q_len: queries of each sequence, its last tokens: only what the first of them sees too is shared.
        token_bytes: of one token's keys and values, all heads; 0 asks for no least saving.

    Raises:
        InputError: a table that is not of two dimensions, with a row for each length.
    """
    if block_table.ndim != 2 or len(block_table) != len(lengths):
        raise InputError(f"block_table must have shape (num_seqs, max_blocks) with {len(lengths)} rows, as there are "
                         f"lengths; got {block_table.shape}")
    found = _find(np.ascontiguousarray(block_table, np.int32), np.ascontiguousarray(lengths, np.int64), block_size,
                  q_len, part_tokens)
    if found is None:
        return None
    sharing = Sharing(*found)
    return sharing if sharing.saved_tokens * token_bytes >= MIN_SAVED_BYTES or not token_bytes else None


def cut(sharing: Sharing, rows_a_member: int, tile_rows: int, num_sms: int, programs_an_sm: int, num_kv_heads: int,
        most_parts: int, own_tokens: float = 0) -> Items:
    """Cut stretches into items of about equal work, for each KV head, and choose on how many SMs they run.

    Args:
        rows_a_member: query rows that a member has for one KV head.
        tile_rows: rows of an item.
        programs_an_sm: that run at a time, each with an item of one KV head.
        most_parts: partial results of all sequences together; ``max_parts`` at least.
        own_tokens: what runs at the same time on the SMs that are left but one: as many tokens of one item take an SM
            as long as what is not shared.  0: nothing runs beside it, and all SMs are taken.
    """
    return Items(*_cut(sharing.stretches, sharing.members, len(sharing.begin), rows_a_member, tile_rows, num_sms,
                       programs_an_sm, num_kv_heads, most_parts, own_tokens))


def max_members(num_seqs: int) -> int:
    return MEMBERS_A_SEQUENCE * num_seqs


def max_items(num_seqs: int, rows_a_member: int, tile_rows: int, programs_a_head: int) -> int:
    """Items that no ``cut`` exceeds: tiles of rows of every stretch, and cuts of its tokens."""
    return MAX_WAVES * programs_a_head + num_seqs + -(-max_members(num_seqs) * rows_a_member // tile_rows)


def max_parts(num_seqs: int, rows_a_member: int, tile_rows: int, programs_a_head: int) -> int:
    """Partial results of stretches, of all sequences together, for which there is room."""
    return -(-2 * programs_a_head * tile_rows // rows_a_member) + max_members(num_seqs)


@njit(cache=True)
def _find(table, lengths, block_size, q_len, part_tokens):
    """The fields of a ``Sharing``; None without stretches."""
    num_seqs = len(lengths)
    blocks = np.empty(num_seqs, np.int64)  # that every query of a sequence sees
    for seq in range(num_seqs):
        blocks[seq] = min(max(lengths[seq] - (q_len - 1), 0) // block_size, table.shape[1])
    stretches = np.empty((max(num_seqs - 1, 0), 5), np.int64)
    members = np.empty(MEMBERS_A_SEQUENCE * num_seqs, np.int64)
    begin = np.zeros(num_seqs, np.int64)
    order = np.arange(num_seqs)
    nodes = np.empty((num_seqs + 1, 4), np.int64)  # order[first:end], blocks in common, tokens covered
    num_stretches = num_members = all_tokens = member_tokens = 0
    num_nodes = 1
    nodes[0] = 0, num_seqs, 0, 0
    while num_nodes:
        num_nodes -= 1
        first, end, depth, covered = nodes[num_nodes]
        end = _keep_longer(order, first, end, blocks, depth)
        _sort_by_block(order, first, end, table, depth)
        while first < end:
            last, common = _group(order, first, end, table, blocks, depth)
            count = last - first
            if count > 1:
                tokens = common * block_size // ALIGN_TOKENS * ALIGN_TOKENS - covered
                nodes[num_nodes] = first, last, common, covered
                if tokens * (count - 1) >= part_tokens * count:
                    if num_members + count > len(members):
                        return _find(table, lengths, block_size, q_len, 2 * part_tokens)
                    stretches[num_stretches] = order[first], covered, covered + tokens, num_members, count
                    nodes[num_nodes, 3] = covered + tokens
                    for i in range(first, last):
                        members[num_members] = order[i]
                        begin[order[i]] = covered + tokens
                        num_members += 1
                    num_stretches += 1
                    all_tokens += tokens
                    member_tokens += count * tokens
                num_nodes += 1
            first = last
    if num_stretches == 0:
        return None
    return stretches[:num_stretches], members[:num_members], begin, all_tokens, member_tokens


@njit(cache=True)
def _keep_longer(order, first, end, blocks, depth):
    """Move the sequences of more than ``depth`` blocks to the front; their end."""
    kept = first
    for i in range(first, end):
        if blocks[order[i]] > depth:
            order[kept] = order[i]
            kept += 1
    return kept


@njit(cache=True)
def _sort_by_block(order, first, end, table, depth):
    """By the block behind the common ones, sequences with the same one as they are."""
    for i in range(first + 1, end):
        if table[order[i], depth] != table[order[first], depth]:
            break
    else:
        return
    keys = np.empty(end - first, np.int64)
    for i in range(first, end):
        keys[i - first] = (np.int64(table[order[i], depth]) << 31) + order[i]
    keys.sort()
    for i in range(first, end):
        order[i] = keys[i - first] & 0x7FFFFFFF


@njit(cache=True)
def _group(order, first, end, table, blocks, depth):
    """End of the sequences that agree with the first in the block at ``depth``, and the blocks that all these share."""
    leader = order[first]
    common = blocks[leader]
    last = first + 1
    while last < end and table[order[last], depth] == table[leader, depth]:
        seq = order[last]
        common = _agree(table[leader], table[seq], depth + 1, min(common, blocks[seq]))
        last += 1
    return last, common


@njit(cache=True)
def _agree(a, b, first, end):
    """End of the entries from ``first`` on in which both agree."""
    a, b = a[first:end], b[first:end]
    agreeing = 0
    for _ in range(len(a) // _GROUP_ENTRIES):
        differ = np.int32(0)
        some_a, some_b = a[agreeing:agreeing + _GROUP_ENTRIES], b[agreeing:agreeing + _GROUP_ENTRIES]
        for i in range(_GROUP_ENTRIES):  # all at once
            differ |= some_a[i] ^ some_b[i]
        if differ:
            break
        agreeing += _GROUP_ENTRIES
    while agreeing < len(a) and a[agreeing] == b[agreeing]:
        agreeing += 1
    return first + agreeing


@njit(cache=True)
def _cut(stretches, members, num_seqs, rows_a_member, tile_rows, num_sms, programs_an_sm, num_kv_heads, most_parts,
         own_tokens):
    row_tiles = np.empty(len(stretches), np.int64)
    cost = np.empty(len(stretches))
    longest = 0
    for i in range(len(stretches)):
        rows = stretches[i, NUM_MEMBERS] * rows_a_member
        row_tiles[i] = -(-rows // tile_rows)
        half = 0 < rows % tile_rows <= tile_rows // 2
        cost[i] = row_tiles[i] - half * (1 - HALF_ITEM_COST)
        longest = max(longest, stretches[i, END] - stretches[i, FIRST])
    best = -1.0
    chosen = num_items = sms = 0
    for chunks in range(1, min(MAX_CHUNKS, 1 + longest // MIN_CHUNK_TOKENS) + 1):  # of the longest stretch
        chunk = _up(-(-longest // chunks), CHUNK_TOKENS)
        count = parts = 0
        all_cost = 0.0
        for i in range(len(stretches)):
            own = -(-(stretches[i, END] - stretches[i, FIRST]) // chunk)
            count += own * row_tiles[i]
            parts += own * stretches[i, NUM_MEMBERS]
            all_cost += own * cost[i]
        least = -(-count * num_kv_heads // (num_sms * programs_an_sm))
        if chunks > 1 and (parts > most_parts or least > MAX_WAVES):
            continue
        for waves in range(least, max(least, MAX_WAVES) + 1):  # items that a program takes one after another
            some = num_sms if own_tokens == 0 else -(-count * num_kv_heads // (waves * programs_an_sm))
            some = min(some, max(1, num_sms - 2) if own_tokens else num_sms)
            time = -(-count * num_kv_heads // (some * programs_an_sm)) * (chunk + ITEM_TOKENS) * all_cost / count
            if own_tokens:
                time = max(time, own_tokens / max(1, num_sms - some - 1))
            if best < 0 or time < best:
                best, chosen, num_items, sms = time, chunk, count, some
    items = np.zeros((num_items, ITEM_INTS), np.int32)
    num_parts = np.zeros(num_seqs, np.int64)
    n = 0
    for i in range(len(stretches)):
        seq, first, end, first_member, count = stretches[i]
        chunks = -(-(end - first) // chosen)
        step = min(chosen, _up(-(-(end - first) // chunks), CHUNK_TOKENS))
        part = num_parts[seq]
        while first < end:
            for tile in range(row_tiles[i]):
                items[n, SEQ], items[n, FIRST], items[n, END] = seq, first, min(first + step, end)
                items[n, FIRST_MEMBER], items[n, NUM_MEMBERS] = first_member, count
                items[n, FIRST_ROW], items[n, PART] = tile * tile_rows, part
                n += 1
            part += 1
            first += step
        for j in range(first_member, first_member + count):
            num_parts[members[j]] = part
    return items[:n], members.astype(np.int32), num_parts, sms


@njit(cache=True)
def _up(tokens, step):
    return -(-tokens // step) * step
