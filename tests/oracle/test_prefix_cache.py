"""vLLM's prefix cache, in examples small enough to follow by hand."""

import numpy as np
from strategies import setup

from oracle.pool import Pool
from oracle.run import OracleRun
from oracle.sequence import Sequence
from pagesim.allocators import Paged
from pagesim.engine.durations import Linear
from pagesim.engine.scheduling import Scheduling


def sequence_of(tokens: list[str]) -> Sequence:
    sequence = Sequence(0, 0, len(tokens), 1, tokens=tokens)
    sequence.group = [sequence]
    return sequence


def cached_run(requests, ids, num_blocks: int, block_size: int = 4, granularity: int = 4, **scheduling) -> OracleRun:
    """``requests`` are (prompt, output, arrival step); a step lasts a second."""
    prompts, outputs, arrivals = zip(*requests)
    return OracleRun(setup(
        prompts, outputs, arrivals, prefix_ids=ids, hash_block_tokens=granularity,
        allocator=Paged(block_size, prefix_cache="vllm"), capacity_slots=num_blocks * block_size, max_model_len=256,
        scheduling=Scheduling(**scheduling), durations=Linear(1.0)))


def test_hit_blocks_leave_the_free_queue_before_new_ones_are_taken_from_its_front():
    pool = Pool(Paged(4, prefix_cache="vllm"), 40)
    pool.free = [7, 8, 9, 4, 3, 2, 6, 5, 1, 0]
    old = [f"token {i}" for i in range(16)]
    for block in range(4):
        pool.cache.add(block, tuple(old[:4 * block + 4]))
    request = sequence_of(old[:12] + [f"new {i}" for i in range(17)])
    pool.admit([request], [17], step=1)
    assert request.blocks == [0, 1, 2, 7, 8, 9, 4, 3] and request.hit == 12
    assert 3 not in pool.cache.key and len(pool.cache.ages) == 1
    assert pool.free == [6, 5]


def test_a_prompt_that_is_cached_whole_computes_its_last_block_again():
    run = cached_run([(8, 1, 0), (8, 1, 5)], [[1, 2], [1, 2]], 10)
    assert run.hit_tokens == [0, 4]
    assert run.steps[1].tables == {(1, 0): [0, 2]}
    assert run.steps[1].chunks == [(1, 4)]


def test_a_request_admitted_later_in_the_same_step_hits_what_is_computed_in_it():
    run = cached_run([(9, 1, 0), (9, 1, 0)], [[1, 2], [1, 2]], 10)
    assert run.hit_tokens == [0, 8]
    assert list(run.steps[0].tables.values()) == [[0, 1, 2], [0, 1, 3]]
    assert run.steps[0].instant.parts["token_states"] == 10      # the shared blocks once
    assert run.steps[0].logical_tokens == 18 and run.steps[0].logical_blocks == 6


def test_what_the_cache_keeps_is_cached_and_a_request_may_take_all_of_it():
    run = cached_run([(12, 1, 0), (40, 1, 2)], [[1, 2, 3], [7] * 10], 10)
    assert run.steps[0].cached_blocks_end == 3
    assert run.steps[1].evicted_blocks == 3 and run.steps[1].instant.parts["cached"] == 0
    assert run.sums.eviction_age_steps[1] == 3


def test_a_preempted_request_hits_its_own_blocks_and_that_hit_is_counted_apart():
    """The second is preempted with 8 tokens; the first takes one block, its other is still there."""
    run = cached_run([(4, 6, 0), (4, 6, 0)], [[1], [2]], 4)
    assert run.preemptions == [0, 1]
    assert run.sums.sharing["hit_tokens"] == 0
    assert run.sums.sharing["readmission_hit_tokens"] == 4


def test_the_block_size_may_divide_what_an_id_covers_or_be_several_of_it():
    for block_size, hit in ((2, 8), (4, 8), (8, 8), (16, 0)):
        run = cached_run([(17, 1, 0), (17, 1, 3)], [[1, 2, 3, 4], [1, 2, 5, 6]], 20, block_size)
        assert run.hit_tokens == [0, hit], block_size


def test_a_block_that_ends_beyond_the_prompt_is_equal_to_no_other_request_s():
    run = cached_run([(6, 20, 0), (6, 20, 30), (9, 2, 60)], [[1, 2], [1, 2], [1, 2, 3]], 40)
    assert run.hit_tokens == [0, 4, 4]


def test_the_reuse_distance_counts_the_other_blocks_used_in_between():
    run = cached_run([(5, 1, 0), (13, 1, 2), (5, 1, 4)], [[1], [2, 3, 4], [1]], 40)
    assert run.sums.reuse_distance_blocks[2] == 1      # 3 blocks: bin [2, 4)
    assert sum(run.sums.reuse_distance_blocks) == 1


def test_of_equal_blocks_the_one_computed_first_is_hit():
    """A token stays to be computed, so the second computes the last block once more."""
    run = cached_run([(8, 1, 0), (8, 9, 0), (9, 1, 3)], [[1, 2], [1, 2], [1, 2]], 40)
    assert list(run.steps[0].tables.values()) == [[0, 1], [0, 2]]
    assert run.steps[-6].tables[2, 0][:2] == [0, 1]


def test_hit_rates_follow_from_the_counters():
    run = cached_run([(10, 1, 0), (10, 1, 2)], [[1, 2], [1, 2]], 40)
    counts = run.sums.sharing
    assert counts["hit_tokens"] / counts["admitted_prompt_tokens"] == 8 / 20
    assert counts["hit_blocks"] / counts["full_prompt_blocks"] == 2 / 4
    assert np.array(run.hit_tokens).tolist() == [0, 8]
