"""Lesson: a sequence is cut into logical blocks, each is mapped to a physical one; so every token has an address."""

import numpy as np

from pagesim.allocators.ask import Ask, Demand
from pagesim.allocators.paged import Paged, PagedMemory, admit, extend, ids, make, release
from pagesim.core.blocktables import BlockTables, from_rows
from pagesim.core.units import ceil_div
from pagesim.errors import InputError
from pagesim.explain.lesson import Lesson, Question

_OTHERS = 48                 # sequences of one block that came before
_LEFT = (3, 42, 7, 12)       # blocks of those that have gone since, in this order
_MOST_TOKENS = 1024
_COLUMNS = 6                 # logical blocks side by side
_SLOT_BYTES = 8 * 128 * 2    # K of one token in one layer: 8 heads of 128 dimensions, bf16


def tokens(num_tokens: int = 50, block_size: int = 16) -> Lesson:
    """Store ``num_tokens`` in a pool whose free blocks are scattered.

    Raises:
        InputError: fewer than 1 or more than 1,024 tokens, or no block size.
    """
    if not 1 <= num_tokens <= _MOST_TOKENS or block_size < 1:
        raise InputError(f"the lesson takes 1 to {_MOST_TOKENS:,} tokens in blocks of at least 1 slot, "
                         f"got {num_tokens} and {block_size}")
    prompt = max(1, num_tokens - 5)
    pool = _used_pool(num_tokens, block_size)
    admit(pool, _OTHERS, Ask.of(prompt), prompt, step=0)
    steps = [f"  {f'prompt of {prompt} tokens':24} table {_table(pool)}"]
    for stored in range(prompt, num_tokens):
        held = pool.hold.blocks[_OTHERS]
        extend(pool, _OTHERS, stored, stored + 1, step=1 + stored - prompt)
        why = "the last block was full" if pool.hold.blocks[_OTHERS] > held else "fits into the last block"
        steps.append(f"  {f'token {stored}':24} table {_table(pool)}  {why}")
    tables = from_rows([_table(pool)], [num_tokens], block_size, pool.num_blocks)
    num_blocks = ceil_div(num_tokens, block_size)
    lines = (
        f"{num_tokens} tokens, blocks of {block_size}: "
        f"ceil({num_tokens} / {block_size}) = {num_blocks} logical blocks.",
        f"{_OTHERS} other sequences came first, a block each; those on {', '.join(map(str, _LEFT))} have left, in",
        "this order.  The block freed last is handed out first; then come unused ones.",
        "",
        *steps,
        "",
        *_mapping(tables, num_tokens),
        "",
        f"Token t lies in slot table[t // {block_size}] · {block_size} + t mod {block_size}:",
        "",
        *_slots(tables, num_tokens),
        "",
        *_address(tables, min(20, num_tokens - 1)),
    )
    long = ceil_div(2048, block_size)
    return Lesson("Where does token t lie?", lines, Question(
        f"A sequence of 2,048 tokens: how many blocks of {block_size}?", long, f"ceil(2,048 / {block_size}) = {long}"))


def _used_pool(num_tokens: int, block_size: int) -> PagedMemory:
    """The allocator of ``pagesim simulate``, with a row left for the lesson's sequence."""
    num_blocks = _OTHERS + ceil_div(num_tokens, block_size)
    slots = num_blocks * block_size
    pool = make(Paged(block_size), slots, Demand(_OTHERS + 1, slots, slots, 2 * slots, _OTHERS + 1), None)
    for row in range(_OTHERS):
        admit(pool, row, Ask.of(block_size), block_size, step=0)
    for row in _LEFT:
        release(pool, row, stored=block_size, is_over=True, step=0)
    return pool


def _table(pool: PagedMemory) -> list[int]:
    return ids(pool, _OTHERS).tolist()


def _mapping(tables: BlockTables, num_tokens: int) -> list[str]:
    lines = [f"  {'logical block':15}{'tokens':14}{'physical block':16}slots"]
    size = tables.block_size
    for logical, physical in enumerate(tables.table(0).tolist()):
        first, last = logical * size, min((logical + 1) * size, num_tokens) - 1
        slot = physical * size
        left = size - (last - first + 1)
        empty = f"  ({left} more, empty)" if left else ""
        lines.append(f"  {logical:<15}{f'{first}–{last}':14}{physical:<16}{slot}–{slot + last - first}{empty}")
    return lines


def _slots(tables: BlockTables, num_tokens: int) -> list[str]:
    """``token → slot`` of every token: a column for each logical block, a row for each offset in it."""
    size, slots = tables.block_size, tables.slots()
    lines = []
    for group in range(0, len(tables.table(0)), _COLUMNS):
        first = group * size
        for offset in range(min(size, num_tokens - first)):
            cells = np.arange(first + offset, min(num_tokens, first + _COLUMNS * size), size)
            lines.append("  " + "".join(f"{f'{t} → {slots[t]}':13}" for t in cells).rstrip())
    return lines


def _address(tables: BlockTables, token: int) -> list[str]:
    slot = int(tables.slots()[token])
    return [
        f"In one layer's K cache of Llama 3.1 8B (8 heads × 128 × 2 bytes = {_SLOT_BYTES:,} bytes",
        f"a slot) token {token} starts at byte {slot} × {_SLOT_BYTES:,} = {slot * _SLOT_BYTES:,}.",
    ]
