"""The page's pictures as figures for a paper, drawn with matplotlib (extra ``report``)."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pagesim.core.ledger import PARTS
from pagesim.errors import InputError
from pagesim.report import sweeps
from pagesim.report.address_map import address_map
from pagesim.report.bars import CONVENTIONS
from pagesim.report.colours import DARK, MAP, PART_COLOURS, SERIES
from pagesim.report.distributions import DISTRIBUTIONS, LATENCIES, PERCENTILES, bin_number, having
from pagesim.report.figures import shown_window
from pagesim.report.loaded import LoadedCase
from pagesim.report.thinning import thin

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

ENDINGS = (".png", ".svg", ".pdf")
_STRETCHES = 800
_MAP_CELLS = (600, 1500)
_WIDTH = 7.0  # inches: a page of two columns
_SMALL = {"fontsize": "small"}
_DASHES = ("-", "--", ":", "-.")
_LINEAR_BELOW_S = 1e-3


def save(figure: "Figure", path: Path) -> None:
    """Write the figure; the same figure gives the same file.

    Raises:
        InputError: the file's ending names no format that is written.
    """
    if path.suffix not in ENDINGS:
        raise InputError(f"{path}: a picture ends in {', '.join(ENDINGS)}, not in {path.suffix or 'nothing'!r}")
    from matplotlib import rc_context

    dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}
    with rc_context({"svg.hashsalt": "pagesim", "svg.fonttype": "none"}):
        figure.savefig(path, dpi=200, metadata=dated[path.suffix[1:]])


def ledger(cases: list[LoadedCase]) -> "Figure":
    """Each case's parts of capacity over time, stacked; the line is the most token states of each stretch."""
    figure, panels = _column(len(cases), 1.9)
    used = {}
    for panel, case in zip(panels, cases):
        slots, thinned = case.entry["capacity"]["slots"], thin(case.timeline(), _STRETCHES)
        tops = np.cumsum(np.vstack([np.zeros(len(thinned.edges_s) - 1), 100 * thinned.shares(slots)]), axis=0)
        for part, low, high in zip(PARTS, tops, tops[1:]):
            if np.any(high > low):
                panel.stairs(high, thinned.edges_s, baseline=low, fill=True, color=PART_COLOURS[part])
                used[part] = PART_COLOURS[part]
        if not thinned.exact:
            peaks = 100 * thinned.values["max_token_states_slots"] / slots
            panel.stairs(peaks, thinned.edges_s, baseline=None, color="black", linewidth=0.5)
        panel.set(ylim=(0, 100), ylabel="% of capacity")
        panel.set_title(case.name, **_SMALL)
    panels[-1].set_xlabel("simulated time, s")
    last_s = max(case.entry["time"]["end_s"] for case in cases)
    for panel in panels:
        panel.set_xlim(0, last_s or 1)  # the same for all: which allocator is done first shows
    _legend(figure, [_patch(part.replace("_", " "), used[part]) for part in PARTS if part in used])
    return figure


def running(cases: list[LoadedCase]) -> "Figure":
    """Running and waiting sequences and preemptions over time, a line a case."""
    figure, panels = _column(3, 1.5)
    names = ("mean_running", "mean_waiting", "preemptions")
    for k, case in enumerate(cases):
        thinned = thin(case.timeline(), _STRETCHES // 4)
        for panel, name in zip(panels, names):
            panel.stairs(thinned.values[name], thinned.edges_s, baseline=None, linewidth=1, **_series(k))
    for panel, title in zip(panels, ("running", "waiting", "preemptions")):
        panel.set(ylabel=title, ylim=(0, None), xlim=(0, None))
    panels[-1].set_xlabel("simulated time, s")
    _legend(figure, [_line(case.name, k) for k, case in enumerate(cases)])
    return figure


def owners(cases: list[LoadedCase]) -> "Figure":
    """The address map of each case: which request owned which slots.

    White is free, dark is owned by several, pale green is kept by a prefix cache alone.
    """
    from matplotlib.colors import ListedColormap

    figure, panels = _column(len(cases), 2.4)
    colours = ListedColormap(["white", *MAP])
    for panel, case in zip(panels, cases):
        recorded = case.ownership()
        seen = address_map(recorded, *_MAP_CELLS)
        if not seen.colours.size:
            raise InputError(f"{case.name}: the run has no step: there is no map to draw")
        reach = (recorded.first_step, recorded.last_step + 1, 0, recorded.num_units * recorded.unit_slots)
        panel.imshow(seen.colours, cmap=colours, vmin=-1, vmax=len(MAP) - 1, extent=reach, origin="lower",
                     aspect="auto", interpolation="nearest")
        panel.set(ylabel="address, slots")
        panel.set_title(case.name, **_SMALL)
    panels[-1].set_xlabel("step")
    return figure


def sosp23(cases: list[LoadedCase]) -> "Figure":
    """Both conventions, a bar a case, over the window named beside it."""
    from matplotlib.figure import Figure

    figure = Figure((_WIDTH, 1.1 + 0.32 * len(cases)), layout="constrained")
    for panel, (title, shares_of, colours) in zip(figure.subplots(1, 2, sharey=True), CONVENTIONS):
        for row, case in enumerate(cases):
            left = 0.0
            for part, share in (shares_of(case.entry) or {}).items():
                panel.barh(row, 100 * share, left=left, color=colours[part])
                if share >= 0.12:
                    ink = "white" if colours[part] in DARK else "black"
                    panel.text(left + 50 * share, row, f"{100 * share:.1f}", ha="center", va="center", color=ink,
                               fontsize="x-small")
                left += 100 * share
        panel.set_yticks(range(len(cases)), [f"{case.name} ({shown_window(case.entry)})" for case in cases], **_SMALL)
        panel.set(xlim=(0, 100), xlabel="% of capacity")
        panel.set_title(title, **_SMALL)
        handles = [_patch(name.replace("_", " "), colour) for name, colour in colours.items()]
        panel.legend(handles=handles, fontsize="x-small", ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.12))
    panel.invert_yaxis()
    return figure


def sweep(cases: list[LoadedCase], figures: tuple[str, ...] = ()) -> "Figure":
    """Figures along each swept key, a line a curve, the best point ringed.

    Args:
        figures: as the CSV names them; by default a few that matter.

    Raises:
        InputError: the cases differ in nothing that can be drawn along an axis, or have no such figure.
    """
    from matplotlib.figure import Figure

    found = sweeps.curves(cases)
    if not found:
        raise InputError("nothing was swept: no two cases differ in one number alone, nor three in one word")
    wanted = sweeps.measures(figures, cases) if figures else sweeps.MEASURES
    heights = [3.6 + _legend_inches([curve.name for curve in curves]) for curves in found.values()]
    figure = Figure((_WIDTH, sum(heights)), layout="constrained")
    parts = figure.subfigures(len(found), 1, squeeze=False, height_ratios=heights)[:, 0]
    for part, (key, curves) in zip(parts, found.items()):
        at = sweeps.positions(curves)
        measures = [measure for measure in wanted if figures or sweeps.tells(curves, measure)]
        panels = part.subplots(-(-len(measures) // 3), 3, squeeze=False).ravel()
        for panel, measure in zip(panels, measures):
            _curves(panel, curves, measure, at)
        for panel in panels[len(measures):]:
            panel.set_axis_off()
        part.supxlabel(key, **_SMALL)
        _legend(part, [_line(curve.name, k) for k, curve in enumerate(curves)])
    return figure


def _curves(panel: "Axes", curves: list[sweeps.Curve], measure: sweeps.Measure, at: dict) -> None:
    values = []
    for k, curve in enumerate(curves):
        points = [(at[value], measure.of(case.entry)) for value, case in curve.points]
        points = [point for point in points if point[1] is not None]
        values += points
        panel.plot(*zip(*points), marker="o", markersize=3, linewidth=1.2, **_series(k)) if points else None
    if values:
        best = measure.best(y for _, y in values)
        ringed = [point for point in values if point[1] == best]
        panel.plot(*zip(*ringed), "o", markersize=8, fillstyle="none", color="black")
    panel.set_title(measure.title, **_SMALL)
    crowded = sum(len(str(value)) for value in at) > 10
    panel.set_xticks(list(at.values()), [str(value) for value in at], rotation=35 if crowded else 0, **_SMALL)
    panel.set_ylim(0, 1.08 * max(y for _, y in values) if values else 1)


def latency(cases: list[LoadedCase]) -> "Figure":
    """p50, p90 and p99 of each latency as dots on a logarithmic scale, the mean as a ring."""
    from matplotlib.figure import Figure

    figure = Figure((_WIDTH, 1.6 + 0.5 * len(cases)), layout="constrained")
    for panel, (key, title) in zip(figure.subplots(2, 2, sharey=True).ravel(), LATENCIES.items()):
        for row, case in enumerate(cases):
            values = case.entry["latency"][key]
            if values["p50"] is None:
                continue
            colour = SERIES[row % len(SERIES)]
            panel.plot([values[p] for p in PERCENTILES], [row] * 3, "o-", color=colour, markersize=4)
            panel.plot(values["mean"], row, "o", color=colour, fillstyle="none", markersize=8)
        _logarithmic(panel)
        panel.set_yticks(range(len(cases)), [case.name for case in cases], **_SMALL)
        panel.set(ylim=(len(cases) - 0.5, -0.5))
        panel.set_title(f"{title}, s", **_SMALL)
    return figure


def _logarithmic(panel: "Axes") -> None:
    """A logarithmic axis that has a 0, with room around its values for two of its ticks 1, 2, 5, 10 … at least."""
    from matplotlib.ticker import FuncFormatter, SymmetricalLogLocator

    panel.set_xscale("symlog", linthresh=_LINEAR_BELOW_S)
    low, high = panel.dataLim.intervalx
    if np.isfinite(high):
        panel.set_xlim(low / 2.5 if low > _LINEAR_BELOW_S else 0, max(2.5 * high, 2 * _LINEAR_BELOW_S))
    steps = (1, 2, 5) if high < 100 * max(low, _LINEAR_BELOW_S) else (1,)
    panel.xaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=_LINEAR_BELOW_S, subs=steps))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
    panel.tick_params(axis="x", labelsize="x-small")


def histograms(cases: list[LoadedCase]) -> "Figure":
    """Holes, waste, block lifetimes and scatter of tables in powers of two, a line a case."""
    from matplotlib.figure import Figure

    figure = Figure((_WIDTH, 4.6), layout="constrained")
    style_of = {case.name: _series(k) for k, case in enumerate(cases)}
    for panel, what in zip(figure.subplots(2, 2).ravel(), DISTRIBUTIONS):
        for name, rows in having([(case.name, case.entry) for case in cases], what.key):
            total = sum(count for _, _, count in rows)
            shares = np.zeros(bin_number(rows[-1][0]) + 1)
            for low, _, count in rows:
                shares[bin_number(low)] = 100 * count / total
            panel.stairs(shares, np.arange(len(shares) + 1), baseline=None, **style_of[name])
        last = max(int(panel.get_xlim()[1]), 1)
        ticks = np.arange(0, last + 1, 3 if last >= 6 else 1)
        panel.set_xticks(ticks, [f"{0 if k == 0 else 2 ** (k - 1):,}" for k in ticks.tolist()], **_SMALL)
        panel.set(xlabel=what.unit, ylabel=f"% of {what.entry}", ylim=(0, None))
        panel.set_title(what.title, **_SMALL)
    _legend(figure, [_line(case.name, k) for k, case in enumerate(cases)])
    return figure


PLOTS: dict[str, Callable[..., "Figure"]] = {
    "ledger": ledger,
    "map": owners,
    "running": running,
    "sosp23": sosp23,
    "sweep": sweep,
    "latency": latency,
    "histograms": histograms,
}


def _column(count: int, height: float) -> tuple["Figure", list["Axes"]]:
    """Panels one above the other."""
    from matplotlib.figure import Figure

    figure = Figure((_WIDTH, 0.6 + height * count), layout="constrained")
    return figure, list(figure.subplots(count, 1, squeeze=False)[:, 0])


def _series(k: int) -> dict[str, str]:
    """Colour and dashes of a line: 28 differ."""
    return {"color": SERIES[k % len(SERIES)], "linestyle": _DASHES[k // len(SERIES) % len(_DASHES)]}


def _line(name: str, k: int) -> "Artist":
    from matplotlib.lines import Line2D

    return Line2D([], [], label=name, **_series(k))


def _patch(name: str, colour: str) -> "Artist":
    from matplotlib.patches import Patch

    return Patch(color=colour, label=name)


def _legend(figure: "FigureBase", handles: "list[Artist]") -> None:
    """A legend above the panels, as many names side by side as fit; the figure grows by its lines."""
    from matplotlib.figure import Figure

    if not handles:
        return
    names = [handle.get_label() for handle in handles]
    if isinstance(figure, Figure):
        figure.set_figheight(figure.get_figheight() + _legend_inches(names))
    figure.legend(handles=handles, loc="outside upper center", ncols=_side_by_side(names), fontsize="small")


def _side_by_side(names: list[str]) -> int:
    longest_inches = max(map(len, names)) * 0.07 + 0.55
    return max(1, min(4, len(names), int(_WIDTH / longest_inches)))


def _legend_inches(names: list[str]) -> float:
    return 0.18 * -(-len(names) // _side_by_side(names))
