"""What was swept: the keys in which cases differ, and each figure along one of them."""

import math
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import partial
from html import escape
from typing import NamedTuple

from pagesim.errors import InputError
from pagesim.report.better import is_better
from pagesim.report.colours import SERIES
from pagesim.report.figures import number
from pagesim.report.files import flat
from pagesim.report.loaded import LoadedCase
from pagesim.report.svg import Box, axis_left, drawing, scale, short, tag, text, ticks


class Curve(NamedTuple):
    """Cases that differ in one key only: ``points`` are (value of the key, case), in order of the value."""

    key: str
    name: str
    points: tuple[tuple[object, LoadedCase], ...]


class Measure(NamedTuple):
    """A figure of a case, and which end of it is best."""

    title: str
    of: Callable[[dict], float | None]
    best: Callable


MEASURES = (
    Measure("token use, %", lambda case: _percent(case["utilization"]), max),
    Measure("running, mean", lambda case: case["mean"]["running"], max),
    Measure("output tokens/s", lambda case: case["throughput"]["output_tokens_per_s"], max),
    Measure("internal fragmentation, %", lambda case: _percent(case["internal_fragmentation"]), min),
    Measure(
        "time blocked by fragmentation, %",
        lambda case: _percent(case["external_fragmentation"]["blocked_by_fragmentation"]),
        min,
    ),
    Measure("ttft p99, s", lambda case: case["latency"]["ttft"]["p99"], min),
)


def measures(names: tuple[str, ...], cases: list[LoadedCase]) -> tuple[Measure, ...]:
    """Figures by their names in the CSV; of one without a better side the most is ringed.

    Raises:
        InputError: no case has such a figure.
    """
    known = {name for case in cases for name, value in flat(case.entry).items() if _is_number(value)}
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, 3, 0.4)
            raise InputError(f"there is no figure {name!r}; " + (f"did you mean {' or '.join(near)}?" if near else (
                "table.csv has their names in its first line")))
    return tuple(Measure(name, partial(_figure, name), min if is_better(name, 0.0, 1.0) is False else max)
                 for name in names)


def _figure(name: str, entry: dict) -> float | None:
    return flat(entry).get(name)


# A seed is no setting: curves along it would only show chance.
_NO_AXES = ("seed",)
_WIDTH = 460


def curves(cases: list[LoadedCase]) -> dict[str, list[Curve]]:
    """The curves along each swept key: numbers of which some case has two, or words of which one has three."""
    leaves = [dict(_leaves(case.resolved)) for case in cases]
    keys = {key for each in leaves for key in each}
    varying = sorted(key for key in keys if len({repr(each.get(key)) for each in leaves}) > 1)
    found = {}
    for key in varying:
        groups: dict[str, list] = {}
        for case, each in zip(cases, leaves):
            rest = repr([(other, each.get(other)) for other in varying if other != key])
            groups.setdefault(rest, []).append((each.get(key), case))
        swept = [points for points in groups.values() if _is_axis(key, [value for value, _ in points])]
        if swept:
            found[key] = [_curve(key, points) for points in swept]
    return found


def _is_axis(key: str, values: list) -> bool:
    if key in _NO_AXES:
        return False
    distinct = {repr(value) for value in values}
    return len(distinct) >= (2 if all(map(_is_number, values)) else 3) and not any(v is None for v in values)


def _curve(key: str, points: list[tuple[object, LoadedCase]]) -> Curve:
    if all(_is_number(value) for value, _ in points):
        points = sorted(points, key=lambda point: point[0])
    # What the names of the curve's cases share, word by word, names the curve.
    names = [case.name.split() for _, case in points]
    shared = " ".join(word for word in names[0] if all(word in other for other in names))
    return Curve(key, shared or key, tuple(points))


def positions(found: list[Curve]) -> dict[object, float]:
    """Where each value of the key stands on the axis: by its logarithm where all are above 0, words evenly apart."""
    values = list(dict.fromkeys(value for curve in found for value, _ in curve.points))
    if not all(map(_is_number, values)):
        return {value: float(k) for k, value in enumerate(values)}
    values.sort()
    logarithmic = values[0] > 0 and values[-1] / values[0] >= 8
    return {value: math.log2(value) if logarithmic else float(value) for value in values}


def tells(found: list[Curve], measure: Measure) -> bool:
    """Whether the measure exists and is not 0 in some case."""
    return any(measure.of(case.entry) for curve in found for _, case in curve.points)


def curve_figure(found: list[Curve], measure: Measure) -> str:
    """The measure along the key, a line a curve, the best point of all of them ringed."""
    ys = [y for curve in found for _, case in curve.points if (y := measure.of(case.entry)) is not None]
    box = Box(52, 22, _WIDTH - 70, 150)
    high = max(ys)
    at = positions(found)
    x_at = scale(min(at.values()), max(at.values()), box.left + 8, box.right - 8)
    y_at = scale(0, high, box.bottom, box.top)
    best = measure.best(ys)
    inside = [text(measure.title, 0, 11, class_="heading"), axis_left(box, ticks(high, 4), y_at, short)]
    inside += [text(str(value), x_at(place), box.bottom + 14, class_="tick", text_anchor="middle")
               for value, place in at.items()]
    for k, curve in enumerate(found):
        inside.append(_line(curve, measure, best, x_at, y_at, at, SERIES[k % len(SERIES)]))
    return drawing(_WIDTH, box.bottom + 22, f"{measure.title} by {found[0].key}; left and right keys move through it",
                   *inside)


def _line(curve: Curve, measure: Measure, best: float, x_at, y_at, at: dict, colour: str) -> str:
    points = [(x_at(at[value]), measure.of(case.entry), value, case) for value, case in curve.points]
    points = [point for point in points if point[1] is not None]
    marks = ([tag("path", d="M" + "L".join(f"{x:.1f} {y_at(y):.1f}" for x, y, _, _ in points), class_="line",
                  stroke=colour)]
             if points else [])
    for x, y, value, case in points:
        tip = f"{case.name}: {measure.title} {number(y)} at {curve.key} = {value}"
        dot = tag("circle", cx=x, cy=y_at(y), r=3.5, fill=colour)
        if y == best:
            tip += " (best)"
            dot += tag("circle", cx=x, cy=y_at(y), r=7, class_="best")
        marks.append(tag("g", tag("title", escape(tip)), dot, class_="mark"))
    return "".join(marks)


def _leaves(value: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{prefix}.{key}" if prefix else key)
    elif isinstance(value, list):
        # A case has one allocator, whichever of the experiment's it is.
        for k, item in enumerate(value):
            yield from _leaves(item, prefix if len(value) == 1 else f"{prefix}.{k}")
    else:
        yield prefix, value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
