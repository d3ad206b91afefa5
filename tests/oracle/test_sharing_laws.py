"""Laws of sharing, in every run of the oracle.

It asserts some itself, at every step: a block that is handed out has no owner; who writes owns the block alone, unless
it is a full block of a prompt for which other samples wait; the owners of a block are the sequences whose tables hold
it, all at the same place; and each of them finds there the tokens that it knows.
"""

import itertools

from hypothesis import given, settings
from strategies import setup, sharing_setups

from oracle.run import OracleRun
from pagesim.allocators import Paged

settings.register_profile("sharing laws", settings(), max_examples=100)
laws = settings(settings.get_profile("sharing laws"))


@laws
@given(sharing_setups())
def test_parts_sum_to_the_capacity_and_what_sequences_see_is_never_less_than_what_is_there(drawn):
    made, sharing = drawn
    for step in OracleRun(made, sharing).steps:
        assert sum(step.parts) == made.capacity_slots
        assert step.instant.parts["rounding"] == step.instant.parts["stranded"] == 0
        assert step.logical_blocks * made.allocator.block_size >= step.instant.allocated
        assert step.logical_tokens >= step.instant.parts["token_states"]


@laws
@given(sharing_setups())
def test_all_owners_together_are_all_entries_of_all_tables(drawn):
    made, sharing = drawn
    for step in OracleRun(made, sharing).steps:
        assert step.owners == sum(map(len, step.tables.values())) == step.logical_blocks
        different = {block for table in step.tables.values() for block in table}
        assert len(different) * made.allocator.block_size == step.instant.allocated


@laws
@given(sharing_setups())
def test_every_request_ends_and_all_memory_is_free_or_cached_again(drawn):
    made, sharing = drawn
    run = OracleRun(made, sharing)
    assert "unfinished" not in run.status
    assert not run.running and not run.queue and not any(run.memory.owners)
    assert run.memory.free_slots() == made.capacity_slots - run.memory.remainder
    assert made.allocator.prefix_cache != "none" or not run.memory.cached_blocks()


@laws
@given(sharing_setups(("vllm", "radix")))
def test_a_hit_is_of_whole_blocks_and_leaves_a_token_to_compute(drawn):
    made, sharing = drawn
    for step in OracleRun(made, sharing).steps:
        for key, hit in step.hits.items():
            assert hit % made.allocator.block_size == 0 and hit <= step.known[key] - 1


@laws
@given(sharing_setups(alone=True))
def test_who_is_alone_computes_its_final_tokens_and_what_it_gave_up_less_what_it_found(drawn):
    run = OracleRun(*drawn)
    counters, shared = run.sums.counters, run.sums.sharing
    finals = sum(s.final for samples in run.requests for s in samples if run.status[s.request] == "completed")
    assert counters["prefill_tokens"] + counters["decode_tokens"] == (
        finals + counters["recomputed_tokens"] - shared["hit_tokens"] - shared["readmission_hit_tokens"])


@laws
@given(sharing_setups(("none", "vllm")))
def test_the_samples_of_a_group_run_wait_and_end_together(drawn):
    run = OracleRun(*drawn)
    for step in run.steps:
        running = [request for request, _ in step.known]
        assert len(list(itertools.groupby(running))) == len(set(running)), "a group stands together"
        for request in set(running):
            group = [known for (row, _), known in step.known.items() if row == request]
            assert len(group) == len(run.requests[request]) and len(set(group)) == 1
        for keys in (step.preempted, step.admitted, step.finished):
            for request in {request for request, _ in keys}:
                assert [key for key in keys if key[0] == request] == [s.key for s in run.requests[request]]
    assert run.sums.counters["output_tokens"] == sum(s.sampled for samples in run.requests for s in samples)


@laws
@given(sharing_setups(("none",), alone=True))
def test_without_a_cache_nothing_is_shared(drawn):
    run = OracleRun(*drawn)
    for step in run.steps:
        assert step.logical_blocks * run.memory.block_size == step.instant.allocated
        assert step.logical_tokens == step.instant.parts["token_states"] and step.instant.parts["cached"] == 0
    assert not any(run.sums.sharing[name] for name in ("copy_on_write", "hit_tokens", "evicted_blocks"))


@laws
@given(sharing_setups(("none",), alone=True))
def test_a_cache_in_which_nothing_is_equal_changes_no_time_until_somebody_is_preempted(drawn):
    made, _ = drawn
    plain = setup(made.trace.prompt_tokens, made.trace.output_tokens, made.trace.arrival_s, allocator=made.allocator,
                  **{name: getattr(made, name) for name in ("capacity_slots", "max_model_len", "scheduling", "durations",
                                                            "closed_users")})
    without = OracleRun(plain)
    if any(without.preemptions):
        return
    cached = Paged(made.allocator.block_size, made.allocator.reuse, made.allocator.watermark, "vllm")
    other = OracleRun(replace_allocator(plain, cached))
    assert (other.finish_ns, other.sums.counters) == (without.finish_ns, without.sums.counters)
    assert [step.parts[:4] for step in other.steps] == [step.parts[:4] for step in without.steps]


def replace_allocator(made, allocator):
    return type(made)(**{**vars(made), "allocator": allocator})


@laws
@given(sharing_setups(("vllm", "radix"), alone=True))
def test_with_room_for_everything_and_one_at_a_time_a_request_hits_the_longest_prefix_ever_stored(drawn):
    made, sharing = drawn
    roomy = type(made)(**{**vars(made), "capacity_slots": 10**4 * made.allocator.block_size, "closed_users": 1})
    run = OracleRun(roomy, sharing)
    stored = []
    for request, _ in [key for step in run.steps for key in step.admitted]:
        sequence, = run.requests[request]
        prompt = sequence.tokens[:sequence.prompt_tokens]
        longest = max((common(prompt[:-1], other) for other in stored), default=0)
        assert run.hit_tokens[request] == longest // made.allocator.block_size * made.allocator.block_size
        stored.append(sequence.tokens[:sequence.final])


def common(one: list[str], other: list[str]) -> int:
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other)))


@laws
@given(sharing_setups())
def test_the_same_run_twice_gives_the_same_steps(drawn):
    first, second = OracleRun(*drawn), OracleRun(*drawn)
    assert first.steps == second.steps
    assert vars(first.sums) == vars(second.sums)
