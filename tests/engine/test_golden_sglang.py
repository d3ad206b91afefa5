"""The radix allocator does what SGLang's radix cache did, in every field of every operation recorded.

A recording has a scheduler of its own, so it is played on the functions that admit, extend and release are made of, with
a row for each request.  Its dumps also know the order of a node's children, which decides nothing and is not kept here.
"""

import numpy as np
import pytest
from golden import operations
from golden.operations import runs, tokens_of

from pagesim.allocators import Paged, radix
from pagesim.allocators.ask import Demand
from pagesim.allocators.free_pages import free_list, give_back_held
from pagesim.allocators.radix_tree import ROOT, descend, meet, whole
from pagesim.trace import Source, Trace

INPUTS = {"op", "req", "reqs"}


class Replay:
    """Decisions of the scheduler come from the file; each method gives the results of one operation."""

    def __init__(self, recorded: dict) -> None:
        given, rows = recorded["parameters"], recorded["requests"]
        self.size = given["page_size"]
        self.prompts = [len(tokens_of(row["prompt"])) for row in rows]
        self.tokens = [tokens_of(row["prompt"]) + tokens_of([row["output"]]) for row in rows]
        lengths = np.array([len(each) for each in self.tokens], np.int32)
        trace = Trace(None, lengths, np.ones_like(lengths), prefix_ids=np.concatenate(self.tokens),
                      prefix_offsets=np.cumsum([0, *lengths]), source=Source("", "", hash_block_tokens=1))
        spec = Paged(self.size, prefix_cache="radix", eviction=given["eviction_policy"])
        self.memory = radix.make(spec, given["slots"], Demand(len(rows), *[int(lengths.max())] * 4), trace)
        self.hold, self.tree, self.free = self.memory.hold, self.memory.tree, self.memory.free
        self.sampled, self.stored = [0] * len(rows), [0] * len(rows)
        self.holds_frees = False

    def known(self, row: int) -> int:
        return self.prompts[row] + self.sampled[row]

    def slots(self, pages) -> list[int]:
        """Page 0 of a recording is never handed out."""
        return [(page + 1) * self.size + offset for page in map(int, pages) for offset in range(self.size)]

    def table(self, row: int) -> np.ndarray:
        return radix.ids(self.memory, row).copy()

    def pages(self, node: int) -> list[int]:
        found = [int(self.tree.nodes.first[node])]
        while len(found) * self.size < self.tree.nodes.end[node] - self.tree.nodes.begin[node]:
            found.append(int(self.tree.following[found[-1]]))
        return found

    def nodes(self) -> np.ndarray:
        """Those that are in the tree."""
        is_there = np.ones(self.tree.count.fresh, np.bool_)
        is_there[self.tree.nodes.unused[:self.tree.count.unused]] = is_there[ROOT] = False
        return np.flatnonzero(is_there)

    def sizes(self) -> list[int]:
        nodes = self.tree.nodes[self.nodes()]
        locked = np.sum((nodes.end - nodes.begin)[nodes.locks > 0])
        return [len(free_list(self.free)) * self.size, int(self.tree.count.cached) * self.size, int(locked)]

    def make_free(self, need: int) -> dict:
        """Leaf by leaf, to see them go."""
        short = need - len(free_list(self.free)) * self.size
        if short <= 0:
            return {}
        gone = []
        while sum(map(len, gone)) * self.size < short:
            before = free_list(self.free).tolist()
            radix.make_free(self.memory, len(before) + 1, 0)
            after = free_list(self.free).tolist()
            if after == before:
                break
            gone.append(after[len(before):] if self.size == 1 else after[:len(after) - len(before)])
        radix.make_free(self.memory, -(-need // self.size), 0)
        assert len(free_list(self.free)) == len(before) + len(gone[-1] if after != before else []), "as many at once"
        return {"short": short, "evicted": [runs(self.slots(pages)) for pages in gone],
                "evicted_tokens": sum(map(len, gone)) * self.size}

    def store(self, row: int, end: int) -> list[int]:
        """Slots of the tokens up to ``end``."""
        begin, self.stored[row] = self.stored[row], end
        radix.take_pages(self.memory, row, max(0, -(-end // self.size) - int(self.hold.blocks[row])), 0)
        if end == self.known(row):
            self.sampled[row] += 1
        return self.slots(self.table(row))[begin:end]

    def met(self, row: int, tokens: int) -> int:
        return meet(self.tree, *descend(self.tree, row, ROOT, whole(self.tree, tokens)))

    def given_back(self) -> list[int]:
        """What an operation gave back, in order; it is free at once unless frees are held back."""
        pages = self.free.held[self.held_before:self.free.count.held].tolist()
        if not self.holds_frees:
            give_back_held(self.free)
        return pages

    # Operations.

    def touch(self, row: int) -> dict:
        self.met(row, self.known(row))
        return {"known": self.known(row)}

    def match(self, row: int) -> dict:
        node, limit = self.met(row, self.known(row) - 1), self.known(row) - 1
        self.hold.node[row], slots = node, []
        while node != ROOT:
            slots = self.slots(self.pages(node)) + slots
            node = self.tree.nodes.parent[node]
        return {"known": self.known(row), "limit": limit, "hit": len(slots), "slots": runs(slots)}

    def lock(self, row: int) -> dict:
        hit = int(self.tree.nodes.end[self.hold.node[row]])
        radix.find_room(self.memory, row, hit // self.size)
        radix.lock_path(self.memory, row, ROOT, hit, 0)
        self.hold.request[row], self.hold.prompt[row], self.hold.inserted[row] = row, self.prompts[row], 0
        self.hold.blocks[row], self.hold.kept[row], self.stored[row] = hit // self.size, hit, hit
        return {"prefix": hit}

    def extend(self, rows) -> dict:
        tokens = sum(end - begin for _, begin, end in rows)
        result, slots = self.make_free(tokens + (self.size * len(rows) if self.size > 1 else 0)), []
        for row, begin, end in rows:
            assert begin == self.stored[row]
            slots += self.store(row, end)
        return {"tokens": tokens, "slots": runs(slots), **result}

    def check(self, rows) -> dict:
        need = sum(self.size for row in rows if self.stored[row] % self.size == 0)
        result = self.make_free(need)
        return {"need": need, "fits": len(free_list(self.free)) * self.size >= need, **result}

    def decode(self, rows) -> dict:
        result = self.make_free(self.size * len(rows))
        return {"slots": runs([slot for row in rows for slot in self.store(row, self.stored[row] + 1)]), **result}

    def retract(self, row: int) -> dict:
        stored, protected = self.stored[row], int(self.hold.kept[row])
        freed = self.slots(self.table(row))[protected:stored]
        radix.release(self.memory, row, stored, False, 0)
        return {"stored": stored, "protected": protected, "freed": runs(freed)}

    def make_room(self, need: int) -> dict:
        return {"need": need, **self.make_free(need)}

    def insert(self, row: int) -> dict:
        before = int(self.hold.kept[row])
        radix.keep_chunk(self.memory, row, self.stored[row], 0)
        return self.inserted(row, before, self.given_back())

    def inserted(self, row: int, before: int, duplicates: list[int]) -> dict:
        return {"up_to": self.stored[row], "protected_before": before, "protected": whole(self.tree, self.stored[row]),
                "duplicates": len(duplicates) * self.size, "freed": runs(self.slots(duplicates))}

    def finish(self, row: int) -> dict:
        before, kept = int(self.hold.kept[row]), whole(self.tree, self.stored[row])
        tail = len(self.table(row)) - kept // self.size
        radix.release(self.memory, row, self.stored[row], True, 0)
        gone = self.given_back()
        slots = self.slots(gone[len(gone) - tail:])[:self.stored[row] - kept]
        return {**self.inserted(row, before, gone[:len(gone) - tail]), "tail": runs(slots)}

    def hold_frees(self) -> dict:
        self.holds_frees = True
        return {}

    def release_frees(self) -> dict:
        self.holds_frees = False
        give_back_held(self.free)
        return {}

    def dump(self) -> dict:
        nodes, alive = self.tree.nodes, self.nodes().tolist()
        used, born = (sorted({int(column[node]) for node in alive}) for column in (nodes.used, nodes.born))
        rows = [[alive.index(nodes.parent[node]) if nodes.parent[node] != ROOT else -1,
                 *(int(nodes[name][node]) for name in ("begin", "end", "locks", "hits")), used.index(nodes.used[node]),
                 born.index(nodes.born[node]), self.tokens[nodes.request[node]][nodes.begin[node]],
                 runs(self.slots(self.pages(node)))] for node in alive]
        return {"nodes": rows, "free": runs((free_list(self.free) + 1).tolist())}

    def perform(self, operation: dict) -> dict:
        does, self.held_before = getattr(self, operation["op"]), int(self.free.count.held)
        if operation["op"] == "make_room":
            result = does(operation["need"])
        elif "req" in operation:
            result = does(operation["req"])
        else:
            result = does(operation["reqs"]) if "reqs" in operation else does()
        return {**result, "sizes": self.sizes()}


def in_any_order(result: dict) -> dict:
    """A dump's nodes name their parent by its slots instead of by its place."""
    if "nodes" not in result:
        return result
    rows = [[None if row[0] < 0 else result["nodes"][row[0]][-1], *row[1:]] for row in result["nodes"]]
    return {**result, "nodes": sorted(rows, key=lambda row: row[-1])}


@pytest.mark.parametrize("name", operations.NAMES)
def test_the_allocator_does_in_every_operation_what_sglang_did(name):
    recorded = operations.read(name)
    replay = Replay(recorded)
    for number, operation in enumerate(recorded["ops"]):
        expected = {key: value for key, value in operation.items() if key not in INPUTS}
        made = replay.perform(operation)
        assert in_any_order(made) == in_any_order(expected), f"operation {number}: {operation['op']}"
    assert len(recorded["ops"]) == recorded["totals"]["operations"]
