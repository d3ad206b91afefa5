"""A value that must be one of a few names."""

from pagesim.errors import InputError


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raises InputError where ``value`` of the key ``name`` is none of ``allowed``."""
    if value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
