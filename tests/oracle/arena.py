"""Contiguous memory: a list that says of every slot who owns it, and holes found by looking at all of it."""

import copy
import math
from fractions import Fraction

from pagesim.allocators import Contiguous

from .sequence import Region


def next_power_of_two(number: int) -> int:
    power = 1
    while power < number:
        power *= 2
    return power


class Arena:
    contiguous = True
    block_size = 1
    num_blocks = None
    remainder = 0

    def __init__(self, spec: Contiguous, capacity_slots: int, max_model_len: int) -> None:
        self.spec = spec
        self.max_model_len = max_model_len
        self.owner = [None] * capacity_slots
        self.last_end = 0                  # where the last placement ended, for next_fit
        self.failed_growths = 0
        self.copied_tokens = 0
        self.buddies = []                  # free (start, size), for buddy only
        if spec.placement == "buddy":
            start, left = 0, capacity_slots
            while left:
                size = 1
                while size * 2 <= left:
                    size *= 2
                self.buddies.append((start, size))
                start, left = start + size, left - size
            self.chunks = list(self.buddies)

    # What a sequence asks for.

    def wanted(self, sequence) -> int:
        p, o, limit = sequence.prompt_tokens, sequence.output_tokens, sequence.limit_tokens
        return {
            "max_model_len": self.max_model_len,
            "pow2": min(self.max_model_len, p + next_power_of_two(o)),
            "exact": p + o - 1,
            "max_tokens": min(self.max_model_len, p + limit) if limit else self.max_model_len,
            "grow": sequence.known,
        }[self.spec.reserve]

    def todo(self, sequence) -> int:
        return sequence.known - sequence.stored

    def could_ever_hold(self, sequence, num_samples: int) -> bool:
        """Asked of an arena with nothing in it."""
        assert all(owner is None for owner in self.owner)
        return self.trial([self.wanted(sequence)] * num_samples) and self.trial([sequence.final])

    def trial(self, sizes: list[int]) -> bool:
        attempt = copy.copy(self)
        attempt.owner, attempt.buddies = list(self.owner), list(self.buddies)
        return all(attempt.place(size, "trial") is not None for size in sizes)

    def need_slots(self, head, chunks, scheduling, num_running: int) -> int:
        return sum(self.wanted(sequence) for sequence in head)

    def refuses(self, head, chunks, scheduling, num_running: int) -> bool:
        return not self.trial([self.wanted(sequence) for sequence in head])

    def admit(self, head, chunks, step: int) -> None:
        for sequence in head:
            sequence.region = self.place(self.wanted(sequence), sequence.key)
            assert sequence.region is not None

    # Growth.

    def extend(self, sequence, tokens: int, step: int) -> bool:
        region = sequence.region
        if sequence.stored + tokens <= region.asked:
            return True
        assert self.spec.reserve == "grow" and tokens == 1 and sequence.stored == region.asked
        s = sequence.stored
        for target in (min(self.max_model_len, max(s + 1, math.ceil(s * Fraction(str(self.spec.growth))))), s + 1):
            if self.grow_in_place(sequence, target) or self.grow_by_copy(sequence, target):
                return True
        self.failed_growths += 1
        return False

    def grow_in_place(self, sequence, target: int) -> bool:
        region = sequence.region
        behind = range(region.start + region.allocated, region.start + target)
        if self.spec.placement == "buddy" or any(i >= len(self.owner) or self.owner[i] is not None for i in behind):
            return False
        for i in behind:
            self.owner[i] = sequence.key
        sequence.region = Region(region.start, target, target)
        return True

    def grow_by_copy(self, sequence, target: int) -> bool:
        new = self.place(target, sequence.key)      # the old region is still held
        if new is None:
            return False
        self.give_back(sequence.region)
        sequence.region = new
        self.copied_tokens += sequence.stored
        return True

    def written(self, sequence, tokens: int) -> None:
        pass

    def release(self, sequence, step: int) -> None:
        self.give_back(sequence.region)
        sequence.region = None

    def end(self, sequence, step: int) -> None:
        self.release(sequence, step)

    def swap_out(self, group, step: int) -> None:
        for sequence in group:
            self.release(sequence, step)

    # Where regions lie.

    def free_runs(self) -> list[tuple[int, int]]:
        """(start, size) of every hole, in order of address; with buddy the free buddy blocks."""
        if self.spec.placement == "buddy":
            return sorted(self.buddies)
        runs = []
        for i, owner in enumerate(self.owner):
            if owner is None:
                if runs and sum(runs[-1]) == i:
                    runs[-1] = (runs[-1][0], runs[-1][1] + 1)
                else:
                    runs.append((i, 1))
        return runs

    def place(self, asked: int, key) -> Region | None:
        allocated = next_power_of_two(asked) if self.spec.placement == "buddy" else asked
        fitting = [run for run in self.free_runs() if run[1] >= allocated]
        if not fitting:
            return None
        start, size = self.choose(fitting)
        if self.spec.placement == "buddy":
            self.buddies.remove((start, size))
            while size > allocated:
                size //= 2
                self.buddies.append((start + size, size))
        for i in range(start, start + allocated):
            assert self.owner[i] is None
            self.owner[i] = key
        self.last_end = start + allocated
        return Region(start, asked, allocated)

    def choose(self, fitting: list[tuple[int, int]]) -> tuple[int, int]:
        if self.spec.placement == "first_fit":
            return fitting[0]
        if self.spec.placement == "next_fit":
            behind = [run for run in fitting if run[0] >= self.last_end]
            return behind[0] if behind else fitting[0]
        if self.spec.placement == "worst_fit":
            return max(fitting, key=lambda run: (run[1], -run[0]))
        return min(fitting, key=lambda run: (run[1], run[0]))     # best_fit and buddy: the smallest, then the lowest

    def give_back(self, region: Region) -> None:
        for i in range(region.start, region.start + region.allocated):
            assert self.owner[i] is not None
            self.owner[i] = None
        if self.spec.placement == "buddy":
            self.merge(region.start, region.allocated)

    def merge(self, start: int, size: int) -> None:
        while (start, size) not in self.chunks:
            chunk = next(c for c in self.chunks if c[0] <= start < sum(c))
            buddy = chunk[0] + ((start - chunk[0]) ^ size)
            if (buddy, size) not in self.buddies:
                break
            self.buddies.remove((buddy, size))
            start, size = min(start, buddy), size * 2
        self.buddies.append((start, size))

    # What the ledger reads.

    def units(self, group) -> int:
        return sum(sequence.region.allocated for sequence in group)

    def held_slots(self, sequence) -> int:
        return sequence.region.allocated

    def asked(self, sequence) -> int:
        return sequence.region.asked

    def slots(self, sequence) -> list[int]:
        return list(range(sequence.region.start, sequence.region.start + sequence.region.allocated))

    def free_slots(self) -> int:
        return sum(owner is None for owner in self.owner)

    def holes(self) -> list[int]:
        return [size for _, size in self.free_runs()]
