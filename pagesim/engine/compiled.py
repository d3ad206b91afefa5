"""The compiled step loop, cached on disk and never stale.

Numba's cache watches only the file of the cached function, so the cache lives in a directory named after a hash of all
sources that are compiled into the loop, and of the versions of numba and numpy.
"""

import hashlib
import os
import sys
from pathlib import Path

import numba
import numpy as np

import pagesim.allocators.pool
import pagesim.engine.loop

_SOURCES = sorted([*Path(pagesim.allocators.pool.__file__).parent.glob("*.py"), *Path(__file__).parent.glob("*.py")])


def _cache_directory() -> Path:
    """The directory for exactly these sources and versions, under the user's cache directory."""
    digest = hashlib.sha256(f"{numba.__version__} {np.__version__} {sys.version_info[:2]}".encode())
    for source in _SOURCES:
        digest.update(source.read_bytes())
    root = os.environ.get("PAGESIM_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "pagesim" / digest.hexdigest()[:16]


def _compile():
    """The jitted loop; numba reads the cache directory only while a function is decorated."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(CACHE_DIRECTORY)
    try:
        return numba.njit(cache=True, _nrt=False)(pagesim.engine.loop.advance)
    finally:
        numba.config.CACHE_DIR = before


CACHE_DIRECTORY = _cache_directory()
advance = _compile()


def is_cached(allocator: str) -> bool:
    """Whether the loop for an allocator's state (``"Pool"`` or ``"Arena"``) was compiled before; if not, it takes seconds."""
    return numba.config.DISABLE_JIT or any(CACHE_DIRECTORY.glob(f"*/{allocator}"))
