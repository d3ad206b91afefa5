"""The engine does what vLLM's scheduler and block manager did, at every step recorded."""

import numpy as np
import pytest
from golden import recording

from pagesim.engine.run import Run


@pytest.fixture(scope="module", params=recording.NAMES + recording.PREFIX_NAMES)
def replay(request):
    """The recording, the engine's result, and the block tables of every step with the requests in running order."""
    recorded = recording.read(request.param)
    run = Run(recorded.setup)
    tables = []
    while run.advance(max_steps=1):
        now = run.tables()
        tables.append({int(r): now.table(i).tolist() for i, r in enumerate(now.seq_ids)})
    return recorded, run.result(), tables


def test_the_engine_counts_in_every_step_what_vllm_counted(replay):
    recorded, result, _ = replay
    block_size = recorded.allocator.block_size
    expected = {
        "max_running": [step["running"] for step in recorded.steps],
        "max_waiting": [step["waiting"] for step in recorded.steps],
        "max_allocated": [step["used_blocks"] * block_size for step in recorded.steps],
        "prefill_tokens": [step["prefill_tokens"] for step in recorded.steps],
        "decode_tokens": [step["decode_tokens"] for step in recorded.steps],
        "preemptions": [len(step["preempted"]) for step in recorded.steps],
        "completions": [len(step["finished"]) for step in recorded.steps],
    }
    assert result.timeline.stride == 1
    for name, values in expected.items():
        np.testing.assert_array_equal(getattr(result.timeline, name), values, err_msg=name)


def test_the_engine_hands_out_the_blocks_that_vllm_handed_out(replay):
    recorded, _, tables = replay
    assert len(tables) == len(recorded.steps)
    for step, made, expected in zip(range(len(tables)), tables, recorded.steps):
        if "tables" in expected:
            assert list(made.items()) == list(expected["tables"].items()), f"step {step}"
        for request in expected["preempted"]:
            assert request not in made, f"step {step}"
        computed = [request for request, _ in expected["chunks"]]
        assert [request for request in made if request in computed] == computed, f"order of step {step}"


def test_the_engine_gives_every_request_the_times_that_vllm_gave_it(replay):
    recorded, result, _ = replay
    rows = result.requests
    for name, made in (("first_scheduled", rows.first_scheduled_s), ("first_token", rows.first_token_s - 1),
                       ("finish", rows.finish_s - 1), ("preempted", rows.preemptions)):
        np.testing.assert_array_equal(made, [row[name] for row in recorded.per_request], err_msg=name)


def test_the_engine_finds_and_evicts_what_vllm_found_and_evicted(replay):
    recorded, result, _ = replay
    if result.sharing is None:
        assert "hit_tokens" not in recorded.per_request[0]
        return
    assert result.sharing.hit_tokens_by_request.tolist() == [row["hit_tokens"] for row in recorded.per_request]
    again = [hit for row in recorded.per_request for _, hit in row["admissions"][1:]]
    assert result.sharing.readmission_hit_tokens == sum(again) > 0
    assert result.sharing.evicted_blocks == sum(step["evicted_blocks"] for step in recorded.steps) > 0
