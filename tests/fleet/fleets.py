"""Random fleets: runs of the strategies, shared out among a few replicas."""

from dataclasses import replace

from hypothesis import strategies as st
from strategies import setups

from pagesim.case import Replicas
from pagesim.engine.run import Run
from pagesim.engine.setup import Setup
from pagesim.fleet.service import Service, serve


@st.composite
def fleets(draw, allocators=None, routings=("round_robin", "by_session")) -> tuple[Setup, Replicas]:
    made = draw(setups(allocators).filter(lambda made: made.closed_users is None))
    return made, Replicas(draw(st.integers(1, 4)), draw(st.sampled_from(routings)))


def serve_all(made: Setup, replicas: Replicas, num_threads: int = 1) -> Service:
    return serve(made.trace, replicas, lambda trace: Run(replace(made, trace=trace)), num_threads, lambda runs: None)
