"""pagesim: where every slot of KV-cache memory goes."""

from importlib.metadata import version

__version__ = version("pagesim")


def __getattr__(name: str) -> object:
    """``from pagesim import simulate``, without the price of numpy and numba for those who only want the version."""
    if name == "simulate":
        from pagesim.api import simulate

        return simulate
    raise AttributeError(f"module 'pagesim' has no attribute {name!r}")
