"""pagesim simulate: what lands on stdout and stderr, in the run folder, and in the exit code."""

import csv
import errno
import io
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from tiny import write_experiment

import pagesim as pagesim_package
from pagesim.core.files import replacing

PAGED = "[{kind: paged, block_size: 16}]"
CASE_KEYS = {"name", "allocator", "requests", "time", "ledger", "sosp23", "utilization", "internal_fragmentation",
             "external_fragmentation", "peak", "mean", "preemptions", "recomputed_tokens", "swapped_blocks",
             "copied_tokens", "throughput", "latency"}


def refuse(constant):
    raise ValueError(f"{constant} is not JSON")


def test_a_run_begins_with_its_memory_says_what_became_of_the_rows_and_ends_in_a_table(pagesim, tmp_path):
    ended = pagesim("simulate", write_experiment(tmp_path))
    lines = [line for line in ended.out.splitlines() if line]
    assert ended.code == 0 and ended.err == ""
    assert lines[0] == "KV cache: 160 tokens, 10 blocks of 16; maximum concurrency at 64 tokens per request: 2.50x"
    assert lines[1] == "trace: plain, 5 rows read = 0 dropped + 5 kept = 5 completed + 0 rejected + 0 unfinished"
    assert any(line.startswith(" token use") for line in lines)


def test_sentences_stand_above_the_table_and_explanations_below_when_asked_for(pagesim, tmp_path):
    config = write_experiment(tmp_path)
    plain, explained = pagesim("simulate", config), pagesim("simulate", config, "--explain")
    above, below = plain.out.split(" token use", 1)
    assert all(f"\n{name}: " in above for name in ("contiguous max_model_len first_fit", "paged 16"))
    assert "requests at once" not in below and "slots that hold a token" not in plain.out
    assert explained.out.startswith(plain.out.rstrip()) and "\n  token use: slots that hold a token" in explained.out
    assert "tables" in pagesim("simulate", config, "--json", "--explain").err


def test_json_is_one_strict_object_with_the_promised_keys_and_nothing_else(pagesim, tmp_path):
    ended = pagesim("simulate", write_experiment(tmp_path), "--json")
    document = json.loads(ended.out, parse_constant=refuse)
    assert (ended.code, ended.err) == (0, "")
    assert {"schema_version", "trace", "capacity", "cases"} <= set(document)
    assert {"format", "read", "dropped", "requests", "sha256"} <= set(document["trace"])
    assert {"slots", "bytes", "kv_bytes_per_token", "blocks", "max_concurrency"} <= set(document["capacity"])
    for case in document["cases"]:
        assert CASE_KEYS <= set(case)
        assert set(case["ledger"]) == set(case["sosp23"]) == {"run", "busy", "queued", "saturated"}
        assert set(case["latency"]) == {"queue", "ttft", "tpot", "e2e"}
    assert ended.out == pagesim("simulate", tmp_path / "config.yaml", "--format", "json").out


def test_what_all_cases_share_stands_on_top_and_what_differs_is_null_there(pagesim, tmp_path):
    config = write_experiment(tmp_path, keys="sweep: {allocators.1.block_size: [16, 32]}")
    document = json.loads(pagesim("simulate", config, "--json").out)
    assert document["capacity"]["slots"] == 160 and document["capacity"]["blocks"] is None
    assert [case["capacity"]["blocks"] for case in document["cases"]] == [None, 10, 5]
    assert document["trace"] == document["cases"][0]["trace"]


def test_quiet_leaves_the_tables_alone(pagesim, tmp_path):
    config = write_experiment(tmp_path, kv_tokens=48)
    assert "not even one full-length request" in pagesim("simulate", config).err
    ended = pagesim("simulate", config, "-q")
    assert ended.err == "" and "KV cache" not in ended.out and "token use" in ended.out


def test_a_pipe_gets_whole_lines_however_many_columns_a_table_has(pagesim, tmp_path):
    config = write_experiment(tmp_path, keys="sweep: {allocators.1.block_size: [1, 2, 4, 8, 16]}")
    lines = pagesim("simulate", config).out.splitlines()
    (heading,) = [line for line in lines if "preemptions" in line]
    assert heading.split() == (
        "case completed running, mean running, peak waiting, mean waiting, peak waits for preemptions requests/s output tokens/s"
    ).split()


def test_csv_and_markdown_hold_the_same_cases(pagesim, tmp_path):
    config = write_experiment(tmp_path)
    rows = list(csv.DictReader(io.StringIO(pagesim("simulate", config, "--format", "csv").out)))
    assert [row["name"] for row in rows] == ["contiguous max_model_len first_fit", "paged 16"]
    markdown = pagesim("simulate", config, "--format", "markdown").out
    assert "|  | contiguous max_model_len first_fit | paged 16 |" in markdown
    assert f"{100 * float(rows[1]['utilization_share']):.2f} |" in markdown


def test_two_forms_at_once_are_refused(pagesim, tmp_path):
    ended = pagesim("simulate", write_experiment(tmp_path), "--json", "--format", "csv")
    assert (ended.code == 2
            and ended.err == "pagesim: --json and --format csv ask for two forms at once; give one of them\n")


def test_a_run_in_which_nothing_completed_exits_1_with_complete_output(pagesim, tmp_path):
    config = write_experiment(tmp_path, max_model_len=4)
    ended = pagesim("simulate", config, "--json")
    document = json.loads(ended.out, parse_constant=refuse)
    assert ended.code == 1 and "all 5 requests were rejected" in ended.err
    assert [case["requests"]["rejected"] for case in document["cases"]] == [5, 5]
    assert all(value is None for value in document["cases"][0]["latency"]["e2e"].values())
    assert "token use" in pagesim("simulate", config).out


def test_a_mistake_is_one_message_and_exit_code_2(pagesim, tmp_path):
    config = write_experiment(tmp_path)
    config.write_text(config.read_text().replace("block_size", "block_sise"))
    ended = pagesim("simulate", config)
    assert ended.code == 2 and ended.out == ""
    assert ended.err.startswith(f"pagesim: {config}:6:") and "did you mean 'block_size'?" in ended.err
    assert pagesim("simulate", tmp_path / "absent.yaml").code == 2


def test_set_replaces_a_key(pagesim, tmp_path):
    config = write_experiment(tmp_path, allocators=PAGED)
    document = json.loads(pagesim("simulate", config, "--json", "--set", "allocators.0.block_size=32", "--set",
                                  "trace.limit=2").out)
    assert document["capacity"]["block_size"] == 32 and document["trace"]["requests"] == 2


def test_a_dry_run_lists_the_cases_and_runs_none(pagesim, tmp_path):
    config = write_experiment(tmp_path, keys="sweep: {allocators.1.block_size: [16, 32]}")
    ended = pagesim("simulate", config, "--dry-run", "-o", tmp_path / "run")
    assert ended.out.splitlines() == ["contiguous max_model_len first_fit", "paged 16", "paged 32"]
    assert not (tmp_path / "run").exists()


def test_the_run_folder_of_one_case_holds_all_that_made_it_and_its_config_gives_the_same_figures(pagesim, tmp_path):
    run = tmp_path / "run"
    ended = pagesim("simulate", write_experiment(tmp_path, allocators=PAGED), "-o", run)
    assert ended.code == 0 and ended.err == f"written to {run}/\n"
    names = {path.name for path in run.iterdir()}
    assert {"config.yaml", "environment.json", "metrics.json", "requests.csv", "timeline.csv", "events.json"} < names
    environment = json.loads((run / "environment.json").read_text())
    assert {"pagesim", "numpy", "numba", "python"} <= set(environment["versions"]) and environment["seeds"] == [0]
    assert list(environment["traces"].values()) == [json.loads((run / "metrics.json").read_text())["trace"]["sha256"]]
    assert len((run / "requests.csv").read_text().splitlines()) == 6
    again = pagesim("simulate", run / "config.yaml", "--json")
    assert again.out == (run / "metrics.json").read_text()


def test_the_folders_of_several_cases_each_have_a_config_that_runs(pagesim, tmp_path):
    run = tmp_path / "run"
    assert pagesim("simulate", write_experiment(tmp_path), "-o", run).code == 0
    folders = sorted(path.name for path in (run / "cases").iterdir())
    assert folders == ["contiguous+max_model_len+first_fit", "paged+16"]
    assert set(yaml.safe_load((run / "config.yaml").read_text())) == {"contiguous max_model_len first_fit", "paged 16"}
    document = json.loads((run / "metrics.json").read_text())
    again = json.loads(pagesim("simulate", run / "cases" / "paged+16" / "config.yaml", "--json").out)
    assert again["cases"] == [document["cases"][1]]
    assert json.loads(pagesim("simulate", run / "config.yaml", "--json").out) == document
    fewer = pagesim("simulate", run / "config.yaml", "--set", "trace.limit=2", "--json")
    assert [case["requests"]["completed"] for case in json.loads(fewer.out)["cases"]] == [2, 2]
    wrong = pagesim("simulate", run / "config.yaml", "--set", "trace.limt=2")
    assert wrong.code == 2 and "did you mean 'limit'" in wrong.err


@pytest.mark.parametrize("file", ["requests.csv", "metrics.json"])
def test_a_full_disk_costs_the_folder_and_not_the_table(pagesim, tmp_path, monkeypatch, file):
    def full(path, mode="w"):
        if path.name == file:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return replacing(path, mode)

    config, run = write_experiment(tmp_path, allocators=PAGED), tmp_path / "run"
    plain = pagesim("simulate", config)
    for module in ("folder", "files"):
        monkeypatch.setattr(f"pagesim.report.{module}.replacing", full)
    ended = pagesim("simulate", config, "-o", run)
    assert (ended.code, ended.out) == (2, plain.out)
    assert f"{run / file}: No space left on device" in ended.err and "--resume" in ended.err
    assert not (run / file).exists()
    monkeypatch.undo()
    assert pagesim("simulate", config, "-o", run, "--resume").code == 0


def test_metrics_are_byte_identical_from_run_to_run(pagesim, tmp_path):
    config = write_experiment(tmp_path)
    for name in ("one", "two"):
        pagesim("simulate", config, "-o", tmp_path / name, "-q")
    assert (tmp_path / "one" / "metrics.json").read_bytes() == (tmp_path / "two" / "metrics.json").read_bytes()


def test_a_failed_case_is_told_however_quiet(pagesim, tmp_path):
    config = write_experiment(tmp_path, keys="sweep: {trace.path: [trace.csv, bad.csv]}", allocators=PAGED)
    (tmp_path / "bad.csv").write_text("prompt_tokens,output_tokens\n1,x\n")
    ended = pagesim("simulate", config, "-q")
    assert ended.code == 1 and ended.err.startswith("pagesim: error: paged 16 path=bad.csv: ")


def test_resume_needs_a_folder(pagesim, tmp_path):
    ended = pagesim("simulate", write_experiment(tmp_path), "--resume")
    assert ended.code == 2 and "give it with -o DIR" in ended.err


def test_a_run_folder_that_cannot_be_made_is_an_error_with_its_path(pagesim, tmp_path):
    (tmp_path / "file").write_text("")
    ended = pagesim("simulate", write_experiment(tmp_path / "x"), "-o", tmp_path / "file" / "run")
    assert ended.code == 2 and f"{tmp_path}/file/run: cannot write the run folder" in ended.err


def test_a_file_that_cannot_be_written_is_an_error_with_its_path(pagesim, tmp_path):
    (tmp_path / "run" / "requests.csv").mkdir(parents=True)
    ended = pagesim("simulate", write_experiment(tmp_path, allocators=PAGED), "-o", tmp_path / "run")
    assert ended.code == 2 and "requests.csv" in ended.err and "Is a directory" in ended.err


def test_ctrl_c_shows_what_has_finished_and_exits_130(pagesim, tmp_path, monkeypatch):
    from pagesim.allocators import Paged
    from pagesim.engine.run import Run

    advance = Run.advance

    def interrupted_in_the_second(run, max_steps=None):
        if isinstance(run.setup.allocator, Paged):
            raise KeyboardInterrupt
        return advance(run, max_steps)

    monkeypatch.setattr(Run, "advance", interrupted_in_the_second)
    ended = pagesim("simulate", write_experiment(tmp_path), "-o", tmp_path / "run", "--json")
    document = json.loads(ended.out)
    assert ended.code == 130 and "interrupted" in ended.err
    assert [case["name"] for case in document["cases"]] == ["contiguous max_model_len first_fit"]
    assert document["failed"] == [{"name": "paged 16", "error": "interrupted before it ended"}]
    assert json.loads((tmp_path / "run" / "metrics.json").read_text()) == document


@pytest.mark.parametrize(
    "arguments, text", [(("--version",), "pagesim 0."), (("--help",), "simulate"), (("simulate", "--help"), "--resume")]
)
def test_help_and_version_answer(pagesim, arguments, text):
    ended = pagesim(*arguments)
    assert ended.code == 0 and text in ended.out


def test_an_output_that_lacks_a_sign_gets_a_question_mark(tmp_path):
    code = "from pagesim.cli.main import main; main()"
    ended = subprocess.run([sys.executable, "-c", code, "simulate", write_experiment(tmp_path), "-q"],
                           env=os.environ | {"PYTHONIOENCODING": "ascii", "NUMBA_DISABLE_JIT": "0"},
                           capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "") and "extfrag_index" in ended.stdout and "?" in ended.stdout


@pytest.mark.skipif(os.name != "posix", reason="needs signals between processes")
@pytest.mark.parametrize("moment", [0.0, 0.3, 1.0])
def test_a_request_to_end_stops_workers_without_a_word_of_theirs_and_leaves_no_half_of_a_file(tmp_path, moment):
    rows = [(0.01 * k, 20 + k % 40, 5) for k in range(200_000)]
    config = write_experiment(tmp_path, rows=rows, keys="sweep: {allocators.1.block_size: [1, 2, 4, 8, 16]}")
    program = subprocess.Popen(
        [sys.executable, "-c", "from pagesim.cli.main import main; main()", "simulate", config, "-o", tmp_path / "run",
         "--jobs", "2"], env=os.environ | {"NUMBA_DISABLE_JIT": "0"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True)
    while not (tmp_path / "run").exists() and program.poll() is None:
        time.sleep(0.05)
    time.sleep(moment)
    program.terminate()
    _, err = program.communicate()
    assert program.returncode == 130 and "interrupted" in err and "Traceback" not in err
    assert not list((tmp_path / "run").rglob("*.part"))


@pytest.mark.parametrize("keeps_pyproject", [True, False])
def test_a_copy_of_the_sources_works_and_says_that_it_is_one(tmp_path, keeps_pyproject):
    root = Path(pagesim_package.__file__).parents[1]
    if not (root / "pyproject.toml").is_file():
        pytest.skip("pagesim runs from an installation here, whose pyproject.toml is elsewhere")
    shutil.copytree(root / "pagesim", tmp_path / "pagesim", ignore=shutil.ignore_patterns("__pycache__"))
    if keeps_pyproject:
        shutil.copy(root / "pyproject.toml", tmp_path)
    hidden = ("import importlib.metadata as m\n"
              "def gone(name): raise m.PackageNotFoundError(name)\n"
              "m.version = gone\n"
              "import pagesim; print(pagesim.__version__, pagesim.__file__)")
    ended = subprocess.run([sys.executable, "-c", hidden], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)},
                           capture_output=True, text=True, check=True)
    assert str(tmp_path) in ended.stdout
    assert ("+source" in ended.stdout) == keeps_pyproject and ("unknown (not installed)" in ended.stdout) != keeps_pyproject


def test_another_experiments_run_is_replaced_only_by_force(pagesim, tmp_path):
    run = tmp_path / "run"
    first, second = write_experiment(tmp_path / "x"), write_experiment(tmp_path / "y", allocators=PAGED)
    swept = write_experiment(tmp_path / "z", keys="sweep: {allocators.1.block_size: [1, 2]}")
    assert pagesim("simulate", first, "-q", "-o", run).code == 0
    (run / "notes.txt").write_text("mine")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert pagesim("simulate", first, "-q", "-o", run).code == 0  # itself again
    for other in (second, swept):
        ended = pagesim("simulate", other, "-q", "-o", run)
        assert ended.code == 2 and "holds another experiment's run; give another folder with -o, --force" in ended.err
        assert {path for path in run.rglob("*") if path.is_file()} == set(before)
    assert pagesim("simulate", second, "-q", "-o", run, "--force").code == 0
    assert not (run / "cases" / "paged+16").exists() and (run / "notes.txt").read_text() == "mine"
    assert pagesim("simulate", swept, "-q", "-o", run, "--resume").code == 0


def test_files_are_replaced_only_by_force(pagesim, tmp_path):
    config, there = write_experiment(tmp_path), tmp_path / "there.json"
    pagesim("simulate", config, "-q", "-o", tmp_path / "run")
    commands = [("report", tmp_path / "run", "-o", there), ("trace", "convert", tmp_path / "trace.csv", tmp_path / "there.csv"),
                ("trace", "generate", tmp_path / "there.csv", "-n", 3, "--prompt", "constant:tokens=9", "--output",
                 "constant:tokens=9", "--rate", 1), ("simulate", config, "-q", "--export-trace", there)]
    for command in commands:
        for path in (there, tmp_path / "there.csv"):
            path.write_text("mine")
        ended = pagesim(*command)
        assert ended.code == 2 and "exists already and is left as it is" in ended.err
        assert there.read_text() == (tmp_path / "there.csv").read_text() == "mine"
        assert pagesim(*command, "--force").code == 0


def test_quiet_keeps_the_reason_of_an_exit_1(pagesim, tmp_path):
    ended = pagesim("simulate", write_experiment(tmp_path, max_model_len=4), "-q")
    assert ended.code == 1 and "all 5 requests were rejected" in ended.err


@pytest.mark.skipif(os.name != "posix", reason="needs a shell with pipes")
@pytest.mark.parametrize("arguments", [("config", "schema"), ("simulate", "config.yaml", "--json")])
def test_a_reader_who_leaves_early_is_no_failure(tmp_path, arguments):
    write_experiment(tmp_path)
    program = subprocess.Popen([sys.executable, "-c", "from pagesim.cli.main import main; main()", *arguments],
                               cwd=tmp_path, env=os.environ | {"NUMBA_DISABLE_JIT": "0"}, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    program.stdout.close()
    err = program.stderr.read()
    assert (program.wait(), err) == (0, "")
