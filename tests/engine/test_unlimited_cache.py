"""With memory for everything, and one request at a time, the engine's caches find what ``pagesim trace reuse`` says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import prefix_trees, setup

from pagesim.allocators import Paged
from pagesim.engine.durations import Linear
from pagesim.engine.run import simulate
from pagesim.engine.scheduling import Scheduling
from pagesim.trace.reuse import reuse

GRANULARITY = 4


@st.composite
def prompts(draw) -> tuple[list[int], list[list[int]]]:
    lengths = draw(st.lists(st.integers(1, 30), min_size=1, max_size=12))
    return lengths, draw(prefix_trees(lengths, GRANULARITY))


@pytest.mark.parametrize("prefix_cache", ["vllm", "radix"])
@settings(max_examples=40)
@given(drawn=prompts())
def test_hits_are_those_of_an_unlimited_cache(prefix_cache, drawn):
    lengths, ids = drawn
    made = setup(lengths, [1] * len(lengths), prefix_ids=ids, hash_block_tokens=GRANULARITY, closed_users=1,
                 allocator=Paged(GRANULARITY, prefix_cache=prefix_cache), capacity_slots=GRANULARITY * 10**4,
                 max_model_len=31, scheduling=Scheduling(), durations=Linear(1.0))
    found = reuse(made.trace)
    sharing = simulate(made).sharing
    assert sharing.hit_tokens == GRANULARITY * found.lru_blocks[-1]
    assert sharing.evicted_blocks == 0 and sharing.prompt_tokens == np.sum(lengths)
