"""A run whose rules contradict each other or its trace is refused when it is made, with the way out."""

import re
from functools import partial

import numpy as np
import pytest
from examples import blocks_of, regions_of
from strategies import Setup, setup

from pagesim.allocators import Contiguous, Paged
from pagesim.engine.durations import Linear
from pagesim.engine.scheduling import Scheduling
from pagesim.engine.run import Run
from pagesim.errors import InputError
from pagesim.trace.trace import Trace


def refused(make, *words: str) -> None:
    with pytest.raises(InputError) as raised:
        make()
    for word in words:
        assert re.search(rf"(?<!\w){re.escape(word)}(?!\w)", str(raised.value)), f"{word!r} is not in: {raised.value}"


def test_without_chunked_prefill_the_budget_must_hold_the_longest_request():
    refused(lambda: blocks_of([(4, 4)], 10, max_model_len=100, max_num_batched_tokens=99, chunked_prefill=False),
            "max_num_batched_tokens", "99", "max_model_len", "100", "chunked_prefill")
    blocks_of([(4, 4)], 10, max_model_len=99, max_num_batched_tokens=99, chunked_prefill=False)


def test_an_output_longer_than_the_requests_own_limit_names_its_row():
    refused(lambda: setup([4, 4, 4], [2, 7, 2], max_tokens=[2, 6, 0], allocator=Contiguous("max_tokens"),
                          capacity_slots=100, max_model_len=50, scheduling=Scheduling(), durations=Linear(1.0)),
            "request 1", "max_tokens", "6", "7")


def test_a_limit_is_no_matter_to_a_rule_that_does_not_read_it():
    made = setup([4], [7], max_tokens=[6], allocator=Paged(16), capacity_slots=100, max_model_len=50,
                 scheduling=Scheduling(), durations=Linear(1.0))
    run = Run(made)
    run.advance()
    assert run.result().counters.output_tokens == 7


def test_lengths_without_arrivals_need_an_arrival_process():
    lengths_only = Trace(None, np.array([4], np.int32), np.array([4], np.int32))
    rules = {"allocator": Paged(16), "capacity_slots": 100, "max_model_len": 50, "scheduling": Scheduling(),
             "durations": Linear(1.0)}
    Setup(lengths_only, closed_users=1, **rules)
    refused(lambda: Setup(lengths_only, **rules), "arrival", "poisson")


def test_a_memory_without_one_block_is_refused():
    refused(lambda: blocks_of([(4, 4)], 0), "0 slots", "block")


def test_a_closed_loop_needs_a_user():
    refused(lambda: regions_of([(4, 4)], "first_fit", 100, closed_users=-1), "user", "-1")


def test_an_end_before_the_beginning_is_refused():
    for wrong in ({"until_s": 0.0}, {"until_s": float("nan")}, {"warmup_s": -1.0}, {"warmup_s": float("inf")}):
        refused(partial(setup, [4], [4], allocator=Paged(16), capacity_slots=100, max_model_len=50,
                        scheduling=Scheduling(), durations=Linear(1.0), **wrong), *wrong)
