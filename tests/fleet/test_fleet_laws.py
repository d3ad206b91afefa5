"""fleet: what must hold of replicas side by side, whatever they run."""

from dataclasses import replace

import numpy as np
import pytest
from comparison import assert_same_result
from fleets import caching_fleets, fleets, serve_all
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.ledger import Instant
from oracle.run import OracleRun

from pagesim.engine.result import Column, Window
from pagesim.engine.run import simulate
from pagesim.fleet.figures import fleet_metrics
from pagesim.fleet.routing import part
from pagesim.metrics import metrics


@settings(max_examples=60)
@given(st.one_of(fleets(), caching_fleets()))
def test_one_replica_is_the_run_without_replicas_to_the_last_digit(drawn):
    made, replicas = drawn
    one = replace(replicas, count=1)
    alone = metrics(simulate(made), made.trace, made.allocator)
    fleet = fleet_metrics(serve_all(made, one), made.trace, made.allocator, one)
    del fleet["fleet"]
    assert fleet == alone


@settings(max_examples=60)
@given(fleets())
def test_every_request_is_served_by_exactly_one_replica(drawn):
    made, replicas = drawn
    served = serve_all(made, replicas)
    assert len(served.by) == len(made.trace) and set(served.by.tolist()) <= set(range(replicas.count))
    assert sorted(np.concatenate(served.rows).tolist()) == list(range(len(made.trace)))
    assert all((served.by[own] == number).all() for number, own in enumerate(served.rows))


@settings(max_examples=60)
@given(st.one_of(fleets(), caching_fleets()))
def test_each_replica_is_the_oracle_on_the_requests_that_it_served(drawn):
    made, replicas = drawn
    served = serve_all(made, replicas)
    oracles = [OracleRun(replace(made, trace=part(made.trace, own))) for own in served.rows]
    for result, oracle in zip(served.results, oracles):
        stand_idle(oracle, max(each.end_ns for each in oracles))
        assert_same_result(result, oracle)


def stand_idle(oracle: OracleRun, until_ns: int) -> None:
    since_ns = max(oracle.end_ns, oracle.warmup_ns)
    if until_ns > since_ns and not oracle.running and not oracle.queue:
        gap = Instant.of(oracle.memory, [], [], oracle.scheduling, oracle.max_model_len)
        oracle.sums.time_passes(gap, (until_ns - since_ns) / 1e9, 0, 0)


@settings(max_examples=40)
@given(fleets())
def test_counts_of_the_fleet_are_sums_of_the_replicas_and_its_ledger_is_whole(drawn):
    made, replicas = drawn
    served = serve_all(made, replicas)
    figures = fleet_metrics(served, made.trace, made.allocator, replicas)
    for name in ("requests", "completed", "preemptions"):
        total = sum(one[name] for one in figures["fleet"]["of_replicas"])
        assert total == {"requests": len(made.trace), "completed": figures["requests"]["completed"],
                         "preemptions": figures["preemptions"]}[name]
    for shares in figures["ledger"].values():
        assert shares is None or sum(shares.values()) == pytest.approx(1)


@settings(max_examples=40)
@given(fleets())
def test_the_number_of_threads_changes_nothing(drawn):
    made, replicas = drawn
    one, several = (fleet_metrics(serve_all(made, replicas, num_threads), made.trace, made.allocator, replicas)
                    for num_threads in (1, 3))
    assert one == several


@settings(max_examples=40)
@given(fleets())
def test_a_replica_that_ends_early_stands_idle_until_the_last_has_ended(drawn):
    made, replicas = drawn
    served = serve_all(replace(made, until_s=None, warmup_s=0.0), replicas)
    end_s = max(result.end_s for result in served.results)
    for result in served.results:
        run = result.integrals[Window.RUN]
        assert run[Column.TIME] == pytest.approx(end_s)
        assert run[Column.TOKEN_STATES:Column.RUNNING].sum() == pytest.approx(end_s * made.capacity_slots)
