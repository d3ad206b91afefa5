"""Which leaf of a radix tree goes first: a heap of the leaves that nobody locks.

A node knows its place in the heap, so that it can leave it, or move in it, when it is used again.
"""

from pagesim.core.jit import COLD, HOT

LRU, LFU, FIFO = range(3)
ORDERS = {"lru": LRU, "lfu": LFU, "fifo": FIFO}
OUTSIDE = -1


@HOT
def _precedes(tree, one, other):
    nodes = tree.nodes
    if tree.order == FIFO:
        return nodes.born[one] < nodes.born[other]
    if tree.order == LFU and nodes.hits[one] != nodes.hits[other]:
        return nodes.hits[one] < nodes.hits[other]
    return nodes.used[one] < nodes.used[other]


@COLD
def add_leaf(tree, node):
    tree.count.leaves += 1
    _rise(tree, node, tree.count.leaves - 1)


@COLD
def drop_leaf(tree, node):
    at = tree.nodes.place[node]
    tree.nodes.place[node] = OUTSIDE
    tree.count.leaves -= 1
    last = tree.nodes.leaf[tree.count.leaves]
    if last != node:
        _rise(tree, last, at)
        _sink(tree, last)


@COLD
def move_leaf(tree, node):
    """It has been used, or hit, which never lets it go sooner."""
    _sink(tree, node)


@HOT
def _put(tree, node, at):
    tree.nodes.leaf[at] = node
    tree.nodes.place[node] = at


@HOT
def _rise(tree, node, at):
    """Put ``node`` at ``at`` or as far above as it belongs."""
    while at > 0 and _precedes(tree, node, tree.nodes.leaf[(at - 1) // 2]):
        _put(tree, tree.nodes.leaf[(at - 1) // 2], at)
        at = (at - 1) // 2
    _put(tree, node, at)


@HOT
def _sink(tree, node):
    at, leaves = tree.nodes.place[node], tree.nodes.leaf
    while True:
        below = 2 * at + 1
        if below >= tree.count.leaves:
            break
        if below + 1 < tree.count.leaves and _precedes(tree, leaves[below + 1], leaves[below]):
            below += 1
        if not _precedes(tree, leaves[below], node):
            break
        _put(tree, leaves[below], at)
        at = below
    _put(tree, node, at)
