import gzip
import json

import pytest
from tiny import write_experiment

# Three sequences that grow to 40 tokens each where only 96 fit.
CROWD = {"rows": ((0.0, 20, 21), (0.0, 20, 21), (0.1, 20, 21)), "kv_tokens": 96}


def test_the_file_holds_every_case_as_a_process_and_every_preemption_as_an_instant(tmp_path, pagesim):
    config = write_experiment(tmp_path, **CROWD)
    ended = pagesim("simulate", config, "--export-trace", tmp_path / "out.json.gz")
    assert ended.code == 0 and "out.json.gz" in ended.err
    events = json.loads(gzip.decompress((tmp_path / "out.json.gz").read_bytes()))["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert list(names) == [1, 2] and "paged" in names[2]
    counted = json.loads(pagesim("simulate", config, "--json").out)["cases"][1]["preemptions"]
    assert len([event for event in events if event["name"] == "preempted" and event["pid"] == 2]) == counted > 0
    counters = [event["args"]["count"] for event in events if event["name"] == "preemptions" and event["pid"] == 2]
    assert sum(counters) == counted


@pytest.mark.parametrize("name", ["out.gz", "out.txt", "out"])
def test_a_name_that_viewers_do_not_take_is_refused_before_the_run(tmp_path, pagesim, name):
    ended = pagesim("simulate", write_experiment(tmp_path), "--export-trace", tmp_path / name)
    assert ended.code == 2 and "must end in .json or .json.gz" in ended.err and ended.out == ""


def test_a_folder_that_is_not_there_is_said_before_the_run(tmp_path, pagesim):
    ended = pagesim("simulate", write_experiment(tmp_path), "--export-trace", tmp_path / "none" / "out.json")
    assert ended.code == 2 and "there is no folder" in ended.err and ended.out == ""
