"""pagesim sweep and merge: no case is lost, whatever ends it."""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from tiny import write_experiment

from pagesim.experiment.sweep import cases_of

PAGED = "[{kind: paged, block_size: 16}]"
GRID = "sweep: {allocators.0.block_size: [4, 8, 16], durations.step_s: [0.05, 0.1]}"


def table(folder) -> list[dict]:
    return list(csv.DictReader((folder / "table.csv").read_text().splitlines()))


def results(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "results").iterdir()}


@pytest.fixture
def config(tmp_path):
    return write_experiment(tmp_path, allocators=PAGED, keys=GRID)


def test_every_case_has_a_row_with_what_varies_and_the_figures_that_simulate_has(pagesim, config, tmp_path):
    ended = pagesim("sweep", config, "-o", tmp_path / "s")
    assert (ended.code, ended.out) == (0, "") and "6 of 6 cases have figures" in ended.err
    rows = table(tmp_path / "s")
    assert [(row["allocators.block_size"], row["durations.step_s"]) for row in rows] == [
        (size, step) for step in ("0.05", "0.1") for size in ("4", "8", "16")]
    whole = json.loads(pagesim("simulate", config, "--json").out)
    assert [float(row["utilization_share"]) for row in rows] == [case["utilization"] for case in whole["cases"]]


def test_resume_runs_what_is_missing_and_what_failed_and_nothing_else(pagesim, config, tmp_path):
    folder = tmp_path / "s"
    assert pagesim("sweep", config, "-o", folder).code == 0
    before = results(folder)
    gone, cut, failed, *kept = sorted(before)
    (folder / "results" / gone).unlink()
    (folder / "results" / cut).write_bytes(before[cut][:100])
    (folder / "results" / failed).write_text(json.dumps({"address": failed.removesuffix(".json"), "error": "once"}))
    times = {name: (folder / "results" / name).stat().st_mtime_ns for name in kept}
    assert pagesim("sweep", config, "-o", folder, "--resume").code == 0
    assert results(folder) == before
    assert {name: (folder / "results" / name).stat().st_mtime_ns for name in kept} == times


def test_a_case_that_fails_is_recorded_with_its_error_and_stops_nothing(pagesim, tmp_path):
    config = write_experiment(tmp_path, allocators=PAGED, keys="sweep: {trace.path: [trace.csv, bad.csv]}")
    (tmp_path / "bad.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,x,1\n")
    ended = pagesim("sweep", config, "-o", tmp_path / "s")
    assert ended.code == 1 and "bad.csv:2" in ended.err and "1 of 2 cases have figures, 1 failed" in ended.err
    assert [(row["state"], "bad.csv:2" in row["error"]) for row in table(tmp_path / "s")] == [("done", False), ("failed", True)]
    (tmp_path / "bad.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,3,1\n")
    assert pagesim("sweep", config, "-o", tmp_path / "s", "--resume").code == 0, "another trace, another address"


def test_parts_are_merged_into_what_one_run_gives(pagesim, config, tmp_path):
    assert pagesim("sweep", config, "-o", tmp_path / "whole").code == 0
    for part in ("1/2", "2/2"):
        ended = pagesim("sweep", config, "-o", tmp_path / part[0], "--shard", part)
        assert ended.code == 0 and "3 are left to other shards" in ended.err
    assert pagesim("merge", tmp_path / "1", tmp_path / "2", "-o", tmp_path / "merged").code == 0
    assert results(tmp_path / "merged") == results(tmp_path / "whole")
    assert table(tmp_path / "merged") == table(tmp_path / "whole")


def test_a_part_that_is_missing_or_of_another_sweep_is_refused(pagesim, config, tmp_path):
    assert pagesim("sweep", config, "-o", tmp_path / "1", "--shard", "1/2").code == 0
    ended = pagesim("merge", tmp_path / "1", "-o", tmp_path / "merged")
    assert ended.code == 1 and "has no result in any of the folders" in ended.err
    assert pagesim("sweep", config, "-o", tmp_path / "2", "--set", "seed=1").code == 0
    ended = pagesim("merge", tmp_path / "1", tmp_path / "2", "-o", tmp_path / "merged")
    assert ended.code == 2 and "different sweeps" in ended.err


def test_the_address_has_no_path_in_it(pagesim, config, tmp_path):
    other = write_experiment(tmp_path / "elsewhere", allocators=PAGED, keys=GRID)
    for place, each in (("a", config), ("b", other)):
        assert pagesim("sweep", each, "-o", tmp_path / place).code == 0
    assert results(tmp_path / "a") == results(tmp_path / "b")


def test_nothing_is_replaced_in_silence(pagesim, config, tmp_path):
    folder = tmp_path / "s"
    assert pagesim("sweep", config, "-o", folder).code == 0
    ended = pagesim("sweep", config, "-o", folder, "--set", "seed=1")
    assert ended.code == 2 and "holds another sweep" in ended.err and len(results(folder)) == 6
    assert pagesim("sweep", config, "-o", folder, "--set", "seed=1", "--force").code == 0
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("")
    assert "holds other files" in pagesim("sweep", config, "-o", tmp_path / "mine").err


def test_over_seeds_each_figure_has_its_mean_and_spread(pagesim, tmp_path):
    config = write_experiment(tmp_path, allocators=PAGED, keys="sweep: {seed: [1, 2, 3], allocators.0.block_size: [8, 16]}")
    config.write_text(config.read_text().replace("path: trace.csv", "path: trace.csv, arrivals: {kind: poisson, rate: 2}"))
    assert pagesim("sweep", config, "-o", tmp_path / "s").code == 0
    rows = list(csv.DictReader((tmp_path / "s" / "seeds.csv").read_text().splitlines()))
    queue = {row["allocators.block_size"]: row for row in rows if row["figure"] == "time.end_s"}
    assert set(queue) == {"8", "16"}
    ends = [float(row["time.end_s"]) for row in table(tmp_path / "s") if row["allocators.block_size"] == "8"]
    assert float(queue["8"]["mean"]) == pytest.approx(sum(ends) / 3) and float(queue["8"]["min"]) == min(ends) < max(ends)


def test_a_dry_run_lists_the_cases_and_writes_nothing(pagesim, config, tmp_path):
    ended = pagesim("sweep", config, "-o", tmp_path / "s", "--dry-run")
    assert len(ended.out.splitlines()) == 6 and not (tmp_path / "s").exists()


@pytest.mark.parametrize("command", ["sweep", "simulate"])
def test_millions_of_combinations_are_refused_at_once_with_their_number(pagesim, tmp_path, command):
    many = list(range(1, 301))
    config = write_experiment(tmp_path, allocators=PAGED,
                              keys=f"sweep: {{seed: {many}, allocators.0.block_size: {many}, max_model_len: {many}}}")
    ended = pagesim(command, config, "-o", tmp_path / "s", "--dry-run")
    assert ended.code == 2 and "27,000,000 combinations" in ended.err


@pytest.mark.parametrize("shard", ["0/2", "3/2", "2", "a/b"])
def test_a_shard_that_cannot_be_is_refused(pagesim, config, tmp_path, shard):
    ended = pagesim("sweep", config, "-o", tmp_path / "s", "--shard", shard)
    assert ended.code == 2 and "i/N" in ended.err and not (tmp_path / "s").exists()


@pytest.mark.skipif(os.name != "posix", reason="needs signals between processes")
def test_what_is_killed_loses_the_cases_under_way_and_is_resumed_to_the_same_bytes(pagesim, tmp_path):
    rows = [(0.01 * k, 20 + k % 40, 5) for k in range(3_000)]
    config = write_experiment(tmp_path, rows=rows, allocators=PAGED, keys=f"sweep: {{seed: {list(range(40))}}}")
    config.write_text(config.read_text().replace("path: trace.csv", "path: trace.csv, arrivals: {kind: poisson, rate: 50}"))
    command = [sys.executable, "-c", "from pagesim.cli.main import main; main()", "sweep", config, "-o", tmp_path / "s",
               "--jobs", "2"]
    program = subprocess.Popen(command, env=os.environ | {"NUMBA_DISABLE_JIT": "0"}, stderr=subprocess.PIPE,
                               start_new_session=True)
    while program.poll() is None and len(list((tmp_path / "s").glob("results/*.json"))) < 3:
        time.sleep(0.02)
    os.killpg(program.pid, signal.SIGKILL)
    program.communicate()
    kept = results(tmp_path / "s")
    assert 3 <= len(kept) < 40, "it was killed in the middle"
    assert pagesim("sweep", config, "-o", tmp_path / "s", "--resume").code == 0
    assert pagesim("sweep", config, "-o", tmp_path / "whole").code == 0
    now = results(tmp_path / "s")
    assert now == results(tmp_path / "whole") and all(now[name] == kept[name] for name in kept if name in now)


def test_any_figure_is_drawn_along_any_key_over_seeds_its_mean(pagesim, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'pagesim[report]'")
    config = write_experiment(tmp_path, allocators=PAGED, keys="sweep: {seed: [1, 2], allocators.0.block_size: [4, 8, 16]}")
    config.write_text(config.read_text().replace("path: trace.csv", "path: trace.csv, arrivals: {kind: poisson, rate: 2}"))
    folder = tmp_path / "s"
    assert pagesim("sweep", config, "-o", folder).code == 0
    seen = {case.name: case for case in cases_of(folder)}
    assert list(seen) == ["paged 4", "paged 8", "paged 16"]
    ends = [float(row["time.end_s"]) for row in table(folder) if row["allocators.block_size"] == "8"]
    assert seen["paged 8"].entry["time"]["end_s"] == pytest.approx(sum(ends) / 2)
    ended = pagesim("plot", folder, "--kind", "sweep", "--figure", "time.end_s", "--figure", "latency.ttft.p99_s", "-o",
                    tmp_path / "curve.svg")
    assert ended.code == 0
    drawn = (tmp_path / "curve.svg").read_text()
    assert "time.end_s" in drawn and "latency.ttft.p99_s" in drawn and "allocators.block_size" in drawn
    ended = pagesim("plot", folder, "--kind", "sweep", "--figure", "latency.ttft.p99")
    assert ended.code == 2 and "did you mean latency.ttft.p99_s" in ended.err
