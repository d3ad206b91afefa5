"""pagesim: where every slot of KV-cache memory goes."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


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


def __getattr__(name: str) -> object:
    """``from pagesim import simulate``, without the price of numpy and numba for those who only want the version."""
    if name == "simulate":
        from pagesim.api import simulate

        return simulate
    raise AttributeError(f"module 'pagesim' has no attribute {name!r}")
