import pytest

pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

import torch

from pagesim.core.blocktables import from_rows


@pytest.fixture
def snapshot(tmp_path):
    path = tmp_path / "peak.npz"
    from_rows([[5, 1], [3]], [8, 2], 4, 9, origin={"case": "paged 4"}).save(path)
    return path


def test_two_moments_of_a_case_are_two_batches(pagesim, tmp_path):
    paths = [tmp_path / f"{step}.npz" for step in (3, 8)]
    for step, path in zip((3, 8), paths):
        from_rows([[5, 1], [3]], [8, 2], 4, 9, origin={"case": "paged 4", "step": step}).save(path)
    ended = pagesim("bench-kernel", *paths, "--tables", "simulated", "--dry-run")
    assert [line.partition("/")[0] for line in ended.out.splitlines()] == ["paged-4-step-3", "paged-4-step-8"]


def test_a_dry_run_lists_workloads_by_tables_block_sizes_and_kernels(pagesim):
    ended = pagesim("bench-kernel", "--workload", "W1", "--block-size", 16, "--block-size", 1, "--tables", "shuffled",
                    "--kernel", "ours", "--kernel", "general", "--dry-run")
    assert ended.code == 0
    assert ended.out.splitlines() == [f"W1/{kernel}/shuffled/b{size}/NHD/bf16" for size in (16, 1)
                                      for kernel in ("ours", "general")]


@pytest.mark.parametrize("dtype", ["fp16", "fp32", "fp8"])
def test_the_dtype_is_in_the_key(pagesim, dtype):
    ended = pagesim("bench-kernel", "--workload", "W3", "--tables", "shuffled", "--dtype", dtype, "--dry-run")
    assert ended.out == f"W3/ours/shuffled/b16/NHD/{dtype}\n"


def test_a_snapshot_is_measured_as_simulated_contiguous_and_shuffled_at_its_own_block_size(pagesim, snapshot):
    ended = pagesim("bench-kernel", snapshot, "--dry-run")
    assert ended.out.splitlines() == [f"paged-4/ours/{kind}/b4/NHD/bf16" for kind in ("contiguous", "simulated", "shuffled")]


def test_a_filter_keeps_the_cases_whose_key_contains_it(pagesim, snapshot):
    assert pagesim("bench-kernel", snapshot, "--dry-run", "--filter", "simulated").out.count("\n") == 1
    ended = pagesim("bench-kernel", snapshot, "--dry-run", "--filter", "nothing")
    assert ended.code == 2 and "none of the keys contains 'nothing'" in ended.err


def test_a_snapshot_of_an_mla_model_is_measured_as_latents(pagesim, tmp_path):
    model = {"name": "deepseek-v3", "num_q_heads": 128, "num_kv_heads": 1, "head_dim": 576, "latent_dim": 512}
    from_rows([[5, 1]], [8], 4, 9, origin={"model": model}).save(tmp_path / "peak.npz")
    ended = pagesim("bench-kernel", tmp_path / "peak.npz", "--dry-run", "--tables", "simulated")
    assert ended.out.splitlines() == ["peak/ours/simulated/b4/NHD/bf16"]
    ended = pagesim("bench-kernel", tmp_path / "peak.npz", "--dry-run", "--head-dim", 128)
    assert ended.code == 2 and "--heads and --head-dim are of K and V heads, and deepseek-v3 caches a latent" in ended.err


@pytest.mark.parametrize("arguments, message", [
    (("--workload", "W9"), "--workload must be one of W1"), (("--kernel", "fast"), "kernel must be one of ours"),
    (("--dtype", "int8"), "--dtype must be one of bf16, fp16, fp32, fp8"), (("--layout", "DHN"), "--layout must be one of NHD, HND"),
    (("--tables", "spread"), "--tables must be one of contiguous, simulated"),
    (("--heads", "8/8"), "--heads, --head-dim, --snapshot and --set need a config or snapshot"),
    (("--resume",), "--resume needs --output"),
])
def test_a_wrong_option_says_what_is_allowed(pagesim, arguments, message):
    ended = pagesim("bench-kernel", "--dry-run", *arguments)
    assert ended.code == 2 and message in ended.err


def test_a_snapshot_is_of_one_moment_and_head_dims_are_those_of_the_kernels(pagesim, snapshot):
    for options, message in ((("--snapshot", "end"), "--snapshot and --set need a config"),
                             (("--head-dim", 512), "Invalid value for '--head-dim'")):
        ended = pagesim("bench-kernel", snapshot, "--dry-run", *options)
        assert ended.code == 2 and message in ended.err


@pytest.mark.skipif(torch.cuda.is_available(), reason="about machines without a GPU")
def test_without_a_gpu_it_says_what_is_missing(pagesim):
    ended = pagesim("bench-kernel", "--workload", "W1")
    assert ended.code == 3 and "found none" in ended.err
