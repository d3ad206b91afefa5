"""The memory of the machine that simulates."""

from pathlib import Path

from pagesim.core.units import format_bytes
from pagesim.errors import InputError

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of a container


def available_bytes() -> int | None:
    """Memory that can still be had; None where the system does not tell."""
    known = [int(text) for path in _LIMITS if (text := _read(path).strip()).isdecimal()]
    known += [int(line.split()[1]) * 1024 for line in _read("/proc/meminfo").splitlines()
              if line.startswith("MemAvailable:")]
    return min(known, default=None)


def refuse_more_than_there_is(num_bytes: int, what: str, advice: str) -> None:
    """Before anything is taken: a machine without memory ends programs without a word.

    Raises:
        InputError: ``num_bytes`` for ``what`` are more than this machine has left.
    """
    available = available_bytes()
    if available is not None and num_bytes > available:
        raise InputError(f"{what} can take {format_bytes(num_bytes)} of this machine's memory, of which "
                         f"{format_bytes(available)} are left; {advice}")


def refuse_large_tables(num_bytes: int, num_blocks: int) -> None:
    """The same for what a pool keeps of its blocks."""
    refuse_more_than_there_is(num_bytes, f"keeping the tables of {num_blocks:,} blocks", (
        "a larger block_size takes less in proportion, as do less KV memory, and a lower max_model_len, which rejects "
        "the longest requests"))


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""
