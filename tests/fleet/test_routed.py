"""fleet/routed.py: who serves which request where that depends on what the replicas hold."""

from dataclasses import replace

import numpy as np
from fleets import caching_fleets, fleets, serve_all, talking_fleets
from hypothesis import given, settings
from oracle.ledger import Instant
from oracle.run import OracleRun
from strategies import setup

from pagesim.allocators import Paged
from pagesim.case import Replicas
from pagesim.engine.durations import Linear
from pagesim.engine.result import Status
from pagesim.engine.run import Run, simulate
from pagesim.engine.scheduling import Scheduling
from pagesim.metrics import metrics
from pagesim.fleet.routing import part


class Stopped(OracleRun):
    """An oracle that is broken off at ``until_s``, where what ends later has not ended yet."""

    held_slots = 0

    def finish(self, step) -> None:
        self.held_slots = step.instant.allocated
        if self.now_ns <= self.until_ns:
            super().finish(step)
            self.held_slots = Instant.of(self.memory, self.running, [], self.scheduling, self.max_model_len).allocated


def look(made, own: list[int], request: int, now_ns: int) -> tuple[int, int]:
    """(tokens found of the request's prompt, slots held) in a replica that has got ``own`` requests so far."""
    if now_ns == 0:
        return 0, 0
    oracle = Stopped(replace(made, trace=part(made.trace, np.array(own, np.int64)), until_s=now_ns / 1e9))
    if oracle.memory.contiguous:
        return 0, oracle.held_slots
    (sequence, *_) = oracle.make_sequences(made.trace, request)
    return len(oracle.memory.hits(sequence)) * oracle.memory.block_size, oracle.held_slots


def by_the_definition(made, replicas) -> list[int]:
    """Every replica simulated anew for each request, on those that it has got so far."""
    served: list[list[int]] = [[] for _ in range(replicas.count)]
    for request, now_ns in enumerate(made.trace.arrival_ns.tolist()):
        seen = [look(made, own, request, now_ns) for own in served]
        if replicas.routing == "least_kv_used":
            seen = [(0, held) for _, held in seen]
        served[min(range(replicas.count), key=lambda replica: (-seen[replica][0], seen[replica][1], replica))] += [request]
    return [next(replica for replica, own in enumerate(served) if request in own) for request in range(len(made.trace))]


@settings(max_examples=30)
@given(fleets())
def test_the_least_used_replica_is_the_one_that_a_plain_simulation_of_each_says(drawn):
    made, replicas = drawn
    made, replicas = replace(made, until_s=None), replace(replicas, routing="least_kv_used")
    assert serve_all(made, replicas).by.tolist() == by_the_definition(made, replicas)


@settings(max_examples=20)
@given(caching_fleets())
def test_the_longest_prefix_is_cached_where_a_plain_simulation_of_each_says(drawn):
    made, replicas = replace(drawn[0], until_s=None), drawn[1]
    assert serve_all(made, replicas).by.tolist() == by_the_definition(made, replicas)


def test_requests_that_arrive_during_a_step_all_find_the_same_replica_the_emptiest():
    # Each takes one block for one step.  Request 1 comes while 0 runs in replica 0; 2 and 3 come before replica 1 has
    # begun with 1, which holds nothing yet; at 1.0 the first step is over and replica 0 is as empty as it was.
    made = setup([4] * 5, [1] * 5, [0.0, 0.5, 0.5, 0.5, 1.0], allocator=Paged(4), capacity_slots=64, max_model_len=8,
                 scheduling=Scheduling(), durations=Linear(1.0))
    assert serve_all(made, Replicas(2, "least_kv_used")).by.tolist() == [0, 1, 1, 1, 0]


def test_a_prompt_goes_where_most_of_it_is_cached_else_where_least_is_used():
    # At 3 replica 1 holds less, and replica 0 knows ids 1 and 2; at 20 both are empty, and replica 1 knows id 7.
    made = setup([8, 8, 8, 8], [4, 4, 1, 1], [0.0, 2.0, 3.0, 20.0], prefix_ids=[[1, 2], [7, 8], [1, 2], [7, 9]],
                 hash_block_tokens=4, allocator=Paged(4, prefix_cache="vllm"), capacity_slots=64, max_model_len=16,
                 scheduling=Scheduling(), durations=Linear(1.0))
    assert serve_all(made, Replicas(2, "longest_cached_prefix")).by.tolist() == [0, 1, 0, 1]
    assert serve_all(made, Replicas(2, "least_kv_used")).by.tolist() == [0, 1, 1, 0]


@settings(max_examples=20)
@given(talking_fleets())
def test_the_first_replica_runs_again_as_it_ran(drawn):
    made, replicas = drawn
    served = serve_all(made, replicas)
    again: Run = served.first_again()
    again.advance()
    assert again.position() == served.runs[0].position()
    assert again.result().counters == served.results[0].counters
    assert again.result().requests.finish_ns[served.rows[0]].tolist() == served.results[0].requests.finish_ns.tolist()


@settings(max_examples=30)
@given(talking_fleets())
def test_one_replica_holds_conversations_as_a_run_without_replicas_does(drawn):
    made, replicas = drawn
    one = serve_all(made, replace(replicas, count=1)).result
    alone = simulate(made)
    figures = [metrics(each, made.trace, made.allocator) for each in (one, alone)]
    assert figures[0] == figures[1]
    assert one.requests.arrival_ns.tolist() == alone.requests.arrival_ns.tolist()


@settings(max_examples=30)
@given(talking_fleets())
def test_a_turn_comes_after_the_end_of_the_turn_before_in_whichever_replica_that_was(drawn):
    made, replicas = drawn
    served = serve_all(made, replicas)
    requests, trace = served.result.requests, made.trace
    for turn, parent in enumerate(trace.session_parent.tolist()):
        if parent < 0 or requests.status[parent] != Status.COMPLETED:
            continue
        assert requests.status[turn] != Status.UNFINISHED
        if requests.status[turn] == Status.COMPLETED:
            assert requests.first_scheduled_ns[turn] >= requests.finish_ns[parent]
        if trace.think_ns is not None and trace.think_ns[turn] >= 0:
            assert requests.arrival_ns[turn] == requests.finish_ns[parent] + trace.think_ns[turn]


def test_a_turn_goes_to_another_replica_at_the_instant_the_turn_before_ends():
    # Request 0 runs for three steps in replica 0; its turn comes at 3.0 + 0.5, when 1 has long ended in replica 1.
    made = setup([4, 4, 8], [3, 1, 1], [0.0, 0.0, 0.0], session_parent=[-1, -1, 0], think_ns=[-1, -1, 500_000_000],
                 allocator=Paged(4), capacity_slots=64, max_model_len=16, scheduling=Scheduling(), durations=Linear(1.0))
    served = serve_all(made, Replicas(3))
    assert served.by.tolist() == [0, 1, 2]
    assert served.result.requests.arrival_ns.tolist() == [0, 0, 3_500_000_000]
    assert served.result.requests.finish_ns.tolist() == [3_000_000_000, 1_000_000_000, 4_500_000_000]
