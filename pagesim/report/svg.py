"""Small pieces of SVG: tags, scales with readable ticks, axes, shapes."""

import math
from collections.abc import Callable, Iterable
from html import escape
from typing import NamedTuple

import numpy as np


class Box(NamedTuple):
    """The area of a panel in the drawing, in its units; y grows downwards."""

    left: float
    top: float
    width: float
    height: float

    @property
    def bottom(self) -> float:
        return self.top + self.height

    @property
    def right(self) -> float:
        return self.left + self.width


def tag(name: str, *inside: str, **attributes: object) -> str:
    """An element; ``inside`` is markup, attributes are escaped, ``class_`` and ``_`` stand for ``class`` and ``-``."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(_text(value))}"'
                    for key, value in attributes.items())
    return f"<{name}{given}>{''.join(inside)}</{name}>"


def text(content: str, x: float, y: float, **attributes: object) -> str:
    return tag("text", escape(content), x=x, y=y, **attributes)


def drawing(width: float, height: float, label: str, *inside: str) -> str:
    """A drawing that the keyboard reaches and that a screen reader announces by ``label``."""
    return tag("svg", *inside, viewBox=f"0 0 {_text(width)} {_text(height)}", tabindex=0, role="img", aria_label=label)


def scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """A linear map of ``[low, high]`` onto ``[start, end]``; of one value onto the start."""
    span = high - low
    return lambda value: start + (value - low) / span * (end - start) if span > 0 else start


def ticks(high: float, most: int = 5, *, low: float = 0.0) -> list[float]:
    """At most ``most + 1`` round numbers from ``low`` to ``high``."""
    if not high > low:
        return [low]
    step = 10.0 ** math.floor(math.log10((high - low) / most))
    step *= next(factor for factor in (1, 2, 5, 10) if factor * step * most >= (high - low) * (1 - 1e-9))
    first, last = math.ceil(low / step * (1 - 1e-9)), math.floor(high / step * (1 + 1e-9))
    return [k * step for k in range(first, last + 1)]


def axis_below(box: Box, values: Iterable[float], at: Callable[[float], float], label: str,
               shown: Callable[[float], str]) -> str:
    marks = [text(shown(value), at(value), box.bottom + 14, class_="tick", text_anchor="middle") for value in values]
    return "".join(marks) + text(label, box.right, box.bottom + 28, class_="tick", text_anchor="end")


def axis_left(box: Box, values: list[float], at: Callable[[float], float], shown: Callable[[float], str]) -> str:
    lines = "".join(f"M{_text(box.left)} {_text(at(value))}h{_text(box.width)}" for value in values)
    marks = [text(shown(v), box.left - 6, at(v) + 4, class_="tick", text_anchor="end") for v in values]
    return tag("path", d=lines, class_="grid") + "".join(marks)


def band(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> str:
    """Path of the area between two step functions; ``x`` has one more value than they."""
    return f"{_steps('M', x, high)}{_steps('L', x[::-1], low[::-1])}z"


def step_line(x: np.ndarray, y: np.ndarray) -> str:
    return _steps("M", x, y)


def _steps(move: str, x: np.ndarray, y: np.ndarray) -> str:
    """Corners of a step function; those in the middle of a level stretch are left out."""
    x, y = np.round(x, 1), np.round(y, 1)
    turns = np.flatnonzero(np.diff(y)) + 1
    corners = "".join(f"H{a:g}V{b:g}" for a, b in zip(x[turns].tolist(), y[turns].tolist()))
    return f"{move}{x[0]:g} {y[0]:g}{corners}H{x[-1]:g}"


def short(value: float) -> str:
    """A number for an axis: 1.5M, 20k, 0.05."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):.3g}{unit}"
    return f"{value:.4g}"


def _text(value: object) -> str:
    return f"{round(value, 2):g}" if isinstance(value, float) else str(value)
