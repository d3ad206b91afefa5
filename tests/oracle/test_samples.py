"""Parallel samples in block ids: forks, copies on write, preemption of whole groups."""

import pytest
from strategies import setup

from oracle.run import OracleRun
from pagesim.allocators import Contiguous, Paged
from pagesim.engine.durations import Linear
from pagesim.engine.scheduling import Scheduling


def samples_run(requests, num_samples, num_blocks: int, block_size: int = 4, allocator=None, beam_width=None,
                prefix_ids=None, **scheduling) -> OracleRun:
    """``requests`` are (prompt, output); all arrive at 0."""
    prompts, outputs = zip(*requests)
    return OracleRun(setup(
        prompts, outputs, num_samples=num_samples, beam_width=beam_width, prefix_ids=prefix_ids,
        hash_block_tokens=block_size, allocator=allocator or Paged(block_size), capacity_slots=num_blocks * block_size,
        max_model_len=256, scheduling=Scheduling(**scheduling), durations=Linear(1.0)))


def test_two_samples_share_the_prompt_and_one_copies_its_last_block_before_it_writes():
    run = samples_run([(6, 4)], [2], 12)
    prefill, first, second, third = run.steps
    assert prefill.tables == {(0, 0): [0, 1], (0, 1): []}
    assert prefill.instant.parts["token_states"] == 6 and prefill.instant.parts["reserved"] == 2
    assert first.tables == second.tables == {(0, 0): [0, 2], (0, 1): [0, 1]}
    assert third.tables == {(0, 0): [0, 2, 3], (0, 1): [0, 1, 4]}
    assert (run.sums.counters["copied_tokens"], run.sums.sharing["copy_on_write"]) == (2, 1)
    assert (first.instant.allocated // 4, first.logical_blocks) == (3, 4)
    assert second.instant.parts["token_states"] == 12 and second.logical_tokens == 16
    assert third.free_blocks_end[:5] == [4, 1, 0, 3, 2]
    assert run.sums.counters["output_tokens"] == 8


def test_the_first_of_n_samples_copies_and_the_last_owner_writes_in_place():
    run = samples_run([(5, 3)], [4], 20)
    assert run.steps[1].tables == {(0, 0): [0, 2], (0, 1): [0, 3], (0, 2): [0, 4], (0, 3): [0, 1]}
    assert run.sums.sharing["copy_on_write"] == 3 and run.sums.counters["copied_tokens"] == 3


def test_a_prompt_that_ends_with_its_block_is_shared_whole_and_nothing_is_copied():
    run = samples_run([(8, 5)], [3], 20)
    assert run.sums.sharing["copy_on_write"] == 0
    assert run.steps[1].tables == {(0, 0): [0, 1, 2], (0, 1): [0, 1, 3], (0, 2): [0, 1, 4]}


def test_samples_of_one_token_end_where_they_fork():
    run = samples_run([(6, 1)], [3], 2)
    assert run.status == ["completed"] and len(run.steps) == 1
    assert run.steps[0].finished == [(0, 0), (0, 1), (0, 2)]
    assert run.steps[0].free_blocks_end == [1, 0]


def test_a_prompt_in_chunks_is_computed_by_the_first_sample_alone():
    run = samples_run([(10, 2)], [2], 12, max_num_batched_tokens=4)
    assert [step.chunks for step in run.steps] == [[(0, 4)], [(0, 4)], [(0, 2)], []]
    assert run.steps[2].tables == {(0, 0): [0, 1, 2], (0, 1): []}
    assert run.steps[3].tables == {(0, 0): [0, 1, 3], (0, 1): [0, 1, 2]}


def test_a_group_is_preempted_together_and_computes_the_prompt_s_full_blocks_once_again():
    """Seven blocks of 4: the group's copies in step 1 need the seventh, the boundary of request 0 in step 3 an eighth."""
    run = samples_run([(8, 6), (6, 4)], [1, 2], 7)
    assert run.steps[1].tables == {(0, 0): [0, 1, 4], (1, 0): [2, 5], (1, 1): [2, 3]}
    assert run.steps[3].preempted == [(1, 0), (1, 1)]      # both blocks are full: the first sample takes the last, none is left
    assert run.sums.counters["recomputed_tokens"] == 12     # 16 as the samples see them
    back = next(step for step in run.steps[4:] if (1, 0) in step.admitted)
    assert (0, 0) not in back.tables                        # 4 blocks were free before: for one sample, not for both
    assert back.chunks == [(1, 9), (1, 5)]                  # 6 + 3 known; the second from the end of the full block
    assert back.tables[1, 0][0] == back.tables[1, 1][0] and back.tables[1, 0][1:] != back.tables[1, 1][1:]
    assert run.status == ["completed"] * 2


def test_samples_that_come_back_end_together_however_small_the_budget():
    run = samples_run([(8, 6), (6, 4)], [1, 2], 7, max_num_batched_tokens=8)
    assert run.status == ["completed"] * 2
    ends = [step.index for step in run.steps for key in step.finished if key[0] == 1]
    assert ends[0] == ends[1]


def test_swap_moves_every_shared_block_once_and_brings_the_sharing_back():
    run = samples_run([(8, 6), (6, 4)], [1, 2], 7, preemption="swap")
    assert run.sums.counters["swapped_blocks"] == 2 * 4     # blocks 2, 3, 5 and the one taken just before
    assert run.sums.counters["recomputed_tokens"] == 0
    back = next(step for step in run.steps[4:] if (1, 0) in step.admitted)
    assert back.tables[1, 0][0] == back.tables[1, 1][0]
    assert len(set(back.tables[1, 0] + back.tables[1, 1])) == 5


def test_a_group_that_could_not_end_in_the_empty_memory_is_rejected():
    """One shared full block and two more for each of three samples."""
    assert samples_run([(6, 4)], [3], 7).status == ["completed"]
    assert samples_run([(6, 4)], [3], 6).status == ["exceeds_memory"]
    assert samples_run([(6, 4)], [3], 7, max_num_seqs=2).status == ["exceeds_scheduling"]


@pytest.mark.parametrize("reserve", ["exact", "grow"])
def test_contiguous_regions_share_nothing(reserve):
    run = samples_run([(6, 4)], [2], 12, allocator=Contiguous(reserve))
    assert all(step.logical_tokens == step.instant.parts["token_states"] for step in run.steps)


def test_samples_may_find_their_prompt_in_the_prefix_cache():
    run = samples_run([(9, 2), (9, 2)], [2, 2], 20, allocator=Paged(4, prefix_cache="vllm"),
                      prefix_ids=[[1, 2], [1, 2]])
    assert run.hit_tokens == [0, 8]
    assert run.steps[1].logical_blocks == 12 and run.steps[1].instant.allocated == 6 * 4
