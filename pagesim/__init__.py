"""pagesim: where every slot of KV-cache memory goes."""

from importlib.metadata import version

__version__ = version("pagesim")
