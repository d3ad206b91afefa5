"""Published and measured figures, reproduced by the configs that users run."""

from pathlib import Path

import pytest

from pagesim import simulate
from pagesim.config import load

ROOT = Path(__file__).parents[1]
ENGINE_RUN = ROOT.parent / "shared" / "traces" / "vllm_rtx4090_llama31_8b_requests.jsonl"

# Kwon et al., SOSP 2023, Figure 2 (% of KV memory; only vLLM's token states are printed) and mean batch of Figure 13.
FIGURE_2 = {
    "contiguous max_model_len buddy": {
        "token_states": 20.4,
        "reserved": 13.3,
        "internal": 57.3,
        "external_and_others": 8.9,
    },
    "contiguous pow2 buddy": {"token_states": 26.8, "reserved": 17.9, "internal": 13.6, "external_and_others": 41.6},
    "contiguous exact buddy": {"token_states": 38.2, "reserved": 25.2, "internal": 0, "external_and_others": 36.6},
    "paged 16": {"token_states": 96.3},
}
MEAN_BATCH = {
    "contiguous max_model_len buddy": 7.00,
    "contiguous pow2 buddy": 9.81,
    "contiguous exact buddy": 13.62,
    "paged 16": 30.42,
}


@pytest.fixture(scope="module")
def figure_2():
    cases = simulate(ROOT / "configs" / "sosp23_figure2.yaml").metrics["cases"]
    assert len(cases) == 12
    return {case["name"]: case for case in cases}


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("system", FIGURE_2)
def test_figure_2_of_the_paged_attention_paper(figure_2, system, seed):
    shares = figure_2[f"{system} seed={seed}"]["sosp23"]["saturated"]
    for part, printed in FIGURE_2[system].items():
        tolerance = 4 if (system, part) == ("contiguous pow2 buddy", "external_and_others") else 3
        assert 100 * shares[part] == pytest.approx(printed, abs=tolerance), part


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("system", MEAN_BATCH)
def test_mean_batch_of_figure_13(figure_2, system, seed):
    assert figure_2[f"{system} seed={seed}"]["mean"]["running"] == pytest.approx(MEAN_BATCH[system], rel=0.1)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_orca_max_holds_seven_requests_and_loses_what_is_left_over(figure_2, seed):
    case = figure_2[f"contiguous max_model_len buddy seed={seed}"]
    assert case["peak"]["running"] == 7
    left_over = 1 - 7 * 2048 / 15728
    assert case["sosp23"]["saturated"]["external_and_others"] == pytest.approx(left_over, abs=1e-9)  # a million roundings


def engine_run(*changes):
    if not ENGINE_RUN.exists():
        pytest.skip(f"the measured engine run is not here: {ENGINE_RUN}")
    config = load(ROOT / "configs" / "vllm_rtx4090_run.yaml", (f"trace.path={ENGINE_RUN}", *changes))
    return simulate(config).metrics["cases"][0]


def test_the_measured_vllm_run_fills_its_memory_and_preempts():
    case = engine_run()
    owned = [case["ledger"]["saturated"][part] for part in ("token_states", "reserved", "overreserved", "rounding")]
    assert sum(owned) >= 0.96
    assert case["preemptions"] > 0
    assert 40 <= case["peak"]["running"] <= 55


def test_ten_times_the_memory_preempts_nobody():
    assert engine_run("memory.num_gpu_blocks_override=25870")["preemptions"] == 0
