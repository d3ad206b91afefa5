"""Small runs of the real engine for the lessons: one step a second, and memory drawn as a line of letters."""

from dataclasses import replace

import numpy as np

from pagesim.allocators import Spec
from pagesim.core.ledger import NOBODY
from pagesim.engine.durations import Linear
from pagesim.engine.scheduling import Scheduling
from pagesim.engine.run import Run
from pagesim.engine.setup import Setup
from pagesim.trace import Trace
from pagesim.trace.instants import whole_ns
from pagesim.trace.trace import Source

BAR_COLUMNS = 72


def region(slots: int, steps: int, arrival_s: float = 0.0) -> tuple[float, int, int]:
    """Arrival, prompt and output tokens of a request that stores ``slots`` tokens and runs for ``steps`` steps."""
    return arrival_s, slots - steps + 1, steps


def run_of(rows: list[tuple[float, int, int]], allocator: Spec, capacity_slots: int,
           prefixes: list[str] | None = None, max_model_len: int | None = None) -> Run:
    """A run of these requests (arrival in seconds, prompt tokens, output tokens), before its first step.

    Args:
        prefixes: of each request a letter for each full block of its prompt; equal letters are equal tokens.
        max_model_len: the capacity, if not given.
    """
    arrival, prompt, output = zip(*rows)
    trace = Trace(whole_ns(np.array(arrival, np.float64)), np.array(prompt, np.int32), np.array(output, np.int32))
    if prefixes is not None:
        trace = replace(trace, prefix_ids=np.frombuffer("".join(prefixes).encode(), np.uint8).astype(np.int64),
                        prefix_offsets=np.cumsum([0, *map(len, prefixes)]),
                        source=Source("lesson", "lesson", hash_block_tokens=allocator.block_size))
    return Run(Setup(trace, allocator, capacity_slots, max_model_len or capacity_slots,
                     Scheduling(max_num_batched_tokens=2 * capacity_slots), Linear(step_s=1.0)))


def bar(owners: np.ndarray, letters: str) -> str:
    """Memory in order of address, each column an equal share of it: the letter of its owner, a dot where it is free."""
    columns = min(BAR_COLUMNS, len(owners))
    middle = (np.arange(columns) * 2 + 1) * len(owners) // (2 * columns)
    return "".join("." if owner == NOBODY else letters[owner] for owner in owners[middle])
