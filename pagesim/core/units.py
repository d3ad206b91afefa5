"""Sizes and counts: whole blocks, bytes with a stated unit, seconds."""

import re

from pagesim.core.jit import HOT
from pagesim.errors import InputError

NS_PER_S = 10**9
GB = 10**9
GIB = 2**30

_BYTES = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": GB,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": GIB,
    "tib": 2**40,
}
_COUNTS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


def ceil_div(a: int, b: int) -> int:
    """``ceil(a / b)`` in integers, for ``b > 0``: the blocks that ``a`` tokens take."""
    return -(-a // b)


@HOT
def final_tokens(prompt, output):
    """Tokens that a sequence stores at its end: the last sampled one never is.  Of numbers or of arrays."""
    return prompt + output - 1


def parse_bytes(text: str | int) -> int:
    """Bytes of ``'12GiB'``, ``'80 GB'`` or a whole number of bytes.

    Raises:
        InputError: no unit, an unknown unit, or not a whole number of bytes.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*", str(text))
    unit = match and _BYTES.get(match[2].lower())
    if not unit:
        raise InputError(
            f"a size must be a number with its unit (12GiB = 12·2³⁰ bytes, 80GB = 80·10⁹ bytes), got {text!r}")
    return round(float(match[1]) * unit)


def parse_count(text: str | int) -> int:
    """A count such as ``'16k'`` (16,000), ``'1K'`` (1,024) or a whole number, as vLLM spells them.

    Raises:
        InputError: not a whole number.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kKmMgG]?)\s*", str(text))
    value = float(match[1]) * _COUNTS[match[2]] if match else 0.5
    if value != int(value):
        raise InputError(f"a count must be a whole number, 16k (16,000) or 16K (16,384), got {text!r}")
    return int(value)


def format_bytes(num_bytes: int) -> str:
    """Bytes in GiB, the unit written out: ``'12.00 GiB'``; small sizes in KiB or bytes."""
    if num_bytes >= 2**20 * 10:
        return f"{num_bytes / GIB:,.2f} GiB"
    if num_bytes >= 2**10:
        return f"{num_bytes / 2**10:,.1f} KiB"
    return f"{num_bytes} B"
