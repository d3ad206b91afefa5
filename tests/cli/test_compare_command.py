"""pagesim compare: two run folders, or a measured timeline beside a run."""

import json
import shutil
from pathlib import Path

import pytest
from tiny import write_experiment

PAGED = "[{kind: paged, block_size: 16}]"
MEASURED = Path(__file__).parents[2] / ".." / "shared" / "traces" / "vllm_rtx4090_llama31_8b_timeseries.csv"


@pytest.fixture
def runs(pagesim, tmp_path):
    config = write_experiment(tmp_path, allocators=PAGED)
    pagesim("simulate", config, "-q", "-o", tmp_path / "a")
    pagesim("simulate", config, "-q", "-o", tmp_path / "b", "--set", "allocators.0.block_size=32")
    return tmp_path / "a", tmp_path / "b"


def test_figures_that_differ_are_shown_with_their_relative_difference(pagesim, runs):
    ended = pagesim("compare", *runs)
    assert ended.code == 0 and "capacity block_size" in ended.out and "+100.00 %" in ended.out
    assert "changed: allocator.block_size 16 → 32" in ended.out
    assert "peak running" not in ended.out and "figures are equal" in ended.out
    assert "peak running" in pagesim("compare", *runs, "--all").out


def test_json_has_every_figure_of_both(pagesim, runs):
    (pair,) = json.loads(pagesim("compare", *runs, "--json").out)["cases"]
    assert (pair["a"], pair["b"]) == ("paged 16", "paged 32")
    figures = {row["figure"]: row for row in pair["figures"]}
    assert figures["capacity.blocks"] == {"figure": "capacity.blocks", "a": 10, "b": 5, "relative": -0.5,
                                          "better": None}


def test_a_run_equals_itself(pagesim, runs):
    (pair,) = json.loads(pagesim("compare", runs[0], runs[0] / "metrics.json", "--json").out)["cases"]
    assert {row["relative"] for row in pair["figures"]} <= {0.0, None}


def test_a_folder_without_a_run_is_refused(pagesim, tmp_path, runs):
    ended = pagesim("compare", runs[0], tmp_path / "none")
    assert ended.code == 2 and f"{tmp_path}/none: No such file or directory; a run folder is what" in ended.err
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "metrics.json").write_text('{"schema_version": 0}')
    ended = pagesim("compare", runs[0], tmp_path / "old")
    assert ended.code == 2 and "schema_version is 0, this pagesim reads 1; run the simulation again" in ended.err


def test_a_measured_timeline_is_laid_beside_a_run_in_either_order(pagesim, tmp_path, runs):
    measured = tmp_path / "measured.csv"
    measured.write_text("time_s,running,waiting,kv_pct\n0.02,1,0,20\n0.12,3,0,60\n9,0,0,0\n")
    both = json.loads(pagesim("compare", runs[0], measured, "--json").out)
    assert both == json.loads(pagesim("compare", measured, runs[0], "--json").out)
    assert [moment["run_running"] for moment in both["moments"]] == [1.0, 3.0, 0.0]
    table = pagesim("compare", runs[0], measured).out
    assert "block use" in table and "mean absolute difference" in table


def test_a_renamed_case_is_found_by_what_it_is_and_its_change_is_judged(pagesim, tmp_path):
    config = write_experiment(tmp_path, rows=tuple((0.01 * k, 40, 20) for k in range(30)))
    for name, changes in (("a", ()), ("b", ("--set", "allocators.1.block_size=8", "--set", "durations.step_s=0.1"))):
        pagesim("simulate", config, "-q", "-o", tmp_path / name, *changes)
    out = " ".join(pagesim("compare", tmp_path / "a", tmp_path / "b").out.split())
    assert "A: paged 16; B: paged 8 changed: durations.step_s 0.05 → 0.1, allocator.block_size 16 → 8" in out
    assert "requests/s" in out and "%, worse)" in out
    document = json.loads(pagesim("compare", tmp_path / "a", tmp_path / "b", "--json").out)
    assert document["schema_version"] == 1 and len(document["cases"]) == 2
    one = json.loads(pagesim("compare", tmp_path / "a", tmp_path / "a", "--case", "paged 16", "--case",
                             "contiguous max_model_len first_fit", "--json").out)
    assert [(pair["a"], pair["b"]) for pair in one["cases"]] == [("paged 16", "contiguous max_model_len first_fit")]
    assert "has no case 'x'; it has" in pagesim("compare", tmp_path / "a", tmp_path / "b", "--case", "x").err


def test_what_has_no_partner_is_named(pagesim, tmp_path, runs):
    both = tmp_path / "both"
    pagesim("simulate", write_experiment(tmp_path / "x"), "-q", "-o", both)
    out = " ".join(pagesim("compare", both, runs[0]).out.split())
    assert f"only in {both}, compared with nothing: contiguous max_model_len first_fit" in out


def test_a_damaged_timeline_is_named(pagesim, tmp_path, runs):
    (tmp_path / "measured.csv").write_text("time_s,running,waiting,kv_pct\n0,1,0,20\n")
    copy = tmp_path / "damaged"
    shutil.copytree(runs[0], copy)
    (copy / "timeline.csv").write_bytes((copy / "timeline.csv").read_bytes()[:-5])
    ended = pagesim("compare", copy, tmp_path / "measured.csv")
    assert ended.code == 2 and f"{copy}/timeline.csv: not a timeline: " in ended.err


def test_with_several_cases_one_must_be_chosen(pagesim, tmp_path):
    pagesim("simulate", write_experiment(tmp_path), "-q", "-o", tmp_path / "run")
    measured = tmp_path / "measured.csv"
    measured.write_text("time_s,running,waiting,kv_pct\n0.02,1,0,20\n")
    ended = pagesim("compare", tmp_path / "run", measured)
    assert (ended.code == 2
            and "has 2 cases; choose one with --case: contiguous max_model_len first_fit, paged 16" in ended.err)
    assert pagesim("compare", tmp_path / "run", measured, "--case", "paged 16").code == 0
    assert "has no case 'paged 17'" in pagesim("compare", tmp_path / "run", measured, "--case", "paged 17").err


def test_two_measured_timelines_are_refused(pagesim, tmp_path):
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("time_s,running,waiting,kv_pct\n0,1,0,20\n")
    ended = pagesim("compare", tmp_path / "a.csv", tmp_path / "b.csv")
    assert ended.code == 2 and "one of the two must be a run folder" in ended.err


@pytest.mark.skipif(not MEASURED.exists(), reason="needs the recorded vLLM run in ../shared/traces")
def test_the_recorded_vllm_run_can_be_laid_beside_a_run(pagesim, runs):
    both = json.loads(pagesim("compare", runs[0], MEASURED, "--json").out)
    assert len(both["moments"]) == 184
    assert both["summary"]["running"]["measured_peak"] == 49 and both["summary"]["waiting"]["measured_peak"] == 234
    assert both["summary"]["block_use"]["measured_peak"] == 1.0
