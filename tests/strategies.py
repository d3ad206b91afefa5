"""Random small runs over everything that a user can choose."""

import itertools
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st
from hypothesis.vendor import pretty
from oracle.beams import Sharing

from pagesim.allocators import Contiguous, Paged
from pagesim.allocators.contiguous import RESERVES
from pagesim.allocators.holes import PLACEMENTS
from pagesim.engine.durations import Durations, Linear, Roofline
from pagesim.engine.scheduling import Scheduling
from pagesim.engine.setup import Setup
from pagesim.trace.instants import whole_ns
from pagesim.trace.trace import Source, Trace


def show(made: Setup, printer, cycle) -> None:
    """How hypothesis shows a failing run: as what can be pasted into a test."""
    trace = made.trace
    columns = {name: getattr(trace, name, None) for name in
               ("arrival_s", "prompt_tokens", "output_tokens", "max_tokens", "num_samples", "beam_width", "session_parent",
                "think_ns")}
    shown = [f"{name}={column.tolist()}" for name, column in columns.items() if column is not None]
    if trace.prefix_ids is not None:
        ids = [trace.prefix_ids[a:b].tolist() for a, b in itertools.pairwise(trace.prefix_offsets)]
        shown += [f"prefix_ids={ids}", f"hash_block_tokens={trace.source.hash_block_tokens}"]
    rest = {name: value for name, value in vars(made).items() if name != "trace"}
    printer.text(f"setup({', '.join(shown)}, {', '.join(f'{name}={value!r}' for name, value in rest.items())})")


pretty.for_type_by_name(Setup.__module__, "Setup", show)


def setup(prompt_tokens, output_tokens, arrival_s=None, max_tokens=None, num_samples=None, beam_width=None,
          prefix_ids=None, hash_block_tokens=None, session_parent=None, think_ns=None, **rest) -> Setup:
    """Columns as lists, ``prefix_ids`` as a list for each row; ``rest`` are the other arguments of a setup."""
    def column(values, dtype=np.int32):
        return None if values is None else np.array(values, dtype)

    arrival_s = [0.0] * len(prompt_tokens) if arrival_s is None and rest.get("closed_users") is None else arrival_s
    ids = offsets = None
    if prefix_ids is not None:
        ids, offsets = column([*itertools.chain(*prefix_ids)], np.int64), np.cumsum([0, *map(len, prefix_ids)])
    trace = Trace(None if arrival_s is None else whole_ns(np.array(arrival_s, np.float64)), column(prompt_tokens),
                  column(output_tokens), column(max_tokens), column(num_samples), column(beam_width), ids, offsets,
                  session_parent=column(session_parent, np.int64), think_ns=column(think_ns, np.int64),
                  source=Source("memory", "memory", hash_block_tokens=hash_block_tokens))
    return Setup(trace, **rest)


@st.composite
def setups(draw, allocators=None) -> Setup:
    """A run of few requests in a memory that is often too small for all of them."""
    num_requests = draw(st.sampled_from((10, 10, 20, 20, 6, 6, 3, 2, 1)))
    longest = draw(st.sampled_from((6, 14, 14, 24, 2)))

    def column(least: int, most: int) -> list[int]:
        return draw(st.lists(st.integers(least, most), min_size=num_requests, max_size=num_requests))

    prompts, outputs = column(1, longest), column(1, longest)
    allocator = draw(st.one_of(paged(), contiguous()) if allocators is None else allocators)
    largest = max(p + o for p, o in zip(prompts, outputs))
    max_model_len = draw(st.integers(2, largest) if one_in(draw, 8) else st.integers(largest, largest + 6))
    scheduling = draw(schedulings(max_model_len))
    users = draw(st.sampled_from((6, 3, 2, 1))) if one_in(draw, 3) else None
    max_tokens = None
    if isinstance(allocator, Contiguous) and (allocator.reserve == "max_tokens" or one_in(draw, 8)):
        max_tokens = [0 if more < 0 else o + more for o, more in zip(outputs, column(-1, 5))]
    return setup(
        prompts, outputs, None if users else draw(arrivals(num_requests)), max_tokens,
        # Under paged the samples of a request are one group, which so far only the oracle knows.
        column(1, 3) if isinstance(allocator, Contiguous) and one_in(draw, 4) else None, allocator=allocator,
        capacity_slots=draw(capacities(allocator, largest, max_model_len)), max_model_len=max_model_len,
        scheduling=scheduling, durations=draw(durations()), closed_users=users,
        until_s=draw(st.sampled_from((1.0, 2.0, 5.0)) | st.floats(0.01, 8)) if one_in(draw, 6) else None,
        warmup_s=draw(st.sampled_from((1.0, 2.0)) | st.floats(0, 3)) if one_in(draw, 5) else 0.0)


@st.composite
def sharing_setups(draw, caches=("none", "vllm", "radix"), alone: bool = False) -> tuple[Setup, Sharing]:
    """A run of paged requests that share prefixes, histories and, unless each is ``alone``, samples or beams."""
    num_requests, longest = draw(st.sampled_from((8, 4, 12, 2))), draw(st.sampled_from((9, 16, 4)))

    def column(values) -> list[int]:
        return draw(st.lists(values, min_size=num_requests, max_size=num_requests))

    lengths = st.integers(1, longest)
    prompts, outputs = column(lengths), column(lengths)
    block_size, granularity = draw(st.sampled_from(((1, 1), (1, 3), (2, 4), (3, 3), (4, 2), (4, 4), (6, 2))))
    cache = draw(st.sampled_from(caches))
    most = 1 if alone or cache == "radix" else draw(st.sampled_from((2, 4, 1)))
    several = {draw(st.sampled_from(("num_samples", "beam_width"))): column(st.integers(1, most))} if most > 1 else {}
    parents = think_ns = None
    if draw(st.booleans()):
        parents = [draw(st.integers(-1, row - 1)) if row else -1 for row in range(num_requests)]
        thinks = column(st.sampled_from((-1, -1, 0, 300_000_000, 2_000_000_000)))
        think_ns = [-1 if parent < 0 else think for parent, think in zip(parents, thinks)]
    for row in range(num_requests):
        if parents and parents[row] >= 0 and draw(st.booleans()):      # often the whole history
            prompts[row] = min(prompts[parents[row]] + outputs[parents[row]] + draw(st.integers(0, 3)), 3 * longest)
    largest = max(p + o for p, o in zip(prompts, outputs))
    scheduling = draw(schedulings(largest + draw(st.integers(0, 4))))
    if cache == "radix":
        scheduling = replace(scheduling, preemption="recompute")
    allocator = Paged(block_size, "lifo" if cache == "radix" else draw(st.sampled_from(("lifo", "fifo"))),
                      draw(st.sampled_from((0.0, 0.0, 0.1, 0.4))), cache,
                      draw(st.sampled_from(("lru", "lfu", "fifo"))) if cache == "radix" else "lru")
    users = draw(st.sampled_from((1, 3))) if one_in(draw, 4) else None
    made = setup(
        prompts, outputs, None if users else draw(arrivals(num_requests)), **several,
        prefix_ids=draw(prefix_trees(prompts, granularity)) if draw(st.booleans()) else None,
        hash_block_tokens=granularity, session_parent=parents, think_ns=think_ns, allocator=allocator,
        capacity_slots=draw(tight_capacities(prompts, outputs, next(iter(several.values()), [1] * num_requests), block_size)),
        max_model_len=scheduling.max_num_batched_tokens if not scheduling.chunked_prefill else largest,
        scheduling=scheduling, durations=draw(durations()), closed_users=users)
    return made, Sharing(draw(st.sampled_from((0.0, 0.2, 0.7, 1.0))), draw(st.integers(0, 2**64 - 1)))


@st.composite
def long_prefixes(draw, block_size: int) -> Setup:
    """A radix cache under prompts of several ids of 16 tokens each and a tail of their own."""
    num_requests = draw(st.sampled_from((8, 12, 4)))

    def column(values) -> list[int]:
        return draw(st.lists(values, min_size=num_requests, max_size=num_requests))

    prompts, outputs = column(st.integers(1, 70)), column(st.integers(1, 24))
    scheduling = replace(draw(schedulings(94)), preemption="recompute")
    if scheduling.chunked_prefill:
        scheduling = replace(scheduling, max_num_batched_tokens=8 * scheduling.max_num_batched_tokens)
    return setup(
        prompts, outputs, draw(arrivals(num_requests)), prefix_ids=draw(prefix_trees(prompts, 16)), hash_block_tokens=16,
        allocator=Paged(block_size, prefix_cache="radix", eviction=draw(st.sampled_from(("lru", "lfu", "fifo")))),
        capacity_slots=draw(tight_capacities(prompts, outputs, [1] * num_requests, block_size)), max_model_len=94,
        scheduling=scheduling, durations=draw(durations()))


@st.composite
def tight_capacities(draw, prompts, outputs, samples, block_size: int) -> int:
    """Mostly room for the largest group and at most another like it; one in eight for less."""
    largest = max(p // block_size + n * (-(-(p + o - 1) // block_size) - p // block_size)
                  for p, o, n in zip(prompts, outputs, samples))
    blocks = draw(st.integers(1, largest)) if one_in(draw, 8) else largest + draw(st.integers(0, largest))
    return blocks * block_size + draw(st.integers(0, block_size - 1))


@st.composite
def prefix_trees(draw, prompts: list[int], granularity: int) -> list[list[int]]:
    """Ids of prompts that go down a tree together: an id is a node of the tree, so that it says what comes before."""
    nodes, rows = {}, []
    for prompt in prompts:
        path = draw(st.lists(st.sampled_from((0, 0, 0, 1)), min_size=0, max_size=-(-prompt // granularity)))
        rows.append([nodes.setdefault(tuple(path[:end]), len(nodes)) for end in range(1, len(path) + 1)])
    return rows


def one_in(draw, number: int) -> bool:
    return draw(st.integers(1, number)) == number


def paged() -> st.SearchStrategy[Paged]:
    return st.builds(Paged, st.sampled_from((1, 1, 2, 3, 4, 16)), st.sampled_from(("lifo", "fifo")),
                     st.sampled_from((0.0, 0.0, 0.0, 0.05, 0.2, 0.6)))


def contiguous() -> st.SearchStrategy[Contiguous]:
    often_grow = ("grow",) * 4 + RESERVES      # it alone grows and preempts
    return st.builds(Contiguous, st.sampled_from(often_grow), st.sampled_from(PLACEMENTS),
                     st.sampled_from((1.01, 1.5, 2.0, 3.0)))


@st.composite
def capacities(draw, allocator, largest: int, max_model_len: int) -> int:
    """Mostly room for one to six of the longest; else one block or slot, or anything; not always whole blocks."""
    if isinstance(allocator, Paged):
        least, unit = largest - 1, allocator.block_size
    else:
        least, unit = max_model_len if allocator.reserve in ("max_model_len", "pow2", "max_tokens") else largest, 1
    if one_in(draw, 10):
        return unit + draw(st.integers(0, unit - 1))
    if one_in(draw, 10):
        return draw(st.integers(unit, unit + 3 * max_model_len))
    least_units = -(-least // unit)
    units = least_units + draw(st.integers(0, 2) if one_in(draw, 4) else st.integers(0, 5 * least_units))
    return units * unit + draw(st.one_of(st.just(0), st.integers(0, unit - 1)))


@st.composite
def schedulings(draw, max_model_len: int) -> Scheduling:
    chunked = draw(st.booleans())
    if chunked:
        budget = draw(st.integers(1, 6) if one_in(draw, 4) else st.integers(4, 60))
    else:
        budget = max_model_len + draw(st.integers(0, 60))
    swap_slots = draw(st.integers(0, 30)) if one_in(draw, 2) else None
    return Scheduling(
        max_num_seqs=draw(st.sampled_from((5, 3, 2, 1))) if one_in(draw, 4) else 100, max_num_batched_tokens=budget,
        chunked_prefill=chunked, preemption=draw(st.sampled_from(("recompute", "swap"))),
        reserve_full_isl=draw(st.booleans()), swap_slots=swap_slots,
        swap_s_per_slot=draw(st.sampled_from((0.0, 0.003))))


@st.composite
def arrivals(draw, num_requests: int) -> list[float]:
    """Gaps of which many are zero, some shorter and some longer than a step."""
    gaps = draw(st.lists(st.sampled_from((0.0, 0.0, 0.0, 0.0, 0.0, 0.05, 0.1, 0.31, 1.0, 7.5)),
                         min_size=num_requests, max_size=num_requests))
    return np.cumsum([0.0, *gaps[1:]]).tolist()


def durations() -> st.SearchStrategy[Durations]:
    """Few values that floats hold exactly, so that the order of additions shows."""
    linear = st.builds(Linear, st.sampled_from((0.1, 0.03, 1.0)), st.sampled_from((0.0, 0.001)),
                       st.sampled_from((0.0, 0.007)), st.sampled_from((0.0, 0.0003)))
    without_constant = st.just(Linear(0.0, 0.0, 0.05, 0.0))
    roofline = st.builds(Roofline, st.just(1.0e6), st.sampled_from((1.0e3, 1.3e5)), st.just(3.1e4), st.just(7.7e2),
                         st.just(3.3e7), st.sampled_from((1.0e6, 1.0e9)), st.sampled_from((0.0, 0.002)))
    return st.one_of(linear, linear, without_constant, roofline)
