"""``pagesim doctor``: what is installed, what runs here and what does not, and why."""

import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

# What each extra brings, and what is off without it.
_EXTRAS = {
    "kernel": (("torch", "triton"), "kernel, bench-kernel, explain corrupt"),
    "report": (("matplotlib",), "plot"),
    "watch": (("textual",), "watch"),
    "cluster": (("distributed",), "sweep --cluster"),
}
_FITS_HOPPER = (9, 0)


def doctor() -> None:
    """What is installed, what runs here and what does not, and why: to read, and to paste into a bug report."""
    for heading, lines in (("pagesim", _program()), ("engine", _engine()), ("extras", _extras()), ("GPU", _gpu())):
        print(heading)
        for line in lines:
            print(f"  {line}")


def _program() -> list[str]:
    import pagesim

    return [f"{pagesim.__version__} in {Path(pagesim.__file__).parent}",
            f"Python {platform.python_version()} in {sys.prefix}",
            f"{platform.system()} {platform.machine()}",
            ", ".join(f"{name} {_installed(name) or 'missing'}"
                      for name in ("typer", "rich", "numpy", "pyyaml", "pydantic", "numba"))]


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _engine() -> list[str]:
    from pagesim.allocators import KINDS
    from pagesim.engine.compiled import cache_directory, uncompiled, unwritable_cache

    if unwritable_cache() is not None:
        return [f"{cache_directory()} cannot be written: the engine is compiled anew in each process, which takes "
                "tens of seconds; PAGESIM_CACHE_DIR names another folder"]
    missing = uncompiled(kind.module.EXAMPLE for kind in KINDS)
    compiled = [kind.name for kind in KINDS if kind not in missing]
    lines = [f"compiled code in {cache_directory()}"]
    if compiled:
        lines.append(f"ready: {', '.join(compiled)} memory")
    if missing:
        lines.append(f"compiled at their first use: {', '.join(kind.name for kind in missing)} memory")
    return lines


def _extras() -> list[str]:
    lines = []
    for extra, (packages, commands) in _EXTRAS.items():
        versions = {package: _installed(package) for package in packages}
        missing = [package for package, found in versions.items() if found is None]
        if missing:
            lines.append(f"{extra}: off ({commands}), {' and '.join(missing)} not installed: "
                         f"pip install 'pagesim[{extra}]'")
        else:
            lines.append(f"{extra}: {', '.join(f'{package} {found}' for package, found in versions.items())}")
    return lines


def _gpu() -> list[str]:
    if _installed("torch") is None:
        return ["not looked for: that needs torch"]
    import torch

    if not torch.cuda.is_available():
        why = "this torch is built without CUDA" if torch.version.cuda is None else "torch finds none"
        return [f"none: {why}; kernel runs few sequences in Triton's interpreter, bench-kernel is off"]
    return [_gpu_line(index) for index in range(torch.cuda.device_count())]


def _gpu_line(index: int) -> str:
    import torch

    from pagesim.core.units import format_bytes

    properties = torch.cuda.get_device_properties(index)
    capability = properties.major, properties.minor
    fast = "the Hopper kernels run" if capability == _FITS_HOPPER else "only the general kernels run"
    return (f"{index}: {properties.name}, {format_bytes(properties.total_memory)}, CUDA {torch.version.cuda}, compute "
            f"capability {capability[0]}.{capability[1]}: {fast}")
