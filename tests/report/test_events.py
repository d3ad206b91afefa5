"""report/events.py: the memory can be redrawn from what a run folder holds."""

import json

import numpy as np
import pytest

from strategies import setup

from pagesim.allocators import Contiguous, Paged
from pagesim.engine.ownership import NOBODY, ownership
from pagesim.engine.durations import Linear
from pagesim.engine.scheduling import Scheduling
from pagesim.engine.run import Run
from pagesim.engine.setup import Setup
from pagesim.report.events import events_json
from pagesim.report.loaded import LoadedCase
from pagesim.trace import Trace
from pagesim.trace.instants import whole_ns


@pytest.mark.parametrize("allocator", [Paged(8), Contiguous("exact", "best_fit")])
def test_every_step_can_be_redrawn_from_the_json(allocator):
    rng = np.random.default_rng(3)
    lengths = [rng.integers(1, 30, 40).astype(np.int32) for _ in range(2)]
    trace = Trace(whole_ns(np.sort(rng.uniform(0, 3, 40))), *lengths)

    def make():
        return Run(Setup(trace, allocator, 120, 64, Scheduling(), Linear(0.05)))

    finished, run = make(), make()
    finished.advance()
    events = json.loads(events_json(ownership(make, finished, 30)))
    assert events["first_step"] > 0 and len(events["start_s"]) == events["last_step"] - events["first_step"] + 1 == 30
    run.advance(events["first_step"])
    owners = [None] * events["num_units"]
    for step in range(events["first_step"], events["last_step"] + 1):
        run.advance(1)
        for _, unit, count, request in (change for change in events["changes"] if change[0] == step):
            owners[unit:unit + count] = [request] * count
        assert owners == [None if owner == NOBODY else owner for owner in run.owners().tolist()]


def test_shared_and_cached_blocks_are_in_the_json_and_read_back(tmp_path):
    def make():
        return Run(setup([20, 20, 20, 5], [1, 6, 3, 1], [0, 1, 1, 9], prefix_ids=[[0], [0], [0], []], hash_block_tokens=16,
                         allocator=Paged(8, prefix_cache="vllm"), capacity_slots=120, max_model_len=64,
                         scheduling=Scheduling(), durations=Linear(1.0)))

    finished = make()
    finished.advance()
    recorded = ownership(make, finished, 30)
    text = events_json(recorded)
    changes = json.loads(text)["changes"]
    assert [0, 0, 3, 0] in changes, "prefilled alone"
    assert [1, 0, 2, 1, 2] in changes, "found by two, the first of which is request 1"
    assert [7, 0, 3, "cached"] in changes, "kept when the last has gone, with the block that its output filled"
    (tmp_path / "events.json").write_text(text)
    np.testing.assert_array_equal(LoadedCase("a case", {}, {}, tmp_path).ownership().changes, recorded.changes)


def test_a_run_without_steps_has_no_changes():
    trace = Trace(np.zeros(1, np.int64), np.array([90], np.int32), np.array([1], np.int32))  # longer than max_model_len

    def make():
        return Run(Setup(trace, Paged(8), 120, 64, Scheduling(), Linear(0.05)))

    finished = make()
    finished.advance()
    assert json.loads(events_json(ownership(make, finished, 30)))["changes"] == []
