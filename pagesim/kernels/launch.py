"""Launching a kernel as it was compiled for an earlier call: Triton's own launch takes longer than a small one runs."""

import triton
from triton.compiler import CompiledKernel

Kept = dict[str, CompiledKernel]  # by the kernels' names, for calls that differ in contents alone


def launch(kernel: triton.JITFunction, num_programs: int, arguments: tuple, constants: dict, kept: Kept | None,
           **options: int) -> None:
    """Launch ``kernel``, whose parameters are ``arguments`` and then ``constants`` in this order.

    Args:
        kept: what was compiled, to which a first call adds; None leaves it to Triton, as its interpreter needs.
        options: of compiling, such as num_stages.
    """
    if kept is None:
        kernel[(num_programs,)](*arguments, **constants, **options)
        return
    name = kernel.__name__
    if name not in kept:
        kept[name] = kernel.run(*arguments, grid=(num_programs,), warmup=True, **constants, **options)
    kept[name][(num_programs, 1, 1)](*arguments, *constants.values())
