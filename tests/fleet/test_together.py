"""fleet/together.py: the replicas laid over one another in time."""

from dataclasses import replace

import pytest
from fleets import fleets, serve_all
from hypothesis import given, settings
from oracle.run import OracleRun
from strategies import paged, setup

from pagesim.allocators import Paged
from pagesim.case import Replicas
from pagesim.engine.durations import Linear
from pagesim.engine.scheduling import Scheduling
from pagesim.fleet.routing import part
from pagesim.fleet.together import figures, together


class WithNeed(OracleRun):
    """Knows of each step what its refused head needs."""

    def look(self, step) -> None:
        super().look(step)
        step.need = self.queue[0][0].known if step.instant.refused else 0


def by_the_definition(made, served) -> dict:
    """Moment by moment: between two of them nothing begins or ends in any replica."""
    oracles = [WithNeed(replace(made, trace=part(made.trace, own))) for own in served.rows]
    edges = sorted({edge for oracle in oracles for step in oracle.steps
                    for edge in (step.start_ns, step.start_ns + step.duration_ns)})
    busy_s = blocked_s = free = stranded = allocated = cv = used_s = 0.0
    for begin_ns, end_ns in zip(edges, edges[1:]):
        going = [next((step for step in oracle.steps if step.start_ns <= begin_ns < step.start_ns + step.duration_ns), None)
                 for oracle in oracles]
        held = [step.instant.allocated if step else 0 for step in going]
        if begin_ns < made.warmup_s * 1e9 or not any(step and step.running for step in going):
            continue
        seconds = (end_ns - begin_ns) / 1e9
        free_slots = sum(made.capacity_slots // made.allocator.block_size * made.allocator.block_size - own for own in held)
        needs = [step.need for step in going if step and step.need]
        busy_s += seconds
        free += free_slots * seconds
        allocated += sum(held) * seconds
        if needs and free_slots >= min(needs):
            blocked_s += seconds
            stranded += free_slots * seconds
        if sum(held):
            mean = sum(held) / len(held)
            cv += (sum((own - mean) ** 2 for own in held) / len(held)) ** 0.5 / mean * seconds
            used_s += seconds
    whole = busy_s * len(oracles) * made.capacity_slots
    over = lambda value, of: pytest.approx(value / of, abs=1e-7) if of else None
    return {"busy_s": pytest.approx(busy_s), "block_use": over(allocated, whole), "free": over(free, whole),
            "stranded": over(stranded, whole), "blocked_by_fragmentation": over(blocked_s, busy_s),
            "block_use_cv": over(cv, used_s), "steps_a_row": 1}


@settings(max_examples=60)
@given(fleets(paged()))
def test_figures_of_the_fleet_are_what_the_definition_says_moment_by_moment(drawn):
    made, replicas = drawn
    served = serve_all(made, replicas)
    assert figures(together(served.results), replicas.count, made.capacity_slots) == by_the_definition(made, served)


def test_a_request_that_one_replica_refuses_while_the_other_stands_empty_is_blocked_by_fragmentation():
    # Two blocks of 4 each.  Requests 0 and 2 come to replica 0, where 0 runs for four steps and 2 waits for them;
    # request 1 has ended in replica 1 after one step.
    made = setup([5, 4, 5], [4, 1, 1], allocator=Paged(4), capacity_slots=8, max_model_len=9, scheduling=Scheduling(),
                 durations=Linear(1.0))
    served = serve_all(made, Replicas(2))
    assert served.by.tolist() == [0, 1, 0]
    found = figures(together(served.results), 2, 8)
    assert found["busy_s"] == 5.0
    assert found["blocked_by_fragmentation"] == 3 / 5  # not in the first second: 4 slots are free, 5 are needed
    assert found["stranded"] == 3 * 8 / (5 * 16)
    assert found["free"] == (4 + 4 * 8) / (5 * 16)
    assert [result.timeline.mean_parts[:, 5].max() for result in served.results] == [0, 0]  # no replica strands a slot
