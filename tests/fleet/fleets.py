"""Random fleets: runs of the strategies, shared out among a few replicas."""

from dataclasses import replace

from hypothesis import strategies as st
from strategies import setups, sharing_setups

from pagesim.case import Replicas
from pagesim.engine.setup import Setup
from pagesim.fleet.service import Service, serve


@st.composite
def fleets(draw, allocators=None) -> tuple[Setup, Replicas]:
    made = draw(setups(allocators).filter(lambda made: made.closed_users is None))
    return made, Replicas(draw(st.integers(1, 4)), draw(st.sampled_from(("round_robin", "by_session", "least_kv_used"))))


@st.composite
def caching_fleets(draw) -> tuple[Setup, Replicas]:
    """With vLLM's prefix cache, of requests that share prefixes and are no turns."""
    made, _ = draw(sharing_setups(("vllm",), alone=True).filter(lambda drawn: drawn[0].closed_users is None))
    made = replace(made, trace=replace(made.trace, session_parent=None, think_ns=None))
    return made, Replicas(draw(st.integers(1, 4)), draw(st.sampled_from(("longest_cached_prefix", "least_kv_used"))))


@st.composite
def talking_fleets(draw) -> tuple[Setup, Replicas]:
    """The same with turns that wait for the ones before; not dealt out, so that these may be anywhere."""
    made, _ = draw(sharing_setups(("none", "vllm", "radix"), alone=True).filter(
        lambda drawn: drawn[0].closed_users is None and drawn[0].trace.session_parent is not None))
    rules = ("round_robin", "least_kv_used") + ("longest_cached_prefix",) * (made.allocator.prefix_cache != "none")
    return made, Replicas(draw(st.integers(1, 4)), draw(st.sampled_from(rules)))


def serve_all(made: Setup, replicas: Replicas, num_threads: int = 1) -> Service:
    return serve(made.trace, replicas, lambda trace: replace(made, trace=trace), num_threads, lambda runs: None)
