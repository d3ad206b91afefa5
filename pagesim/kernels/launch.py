"""Launching a kernel as it was compiled for an earlier call: Triton's own launch takes longer than a small one runs."""

from functools import cache

import torch
import triton
from triton.compiler import CompiledKernel

try:
    from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
except ImportError:  # an old Triton, whose kernels don't overlap
    gdc_launch_dependents = gdc_wait = None

TRITON = tuple(int(part) for part in triton.__version__.split(".")[:2])
NEW_TRITON = TRITON >= (3, 6)  # Gluon and overlapping launches

__all__ = ["NEW_TRITON", "TRITON", "Kept", "addresses", "gdc_launch_dependents", "gdc_wait", "launch",
           "next_power_of_2", "overlaps"]

next_power_of_2 = cache(triton.next_power_of_2)  # 3 µs else

# By name and whether launches overlap, for calls that differ in contents alone.
Kept = dict[tuple[str, bool], CompiledKernel]


def launch(kernel: triton.JITFunction, num_programs: int, arguments: tuple, constants: dict, kept: Kept | None,
           **options: int) -> None:
    """Launch ``kernel``, whose parameters are ``arguments`` and then ``constants`` in this order.

    Args:
        kept: what was compiled, to which a first call adds; None leaves it to Triton, as its interpreter needs.
        constants: with OVERLAPS true, the launch need not wait for the end of the one before: see ``overlaps``.
        options: of compiling, such as num_stages.
    """
    overlap = constants.get("OVERLAPS", False)
    if overlap:
        options["launch_pdl"] = True
    if kept is None:
        kernel[(num_programs,)](*arguments, **constants, **options)
        return
    key = kernel.__name__, overlap
    if key not in kept:
        kept[key] = kernel.run(*arguments, grid=(num_programs,), warmup=True, **constants, **options)
    kept[key][(num_programs, 1, 1)](*addresses(arguments), *constants.values())


def addresses(arguments: tuple) -> list:
    """Arguments of a compiled kernel with addresses for tensors: of each tensor Triton asks the driver what it is."""
    return [a.data_ptr() if isinstance(a, torch.Tensor) else a for a in arguments]


@cache
def overlaps(device: torch.device) -> bool:
    """Whether CTAs of a kernel may come as those of the kernel before go (programmatic dependent launch).

    Such a kernel starts with ``gdc_launch_dependents()`` and, before it reads or returns, ``gdc_wait()``.
    """
    return (NEW_TRITON and device.type == "cuda" and torch.version.cuda is not None
            and torch.cuda.get_device_capability(device) >= (9, 0))
