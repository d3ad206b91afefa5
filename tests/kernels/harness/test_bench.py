"""Which rows of an earlier run stand for a case of this one."""

from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'pagesim[kernel]'")
pytest.importorskip("triton", reason="triton is not installed: pip install 'pagesim[kernel]' on Linux")

from test_measurement import PLAIN

from pagesim.kernels.harness.bench import Case, run_cases
from pagesim.kernels.harness.workloads import builtin

CASE = Case(builtin()["W1"], "ours", "shuffled", 16)
DONE = replace(PLAIN, key=CASE.key, context_tokens=64 * 4096)


class MeasuresNothing:
    environment = {"gpu": "G"}

    def measure(self, case, repeats):
        return "measured"


@pytest.mark.parametrize("change, row", [
    ({}, DONE), ({"context_tokens": 7}, "measured"), ({"num_kv_heads": 32}, "measured"), ({"head_dim": 64}, "measured"),
    ({"environment": {"gpu": "another"}}, "measured"),
])
def test_a_row_is_taken_over_if_batch_model_and_gpu_are_the_same(change, row):
    done = {CASE.key: replace(DONE, **change)}
    assert list(run_cases(MeasuresNothing(), [CASE], 3, done, print)) == [row]
