"""The oracle does what vLLM's scheduler and block manager did, in every field of every step recorded."""

import pytest
from golden import recording

from oracle.run import OracleRun


@pytest.fixture(scope="module", params=recording.NAMES + recording.PREFIX_NAMES)
def replay(request):
    recorded = recording.read(request.param)
    return recorded, OracleRun(recorded.setup)


def test_the_oracle_does_in_every_step_what_vllm_did(replay):
    recorded, run = replay
    block_size = recorded.allocator.block_size
    assert len(run.steps) == len(recorded.steps)
    for step, expected in zip(run.steps, recorded.steps):
        used_end = recorded.capacity_slots // block_size - len(step.free_blocks_end)
        made = {
            "running": step.running, "waiting": step.waiting, "used_blocks": step.instant.allocated // block_size,
            "used_blocks_end": used_end, "chunks": [list(chunk) for chunk in step.chunks],
            "prefill_tokens": step.prefill_tokens, "decode_tokens": step.decode_tokens,
            "preempted": [request for request, _ in step.preempted],
            "finished": [request for request, _ in step.finished],
        }
        if "cached_blocks" in expected:
            made["cached_blocks"] = step.instant.parts["cached"] // block_size
            made["cached_blocks_end"] = step.cached_blocks_end
            made["evicted_blocks"] = step.evicted_blocks
        if "tables" in expected:
            made["tables"] = {request: table for (request, _), table in step.tables.items()}
            made["free_queue_end"] = step.free_blocks_end
            assert list(made["tables"]) == list(expected["tables"]), f"running order of step {step.index}"
        assert made == expected, f"step {step.index}"


def test_the_oracle_gives_every_request_the_times_that_vllm_gave_it(replay):
    recorded, run = replay
    for row, expected in enumerate(recorded.per_request):
        admissions = [step.index for step in run.steps if (row, 0) in step.admitted]
        if "hit_tokens" in expected:
            admissions = [[step, run.steps[step].hits[row, 0]] for step in admissions]
        made = {"first_scheduled": run.first_scheduled_ns[row] // 10**9, "first_token": run.first_token_ns[row] // 10**9 - 1,
                "finish": run.finish_ns[row] // 10**9 - 1, "preempted": run.preemptions[row], "admissions": admissions}
        if "hit_tokens" in expected:
            made["hit_tokens"] = run.hit_tokens[row]
        assert made == expected, f"request {row}"
