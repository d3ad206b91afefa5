"""The configs that ship ask what their first lines say, about what ships with them."""

from pathlib import Path

import pytest

from pagesim.config import Capacity, load
from pagesim.config.starter import STARTER
from pagesim.engine.durations import Linear

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_config_is_valid_and_begins_with_its_question(path):
    first, *_ = path.read_text().splitlines()
    assert first.startswith("# ") and "?" in path.read_text().split("\ntrace:")[0]
    assert load(path).cases


def test_the_promised_configs_are_there():
    assert {path.stem for path in CONFIGS.glob("*.yaml")} >= {"quickstart", "sosp23_figure2", "block_size_sweep",
                                                              "azure_conv_h200", "external_fragmentation", "replicas",
                                                              "vllm_rtx4090_run"}


def test_figure_2_is_set_up_as_the_paper_says():
    cases = load(CONFIGS / "sosp23_figure2.yaml").cases
    assert len(cases) == 4 * 3
    assert {case.trace.seed for case in cases} == {0, 1, 2}
    assert {(case.trace.kind, case.trace.rate, case.durations, case.max_model_len) for case in cases} == {
        ("poisson", 2.0, Linear(0.045), 2048)}
    assert cases[0].capacity == Capacity(15_728, 819_200)
    assert cases[3].capacity == Capacity(15_728, 819_200, 983, 16)


def test_the_real_run_has_vllms_blocks_without_its_null_block():
    (case,) = load(CONFIGS / "vllm_rtx4090_run.yaml").cases
    assert case.capacity == Capacity(2587 * 16, 131_072, 2587, 16)
    assert (case.scheduling.max_num_seqs, case.scheduling.max_num_batched_tokens, case.scheduling.chunked_prefill) == (
        256, 2048, True)
    assert (case.max_model_len, case.gpu) == (32_768, "rtx-4090")


def test_every_placement_is_asked_for_external_fragmentation():
    cases = load(CONFIGS / "external_fragmentation.yaml").cases
    assert len({case.name for case in cases}) == len(cases) == 5 + 5 + 1


def test_block_sizes_on_both_sides_of_the_traces_are_asked_for_their_hits():
    cases = load(CONFIGS / "prefix_block_size.yaml").cases
    assert [case.allocator.block_size for case in cases] == [16, 64, 256, 512, 2048]
    assert {case.allocator.prefix_cache for case in cases} == {"vllm"} and len({case.capacity.slots for case in cases}) == 1


def test_the_starter_is_valid_once_it_has_a_trace(write):
    assert [case.name for case in load(write(STARTER)).cases] == ["contiguous max_model_len buddy",
                                                                  "contiguous exact first_fit", "paged 16"]


def test_what_the_starter_comments_out_are_the_defaults(write):
    def uncommented(line):
        return line.replace("# ", "", 1) if any(key in line for key in ("speedup:", "strict:", "warmup_s:")) else line

    assert [case.resolved for case in load(write("\n".join(map(uncommented, STARTER.splitlines())))).cases] == [
        case.resolved for case in load(write(STARTER)).cases]
