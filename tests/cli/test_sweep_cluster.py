"""pagesim sweep --cluster: a real scheduler and two workers on this machine, which share nothing with the program."""

import json
import os
import subprocess
import sys
import time

import pytest
from tiny import write_experiment

pytest.importorskip("distributed", reason="distributed is not installed: pip install 'pagesim[cluster]'")

PAGED = "[{kind: paged, block_size: 16}]"


@pytest.fixture
def cluster(tmp_path):
    """The address of a scheduler, and its two workers: processes of one thread, without a nanny that revives them."""
    place = tmp_path / "scheduler.json"
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "30s"}

    def begin(*arguments):
        return subprocess.Popen([sys.executable, "-m", "dask", *map(str, arguments)], env=environment,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path)

    scheduler = begin("scheduler", "--host", "127.0.0.1", "--port", 0, "--no-dashboard", "--scheduler-file", place)
    while not place.is_file() or not place.read_text().endswith("}"):
        assert scheduler.poll() is None
        time.sleep(0.1)
    workers = [begin("worker", "--scheduler-file", place, "--no-nanny", "--nthreads", 1, "--no-dashboard",
                     "--local-directory", tmp_path / f"worker{k}") for k in range(2)]
    yield json.loads(place.read_text())["address"], workers
    for process in (*workers, scheduler):
        process.kill()
        process.wait()


def test_a_worker_that_is_killed_costs_nothing_and_the_figures_are_those_of_this_machine(pagesim, tmp_path, cluster):
    address, workers = cluster
    rows = [(0.01 * k, 20 + k % 40, 5) for k in range(400)]
    config = write_experiment(tmp_path, rows=rows, allocators=PAGED, keys=f"sweep: {{seed: {list(range(16))}}}")
    config.write_text(config.read_text().replace("path: trace.csv", "path: trace.csv, arrivals: {kind: poisson, rate: 50}"))
    program = subprocess.Popen([sys.executable, "-c", "from pagesim.cli.main import main; main()", "sweep", config, "-o",
                                tmp_path / "there", "--cluster", address], stderr=subprocess.PIPE, text=True)
    while program.poll() is None and not list((tmp_path / "there").glob("results/*.json")):
        time.sleep(0.02)
    workers[0].kill()
    _, err = program.communicate()
    assert program.returncode == 0, err
    assert "16 of 16 cases have figures" in err
    assert pagesim("sweep", config, "-o", tmp_path / "here").code == 0
    for path in (tmp_path / "here" / "results").iterdir():
        assert path.read_bytes() == (tmp_path / "there" / "results" / path.name).read_bytes()


def test_an_error_names_the_users_file_and_not_the_workers(pagesim, tmp_path, cluster):
    address, _ = cluster
    config = write_experiment(tmp_path, allocators=PAGED)
    (tmp_path / "trace.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,x,1\n")
    ended = pagesim("sweep", config, "-o", tmp_path / "s", "--cluster", address)
    assert ended.code == 1 and f"{tmp_path / 'trace.csv'}:2" in ended.err


def test_without_a_scheduler_there_is_a_message(pagesim, tmp_path):
    ended = pagesim("sweep", write_experiment(tmp_path), "-o", tmp_path / "s", "--cluster", "tcp://127.0.0.1:9")
    assert ended.code == 2 and "no Dask scheduler answers there" in ended.err


def test_jobs_and_a_cluster_are_not_asked_for_together(pagesim, tmp_path):
    ended = pagesim("sweep", write_experiment(tmp_path), "-o", tmp_path / "s", "--cluster", "tcp://a:1", "--jobs", "2")
    assert ended.code == 2 and "--jobs" in ended.err
