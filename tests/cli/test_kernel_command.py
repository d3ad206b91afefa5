import json
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

from tiny import write_experiment

from pagesim.core.blocktables import from_rows

SMALL = ("--heads", "2/1", "--head-dim", "16", "--dtype", "fp32", "--device", "cpu")


@pytest.fixture
def pagesim(monkeypatch):
    """The program in a process of its own: Triton learns of its interpreter when it is imported."""

    def run(*arguments):
        return subprocess.run([sys.executable, "-c", "from pagesim.cli.main import main; main()", *map(str, arguments)],
                              capture_output=True, text=True, timeout=300)

    return run


@pytest.fixture
def snapshot(tmp_path):
    path = tmp_path / "peak.npz"
    from_rows([[5, 1], [3, 0], [2, 6], [4]], [8, 5, 7, 1], 4, 9, origin={"step": 3}).save(path)
    return path


def test_a_snapshot_runs_whole_and_is_right(pagesim, snapshot):
    ended = pagesim("kernel", snapshot, *SMALL, "--layers", 2, "--json")
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert document["passed"] and document["corruption"] is None
    assert [(row["kernel"], row["layer"], row["num_seqs"]) for row in document["rows"]] == [
        ("decode (general)", 0, 4), ("prefill", 0, 3), ("decode (general)", 1, 4), ("prefill", 1, 3)]


def test_tables_that_share_a_prefix_must_say_so(pagesim, tmp_path):
    rows, lengths = [[5, 1], [5, 0], [2]], [8, 6, 3]
    from_rows(rows, lengths, 4, 9, shared=True).save(tmp_path / "engine.npz")
    ended = pagesim("kernel", tmp_path / "engine.npz", *SMALL)
    assert ended.returncode == 0, ended.stderr
    assert "17 tokens in 5 blocks of 4, some shared: 4 different ones; pool of 9 blocks" in ended.stdout
    from_rows(rows, lengths, 4, 9).save(tmp_path / "engine.npz")
    ended = pagesim("kernel", tmp_path / "engine.npz", *SMALL)
    assert ended.returncode == 2
    assert "engine.npz: block 5 is owned twice: by sequence 0 entry 0 and by sequence 1 entry 0" in ended.stderr


def test_a_config_is_simulated_and_a_subset_is_stated(pagesim, tmp_path):
    ended = pagesim("kernel", write_experiment(tmp_path), *SMALL, "--sequences", 1)
    assert ended.returncode == 0, ended.stderr
    assert "paged 16: step" in ended.stdout and "(peak)" in ended.stdout
    assert "taken of these: 1, evenly over the running order" in ended.stdout and "right" in ended.stdout


def test_consecutive_steps_of_a_contiguous_run_are_replayed(pagesim, tmp_path):
    config = write_experiment(tmp_path, allocators="[{kind: contiguous, reserve: exact}]")
    ended = pagesim("kernel", config, *SMALL, "--snapshot", 2, "--steps", 6, "--json")
    assert ended.returncode == 0, ended.stderr
    assert sorted({row["step"] for row in json.loads(ended.stdout)["rows"]}) == [2, 3, 4, 5, 6, 7]


def test_a_run_folder_gives_the_tables_of_its_config(pagesim, tmp_path):
    config = write_experiment(tmp_path)
    assert pagesim("simulate", config, "-o", tmp_path / "run", "-q").returncode == 0
    ended = pagesim("kernel", tmp_path / "run", *SMALL, "--case", "paged 16", "--sequences", 1)
    assert ended.returncode == 0, ended.stderr
    assert "paged 16: step" in ended.stdout and "(peak), simulated" in ended.stdout


def test_a_run_folders_snapshot_is_read_and_gives_what_simulating_again_gives(pagesim, tmp_path):
    config, run = write_experiment(tmp_path), tmp_path / "run"
    assert pagesim("simulate", config, "-o", run, "-q", "--snapshot", "peak").returncode == 0
    read, simulated = (pagesim("kernel", run, *SMALL, "--json", *options) for options in ((), ("--set", "seed=0")))
    (snapshot,) = run.glob("cases/paged*/snapshot-peak.npz")
    assert json.loads(read.stdout)["snapshot"] == str(snapshot)
    assert json.loads(read.stdout) == json.loads(simulated.stdout) | {"snapshot": str(snapshot)}
    assert f"(peak), read from {snapshot}" in pagesim("kernel", run, *SMALL).stdout
    assert json.loads(pagesim("kernel", run, *SMALL, "--json", "--steps", 2).stdout)["snapshot"] is None


def test_a_new_run_into_the_folder_leaves_no_older_tables(pagesim, tmp_path):
    config, run = write_experiment(tmp_path, allocators="[{kind: paged, block_size: 16}]"), tmp_path / "run"
    for options in (("--snapshot", "peak"), ()):
        assert pagesim("simulate", config, "-o", run, "-q", *options).returncode == 0
    assert list(run.glob("*.npz")) == []


def test_steps_beyond_the_runs_end_are_said_to_be_missing(pagesim, tmp_path):
    config = write_experiment(tmp_path, allocators="[{kind: paged, block_size: 16}]")
    ended = pagesim("kernel", config, *SMALL, "--snapshot", "end", "--steps", 3)
    assert ended.returncode == 0 and "the run ends after 1 of 3 steps" in ended.stderr


def test_a_corrupted_entry_ends_in_1_and_names_who_changed(pagesim, snapshot):
    ended = pagesim("kernel", snapshot, *SMALL, "--corrupt", "1:0")
    assert ended.returncode == 1
    assert "entry 0 of sequence 1 (block 3) exchanged with block 2 of sequence 2 entry 0" in ended.stdout
    assert "changed: outputs of sequences 1, 2\n" in ended.stdout
    assert "unchanged to the last bit: the outputs of 2 others" in ended.stdout


def test_a_kernel_that_is_wrong_ends_in_1(snapshot):
    code = "import pagesim.kernels.harness.replay as r; write = r.write_cache; " \
           "r.write_cache = lambda k, v, *rest, **options: write(k, 1.01 * v, *rest, **options); " \
           "from pagesim.cli.main import main; main()"
    ended = subprocess.run([sys.executable, "-c", code, "kernel", str(snapshot), *SMALL], capture_output=True,
                           text=True, timeout=300)
    assert ended.returncode == 1 and ended.stdout.count("WRONG") == 2
    assert "rows differ from the reference" in ended.stderr


def test_the_last_of_several_steps_is_corrupted_however_many_run_by_then(pagesim, tmp_path):
    config = write_experiment(tmp_path, allocators="[{kind: paged, block_size: 16}]")
    ended = pagesim("kernel", config, *SMALL, "--snapshot", 0, "--steps", 4, "--corrupt", "0:0", "--json")
    document = json.loads(ended.stdout)
    assert ended.returncode == 1 and document["rows"][0]["num_seqs"] == 1
    assert document["corruption"]["changed"] == [0, document["corruption"]["other_place"]]


def test_sequences_are_named_by_their_places_before_some_were_chosen(pagesim, tmp_path):
    path = tmp_path / "long.npz"
    from_rows([[i] for i in range(9)], [1] * 9, 4, 9).save(path)
    document = json.loads(pagesim("kernel", path, *SMALL, "--sequences", 2, "--corrupt", "5:0", "--json").stdout)
    assert document["corruption"]["changed"] == [5, 6] and document["corruption"]["unchanged"] == [0, 8]
    assert {row["where"][0] for row in document["rows"]} <= {0, 5, 6, 8}


def test_an_mla_model_decodes_over_its_latent_cache(pagesim, tmp_path):
    model = {"name": "tiny-mla", "layers": 3, "num_q_heads": 4, "num_kv_heads": 1, "head_dim": 24, "latent_dim": 16}
    from_rows([[5, 1], [3]], [8, 2], 4, 9, origin={"model": model}).save(tmp_path / "peak.npz")
    ended = pagesim("kernel", tmp_path / "peak.npz", "--dtype", "fp32", "--device", "cpu")
    assert ended.returncode == 0, ended.stderr
    assert "tiny-mla: 4/1 heads of 24 with a latent of 16" in ended.stdout
    assert "decode (mla, general)" in ended.stdout and "prefill" not in ended.stdout
    ended = pagesim("kernel", tmp_path / "peak.npz", "--kv-cache-dtype", "fp8", "--device", "cpu")
    assert ended.returncode == 0 and "cache float8_e4m3fn" in ended.stdout, ended.stderr


@pytest.mark.parametrize(("arguments", "message"), [
    (("--heads", "3/2"), "--heads must be query heads and KV heads that divide them, such as 32/8, got '3/2'"),
    (("--dtype", "int8"), "--dtype must be one of bf16, fp16, fp32, got 'int8'"),
    (("--corrupt", "one"), "--corrupt must be a sequence's place and a table entry"),
    (("--corrupt", "0:9", "--heads", "2/1", "--head-dim", "16"),
     "there is no entry 9 to corrupt; the sequence uses entries 0 to 1"),
    (("--corrupt", "9:0", "--heads", "2/1", "--head-dim", "16"), "there is no sequence 9 to corrupt among the 4"),
    (("--steps", "2"), "is a snapshot of one step"),
    (("--snapshot", "end"), "is a snapshot of one step"),
    (("--device", "tpu"), "--device must be auto, cuda or cpu, got 'tpu'"),
])
def test_what_cannot_be_is_refused_with_2(pagesim, snapshot, arguments, message):
    ended = pagesim("kernel", snapshot, *arguments, *(() if "--device" in arguments else ("--device", "cpu")))
    assert ended.returncode == 2 and message in ended.stderr and "Traceback" not in ended.stderr


def test_a_config_of_several_cases_asks_which(pagesim, tmp_path):
    config = write_experiment(tmp_path, allocators="[{kind: paged, block_size: 8}, {kind: paged, block_size: 16}]")
    ended = pagesim("kernel", config, *SMALL)
    assert ended.returncode == 2 and "choose one case with --case: 'paged 8', 'paged 16'" in ended.stderr


def test_a_gpu_that_is_not_there_ends_in_3(pagesim, snapshot):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    ended = pagesim("kernel", snapshot, "--device", "cuda")
    assert ended.returncode == 3 and "needs a CUDA GPU and finds none; --device cpu runs" in ended.stderr


def test_an_interpreter_that_its_numpy_breaks_is_named(snapshot):
    code = "import triton; triton.__version__ = '3.6.0'; import numpy; numpy.__version__ = '2.4.1'; " \
           "from pagesim.cli.main import main; main()"
    ended = subprocess.run([sys.executable, "-c", code, "kernel", str(snapshot), "--device", "cpu"],
                           capture_output=True, text=True, timeout=300)
    assert ended.returncode == 3 and "pip install 'numpy<2.4'" in ended.stderr and "Traceback" not in ended.stderr


@pytest.mark.parametrize("missing", ["torch", "triton"])
def test_without_torch_or_triton_it_says_which_extra_to_install(snapshot, missing):
    code = f"import sys; sys.modules[{missing!r}] = None; from pagesim.cli.main import main; main()"
    ended = subprocess.run([sys.executable, "-c", code, "kernel", str(snapshot)], capture_output=True, text=True,
                           timeout=300)
    assert ended.returncode == 3 and "pip install 'pagesim[kernel]'" in ended.stderr and "Traceback" not in ended.stderr
