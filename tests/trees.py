"""Block tables of sequences that share leading blocks, and cases over them."""

from dataclasses import dataclass

import numpy as np
import torch
from cases import Case, make_case
from hypothesis import strategies as st


@dataclass(frozen=True)
class Node:
    """``tokens`` that everything below has in common; a leaf is one sequence, which ends inside its last block."""

    tokens: int
    below: tuple["Node", ...] = ()


def sequences(node: Node, block_size: int) -> list[list[tuple[int, int]]]:
    """Of each leaf the (tokens, owner) of every node on its way; only a leaf's tokens may end inside a block."""
    if not node.below:
        return [[(node.tokens, id(node))]]
    tokens = node.tokens // block_size * block_size
    return [[(tokens, id(node)), *way] for child in node.below for way in sequences(child, block_size)]


def tree_case(root: Node, *, block_size: int = 16, shuffle: bool = True, **options) -> Case:
    """Sequences in random order whose tables share the blocks of the nodes above them, all else as ``make_case``."""
    ways = sequences(root, block_size)
    generator = np.random.default_rng(options.get("seed", 0))
    if shuffle:
        generator.shuffle(ways)
    case = make_case([sum(tokens for tokens, _ in way) for way in ways], block_size=block_size, **options)
    table = case.block_table.clone()
    first: dict[int, torch.Tensor] = {}
    for seq, way in enumerate(ways):
        at = 0
        for tokens, owner in way[:-1]:
            count = tokens // block_size
            table[seq, at:at + count] = first.setdefault(owner, case.block_table[seq, at:at + count])
            at += count
    return Case(case.q, case.cache, table, case.lengths, case.mask)


def leaves(tokens: int, count: int) -> tuple[Node, ...]:
    return tuple(Node(tokens) for _ in range(count))


trees = st.recursive(
    st.integers(0, 90).map(Node),
    lambda below: st.builds(Node, st.integers(0, 400), st.lists(below, min_size=1, max_size=4).map(tuple)),
    max_leaves=12)
