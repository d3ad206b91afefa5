"""Paged memory: a Python list of free block ids, and a Python list of blocks for each sequence."""

import math

from pagesim.allocators import Paged


class Pool:
    contiguous = False

    def __init__(self, spec: Paged, capacity_slots: int) -> None:
        self.spec = spec
        self.block_size = spec.block_size
        self.num_blocks = capacity_slots // spec.block_size
        self.remainder = capacity_slots % spec.block_size
        self.free = list(range(self.num_blocks))
        self.watermark = math.floor(spec.watermark * (self.num_blocks + 1))

    def blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def could_ever_hold(self, sequence, num_samples: int) -> bool:
        at_admission = self.blocks(sequence.prompt_tokens) * num_samples
        return at_admission <= self.num_blocks and self.blocks(sequence.final) <= self.num_blocks

    def need_blocks(self, head, chunks, scheduling, num_running: int) -> int:
        """Blocks that must be free before the sequences of the queue's head may take ``chunks`` tokens."""
        need = 0
        for sequence, chunk in zip(head, chunks):
            whole = scheduling.reserve_full_isl or sequence.host_units > 0
            need += self.blocks(sequence.known if whole else sequence.stored + chunk)
        return need + (self.watermark if num_running > 0 else 0)

    def need_slots(self, head, chunks, scheduling, num_running: int) -> int:
        return self.need_blocks(head, chunks, scheduling, num_running) * self.block_size

    def refuses(self, head, chunks, scheduling, num_running: int) -> bool:
        return self.need_blocks(head, chunks, scheduling, num_running) > len(self.free)

    def admit(self, head, chunks, step: int) -> None:
        for sequence, chunk in zip(head, chunks):
            assert self.extend(sequence, chunk, step)

    def extend(self, sequence, tokens: int, step: int) -> bool:
        """Get the blocks for ``tokens`` more tokens, all or none."""
        new = self.blocks(sequence.stored + tokens) - len(sequence.blocks)
        if new > len(self.free):
            return False
        for _ in range(new):
            sequence.blocks.append(self.free.pop(0))
            sequence.taken.append(step)
        return True

    def release(self, sequence) -> None:
        last_block_first = sequence.blocks[::-1]
        self.free = last_block_first + self.free if self.spec.reuse == "lifo" else self.free + last_block_first
        sequence.blocks, sequence.taken = [], []

    def units(self, sequence) -> int:
        return len(sequence.blocks)

    def asked(self, sequence) -> int:
        return len(sequence.blocks) * self.block_size

    def slots(self, sequence) -> list[int]:
        """Physical slots in logical order."""
        return [block * self.block_size + offset for block in sequence.blocks for offset in range(self.block_size)]

    def free_slots(self) -> int:
        return len(self.free) * self.block_size

    def holes(self) -> list[int]:
        return []
