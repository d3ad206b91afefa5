"""experiment: cases over processes, failures, resuming, and the Python API."""

import dataclasses
import json
import os
import subprocess
import sys

import pytest
from tiny import write_experiment

import pagesim
from pagesim.config import load
from pagesim.errors import InputError, PagesimError, TraceError
from pagesim.experiment import run_experiment
from pagesim.report.folder import case_folder
from pagesim.report.loaded import load_runs

SWEEP = "sweep: {allocators.1.block_size: [8, 16, 32]}"


def with_trace(case, path):
    return dataclasses.replace(case, trace=dataclasses.replace(case.trace, path=str(path)))


def test_processes_give_the_figures_that_one_process_gives(tmp_path):
    experiment = load(write_experiment(tmp_path, keys=SWEEP))
    alone, together = run_experiment(experiment, jobs=1), run_experiment(experiment, jobs=2, keep_results=True)
    assert together.metrics == alone.metrics
    assert list(together.results) == [case.name for case in experiment.cases] and alone.results == {}


def test_a_case_that_fails_is_recorded_and_the_others_go_on(tmp_path):
    experiment = load(write_experiment(tmp_path, keys=SWEEP))
    (tmp_path / "bad.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,x,1\n")
    cases = (experiment.cases[0], with_trace(experiment.cases[1], tmp_path / "bad.csv"), *experiment.cases[2:])
    for jobs in (1, 2):
        ran = run_experiment(dataclasses.replace(experiment, cases=cases), jobs=jobs)
        assert [case["name"] for case in ran.metrics["cases"]] == [cases[k].name for k in (0, 2, 3)]
        (failed,) = ran.metrics["failed"]
        assert failed["name"] == cases[1].name and "bad.csv:2" in failed["error"]


def test_an_error_that_all_cases_share_is_raised_as_itself(tmp_path):
    experiment = load(write_experiment(tmp_path, keys=SWEEP))
    (tmp_path / "trace.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,x,1\n")
    with pytest.raises(TraceError, match="trace.csv:2"):
        run_experiment(experiment)


class Deadly:
    """Ends the process that unpickles it."""

    def __reduce__(self):
        return os._exit, (7,)


def test_a_worker_that_dies_costs_its_own_case_only(tmp_path):
    experiment = load(write_experiment(tmp_path, keys=SWEEP))
    deadly = dataclasses.replace(experiment.cases[1], durations=Deadly())
    cases = (experiment.cases[0], deadly, *experiment.cases[2:])
    ran = run_experiment(dataclasses.replace(experiment, cases=cases), jobs=2)
    assert len(ran.metrics["cases"]) == 3
    assert ran.metrics["failed"] == [
        {"name": deadly.name, "error": "its process ended with exit code 7; what it wrote above is the reason"}]


def test_resume_takes_finished_cases_and_runs_the_rest(tmp_path, monkeypatch):
    experiment, run = load(write_experiment(tmp_path, keys=SWEEP)), tmp_path / "run"
    whole = run_experiment(experiment, folder=run).metrics
    kept, lost = sorted((run / "cases").glob("*/case-*.json"))[:2]
    lost.unlink()
    # A figure that shows that the case is not run again.
    kept.write_text(kept.read_text().replace('"preemptions": 0', '"preemptions": 12345'))
    resumed = run_experiment(experiment, folder=run, resume=True).metrics
    assert sum(case["preemptions"] == 12345 for case in resumed["cases"]) == 1
    assert [case["name"] for case in resumed["cases"]] == [case["name"] for case in whole["cases"]]
    assert run_experiment(experiment, folder=run).metrics == whole  # without resume everything runs


@pytest.mark.parametrize("name", ["requests.csv", "timeline.csv", "events.json", "config.yaml"])
@pytest.mark.parametrize("harm", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:-5])])
def test_resume_runs_a_case_again_of_which_a_file_is_missing_or_cut(tmp_path, name, harm):
    experiment, run = load(write_experiment(tmp_path, keys=SWEEP)), tmp_path / "run"
    run_experiment(experiment, folder=run)
    path = next((run / "cases").glob(f"paged*16/{name}"))
    before = path.read_bytes()
    harm(path)
    run_experiment(experiment, folder=run, resume=True)
    assert path.read_bytes() == before


def test_halves_of_files_are_swept_away_unless_somebody_still_writes_them(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left, written = (run / f"requests.csv.{process}.part" for process in (dead.pid, os.getppid()))
    for path in (left, written):
        path.write_text("half")
    run_experiment(load(write_experiment(tmp_path, allocators="[{kind: paged}]")), folder=run, resume=True)
    assert not left.exists() and written.exists()


def test_resume_does_not_take_another_experiments_result(tmp_path):
    config, run = write_experiment(tmp_path), tmp_path / "run"
    run_experiment(load(config), folder=run)
    assert run_experiment(load(config, ("seed=1",)), folder=run, resume=True).metrics["cases"]
    longer = load(config, ("durations.step_s=0.5",))
    assert run_experiment(longer, folder=run, resume=True).metrics == run_experiment(longer).metrics
    write_experiment(tmp_path, rows=((0.0, 9, 9),))  # the same config, another trace
    assert run_experiment(load(config), folder=run, resume=True).metrics["trace"]["requests"] == 1


def test_resume_runs_a_case_again_whose_files_another_run_replaced(tmp_path):
    config, run = write_experiment(tmp_path, allocators="[{kind: paged}]"), tmp_path / "run"
    first, two = load(config), load(config, ("allocators=[{kind: contiguous}, {kind: paged}]",))
    run_experiment(first, folder=run)
    files = {name: (run / name).read_text() for name in ("config.yaml", "requests.csv", "timeline.csv", "events.json")}
    for other in (load(config, ("trace.limit=2",)), two):
        run_experiment(other, folder=run)
        run_experiment(first, folder=run, resume=True)
        assert {name: (run / name).read_text() for name in files} == files


def test_resume_runs_a_case_again_whose_model_or_figures_changed(tmp_path):
    model = {"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100,
             "num_attention_heads": 4, "intermediate_size": 128, "max_position_embeddings": 64}
    config = write_experiment(tmp_path, keys="model: model.json\nsweep: {seed: [0, 1]}")
    for layers in (2, 4):
        (tmp_path / "model.json").write_text(json.dumps(model | {"num_hidden_layers": layers}))
        resumed = run_experiment(load(config), folder=tmp_path / "run", resume=True).metrics
        assert resumed == run_experiment(load(config)).metrics
        for path in (tmp_path / "run" / "cases").glob("*/case-*.json"):
            path.write_text(path.read_text()[:100])


@pytest.mark.parametrize(("config", "trace"), [("config.yaml", "trace.csv"), ("other.yaml", "requests.csv")])
def test_a_run_is_never_written_over_its_own_config_or_trace(tmp_path, config, trace):
    path = write_experiment(tmp_path).rename(tmp_path / config)
    (tmp_path / "trace.csv").rename(tmp_path / trace)
    before = {each: each.read_text() for each in tmp_path.iterdir()}
    with pytest.raises(InputError, match="the run folder would be written over it; give another with -o"):
        run_experiment(load(path, (f"trace.path={tmp_path / trace}",)), folder=tmp_path)
    assert {each: each.read_text() for each in tmp_path.iterdir()} == before


def test_a_case_with_a_long_name_and_a_folder_that_is_no_utf8_are_written_and_read_back(tmp_path):
    keys = "sweep: {trace.arrivals: [{kind: poisson, rate: 1}, {kind: gamma, rate: 1, cv: 1.0000000000000002}]}"
    folders = [case_folder(tmp_path, "paged 16 " + "x" * 300 + end, 2) for end in "ab"]
    assert folders[0] != folders[1] and max(len(folder.name) for folder in folders) < 255
    run = tmp_path / "run\udcff"
    ran = run_experiment(load(write_experiment(tmp_path, keys=keys)), folder=run)
    assert [case.entry for case in load_runs([run])[0].cases] == ran.metrics["cases"]


def test_progress_ends_with_every_case(tmp_path):
    experiment, seen = load(write_experiment(tmp_path, keys=SWEEP)), []
    for jobs in (1, 2):
        seen.clear()
        run_experiment(experiment, jobs=jobs, on_progress=seen.append)
        assert {progress.case for progress in seen if progress.ended} == {0, 1, 2, 3}


def test_the_api_takes_a_path_an_experiment_or_a_case_and_returns_figures_and_results(tmp_path):
    config = write_experiment(tmp_path)
    experiment = load(config)
    by_path, by_experiment = pagesim.simulate(config), pagesim.simulate(experiment)
    one = pagesim.simulate(experiment.cases[1])
    assert by_path.metrics == by_experiment.metrics and one.metrics["cases"] == by_path.metrics["cases"][1:]
    assert by_path.results["paged 16"].requests.finish_s.shape == (5,)
    assert pagesim.simulate(config, ("trace.limit=2",), folder=tmp_path / "run").metrics["trace"]["requests"] == 2
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["trace"]["requests"] == 2


def test_lost_rows_are_an_error(tmp_path):
    from pagesim.experiment.summary import trace_facts
    from pagesim.trace import read_trace

    write_experiment(tmp_path)
    trace = read_trace(tmp_path / "trace.csv")
    lost = dataclasses.replace(trace, source=dataclasses.replace(trace.source, read=6))
    with pytest.raises(PagesimError, match="rows were lost: 6 read, but 0 dropped . 5 kept"):
        trace_facts(lost)
