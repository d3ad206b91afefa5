"""SGLang's radix cache: a tree whose nodes hold runs of tokens and the pages in which they lie."""

from dataclasses import dataclass, field


@dataclass(eq=False)
class Node:
    tokens: list                  # as many as its pages hold
    pages: list[int]
    parent: "Node | None"
    used: int                     # time of the last access
    born: int
    locks: int = 0
    hits: int = 0                 # insertions that met it
    children: list["Node"] = field(default_factory=list)     # in the order in which they came

    def path(self) -> list["Node"]:
        """From below the root down to this node."""
        return [] if self.parent is None else [*self.parent.path(), self]

    def below(self) -> list["Node"]:
        """All nodes under this one, depth first."""
        return [node for child in self.children for node in (child, *child.below())]


class RadixTree:
    """The tree and the free list, which is next to be handed out first.

    Freed pages of one token go to the back of the list, larger ones as a group to its front.
    """

    def __init__(self, page_size: int, eviction: str, free: list[int]) -> None:
        self.page_size, self.eviction, self.free = page_size, eviction, free
        self.time = 0
        self.root = Node([], [], None, 0, 0)
        self.held = None          # frees collected while they are held back

    def whole(self, tokens: int) -> int:
        return tokens // self.page_size * self.page_size

    def tick(self) -> int:
        """Each reading of the clock is later than the one before."""
        self.time += 1
        return self.time

    # Finding.

    def agreement(self, tokens: list, node: Node) -> int:
        """Tokens in which both begin alike, in whole pages."""
        size, same = self.page_size, 0
        while same < len(node.tokens) and tokens[same:same + size] == node.tokens[same:same + size]:
            same += size
        return same

    def look(self, tokens: list) -> list[int]:
        """Pages that a match would find; nothing is touched."""
        pages, node, tokens = [], self.root, tokens[:self.whole(len(tokens))]
        while node is not None:
            best = max(node.children, key=lambda child: self.agreement(tokens, child), default=None)
            same = 0 if best is None else self.agreement(tokens, best)
            if same == 0:
                break
            pages += best.pages[:same // self.page_size]
            tokens = tokens[same:]
            node = best if same == len(best.tokens) else None
        return pages

    def walk(self, tokens: list) -> list[Node]:
        """The nodes met, all at one time; where the tokens end or part inside a node, it is split there."""
        now, met, node = self.tick(), [], self.root
        while True:
            same, child = max(((self.agreement(tokens, child), child) for child in node.children),
                              key=lambda pair: pair[0], default=(0, None))
            if same == 0:
                return met
            child.used = now
            node = child if same == len(child.tokens) else self.split(child, same)
            met.append(node)
            tokens = tokens[same:]

    def split(self, rear: Node, at: int) -> Node:
        """The front half is a new node in the old one's place, and newer than the walk that splits it."""
        front = Node(rear.tokens[:at], rear.pages[:at // self.page_size], rear.parent, self.tick(), self.tick(),
                     rear.locks, rear.hits, [rear])
        siblings = rear.parent.children
        siblings[siblings.index(rear)] = front
        rear.tokens, rear.pages, rear.parent = rear.tokens[at:], rear.pages[at // self.page_size:], front
        return front

    def match(self, tokens: list) -> tuple[Node, list[int]]:
        """The last node met and the pages up to its end."""
        tokens = tokens[:self.whole(len(tokens))]
        met = self.walk(tokens) if tokens else []
        return (met[-1] if met else self.root), [page for node in met for page in node.pages]

    # Keeping.

    def lock(self, node: Node, by: int = 1) -> None:
        for each in node.path():
            each.locks += by
            assert each.locks >= 0

    def insert(self, tokens: list, pages: list[int], prompt: int, inserted: int) -> tuple[Node, list[int], int]:
        """Hang what is new below what is known; whole pages only.

        Args:
            prompt: tokens of the prompt, so that a node ends with it.
            inserted: tokens that this request has inserted since its admission; nodes within are not hit again.

        Returns:
            The path's last node, the path's pages, and how many tokens were there already.
        """
        tokens = tokens[:self.whole(len(tokens))]
        if not tokens:
            return self.root, [], 0
        met = self.walk(tokens)
        there = sum(len(node.tokens) for node in met)
        if there < len(tokens):
            parent = met[-1] if met else self.root
            leaf = Node(tokens[there:], pages[there // self.page_size:len(tokens) // self.page_size], parent, self.tick(),
                        self.tick())
            parent.children.append(leaf)
            met.append(leaf)
        end = 0
        for node in met:
            end += len(node.tokens)
            node.hits += end > inserted
        if 0 < self.whole(prompt) < len(tokens):
            self.walk(tokens[:self.whole(prompt)])
        return *self.match(tokens), there

    # Giving back.

    def give_back(self, pages: list[int]) -> None:
        if self.held is not None:
            self.held += pages
        elif self.page_size == 1:
            self.free = self.free + pages
        else:
            self.free = pages + self.free

    def hold_frees(self) -> None:
        self.held = []

    def release_frees(self) -> None:
        pages, self.held = self.held, None
        self.give_back(pages)

    def evict(self, tokens: int) -> list[list[int]]:
        """Free leaves that nobody locks, whole, until so many tokens are free or no leaf is left; the pages of each."""
        gone = []
        while sum(map(len, gone)) * self.page_size < tokens:
            leaves = [node for node in self.root.below() if not node.children and not node.locks]
            if not leaves:
                break
            leaf = min(leaves, key=self.rank)
            leaf.parent.children.remove(leaf)
            self.give_back(leaf.pages)
            gone.append(leaf.pages)
        return gone

    def rank(self, node: Node) -> tuple:
        return {"lru": (node.used,), "lfu": (node.hits, node.used), "fifo": (node.born,)}[self.eviction]

    def make_free(self, tokens: int) -> list[list[int]]:
        """Evict what is missing of so many free tokens."""
        return self.evict(tokens - len(self.free) * self.page_size)

    def evictable_pages(self) -> list[int]:
        return [page for node in self.root.below() if not node.locks for page in node.pages]

    def locked_pages(self) -> list[int]:
        return [page for node in self.root.below() if node.locks for page in node.pages]
