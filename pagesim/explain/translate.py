"""Lesson: from a block table and a token's number to its slot."""

import numpy as np

from pagesim.core.blocktables import from_rows
from pagesim.errors import InputError
from pagesim.explain.lesson import Lesson, Question


def translate(table: list[int], token: int, block_size: int = 16) -> Lesson:
    """``table[token // block_size] · block_size + token mod block_size``, step by step.

    Raises:
        InputError: a table that no sequence can have, or a token behind its end.
    """
    if block_size < 1 or not table or min(table) < 0:
        raise InputError(f"a table is one or more block ids from 0 on, of 1 or more slots, got {table} of {block_size}")
    if max(table) > np.iinfo(np.int32).max:
        raise InputError(f"block ids are 32-bit numbers, at most {np.iinfo(np.int32).max:,}, got {max(table)}")
    room = len(table) * block_size
    if not 0 <= token < room:
        raise InputError(f"{len(table)} blocks of {block_size} slots hold tokens 0 to {room - 1}, got token {token}")
    tables = from_rows([table], [room], block_size, max(table) + 1)
    tables.validate()
    slots = tables.slots()
    logical, offset = divmod(token, block_size)
    lines = (
        f"block table {table}, blocks of {block_size} slots, token {token}",
        "",
        f"  logical block   {token} // {block_size} = {logical}",
        f"  offset in it    {token} mod {block_size} = {offset}",
        f"  physical block  table[{logical}] = {table[logical]}",
        f"  slot            {table[logical]} · {block_size} + {offset} = {slots[token]}",
    )
    asked = room - 1 if token != room - 1 else 0
    return Lesson("From a token to its slot", lines, Question(
        f"And token {asked}: in which slot?", int(slots[asked]),
        f"table[{asked // block_size}] · {block_size} + {asked % block_size} = "
        f"{table[asked // block_size]} · {block_size} + {asked % block_size} = {slots[asked]}"))
