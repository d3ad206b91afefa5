"""Distributions: histograms in powers of two, and latency percentiles."""

import math
from html import escape
from typing import NamedTuple

from pagesim.report.colours import SERIES
from pagesim.report.figures import number
from pagesim.report.svg import Box, axis_left, drawing, scale, short, tag, text, ticks


class Distribution(NamedTuple):
    """A histogram of metrics.json: its key, what it counts, the unit of its values, what one entry is."""

    key: str
    title: str
    unit: str
    entry: str


DISTRIBUTIONS = (
    Distribution("hole_slots_s", "Sizes of holes", "slots", "hole-seconds"),
    Distribution("waste_slots", "Waste of a request: allocated and never filled", "slots", "sequences"),
    Distribution("block_lifetime_steps", "Lifetime of a block", "steps", "blocks"),
    Distribution("table_run_blocks", "Scatter of tables: runs of adjacent blocks", "blocks", "runs"),
)
LATENCIES = {
    "queue": "queue: first admission − arrival",
    "ttft": "time to first token",
    "tpot": "time per output token",
    "e2e": "end to end",
}
PERCENTILES = ("p50", "p90", "p99")
_WIDTH = 300


def having(cases: list[tuple[str, dict]], key: str) -> list[tuple[str, list]]:
    """The cases with this histogram, by name."""
    return [(name, case["histograms"][key]) for name, case in cases if case["histograms"][key]]


def bin_label(low: float, high: float) -> str:
    return f"{low:,}" if high == low + 1 else f"{low:,} to {high - 1:,}"


def histogram_figure(name: str, what: Distribution, rows: list, last_bin: int, colour: str) -> str:
    """Share of all entries in each bin; ``last_bin`` (its number) is the same in all cases, so that they compare."""
    box = Box(40, 26, _WIDTH - 46, 90)
    total = sum(count for _, _, count in rows)
    most = max(count for _, _, count in rows) / total
    y_at, x_at = scale(0, most, box.bottom, box.top), scale(0, last_bin + 1, box.left, box.right)
    marks = []
    for low, high, count in rows:
        share, k = count / total, bin_number(low)
        tip = f"{name}: {bin_label(low, high)} {what.unit}: {number(count)} {what.entry}, {100 * share:.2f} %"
        bar = tag("rect", x=x_at(k) + 0.5, y=y_at(share), width=x_at(1) - x_at(0) - 1.0,
                  height=box.bottom - y_at(share), fill=colour)
        reach = tag("rect", x=x_at(k), y=box.top, width=x_at(1) - x_at(0), height=box.height, class_="reach")
        marks.append(tag("g", tag("title", escape(tip)), bar, reach, class_="mark"))
    every = max(1, (last_bin + 1) // 5)
    labels = [text(short(0 if k == 0 else 2 ** (k - 1)), x_at(k) + 2, box.bottom + 13, class_="tick")
              for k in range(0, last_bin + 1, every)]
    return drawing(_WIDTH, box.bottom + 18, f"{what.title}: {name}; left and right keys move through it",
                   text(name, 0, 12, class_="name"), axis_left(box, ticks(most, 3), y_at, lambda v: f"{100 * v:.3g}%"),
                   *marks, *labels)


def bin_number(low: int) -> int:
    return int(low).bit_length()


def latency_figure(key: str, cases: list[tuple[str, dict]]) -> str:
    """p50, p90 and p99 of each case on a logarithmic scale, the mean as a ring."""
    values = [value for _, case in cases for value in case["latency"][key].values() if value]
    width, row = 470, 34
    height = len(cases) * row + 26
    if not values:
        nothing = text("nothing completed", 0, 18, class_="tick")
        return drawing(width, 30, f"{LATENCIES[key]}: nothing completed", nothing)
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    log_at = scale(low, high, 16, width - 20)

    def x_at(value: float) -> float:
        return log_at(max(math.log10(value), low)) if value > 0 else 6.0

    decades = [10.0**k for k in range(low, high + 1)]
    grid = tag("path", d="".join(f"M{x_at(v):.1f} 0v{height - 20}" for v in decades), class_="grid")
    marks = [text(f"{short(v)} s", x_at(v), height - 6, class_="tick", text_anchor="middle") for v in decades]
    for k, (name, case) in enumerate(cases):
        y = k * row + 26
        marks.append(text(name, 16, y - 10, class_="name"))
        marks.append(_percentiles(name, case["latency"][key], y, x_at, SERIES[k % len(SERIES)]))
    return drawing(width, height, f"{LATENCIES[key]}, in seconds; left and right keys move through it", grid, *marks)


def _percentiles(name: str, values: dict, y: float, x_at, colour: str) -> str:
    if values["p50"] is None:
        return text("–", 16, y + 4, class_="tick")
    line = tag("path", d=f"M{x_at(values['p50']):.1f} {y}H{x_at(values['p99']):.1f}", class_="span", stroke=colour)
    dots = []
    for label in (*PERCENTILES, "mean"):
        look = {"fill": colour} if label != "mean" else {"fill": "none", "stroke": colour, "stroke_width": 1.5}
        dot = tag("circle", cx=x_at(values[label]), cy=y, r=4 if label != "mean" else 5.5, **look)
        tip = tag("title", escape(f"{name}: {label} {number(values[label])} s"))
        dots.append(tag("g", tip, dot, class_="mark"))
    return line + "".join(dots)
