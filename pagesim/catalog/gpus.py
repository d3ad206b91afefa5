"""GPUs by name, and how much of one is left for KV memory."""

from dataclasses import dataclass
from fractions import Fraction

from pagesim.catalog.lookup import find
from pagesim.core.units import GB, format_bytes
from pagesim.errors import InputError


@dataclass(frozen=True)
class Gpu:
    """A GPU as its data sheet has it; ``memory_bytes`` is what nvidia-smi reports."""

    name: str
    memory_bytes: int
    bandwidth_bytes_per_s: float
    peak_flops_per_s: float
    pcie_bytes_per_s: float


def gpu(name: str) -> Gpu:
    """The GPU of the catalogue called ``name``, in any case.

    Raises:
        InputError: no such GPU.
    """
    name, entry = find("gpus.yaml", "GPU", name)
    return Gpu(name, entry["memory_mib"] * 2**20, float(round(entry["bandwidth_tb_s"] * 1e12)),
               entry["bf16_tflop_s"] * 1e12, entry["pcie_gb_s"] * GB)


def kv_memory_bytes(gpu: Gpu, gpu_memory_utilization: float, weights_bytes: int, other_bytes: int) -> int:
    """``memory · gpu_memory_utilization − weights − other``, in whole bytes.

    Raises:
        InputError: nothing is left.
    """
    share = Fraction(str(gpu_memory_utilization))  # 0.92 as written: a float's neighbour could cost the last byte
    left = int(gpu.memory_bytes * share) - weights_bytes - other_bytes
    if left <= 0:
        other = f" and other {format_bytes(other_bytes)}" if other_bytes else ""
        raise InputError(
            f"no KV memory is left: {gpu_memory_utilization} of {gpu.name}'s {format_bytes(gpu.memory_bytes)} is less "
            f"than weights {format_bytes(weights_bytes)}{other}; raise tensor_parallel_size or take a larger GPU")
    return left
