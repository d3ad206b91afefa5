"""GPUs, and what is left of one for KV memory."""

from dataclasses import replace

import pytest

from pagesim import catalog
from pagesim.catalog.lookup import entries
from pagesim.core.units import GIB
from pagesim.errors import InputError


@pytest.mark.parametrize(("name", "memory_mib", "bandwidth_tb_s", "bf16_tflop_s", "pcie_gb_s"), [
    ("a100-40gb", 40_960, 1.555, 312, 32),
    ("a100-80gb", 81_920, 2.039, 312, 32),
    ("h100", 81_559, 3.35, 989, 64),
    ("h200", 143_771, 4.8, 989, 64),
    ("b200", 183_359, 7.7, 2250, 128),
    ("l4", 23_034, 0.3, 121, 32),
    ("l40s", 46_068, 0.864, 362, 32),
    ("rtx-4090", 24_564, 1.008, 165, 32),
    ("mi300x", 196_592, 5.3, 1307, 64),
])
def test_the_catalogue_has_the_data_sheets_figures(name, memory_mib, bandwidth_tb_s, bf16_tflop_s, pcie_gb_s):
    gpu = catalog.gpu(name)
    assert gpu.memory_bytes == memory_mib * 2**20
    assert gpu.bandwidth_bytes_per_s == pytest.approx(bandwidth_tb_s * 1e12, rel=1e-12)
    assert gpu.peak_flops_per_s == bf16_tflop_s * 1e12
    assert gpu.pcie_bytes_per_s == pcie_gb_s * 10**9


@pytest.mark.parametrize("name", entries("gpus.yaml"))
def test_a_share_is_of_what_cuda_reports_which_is_never_more_than_nvidia_smi_does(name):
    gpu = catalog.gpu(name)
    assert 0.97 * gpu.memory_bytes < gpu.cuda_bytes <= gpu.memory_bytes
    assert gpu.total.num_bytes == gpu.cuda_bytes and "(as CUDA reports it)" in gpu.total.words
    assert catalog.kv_memory_bytes(gpu.total, 1.0, 0, 0) == gpu.cuda_bytes


def test_without_cudas_total_a_share_is_of_what_nvidia_smi_reports():
    gpu = replace(catalog.gpu("rtx-4090"), cuda_bytes=None)
    assert gpu.total == (24_564 * 2**20, "rtx-4090's 23.99 GiB (as nvidia-smi reports it)")
    assert catalog.kv_memory_bytes(gpu.total, 1.0, 0, 0) == 24_564 * 2**20


def test_the_real_run_got_no_more_blocks_than_its_gpu_has_room_for():
    weights, block = 16_060_522_496, 16 * 131_072
    assert catalog.kv_memory_bytes(catalog.gpu("rtx-4090").total, 0.9, weights, 0) // block == 3_178 > 2_588


def test_a_gpu_goes_by_several_names_in_any_case():
    assert catalog.gpu("RTX4090") == catalog.gpu("rtx-4090")


def test_an_unknown_gpu_comes_with_the_nearest_name():
    with pytest.raises(InputError, match="unknown GPU 'h20'; did you mean 'h200'"):
        catalog.gpu("h20")


def test_kv_memory_is_what_utilization_weights_and_other_leave():
    gpu = catalog.gpu("h200")
    assert catalog.kv_memory_bytes(gpu.total, 1.0, 0, 0) == 150_109_880_320
    assert catalog.kv_memory_bytes(gpu.total, 0.5, GIB, 2 * GIB) == 150_109_880_320 // 2 - 3 * GIB


def test_a_share_is_taken_as_it_is_written_to_the_last_byte():
    gpu = catalog.Gpu("g", 10**12, 1.0, 1.0, 1.0)
    assert all(catalog.kv_memory_bytes(gpu.total, percent / 100, 0, 0) == percent * 10**10 for percent in range(1, 101))


def test_weights_that_do_not_fit_are_an_error_with_both_sizes():
    with pytest.raises(InputError) as error:
        catalog.kv_memory_bytes(catalog.gpu("l4").total, 0.92, 30 * GIB, GIB)
    assert str(error.value) == (
        "no KV memory is left: 0.92 of l4's 21.99 GiB (as CUDA reports it) is less than weights 30.00 GiB and other "
        "1.00 GiB; raise tensor_parallel_size or take a larger GPU")
