"""Paged memory under a radix tree: a sequence's table is what the tree has of its tokens, and its own pages behind it."""

from pagesim.allocators import Paged

from .pool import Pool
from .radix import Node, RadixTree


class RadixPool(Pool):
    """A block is a page of the tree.  One sequence each: neither samples nor swapping."""

    def __init__(self, spec: Paged, capacity_slots: int) -> None:
        self.tree = RadixTree(spec.block_size, spec.eviction, [])
        super().__init__(spec, capacity_slots)
        self.nodes: dict[tuple[int, int], Node] = {}         # where the lock of each running sequence is
        self.protected: dict[tuple[int, int], int] = {}      # how many of its tokens are the tree's
        self.inserted: dict[tuple[int, int], int] = {}       # and it has inserted since its admission

    @property
    def free(self) -> list[int]:
        return self.tree.free

    @free.setter
    def free(self, pages: list[int]) -> None:
        self.tree.free = pages

    # What must be free.

    def hits(self, sequence) -> list[int]:
        return [] if sequence.blocks else self.tree.look(sequence.tokens[:-1])

    def refuses(self, head, chunks, scheduling, num_running: int) -> bool:
        """Pages that nobody locks can be evicted, except those that the head itself would hit."""
        hits = self.hits(head[0])
        room = len(self.tree.free) + len([page for page in self.tree.evictable_pages() if page not in hits])
        return self.need_blocks(head, chunks, scheduling, num_running) > room

    # Taking.

    def admit(self, head, chunks, step: int) -> None:
        sequence, = head
        node, pages = self.tree.match(sequence.tokens[:-1])
        self.tree.lock(node)
        for page in pages:
            self.own(page, sequence, step)
        sequence.blocks, sequence.stored, sequence.hit = pages, len(pages) * self.block_size, len(pages) * self.block_size
        self.nodes[sequence.key], self.protected[sequence.key] = node, sequence.stored
        self.inserted[sequence.key] = 0
        assert self.extend(sequence, chunks[0], step)

    def extend(self, sequence, tokens: int, step: int) -> bool:
        """What is missing is evicted, as far as it goes, before anybody is preempted."""
        new = self.blocks(sequence.stored + tokens) - len(sequence.blocks)
        for pages in self.tree.make_free(new * self.block_size):
            self.cache.ages += [step - self.left[page] for page in pages]
        return super().extend(sequence, tokens, step)

    # After a step.

    def insert(self, sequence, step: int) -> None:
        """The tree gets all whole pages stored; of what it had already, the sequence's own copies are freed."""
        key, own = sequence.key, sequence.blocks
        before = self.protected[key] // self.block_size
        node, pages, there = self.tree.insert(sequence.tokens[:sequence.stored], own, sequence.prompt_tokens,
                                              self.inserted[key])
        found = max(before, there // self.block_size)
        for page in pages[before:found]:
            self.own(page, sequence, step)
        sequence.blocks = pages + own[len(pages):]
        self.give_back(sequence, own[before:found], step)
        self.tree.lock(node)
        self.tree.lock(self.nodes[key], -1)
        self.nodes[key] = node
        self.protected[key] = self.inserted[key] = len(pages) * self.block_size

    def end(self, sequence, step: int) -> None:
        self.insert(sequence, step)
        self.release(sequence, step)

    # Giving back.

    def release(self, sequence, step: int) -> None:
        """In the order of tokens; what the tree has stays there."""
        kept = self.protected[sequence.key] // self.block_size
        table, sequence.blocks = sequence.blocks, []
        self.leave(sequence, table[:kept], step)
        self.give_back(sequence, table[kept:], step)
        self.tree.lock(self.nodes.pop(sequence.key), -1)

    def leave(self, sequence, pages: list[int], step: int) -> None:
        for page in pages:
            self.owners[page].remove(sequence.key)
            if not self.owners[page]:
                self.left[page] = step
                self.lifetimes.append(step - self.taken[page])

    def give_back(self, sequence, pages: list[int], step: int) -> None:
        self.leave(sequence, pages, step)
        assert not any(self.owners[page] for page in pages)
        self.tree.give_back(pages)

    # What the ledger reads.

    def cached_blocks(self) -> list[int]:
        assert all(self.owners[page] for page in self.tree.locked_pages())
        return self.tree.evictable_pages()

    def free_slots(self) -> int:
        return (len(self.tree.free) + len(self.tree.evictable_pages())) * self.block_size
