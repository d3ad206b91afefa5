"""pagesim: where every slot of KV-cache memory goes."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING


def _version() -> str:
    """The installed version; a copy of the sources that was never installed says that it is one."""
    try:
        return version("pagesim")
    except PackageNotFoundError:
        pass
    import tomllib

    try:
        project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        return f"{project['version']}+source"
    except (OSError, ValueError, KeyError):
        return "unknown (not installed)"


__version__ = _version()


if TYPE_CHECKING:
    from pagesim.api import simulate
    from pagesim.case import Case, Experiment
    from pagesim.config import load
    from pagesim.experiment import Simulation
    from pagesim.trace import Trace, read_trace

__all__ = ["Case", "Experiment", "Simulation", "Trace", "load", "read_trace", "simulate"]
_HOMES = {"simulate": "api", "Case": "case", "Experiment": "case", "load": "config", "Simulation": "experiment",
          "Trace": "trace", "read_trace": "trace"}


def __getattr__(name: str) -> object:
    """``from pagesim import simulate``, without the price of numpy and numba for those who only want the version."""
    if name not in _HOMES:
        raise AttributeError(f"module 'pagesim' has no attribute {name!r}")
    return getattr(import_module(f"pagesim.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
