"""Paged memory: a Python list of free block ids, of each block a set of owners, of each sequence a Python list of blocks."""

import math

from pagesim.allocators import Paged

from .prefix_cache import PrefixCache


class Pool:
    contiguous = False

    def __init__(self, spec: Paged, capacity_slots: int) -> None:
        self.spec = spec
        self.block_size = spec.block_size
        self.num_blocks = capacity_slots // spec.block_size
        self.remainder = capacity_slots % spec.block_size
        self.watermark = math.floor(spec.watermark * (self.num_blocks + 1))
        self.cache = PrefixCache(spec.prefix_cache == "vllm")
        self.free = list(range(self.num_blocks))        # next to be handed out first; with what only the cache keeps
        self.owners = [set() for _ in self.free]        # keys of sequences
        self.contents = [[None] * self.block_size for _ in self.free]      # names of the tokens stored
        self.taken = [0] * self.num_blocks              # the step in which it got its first owner
        self.left = [0] * self.num_blocks               # the step in which its last owner let go
        self.lifetimes = []                             # steps from the first owner to the last, of blocks given back
        self.host_contents = {}                         # request → block there → names of the tokens
        self.copied_tokens = self.copied_blocks = 0

    def blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def whole(self, tokens: int) -> int:
        """The tokens that fill blocks."""
        return tokens // self.block_size * self.block_size

    # What must be free.

    def could_ever_hold(self, sequence, num_samples: int) -> bool:
        """At the end of the request: all samples share the prompt's full blocks."""
        if sequence.output_tokens == 1:
            return self.blocks(sequence.prompt_tokens) <= self.num_blocks
        shared = sequence.prompt_tokens // self.block_size
        return shared + num_samples * (self.blocks(sequence.final) - shared) <= self.num_blocks

    def hits(self, sequence) -> list[int]:
        """Blocks that an admission would find: at least one token stays to be computed."""
        if sequence.sample > 0 or sequence.blocks or sequence.host_blocks:
            return []
        return self.cache.find(sequence.tokens, self.block_size, (sequence.known - 1) // self.block_size)

    def start(self, sequence) -> int:
        """Position of the first token that the sequence has to compute itself, were it served now."""
        if sequence.blocks or sequence.host_blocks:
            return sequence.stored
        if sequence.sample == 0:
            return len(self.hits(sequence)) * self.block_size
        return sequence.known if sequence.sampled == 0 else self.whole(sequence.prompt_tokens)

    def todo(self, sequence) -> int:
        return sequence.known - self.start(sequence)

    def need_blocks(self, head, chunks, scheduling, num_running: int) -> int:
        """Blocks that must be free, hits apart, before the sequences of the queue's head may take ``chunks`` tokens."""
        whole = scheduling.reserve_full_isl or head[0].host_units > 0
        kept = {block for s in head for block in s.host_blocks[:s.stored // self.block_size]}
        need = len(kept)
        for sequence, chunk in zip(head, chunks):
            waits_for_fork = sequence.sample > 0 and sequence.sampled == 0
            if not waits_for_fork and (whole or chunk > 0):
                end = sequence.known if whole else self.start(sequence) + chunk
                need += self.blocks(end) - self.start(sequence) // self.block_size
        return need + (self.watermark if num_running > 0 else 0)

    def need_slots(self, head, chunks, scheduling, num_running: int) -> int:
        return self.need_blocks(head, chunks, scheduling, num_running) * self.block_size

    def refuses(self, head, chunks, scheduling, num_running: int) -> bool:
        hits = self.hits(head[0])
        free = [block for block in self.free if block not in hits]
        return self.need_blocks(head, chunks, scheduling, num_running) > len(free)

    # Taking.

    def admit(self, head, chunks, step: int) -> None:
        first = head[0]
        hits = self.hits(first)
        for block in hits:
            self.cache.hit(block)
            if block in self.free:
                self.free.remove(block)
            self.own(block, first, step)
        first.blocks += hits
        first.hit = len(hits) * self.block_size
        first.stored = first.hit if not first.host_blocks else first.stored
        self.bring_back(head, step)
        for sequence, chunk in zip(head, chunks):
            assert self.extend(sequence, chunk, step)

    def own(self, block: int, sequence, step: int) -> None:
        if not self.owners[block]:
            self.taken[block] = step
        self.owners[block].add(sequence.key)

    def pop(self, step: int) -> int:
        block = self.free.pop(0)
        assert not self.owners[block]
        self.cache.evict(block, step - self.left[block])
        self.contents[block] = [None] * self.block_size
        return block

    def append(self, sequence, step: int) -> None:
        sequence.blocks.append(self.pop(step))
        self.own(sequence.blocks[-1], sequence, step)

    def extend(self, sequence, tokens: int, step: int) -> bool:
        """Get the slots for ``tokens`` more tokens, all or none; a block of several owners is copied before a write."""
        if tokens == 0:
            return True
        if not sequence.blocks and sequence.sample > 0:
            self.join_prompt(sequence, step)
        copies = self.shares_next_slot(sequence)
        new = self.blocks(sequence.stored + tokens) - len(sequence.blocks)
        if copies + new > len(self.free):
            return False
        if copies:
            self.copy_last(sequence, step)
        for _ in range(new):
            self.append(sequence, step)
        return True

    def shares_next_slot(self, sequence) -> bool:
        at = sequence.stored // self.block_size
        return at < len(sequence.blocks) and len(self.owners[sequence.blocks[at]]) > 1

    def copy_last(self, sequence, step: int) -> None:
        at, filled = sequence.stored // self.block_size, sequence.stored % self.block_size
        old, new = sequence.blocks[at], self.pop(step)
        self.own(new, sequence, step)
        self.contents[new][:filled] = self.contents[old][:filled]
        sequence.blocks[at] = new
        self.let_go(sequence, [old], step)
        self.copied_tokens += filled
        self.copied_blocks += 1

    def written(self, sequence, tokens: int) -> None:
        """The last ``tokens`` of the stored tokens have been scheduled: full blocks get their key."""
        for position in range(sequence.stored - tokens, sequence.stored):
            block = sequence.blocks[position // self.block_size]
            in_full_prompt_block = position < self.whole(sequence.prompt_tokens)    # others may wait for its tokens
            assert len(self.owners[block]) == 1 or in_full_prompt_block, "a block of several owners is copied first"
            assert sequence.key in self.owners[block]
            assert block not in self.cache.key, "nobody writes into a block with a key"
            self.contents[block][position % self.block_size] = sequence.tokens[position]
            if (position + 1) % self.block_size == 0:
                self.cache.add(block, tuple(sequence.tokens[:position + 1]))

    # Sharing within a group.

    def join_prompt(self, sequence, step: int) -> None:
        """A sample that comes back owns the prompt's full blocks of sample 0, which has computed them."""
        shared = sequence.prompt_tokens // self.block_size
        sequence.blocks = sequence.group[0].blocks[:shared]
        sequence.stored = shared * self.block_size
        for block in sequence.blocks:
            self.own(block, sequence, step)

    def fork(self, group, step: int) -> None:
        for sequence in group[1:]:
            assert not sequence.blocks
            sequence.blocks, sequence.stored = list(group[0].blocks), group[0].stored
            for block in sequence.blocks:
                self.own(block, sequence, step)

    def reroot(self, group, parents: list[int], step: int) -> None:
        """Beam j goes on from the blocks of beam ``parents[j]``; all at once, so new owners come before old ones go."""
        before = [list(sequence.blocks) for sequence in group]
        for sequence, parent in zip(group, parents):
            sequence.blocks = list(before[parent])
            for block in sequence.blocks:
                self.own(block, sequence, step)
        for sequence, old in zip(group, before):
            self.let_go(sequence, [block for block in old[::-1] if block not in sequence.blocks], step)

    # Giving back.

    def release(self, sequence, step: int) -> None:
        """Last block first."""
        table, sequence.blocks = sequence.blocks, []
        self.let_go(sequence, table[::-1], step)

    def let_go(self, sequence, blocks: list[int], step: int) -> None:
        freed = []
        for block in blocks:
            self.owners[block].remove(sequence.key)
            if not self.owners[block]:
                freed.append(block)
                self.left[block] = step
                self.lifetimes.append(step - self.taken[block])
        front = [block for block in freed if self.spec.reuse == "lifo" and block not in self.cache.key]
        back = [block for block in freed if block not in front]
        self.free = front + self.free + back

    def end(self, sequence, step: int) -> None:
        self.release(sequence, step)

    def swap_out(self, group, step: int) -> None:
        """Every block of the group moves once."""
        for sequence in group:
            sequence.host_blocks = list(sequence.blocks)
        self.host_contents[group[0].request] = {b: list(self.contents[b]) for s in group for b in s.blocks}
        for sequence in group:
            self.release(sequence, step)

    def bring_back(self, group, step: int) -> None:
        """Into other blocks, which are shared as those were; full ones can be hit again."""
        new = {}
        for sequence in group:
            for old in sequence.host_blocks:
                if old not in new:
                    new[old] = self.pop(step)
                    self.contents[new[old]] = self.host_contents[sequence.request][old]
                sequence.blocks.append(new[old])
                self.own(new[old], sequence, step)
            sequence.host_blocks = []
        for sequence in group:
            for at, block in enumerate(sequence.blocks[:sequence.stored // self.block_size]):
                if block not in self.cache.key:
                    self.cache.add(block, tuple(sequence.tokens[:(at + 1) * self.block_size]))

    # What the ledger reads.

    def units(self, group) -> int:
        return len({block for sequence in group for block in sequence.blocks})

    def held_slots(self, sequence) -> int:
        return len(sequence.blocks) * self.block_size

    def free_slots(self) -> int:
        return len(self.free) * self.block_size

    def cached_blocks(self) -> list[int]:
        return [block for block in self.free if block in self.cache.key]

    def holes(self) -> list[int]:
        return []
