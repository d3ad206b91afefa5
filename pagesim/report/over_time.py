"""Pictures of a case over time, as SVG: the ledger, what runs and waits, and the address map."""

import base64
import zlib

import numpy as np

from pagesim.engine.ownership import Ownership
from pagesim.core.ledger import PARTS
from pagesim.report.address_map import AddressMap, address_map
from pagesim.report.colours import MAP, PART_COLOURS, PREEMPTED, RUNNING, WAITING
from pagesim.report.png import palette_png
from pagesim.report.svg import Box, axis_below, axis_left, band, drawing, scale, short, step_line, tag, text, ticks
from pagesim.report.thinning import Thinned

_WIDTH, _LEFT, _RIGHT = 960, 60, 12
_PANELS = (
    # title, mean, maximum or None, colour, height
    ("running", "mean_running", "max_running", RUNNING, 70),
    ("waiting", "mean_waiting", "max_waiting", WAITING, 70),
    ("preemptions", "preemptions", None, PREEMPTED, 44),
)
_MAP_HEIGHT = 300


def load_figure(name: str, thinned: Thinned, capacity_slots: int, until_s: float) -> tuple[str, dict]:
    """The stacked ledger above running, waiting and preemptions; and what the page's reader of values needs.

    Where stretches were merged, the ledger's thin line is the most token states in each, and the lines below are
    the most running and waiting.  The axis goes on to ``until_s``, where that is later than the end.
    """
    ledger = Box(_LEFT, 20, _WIDTH - _LEFT - _RIGHT, 200)
    end_s = max(until_s, float(thinned.edges_s[-1]))
    x_at = scale(0, end_s, ledger.left, ledger.right)
    x = x_at(thinned.edges_s)
    inside = [_stack(ledger, x, thinned, capacity_slots)]
    top = ledger.bottom + 32
    for title, mean, most, colour, height in _PANELS:
        box = Box(ledger.left, top, ledger.width, height)
        inside.append(_panel(box, x, title, thinned.values[mean], most and thinned.values[most], colour))
        top = box.bottom + 32
    last = box
    inside.append(axis_below(last, ticks(end_s, 8), x_at, "simulated time, s", short))
    inside.append(tag("path", d=f"M0 {ledger.top}V{last.bottom:g}", class_="cursor"))
    label = f"{name}: ledger, running, waiting and preemptions over time; left and right keys move through it"
    return drawing(_WIDTH, last.bottom + 34, label, *inside), _load_values(
        thinned, capacity_slots, ledger._replace(width=float(x[-1]) - ledger.left))


def _stack(box: Box, x: np.ndarray, thinned: Thinned, capacity_slots: int) -> str:
    y_at = scale(0, 1, box.bottom, box.top)
    edges = np.cumsum(np.vstack([np.zeros(len(x) - 1), thinned.shares(capacity_slots)]), axis=0)
    areas = [tag("path", d=band(x, y_at(low), y_at(high)), class_=f"part {part}", fill=PART_COLOURS[part])
             for part, low, high in zip(PARTS, edges, edges[1:]) if np.any(high > low)]
    if not thinned.exact:
        peaks = y_at(thinned.values["max_token_states_slots"] / capacity_slots)
        areas.append(tag("path", d=step_line(x, peaks), class_="extreme"))
    heading = text("share of capacity, %", box.left, box.top - 7, class_="heading")
    return heading + axis_left(box, [0, 0.25, 0.5, 0.75, 1], y_at, lambda v: f"{100 * v:g}") + "".join(areas)


def _panel(box: Box, x: np.ndarray, title: str, mean: np.ndarray, most: np.ndarray | None, colour: str) -> str:
    shown = mean if most is None else most
    high = float(shown.max(initial=0)) or 1.0
    y_at = scale(0, high, box.bottom, box.top)
    zero = np.full(len(mean), box.bottom)
    whole = [value for value in ticks(high, 3) if value == int(value)]
    marks = [text(title, box.left, box.top - 7, class_="heading"), axis_left(box, whole, y_at, short)]
    if most is not None:
        marks.append(tag("path", d=step_line(x, y_at(most)), class_="faint", stroke=colour))
    marks.append(tag("path", d=band(x, zero, y_at(mean)), fill=colour))
    return "".join(marks)


def _load_values(thinned: Thinned, capacity_slots: int, box: Box) -> dict:
    """What the reader shows of each stretch: its time, the parts as per cent, counts."""
    columns = [{"name": part.replace("_", " "), "unit": " %", "values": _digits(100 * share, 2)}
               for part, share in zip(PARTS, thinned.shares(capacity_slots)) if np.any(share > 0)]
    names = {"mean_running": "running", "mean_waiting": "waiting", "preemptions": "preemptions"}
    if not thinned.exact:
        names |= {"max_running": "most running", "max_waiting": "most waiting"}
    columns += [{"name": new, "unit": "", "values": _digits(thinned.values[old], 2)} for old, new in names.items()]
    return {"left": box.left, "right": box.right, "edges": _digits(thinned.edges_s, 6), "columns": columns}


def _digits(values: np.ndarray, digits: int) -> list:
    rounded = np.round(values, digits).tolist()
    return [int(value) if value == int(value) else value for value in rounded]


def _packed(values: np.ndarray) -> str:
    """As unsigned numbers of 32 bits: -1 is the largest."""
    return base64.b64encode(zlib.compress(values.astype("<u4").tobytes(), 9)).decode()


def map_figure(name: str, recorded: Ownership, most_rows: int, most_columns: int) -> tuple[str, dict, AddressMap]:
    """Who owned which addresses at the recorded steps; and what the page's reader of values needs."""
    seen = address_map(recorded, most_rows, most_columns)
    box = Box(_LEFT, 20, _WIDTH - _LEFT - _RIGHT, _MAP_HEIGHT)
    png = base64.b64encode(palette_png(seen.colours[::-1], MAP)).decode()
    image = tag("image", x=box.left, y=box.top, width=box.width, height=box.height, href=f"data:image/png;base64,{png}",
                preserveAspectRatio="none", class_="map")
    num_slots = recorded.num_units * recorded.unit_slots
    y_at = scale(0, num_slots, box.bottom, box.top)
    x_at = scale(recorded.first_step, recorded.last_step + 1, box.left, box.right)
    marks = [step for step in ticks(recorded.last_step, 8, low=recorded.first_step) if step == int(step)]
    inside = (
        tag("rect", x=box.left, y=box.top, width=box.width, height=box.height, class_="free"),
        axis_left(box, ticks(num_slots, 5), y_at, short),
        image,
        text("address, slots", box.left, box.top - 7, class_="heading"),
        axis_below(box, marks, x_at, "step", lambda step: f"{step:,.0f}"),
        tag("rect", width=0, height=0, class_="cross"),
    )
    label = f"{name}: which request owned which address; arrow keys move through it"
    data = {
        "box": [box.left, box.top, box.width, box.height],
        "steps": seen.steps.tolist(),
        "start_s": _digits(seen.start_s, 6),
        "units": seen.units.tolist(),
        "unit_slots": seen.unit_slots,
        "owners": _packed(seen.owners + 1),
    }
    if np.any(seen.num_owners > 1):
        data["num_owners"] = _packed(seen.num_owners)
    return drawing(_WIDTH, box.bottom + 34, label, *inside), data, seen
