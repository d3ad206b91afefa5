"""Every slot of the capacity gets one label; the ledger counts labels, and the fragmentation figures look at the holes."""

from dataclasses import dataclass

from pagesim.core.ledger import PARTS


@dataclass(frozen=True)
class Instant:
    """What the memory looks like after scheduling and before anything is given back."""

    parts: dict[str, int]
    allocated: int
    refused: bool              # something waits, and the allocator refuses the head
    holes: list[int]
    largest_hole: float
    unusable: float
    no_hole: bool              # refused, and no hole is large enough
    extfrag: int

    @classmethod
    def of(cls, memory, running, queue, scheduling, max_model_len: int) -> "Instant":
        head = queue[0] if queue else None
        refused, need = False, 0
        if head:
            chunks = chunks_of(head, scheduling.max_num_batched_tokens, memory)
            refused = memory.refuses(head, chunks, scheduling, len(running))
            need = memory.need_slots(head, chunks, scheduling, len(running))
        labels = label_slots(memory, running) if memory.contiguous else label_blocks(memory, running)
        if memory.contiguous and refused and memory.free_slots() >= need:
            labels = ["stranded" if label == "idle" else label for label in labels]
        parts = {part: labels.count(part) for part in PARTS}
        allocated = sum(parts[part] for part in PARTS[:4])
        holes, free = memory.holes(), memory.free_slots()
        if not memory.contiguous:
            return cls(parts, allocated, refused, holes, 0.0, 0.0, False, 0)
        q = memory.wanted(head[0]) if head else max_model_len
        no_hole = refused and all(hole < q for hole in holes)
        return cls(parts, allocated, refused, holes, largest_hole(holes, free), unusable(holes, free, q), no_hole,
                   extfrag_index(holes, free, q) if no_hole else 0)


def chunks_of(group, budget: int, memory) -> list[int]:
    """Tokens that sequences scheduled together compute at once when they may have ``budget``."""
    chunks = []
    for sequence in group:
        chunks.append(min(memory.todo(sequence), budget - sum(chunks)))
    return chunks


def label_slots(memory, running) -> list[str]:
    labels = ["idle"] * len(memory.owner)
    for sequence in running:
        for position, slot in enumerate(memory.slots(sequence)):
            assert labels[slot] == "idle", f"slot {slot} is owned twice"
            if position < sequence.stored:
                labels[slot] = "token_states"
            elif position < min(memory.asked(sequence), sequence.final):
                labels[slot] = "reserved"
            elif position < memory.asked(sequence):
                labels[slot] = "overreserved"
            else:
                labels[slot] = "rounding"
    assert labels.count("idle") == memory.free_slots()
    return labels


def label_blocks(memory, running) -> list[str]:
    """A block is as full as its fullest owner sees it, and will be as full as the longest of them makes it."""
    size, cached = memory.block_size, memory.cached_blocks()
    labels = ["remainder"] * memory.remainder
    for block in range(memory.num_blocks):
        owners = [sequence for sequence in running if block in sequence.blocks]
        assert {owner.key for owner in owners} == memory.owners[block], f"owners of block {block}"
        if not owners:
            labels += ["cached" if block in cached else "idle"] * size
            continue
        begin, = {owner.blocks.index(block) * size for owner in owners}
        for owner in owners:
            seen = owner.tokens[begin:min(owner.stored, begin + size)]
            assert memory.contents[block][:len(seen)] == seen, f"{owner.key} finds other tokens in block {block}"
        filled = max(min(owner.stored, begin + size) for owner in owners) - begin
        in_the_end = max(min(owner.final, begin + size) for owner in owners) - begin
        assert 0 <= filled <= in_the_end
        labels += (["token_states"] * filled + ["reserved"] * (in_the_end - filled)
                   + ["overreserved"] * (size - in_the_end))
    assert labels.count("idle") + labels.count("cached") == memory.free_slots()
    return labels


def largest_hole(holes: list[int], free: int) -> float:
    return 1 - max(holes) / free if free else 0.0


def unusable(holes: list[int], free: int, q: int) -> float:
    return (free - sum(hole // q * q for hole in holes)) / free if free else 0.0


def extfrag_index(holes: list[int], free: int, q: int) -> int:
    """Linux's mm/vmstat.c for a request that no hole can take."""
    return 1000 - (1000 + 1000 * free // q) // len(holes) if holes else 0
