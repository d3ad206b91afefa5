"""Runs to play: one step a second, few slots."""

import numpy as np
from strategies import setup

from pagesim.allocators import Contiguous, Paged
from pagesim.engine.durations import Linear
from pagesim.engine.scheduling import Scheduling
from pagesim.engine.run import Run
from pagesim.engine.setup import Setup
from pagesim.trace import Trace
from pagesim.trace.instants import whole_ns
from pagesim.watch.player import Player

# A and C go after a step, E waits for 32 adjacent slots until B and D have gone; nothing for a while; then one more,
# and one that is too long.  Columns: arrival, prompt tokens, output tokens.
ROWS = ((0, 16, 1), (0, 8, 9), (0, 16, 1), (0, 8, 9), (1, 32, 1), (30, 20, 3), (30, 90, 1))


def player(allocator: Contiguous | Paged | None = None, rows: tuple = ROWS, slots: int = 64,
           until_s: float | None = None) -> Player:
    arrival, prompt, output = zip(*rows)
    trace = Trace(whole_ns(np.array(arrival, float)), np.array(prompt, np.int32), np.array(output, np.int32))
    allocator = allocator or Contiguous("exact")
    run = Run(Setup(trace, allocator, slots, slots, Scheduling(), Linear(1.0), until_s=until_s))
    return Player(type(allocator).__name__.lower(), run)


def sharing_player() -> Player:
    """A prompt of 16 tokens that two more find in the cache a step later, and after a while one that does not."""
    made = setup([17, 17, 17, 5], [1, 3, 2, 1], [0, 1, 1, 9], prefix_ids=[[0], [0], [0], []], hash_block_tokens=16,
                 allocator=Paged(8, prefix_cache="vllm"), capacity_slots=64, max_model_len=64,
                 scheduling=Scheduling(), durations=Linear(1.0))
    return Player("cached", Run(made))


def seen_at(play: Player, time_s: float):
    assert play.advance_to(time_s, 1_000)
    return play.view()
