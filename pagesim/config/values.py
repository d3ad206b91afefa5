"""Numbers as people write them in a config: counts such as 16k, sizes such as 12GiB."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from pagesim.core.units import parse_bytes, parse_count

_SMALLEST_BYTES = 2**20
_LARGEST = 10**15   # far above any memory or trace; a slip of the exponent, not a wish


def _unlike(wanted: str, value: Any) -> ValueError:
    """The error for a value of another type; pydantic collects ValueErrors, and lets TypeErrors through."""
    return ValueError(f"must be {wanted}, got {shown(value)}")


def _as_count(value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise _unlike("a whole number", value)
    return parse_count(value)


def _as_bytes(value: Any) -> int:
    """A bare small number is a size in GiB or GB whose unit was forgotten, as vLLM's flags have it."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise _unlike("a size with its unit, such as 12GiB", value)
    size = parse_bytes(value)
    if isinstance(value, int) and 0 < abs(size) < _SMALLEST_BYTES:
        raise ValueError(f"{value} would be {value} bytes; write the unit, such as {value}GiB")
    return size


def _as_real(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _unlike("a number", value)
    return float(value)


def _as_flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _unlike("true or false", value)
    return value


def shown(value: Any) -> str:
    """A value as its YAML has it, near enough: ``true`` and not ``True``, ``nothing`` and not ``None``."""
    if value is None:
        return "nothing"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _schema(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string", "pattern": pattern}]})


Count = Annotated[int, Field(le=_LARGEST), BeforeValidator(_as_count), _schema(r"^[0-9]+(\.[0-9]+)?[kKmMgG]?$")]
Bytes = Annotated[int, Field(ge=0, le=_LARGEST), BeforeValidator(_as_bytes),
                  _schema(r"^[0-9]+(\.[0-9]+)? ?[kKmMgGtT]?[iI]?[bB]$")]
Real = Annotated[float, Field(le=_LARGEST), BeforeValidator(_as_real)]
Flag = Annotated[bool, BeforeValidator(_as_flag)]
