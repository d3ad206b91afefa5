"""Large arrays of which little may be used: memory is taken page by page as they are written."""

import math
import mmap
import platform
import sys

import numpy as np

# Linux refuses to promise more memory than there is, unless it is told that not all of it will be needed.
_LINUX = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
_MAP_NORESERVE = 0x4000  # there; Python has no name for it before 3.13
_WORTH_IT_BYTES = 2**20


def lazy(shape: int | tuple[int, ...], dtype: type) -> np.ndarray:
    """An array of anything, also where all of it would not fit into the machine's memory."""
    num_bytes = math.prod(np.atleast_1d(shape).tolist()) * np.dtype(dtype).itemsize
    if not _LINUX or num_bytes < _WORTH_IT_BYTES:
        return np.empty(shape, dtype)
    pages = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
    return np.frombuffer(pages, dtype).reshape(shape)
