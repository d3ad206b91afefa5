"""What the oracle writes down: one row a step, and the sums that a result holds."""

from dataclasses import dataclass, field

from pagesim.core.ledger import PARTS
from pagesim.engine.result import WAIT_CAUSES, WINDOWS, Column

from .ledger import Instant


@dataclass
class Step:
    index: int
    start_ns: int
    instant: Instant | None = None
    duration_ns: int = 0
    running: int = 0
    waiting: int = 0
    context_tokens: int = 0
    logical_blocks: int = 0      # Σ of the tables' lengths, and of the stored tokens
    logical_tokens: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    chunks: list[tuple[int, int]] = field(default_factory=list)     # (request, prefill tokens) in the order scheduled
    decoded: list[tuple[int, int]] = field(default_factory=list)    # sequences that computed the token they sampled last
    preempted: list[tuple[int, int]] = field(default_factory=list)
    admitted: list[tuple[int, int]] = field(default_factory=list)
    finished: list[tuple[int, int]] = field(default_factory=list)
    stored: dict[tuple[int, int], int] = field(default_factory=dict)            # of the running, in their order
    known: dict[tuple[int, int], int] = field(default_factory=dict)             # of the running
    owners: int = 0              # of all blocks, added up
    tables: dict[tuple[int, int], list[int]] = field(default_factory=dict)      # paged
    regions: dict[tuple[int, int], tuple[int, int, int]] = field(default_factory=dict)  # start, asked, allocated
    free_blocks_end: list[int] = field(default_factory=list)
    cause: str | None = None
    hits: dict[tuple[int, int], int] = field(default_factory=dict)      # of the admitted, in tokens
    evicted_blocks: int = 0
    cached_blocks_end: int = 0

    @property
    def start_s(self) -> float:
        return self.start_ns / 1e9

    @property
    def duration_s(self) -> float:
        return self.duration_ns / 1e9

    @property
    def parts(self) -> tuple[int, ...]:
        return tuple(self.instant.parts[part] for part in PARTS)


class Sums:
    """Integrals, waiting time, counters, peaks and histograms since the warm-up."""

    def __init__(self) -> None:
        self.integrals = [[0.0] * len(Column) for _ in WINDOWS]
        self.wait_s = dict.fromkeys(WAIT_CAUSES, 0.0)
        self.counters = dict.fromkeys(
            ("steps", "admissions", "preemptions", "recomputed_tokens", "swapped_blocks", "swap_fallbacks",
             "copied_tokens", "failed_growths", "prefill_tokens", "decode_tokens", "output_tokens"), 0)
        # What sharing adds; hits at first admissions, and apart from them at those after a preemption.
        self.sharing = dict.fromkeys(
            ("copy_on_write", "hit_tokens", "hit_blocks", "admitted_prompt_tokens", "full_prompt_blocks",
             "readmission_hit_tokens", "evicted_blocks"), 0)
        self.reuse_distance_blocks = [0] * 64
        self.eviction_age_steps = [0] * 64
        self.peaks = {"token_states": 0, "allocated": 0, "running": 0, "waiting": 0, "step": -1, "time_s": 0.0}
        self.hole_slots_s = [0.0] * 64
        self.waste_slots = [0] * 64
        self.block_lifetime_steps = [0] * 64
        self.table_run_blocks = [0] * 64

    def time_passes(self, instant: Instant, duration_s: float, running: int, waiting: int, logical=(0, 0)) -> None:
        parts = instant.parts
        row = [1.0, *(parts[part] for part in PARTS), running, waiting, *logical, instant.largest_hole,
               instant.unusable, float(parts["stranded"] > 0), float(instant.no_hole), instant.extfrag]
        inside = (True, running > 0, waiting > 0, instant.refused)
        for window, is_inside in enumerate(inside):
            if is_inside:
                for column, value in enumerate(row):
                    self.integrals[window][column] += value * duration_s
        for hole in instant.holes:
            self.hole_slots_s[hole.bit_length()] += duration_s

    def peak(self, step: Step) -> None:
        token_states = step.instant.parts["token_states"]
        if self.peaks["step"] < 0 or token_states > self.peaks["token_states"]:
            self.peaks.update(step=step.index, time_s=step.start_s)
        for name, value in (("token_states", token_states), ("allocated", step.instant.allocated),
                            ("running", step.running), ("waiting", step.waiting)):
            self.peaks[name] = max(self.peaks[name], value)

    def table_released(self, table: list[int]) -> None:
        for run in adjacent_runs(table):
            self.table_run_blocks[run.bit_length()] += 1

    def collect(self, memory, step: Step) -> None:
        """What the pool did since the last time."""
        for values, bins in ((memory.lifetimes, self.block_lifetime_steps),
                             (memory.cache.distances, self.reuse_distance_blocks),
                             (memory.cache.ages, self.eviction_age_steps)):
            for value in values:
                bins[value.bit_length()] += 1
        self.counters["copied_tokens"] += memory.copied_tokens
        self.sharing["copy_on_write"] += memory.copied_blocks
        self.sharing["evicted_blocks"] += len(memory.cache.ages)
        step.evicted_blocks += len(memory.cache.ages)
        memory.copied_tokens = memory.copied_blocks = 0
        for values in (memory.lifetimes, memory.cache.distances, memory.cache.ages):
            values.clear()


def adjacent_runs(table: list[int]) -> list[int]:
    runs = []
    for i, block in enumerate(table):
        if i > 0 and block == table[i - 1] + 1:
            runs[-1] += 1
        else:
            runs.append(1)
    return runs
