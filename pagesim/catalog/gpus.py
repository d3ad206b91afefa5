"""GPUs by name, and how much of one is left for KV memory."""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from pagesim.catalog.lookup import find
from pagesim.core.units import GB, format_bytes
from pagesim.errors import InputError


class Total(NamedTuple):
    """Bytes of a GPU of which an engine takes its share, and the words for them: whose they are, who says so."""

    num_bytes: int
    words: str


@dataclass(frozen=True)
class Gpu:
    """A GPU as its data sheet has it.

    Attributes:
        memory_bytes: total that nvidia-smi reports.
        cuda_bytes: total that CUDA reports, of which an engine takes its share; None where it is not known.
    """

    name: str
    memory_bytes: int
    bandwidth_bytes_per_s: float
    peak_flops_per_s: float
    pcie_bytes_per_s: float
    cuda_bytes: int | None = None

    @property
    def total(self) -> Total:
        known = self.cuda_bytes is not None
        num_bytes, reporter = (self.cuda_bytes, "CUDA") if known else (self.memory_bytes, "nvidia-smi")
        return Total(num_bytes, f"{self.name}'s {format_bytes(num_bytes)} (as {reporter} reports it)")


def gpu(name: str) -> Gpu:
    """The GPU of the catalogue called ``name``, in any case.

    Raises:
        InputError: no such GPU.
    """
    name, entry = find("gpus.yaml", "GPU", name)
    return Gpu(name, entry["memory_mib"] * 2**20, float(round(entry["bandwidth_tb_s"] * 1e12)),
               entry["bf16_tflop_s"] * 1e12, entry["pcie_gb_s"] * GB, entry.get("cuda_bytes"))


def kv_memory_bytes(total: Total, gpu_memory_utilization: float, weights_bytes: int, other_bytes: int) -> int:
    """``total · gpu_memory_utilization − weights − other``, in whole bytes; the share rounded up, as in vLLM.

    Raises:
        InputError: nothing is left.
    """
    share = Fraction(str(gpu_memory_utilization))  # 0.92 as written: a float's neighbour could cost the last byte
    left = ceil(total.num_bytes * share) - weights_bytes - other_bytes
    if left <= 0:
        other = f" and other {format_bytes(other_bytes)}" if other_bytes else ""
        raise InputError(
            f"no KV memory is left: {gpu_memory_utilization} of {total.words} is less than weights "
            f"{format_bytes(weights_bytes)}{other}; raise tensor_parallel_size or take a larger GPU")
    return left
