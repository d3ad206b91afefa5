"""vLLM's prefix cache: full blocks keep the chain of all tokens up to their end as their key."""


class PrefixCache:
    """Keys of blocks, and how they are used.  Off, no block ever has a key.

    Attributes:
        blocks: the blocks that have a key, in the order in which they got it.
        uses: the keys in the order used: when a block got it, and at each hit.
        distances: of each hit, how many different other keys were used since this one was.
        ages: of each eviction, the steps since the block's last owner let go.
    """

    def __init__(self, is_on: bool) -> None:
        self.is_on = is_on
        self.key: dict[int, tuple[str, ...]] = {}
        self.blocks: dict[tuple[str, ...], list[int]] = {}
        self.uses: list[int] = []
        self.names: dict[tuple[str, ...], int] = {}     # a number for each key ever used
        self.distances: list[int] = []
        self.ages: list[int] = []

    def find(self, tokens: list[str], block_size: int, most: int) -> list[int]:
        """The longest run of blocks from the first that are cached, at most ``most`` of them."""
        found = []
        while len(found) < most:
            same = self.blocks.get(tuple(tokens[:(len(found) + 1) * block_size]), [])
            if not same:
                break
            found.append(same[0])     # of equal blocks the one that got its key first
        return found

    def hit(self, block: int) -> None:
        name = self.names[self.key[block]]
        last = max(at for at, used in enumerate(self.uses) if used == name)
        self.distances.append(len(set(self.uses[last + 1:])))
        self.uses.append(name)

    def add(self, block: int, tokens: tuple[str, ...]) -> None:
        if self.is_on:
            assert block not in self.key
            self.key[block] = tokens
            self.blocks.setdefault(tokens, []).append(block)
            self.uses.append(self.names.setdefault(tokens, len(self.names)))

    def evict(self, block: int, age: int) -> None:
        """The block is handed out: it loses its key, if it has one."""
        if block in self.key:
            self.blocks[self.key.pop(block)].remove(block)
            self.ages.append(age)
