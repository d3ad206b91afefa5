"""SGLang's radix tree: a node is a run of whole pages of tokens and the pages that hold them.

A node stands for the tokens ``[begin, end)`` of a request, whose place in the request is their place on the path from
the root; so no token is stored, and what two requests have in common is asked of the trace.  Its pages are a chain from
``first`` on.  It is found below its parent by a key of its first page.  ``locks`` sequences run on a path through it;
``hits`` insertions met it; times are readings of a clock of which none is like another.  ``leaf`` is the heap of leaves
and ``unused`` a stack of nodes; both have nothing to do with the node they stand in.
"""

from typing import NamedTuple

import numpy as np

from pagesim.allocators.block_keys import Prefixes, mixed
from pagesim.allocators.key_table import NONE, KeyTable, add, drop, find, make_key_table
from pagesim.allocators.leaf_heap import ORDERS, OUTSIDE, add_leaf, drop_leaf, move_leaf
from pagesim.allocators.same_tokens import mix_in, part_at
from pagesim.core.jit import COLD, HOT

NODE = np.dtype([(field, np.int64) for field in (
    "request", "begin", "end", "parent", "children", "first", "locks", "used", "born", "hits", "place", "leaf",
    "unused")], align=True)
# Nodes from ``fresh`` on never were; ``unused`` ones were, and are on a stack; ``cached`` pages are under no lock.
TREE_COUNT = np.dtype([(field, np.int64) for field in ("time", "fresh", "unused", "leaves", "cached")], align=True)
ROOT = 0


class Tree(NamedTuple):
    page_size: int
    order: int  # who is evicted first
    prefixes: Prefixes
    nodes: np.recarray  # NODE (pages + 1,): every node but the root has a page at least
    children: KeyTable
    following: np.ndarray  # int32 (pages,): the next page of the node
    count: np.record  # TREE_COUNT


def make_tree(num_pages: int, page_size: int, eviction: str, prefixes: Prefixes) -> Tree:
    count = np.zeros(1, TREE_COUNT).view(np.recarray)[0]
    count.fresh = 1
    nodes = np.zeros(num_pages + 1, NODE).view(np.recarray)
    nodes.place[ROOT] = OUTSIDE
    return Tree(page_size, ORDERS[eviction], prefixes, nodes,
                make_key_table(num_pages + 1), np.empty(num_pages, np.int32), count)


@HOT
def whole(tree, tokens):
    """The tokens that fill pages."""
    return tokens // tree.page_size * tree.page_size


@HOT
def pages_of(tree, node):
    return (tree.nodes.end[node] - tree.nodes.begin[node]) // tree.page_size


@HOT
def _tick(tree):
    tree.count.time += 1
    return tree.count.time


# Finding.


@COLD
def descend(tree, request, node, tokens):
    """Go down from the end of ``node`` as long as pages agree with the request's first ``tokens``, whole ones.

    Returns:
        The last node met, and up to where it agrees; nothing is touched.
    """
    at = np.int64(tree.nodes.end[node])
    while at < tokens:
        child = find(tree.children, _key(tree, node, request, at))
        if child == NONE:
            break
        end = np.int64(tree.nodes.end[child])
        same = whole(tree, part_at(tree.prefixes, request, tree.nodes.request[child], at, min(end, tokens)))
        if same == at:
            break
        node, at = child, same
        if at < end:
            break
    return node, at


@COLD
def _key(tree, parent, request, begin):
    """Of the child of ``parent`` that begins with this page."""
    return mix_in(tree.prefixes, mixed(1, int(parent)), request, begin, begin + tree.page_size)


@COLD
def meet(tree, node, at):
    """All nodes up to ``node`` are used now; if they were met up to ``at`` within it, it is split there.

    Returns:
        The node that ends at ``at``.
    """
    use_path(tree, node)
    return split(tree, node, at) if at < tree.nodes.end[node] else node


@COLD
def use_path(tree, node):
    now, nodes = _tick(tree), tree.nodes
    each = node
    while each != ROOT:
        nodes.used[each] = now
        if nodes.place[each] != OUTSIDE:
            move_leaf(tree, each)
        each = nodes.parent[each]


# Changing.


@COLD
def _new_node(tree, request, begin, end, parent, first):
    count, nodes = tree.count, tree.nodes
    if count.unused > 0:
        count.unused -= 1
        node = nodes.unused[count.unused]
    else:
        node = count.fresh
        count.fresh += 1
    nodes.request[node], nodes.begin[node], nodes.end[node] = request, begin, end
    nodes.parent[node], nodes.first[node], nodes.place[node] = parent, first, OUTSIDE
    nodes.used[node], nodes.born[node] = _tick(tree), _tick(tree)
    add(tree.children, node, _key(tree, parent, request, begin))
    return node


@COLD
def split(tree, rear, at):
    """The front half is a new node in the old one's place; who holds the old one holds the rear half."""
    nodes, pages = tree.nodes, (at - tree.nodes.begin[rear]) // tree.page_size
    drop(tree.children, rear)
    front = _new_node(tree, nodes.request[rear], nodes.begin[rear], at, nodes.parent[rear], nodes.first[rear])
    nodes.locks[front], nodes.hits[front], nodes.children[front] = nodes.locks[rear], nodes.hits[rear], 1
    page = nodes.first[rear]
    for _ in range(pages):
        page = np.int64(tree.following[page])
    nodes.begin[rear], nodes.parent[rear], nodes.first[rear] = at, front, page
    add(tree.children, rear, _key(tree, front, nodes.request[rear], at))
    return front


@COLD
def add_below(tree, parent, request, end, pages):
    """A new leaf, locked once, with the request's tokens from the parent's end to ``end``, which ``pages`` hold."""
    nodes = tree.nodes
    leaf = _new_node(tree, request, nodes.end[parent], end, parent, pages[0])
    nodes.locks[leaf], nodes.hits[leaf], nodes.children[leaf] = 1, 0, 0
    for j in range(1, len(pages)):
        tree.following[pages[j - 1]] = pages[j]
    if nodes.place[parent] != OUTSIDE:
        drop_leaf(tree, parent)
    nodes.children[parent] += 1
    return leaf


@COLD
def hit_path(tree, node, inserted):
    """An insertion met these nodes; what the same request has inserted before is not hit again."""
    while node != ROOT and tree.nodes.end[node] > inserted:
        tree.nodes.hits[node] += 1
        node = tree.nodes.parent[node]


@COLD
def end_a_node_at(tree, node, at):
    """Let a node of the path that ends with ``node`` end at ``at``."""
    while tree.nodes.begin[node] >= at:
        node = tree.nodes.parent[node]
    if at < tree.nodes.end[node]:
        split(tree, node, at)


# Locks.


@HOT
def lock(tree, node):
    """One lock more on this node alone; returns whether it is the first."""
    nodes = tree.nodes
    nodes.locks[node] += 1
    if nodes.locks[node] > 1:
        return False
    tree.count.cached -= pages_of(tree, node)
    if nodes.place[node] != OUTSIDE:
        drop_leaf(tree, node)
    return True


@HOT
def unlock(tree, node):
    """One lock less on this node alone; returns whether it was the last."""
    nodes = tree.nodes
    nodes.locks[node] -= 1
    if nodes.locks[node] > 0:
        return False
    tree.count.cached += pages_of(tree, node)
    if nodes.children[node] == 0:
        add_leaf(tree, node)
    return True


@COLD
def drop_first_leaf(tree):
    """The leaf that goes first leaves the tree; there is one.  Returns its first page and how many it has."""
    nodes, leaf = tree.nodes, tree.nodes.leaf[0]
    drop_leaf(tree, leaf)
    drop(tree.children, leaf)
    parent, pages = nodes.parent[leaf], pages_of(tree, leaf)
    tree.count.cached -= pages
    nodes.unused[tree.count.unused] = leaf
    tree.count.unused += 1
    nodes.children[parent] -= 1
    if parent != ROOT and nodes.children[parent] == 0 and nodes.locks[parent] == 0:
        add_leaf(tree, parent)
    return nodes.first[leaf], pages
