"""The tree does what SGLang's radix cache did, in every field of every operation recorded."""

from dataclasses import dataclass, field

import pytest
from golden import operations
from golden.operations import runs, tokens_of

from oracle.radix import Node, RadixTree

INPUTS = {"op", "req", "reqs"}


@dataclass
class Request:
    prompt: int
    tokens: list[int]             # with all that it will sample
    sampled: int = 0
    stored: int = 0
    protected: int = 0            # of these the tree's
    inserted: int = 0             # since the latest admission
    pages: list[int] = field(default_factory=list)
    node: Node | None = None      # where its latest match ended, then where its lock is

    @property
    def known(self) -> int:
        return self.prompt + self.sampled


class Replay:
    """Decisions of the scheduler come from the file; each method gives the results of one operation."""

    def __init__(self, recorded: dict) -> None:
        given = recorded["parameters"]
        self.size = given["page_size"]
        pages = list(range(1, given["slots"] // self.size + 1))
        self.tree = RadixTree(self.size, given["eviction_policy"], pages)
        self.requests = [Request(len(tokens_of(row["prompt"])), tokens_of(row["prompt"]) + tokens_of([row["output"]]))
                         for row in recorded["requests"]]

    def slots(self, pages: list[int]) -> list[int]:
        return [page * self.size + offset for page in pages for offset in range(self.size)]

    def sizes(self) -> list[int]:
        tree = self.tree
        return [len(pages) * self.size for pages in (tree.free, tree.evictable_pages(), tree.locked_pages())]

    def make_free(self, need: int) -> dict:
        short = need - len(self.tree.free) * self.size
        if short <= 0:
            return {}
        gone = self.tree.make_free(need)
        return {"short": short, "evicted": [runs(self.slots(pages)) for pages in gone],
                "evicted_tokens": sum(map(len, gone)) * self.size}

    def store(self, request: Request, end: int) -> list[int]:
        """Slots of the tokens up to ``end``."""
        begin, request.stored = request.stored, end
        while len(request.pages) * self.size < end:
            request.pages.append(self.tree.free.pop(0))
        if end == request.known:
            request.sampled += 1
        return self.slots(request.pages)[begin:end]

    # Operations.

    def touch(self, request: Request) -> dict:
        self.tree.match(request.tokens[:request.known])
        return {"known": request.known}

    def match(self, request: Request) -> dict:
        request.node, request.pages = self.tree.match(request.tokens[:request.known - 1])
        slots = self.slots(request.pages)
        return {"known": request.known, "limit": request.known - 1, "hit": len(slots), "slots": runs(slots)}

    def lock(self, request: Request) -> dict:
        self.tree.lock(request.node)
        request.stored = request.protected = len(request.pages) * self.size
        request.inserted = 0
        return {"prefix": request.stored}

    def extend(self, rows) -> dict:
        tokens = sum(end - begin for _, begin, end in rows)
        result = self.make_free(tokens + (self.size * len(rows) if self.size > 1 else 0))
        slots = []
        for row, begin, end in rows:
            assert begin == self.requests[row].stored
            slots += self.store(self.requests[row], end)
        return {"tokens": tokens, "slots": runs(slots), **result}

    def check(self, rows) -> dict:
        need = sum(self.size for row in rows if self.requests[row].stored % self.size == 0)
        result = self.make_free(need)
        return {"need": need, "fits": len(self.tree.free) * self.size >= need, **result}

    def decode(self, rows) -> dict:
        result = self.make_free(self.size * len(rows))
        return {"slots": runs([slot for row in rows for slot in
                               self.store(self.requests[row], self.requests[row].stored + 1)]), **result}

    def retract(self, request: Request) -> dict:
        freed = self.slots(request.pages)[request.protected:request.stored]
        result = {"stored": request.stored, "protected": request.protected, "freed": runs(freed)}
        self.tree.give_back(request.pages[request.protected // self.size:])
        self.tree.lock(request.node, -1)
        return result

    def make_room(self, need: int) -> dict:
        return {"need": need, **self.make_free(need)}

    def insert(self, request: Request) -> dict:
        before, own = request.protected, request.pages
        node, pages, there = self.tree.insert(request.tokens[:request.stored], own, request.prompt, request.inserted)
        duplicates = own[before // self.size:max(before, there) // self.size]
        self.tree.give_back(duplicates)
        self.tree.lock(node)
        self.tree.lock(request.node, -1)
        request.node, request.protected = node, len(pages) * self.size
        request.inserted = request.protected
        request.pages = pages + own[len(pages):]
        return {"up_to": request.stored, "protected_before": before, "protected": request.protected,
                "duplicates": len(duplicates) * self.size, "freed": runs(self.slots(duplicates))}

    def finish(self, request: Request) -> dict:
        result = self.insert(request)
        tail = self.slots(request.pages)[request.protected:request.stored]
        self.tree.give_back(request.pages[request.protected // self.size:])
        self.tree.lock(request.node, -1)
        return {**result, "tail": runs(tail)}

    def hold_frees(self) -> dict:
        self.tree.hold_frees()
        return {}

    def release_frees(self) -> dict:
        self.tree.release_frees()
        return {}

    def dump(self) -> dict:
        nodes = self.tree.root.below()
        used, born = (sorted({getattr(node, name) for node in nodes}) for name in ("used", "born"))
        rows = []
        for node in nodes:
            start = sum(len(each.tokens) for each in node.path()[:-1])
            parent = -1 if node.parent is self.tree.root else nodes.index(node.parent)
            rows.append([parent, start, start + len(node.tokens), node.locks, node.hits, used.index(node.used),
                         born.index(node.born), node.tokens[0], runs(self.slots(node.pages))])
        return {"nodes": rows, "free": runs(self.tree.free)}

    def perform(self, operation: dict) -> dict:
        does = getattr(self, operation["op"])
        if operation["op"] == "make_room":
            result = does(operation["need"])
        elif "req" in operation:
            result = does(self.requests[operation["req"]])
        else:
            result = does(operation["reqs"]) if "reqs" in operation else does()
        return {**result, "sizes": self.sizes()}


@pytest.mark.parametrize("name", operations.NAMES)
def test_the_tree_does_in_every_operation_what_sglang_did(name):
    recorded = operations.read(name)
    replay = Replay(recorded)
    for number, operation in enumerate(recorded["ops"]):
        expected = {key: value for key, value in operation.items() if key not in INPUTS}
        assert replay.perform(operation) == expected, f"operation {number}: {operation['op']}"
    assert len(recorded["ops"]) == recorded["totals"]["operations"]
