"""SGLang's radix cache in pagesim's step, in examples small enough to follow by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import setup

from oracle.radix import RadixTree
from oracle.run import OracleRun
from pagesim.allocators import Paged
from pagesim.engine.durations import Linear
from pagesim.engine.scheduling import Scheduling
from pagesim.errors import InputError


def radix_run(requests, ids, num_pages: int, page_size: int = 1, granularity: int = 4, eviction: str = "lru",
              columns=None, **scheduling) -> OracleRun:
    """``requests`` are (prompt, output, arrival step); a step lasts a second."""
    prompts, outputs, arrivals = zip(*requests)
    return OracleRun(setup(
        prompts, outputs, arrivals, prefix_ids=ids, hash_block_tokens=granularity, **(columns or {}),
        allocator=Paged(page_size, prefix_cache="radix", eviction=eviction), capacity_slots=num_pages * page_size,
        max_model_len=256, scheduling=Scheduling(**scheduling), durations=Linear(1.0)))


def test_a_match_ends_where_the_ids_part_and_leaves_a_token_to_compute():
    run = radix_run([(8, 1, 0), (8, 1, 3), (8, 1, 6)], [[1, 2], [1, 3], [1, 2]], 60)
    assert run.hit_tokens == [0, 4, 7]


def test_a_match_is_cut_to_whole_pages():
    run = radix_run([(8, 1, 0), (8, 1, 3)], [[1, 2], [1, 2]], 20, page_size=2)
    assert run.hit_tokens == [0, 6]


def test_requests_of_one_step_do_not_hit_each_other_and_the_later_one_gives_up_its_copies():
    run = radix_run([(4, 3, 0), (4, 3, 0)], [[1], [1]], 20)
    assert run.hit_tokens == [0, 0]
    assert run.steps[0].tables == {(0, 0): [0, 1, 2, 3], (1, 0): [4, 5, 6, 7]}
    assert run.steps[1].tables == {(0, 0): [0, 1, 2, 3, 8], (1, 0): [0, 1, 2, 3, 9]}
    assert run.steps[1].instant.parts["token_states"] == 6 and run.steps[1].logical_tokens == 10
    assert run.steps[0].free_blocks_end[-4:] == [4, 5, 6, 7]       # pages of one token: to the back, in order


def test_larger_pages_go_to_the_front_of_the_free_list_as_a_group():
    run = radix_run([(4, 3, 0), (4, 3, 0)], [[1], [1]], 20, page_size=2)
    assert run.steps[0].free_blocks_end[:3] == [2, 3, 4]


def test_a_chunk_can_be_hit_from_the_next_step_on():
    run = radix_run([(12, 1, 0), (9, 1, 1)], [[1, 2, 3], [1, 2, 9]], 60, max_num_batched_tokens=8)
    assert run.steps[0].chunks == [(0, 8)]
    assert run.hit_tokens == [0, 8]


def test_outputs_stay_in_the_tree_and_are_evicted_before_the_prompt_above_them():
    run = radix_run([(4, 4, 0), (14, 1, 9)], [[1], [7, 8, 9]], 20)
    assert run.steps[3].cached_blocks_end == 7
    assert run.steps[-1].evicted_blocks == 3        # the outputs are one leaf; one token was missing


def test_an_unaligned_tail_is_freed_at_the_end():
    run = radix_run([(6, 4, 0)], [[1]], 20, page_size=4)
    assert run.steps[-1].cached_blocks_end == 2     # 9 stored


def test_a_preempted_request_leaves_its_prompt_and_hits_it_again():
    run = radix_run([(4, 8, 0), (4, 8, 0)], [[1], [2]], 16)
    assert run.preemptions == [0, 1]
    assert run.sums.sharing["readmission_hit_tokens"] == 4


@pytest.mark.parametrize(("eviction", "asked", "hit"), [("lru", 1, 0), ("lru", 2, 4), ("lfu", 1, 4), ("lfu", 2, 0),
                                                        ("fifo", 1, 0), ("fifo", 2, 4)])
def test_who_is_evicted_is_a_choice(eviction, asked, hit):
    """Prompt 1 is used most often and prompt 2 latest; what the fifth request needs leaves room for one of them."""
    requests = [(5, 1, 0), (5, 1, 2), (5, 1, 4), (5, 1, 6), (13, 1, 8), (5, 1, 12)]
    run = radix_run(requests, [[1], [1], [1], [2], [7, 8, 9], [asked]], 21, eviction=eviction)
    assert run.hit_tokens[-1] == hit


def test_a_turn_of_a_session_hits_at_any_token():
    """Prompt 6 and output 5 store 10 tokens; the 11th was sampled and never stored."""
    run = radix_run([(6, 5, 0), (16, 1, 0)], None, 60, columns={"session_parent": [-1, 0]})
    assert run.hit_tokens == [0, 10]


def test_neither_swap_nor_samples_are_simulated():
    with pytest.raises(InputError, match="choose preemption: recompute"):
        radix_run([(4, 1, 0)], None, 20, preemption="swap")
    with pytest.raises(InputError, match="does not share between samples"):
        radix_run([(4, 1, 0)], None, 20, columns={"num_samples": [2]})


@given(st.sampled_from((1, 2)), st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=9), min_size=1, max_size=9))
def test_looking_finds_what_a_match_finds_and_touches_nothing(page_size, prompts):
    tree = RadixTree(page_size, "lru", [])
    pages = iter(range(10**6))
    for tokens in prompts:
        before = [(node.tokens, node.used) for node in tree.root.below()]
        looked = tree.look(tokens)
        assert before == [(node.tokens, node.used) for node in tree.root.below()]
        assert looked == tree.match(tokens)[1]
        tree.insert(tokens, looked + [next(pages) for _ in tokens], len(tokens), 0)
        assert len(tree.look(tokens)) == len(tokens) // page_size
