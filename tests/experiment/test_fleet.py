"""Replicas from YAML to the run folder."""

import csv
import json

import pytest
from tiny import write_experiment

from pagesim.cli.main import main
from pagesim.config import load
from pagesim.errors import ConfigError, InputError
from pagesim.experiment import run_experiment
from pagesim.experiment.attempt import start
from pagesim.report.files import csv_text
from pagesim.report.loaded import chosen, load_runs
from pagesim.report.notes import replica_lines, result_warnings
from pagesim.report.page import page_html
from pagesim.report.tables import sheets

PAGED = "[{kind: paged, block_size: 16}]"


def test_one_replica_gives_the_figures_that_no_replicas_give(tmp_path):
    with_key = run_experiment(load(write_experiment(tmp_path, keys="replicas: 1"))).metrics
    assert with_key == run_experiment(load(write_experiment(tmp_path))).metrics


def test_a_fleet_leaves_a_run_folder_whose_rows_say_which_replica_served_them(tmp_path):
    experiment = load(write_experiment(tmp_path, keys="replicas: {count: 2}", allocators=PAGED))
    document = run_experiment(experiment, folder=tmp_path / "run").metrics
    assert json.loads((tmp_path / "run" / "metrics.json").read_text()) == document
    (case,) = document["cases"]
    assert [one["requests"] for one in case["fleet"]["of_replicas"]] == [3, 2]
    assert case["requests"]["completed"] == 5
    rows = list(csv.DictReader((tmp_path / "run" / "requests.csv").open()))
    assert [row["replica"] for row in rows] == ["0", "1", "0", "1", "0"]


def test_a_fleets_run_folder_becomes_a_page_and_rows_of_a_csv(tmp_path):
    keys = "replicas: {count: 2}\nsweep: {replicas.routing: [round_robin, least_kv_used]}"
    document = run_experiment(load(write_experiment(tmp_path, keys=keys, allocators=PAGED)), folder=tmp_path / "run").metrics
    runs = load_runs([tmp_path / "run"])
    page = page_html(runs, chosen(runs, []))
    assert "fleet.together.blocked_by_fragmentation_share" in page
    rows = list(csv.DictReader(csv_text(document).splitlines()))
    assert [row["fleet.routing"] for row in rows] == ["round_robin", "least_kv_used"]
    assert not any("of_replicas" in name for name in rows[0])


def test_processes_and_threads_give_the_figures_that_one_gives(tmp_path):
    experiment = load(write_experiment(tmp_path, keys="sweep: {replicas.count: [2, 3]}"))
    assert run_experiment(experiment, jobs=2).metrics == run_experiment(experiment, jobs=1).metrics


def test_a_sweep_lays_numbers_and_rules_side_by_side(tmp_path):
    keys = "replicas: {count: 2}\nsweep: {replicas.routing: [round_robin, by_session]}"
    cases = load(write_experiment(tmp_path, keys=keys, allocators=PAGED)).cases
    assert [case.name for case in cases] == ["paged 16 routing=round_robin", "paged 16 routing=by_session"]
    assert [case.resolved["replicas"] for case in cases] == [{"count": 2, "routing": rule}
                                                             for rule in ("round_robin", "by_session")]


@pytest.mark.parametrize(("keys", "message"), [
    ("replicas: 0", "replicas must be at least 1, got 0"),
    ("replicas: {routing: round_robin}", "replicas.count is missing"),
    ("replicas: {count: 2, routing: random}", "routing must be one of round_robin"),
])
def test_a_mistake_in_the_key_is_told_at_its_place(tmp_path, keys, message):
    with pytest.raises(ConfigError, match=rf"config.yaml:\d+:\d+: {message}"):
        load(write_experiment(tmp_path, keys=keys))


def test_a_closed_loop_has_no_replicas(tmp_path):
    path = write_experiment(tmp_path, keys="replicas: 2")
    with pytest.raises(ConfigError, match="closed, whose users would choose a server each time"):
        load(path, ("trace.arrivals={kind: closed, users: 2}",))


def test_the_longest_cached_prefix_needs_a_prefix_cache(tmp_path):
    keys = "replicas: {count: 2, routing: longest_cached_prefix}"
    with pytest.raises(ConfigError, match=r"needs a prefix cache, and allocator 0 has none; give it prefix_cache: vllm or radix"):
        load(write_experiment(tmp_path, keys=keys, allocators=PAGED))
    load(write_experiment(tmp_path, keys=keys, allocators="[{kind: paged, prefix_cache: vllm}]"))


def test_a_rule_that_looks_at_the_memory_leaves_a_run_folder_too(tmp_path):
    keys = "replicas: {count: 2, routing: least_kv_used}"
    experiment = load(write_experiment(tmp_path, keys=keys, allocators=PAGED))
    (case,) = run_experiment(experiment, folder=tmp_path / "run").metrics["cases"]
    rows = list(csv.DictReader((tmp_path / "run" / "requests.csv").open()))
    first = [row["request"] for row in rows if row["replica"] == "0"]
    assert [one["requests"] for one in case["fleet"]["of_replicas"]] == [len(first), 5 - len(first)]
    owners = {change[3] for change in json.loads((tmp_path / "run" / "events.json").read_text())["changes"]}
    assert owners - {None} == set(map(int, first))


def test_the_first_replicas_events_name_requests_as_requests_csv_does(tmp_path):
    experiment = load(write_experiment(tmp_path, keys="replicas: 2", allocators=PAGED))
    run_experiment(experiment, folder=tmp_path / "run")
    owners = {change[3] for change in json.loads((tmp_path / "run" / "events.json").read_text())["changes"]}
    assert owners - {None} == {0, 2, 4}


def test_what_shows_one_memory_says_that_there_are_several(tmp_path):
    (case,) = load(write_experiment(tmp_path, keys="replicas: 2", allocators=PAGED)).cases
    with pytest.raises(InputError, match="2 replicas.*--set replicas=1"):
        start(case)


def test_a_snapshot_of_a_fleet_is_refused_before_anything_runs(tmp_path, monkeypatch, capsys):
    config = write_experiment(tmp_path, keys="replicas: 2", allocators=PAGED)
    monkeypatch.setattr("sys.argv", ["pagesim", "simulate", str(config), "-o", str(tmp_path / "run"), "--snapshot", "peak"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2 and "2 replicas" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_tables_and_notes_speak_of_replicas_where_there_are_some(tmp_path):
    for replicas in (1, 2):
        experiment = load(write_experiment(tmp_path, keys=f"replicas: {replicas}"))
        document = run_experiment(experiment).metrics
        assert any("of replicas" in line for line in result_warnings(document)) == (replicas == 2)
        assert bool(replica_lines(experiment.cases)) == (replicas == 2)
        (sheet,) = sheets(document)
        assert (("Replicas side by side",) in sheet.rows) == (replicas == 2)
