"""A view as lines of characters.

Every meaning has a character of its own; colour only adds whose memory it is.  Without colour a request is a letter:
capital where tokens are stored, small where its memory is empty.
"""

import numpy as np
from rich.style import Style
from rich.text import Text

from pagesim.engine.ownership import free_runs
from pagesim.core.ledger import CACHED, PARTS
from pagesim.watch.player import View

STORED, SHARED, EMPTY, KEPT, FREE, STRANDED = "█", "#", "░", "o", "·", "×"
# Okabe and Ito's colours, told apart by colour-blind people; the first six are bright enough on black and on white.
OWNER_COLOURS = ("#E69F00", "#56B4E9", "#009E73", "#D55E00", "#CC79A7", "#0072B2", "#F0E442")
# Of the ledger: name as it is shown, character, colour.
LEDGER = {
    "token_states": ("used", "█", "#009E73"),
    "reserved": ("reserved", "▓", "#56B4E9"),
    "overreserved": ("overreserved", "▒", "#E69F00"),
    "rounding": ("rounding", "~", "#CC79A7"),
    "cached": ("cached", "o", "#0072B2"),
    "stranded": ("stranded", "×", "#D55E00"),
    "idle": ("free", "·", "#999999"),
    "remainder": ("remainder", "-", "#999999"),
}
_UNOWNED = {FREE: "idle", STRANDED: "stranded", KEPT: "cached"}
_WIDE = 36                  # columns in which two labels of the ledger stand side by side
_LABEL_LINES, _NARROW_LABEL_LINES = 3, 5
_OTHER_LINES = 10           # title, scale, blank, bar, three lines of counts, three events
_LEAST_MAP_LINES = 2


def draw(view: View, width: int, height: int, *, colour: bool) -> Text:
    """The panel of a case, ``height`` lines of at most ``width`` columns."""
    # As many lines for labels as there may be at most, so that the maps of all panels keep one size.
    label_lines = _LABEL_LINES if width >= _WIDE else _NARROW_LABEL_LINES
    labels = [label[:width] for label in _ledger_labels(view, width, colour)[:label_lines]]
    labels += [Text("")] * (label_lines - len(labels))
    map_lines = max(_LEAST_MAP_LINES, height - _OTHER_LINES - label_lines)
    cells = min(width * map_lines, len(view.owners))
    lines = [
        Text(view.name[:width].ljust(width), style="reverse"),
        Text(_scale(view, cells)[:width], style="dim"),
        *_map(view, width, cells, colour=colour),
    ]
    lines += [Text("")] * (2 + map_lines - len(lines))
    lines += [Text(""), _ledger_bar(view, width, colour=colour), *labels]
    lines += [Text(line[:width]) for line in (_queue(view), _counts(view), _free(view))]
    left = height - len(lines)
    lines += [Text(event[:width]) for event in reversed(view.events[-left:] if left > 0 else ())]
    return Text("\n").join(lines[:height])


def cell_edges(num_units: int, cells: int) -> np.ndarray:
    """First unit of each cell, and the end: cells of nearly equal size, int64, shape (cells + 1,)."""
    return np.arange(cells + 1) * num_units // cells


def memory_cells(view: View, cells: int) -> tuple[str, np.ndarray]:
    """What most of each cell is, a sign each, and whose: the latest of its owners."""
    starts = cell_edges(len(view.owners), cells)[:-1]
    slots, allocated, shared, kept = (np.add.reduceat(view.unit_slots * is_so, starts) for is_so in (
        np.ones(len(view.owners), np.int64), view.owners >= 0, view.num_owners > 1, view.owners == CACHED))
    stored = np.add.reduceat(view.stored, starts)
    nobodys = STRANDED if view.parts_slots[PARTS.index("stranded")] > 0 else FREE
    nobodys = np.where(2 * kept >= slots - allocated, KEPT, nobodys)
    owned = np.where(2 * shared >= allocated, SHARED, np.where(2 * stored >= allocated, STORED, EMPTY))
    kind = np.where(2 * allocated < slots, nobodys, owned)
    return "".join(kind), np.maximum.reduceat(view.owners, starts)


def _map(view: View, width: int, cells: int, *, colour: bool) -> list[Text]:
    kinds, owners = memory_cells(view, cells)
    text = Text()
    for kind, owner in zip(kinds, owners.tolist()):
        if kind in _UNOWNED:
            text.append(kind, _style(LEDGER[_UNOWNED[kind]][2], colour))
        elif colour or kind == SHARED:
            text.append(kind, _style(OWNER_COLOURS[owner % len(OWNER_COLOURS)], colour))
        else:
            letter = chr(ord("A") + owner % 26)
            text.append(letter if kind == STORED else letter.lower())
    return [text[first:first + width] for first in range(0, cells, width)]


def bar_widths(parts_slots: np.ndarray, width: int) -> list[int]:
    """Columns of each part; they sum to ``width``, and no part is off by a whole column."""
    ends = np.cumsum(parts_slots) * width / max(1, int(parts_slots.sum()))
    return np.diff(np.round(ends).astype(int), prepend=0).tolist()


def _ledger_bar(view: View, width: int, *, colour: bool) -> Text:
    text = Text()
    for part, columns in zip(PARTS, bar_widths(view.parts_slots, width)):
        _, character, shade = LEDGER[part]
        text.append(character * columns, _style(shade, colour))
    return text


def _ledger_labels(view: View, width: int, colour: bool) -> list[Text]:
    """Character, name and share of each part that is not 0, as many to a line as fit."""
    total = max(1, int(view.parts_slots.sum()))
    lines = [Text()]
    for part, slots in zip(PARTS, view.parts_slots.tolist()):
        if slots == 0 or (part == "remainder" and 200 * slots < total):
            continue
        name, character, shade = LEDGER[part]
        label = f"{character} {name} {100 * slots / total:.1f}%"
        if lines[-1] and len(lines[-1]) + 2 + len(label) > width:
            lines.append(Text())
        if lines[-1]:
            lines[-1].append("  ")
        lines[-1].append(label, _style(shade, colour))
    return lines


def _style(colour: str, wanted: bool) -> Style:
    return Style(color=colour) if wanted else Style.null()


def _scale(view: View, cells: int) -> str:
    unit = f"blocks of {view.unit_slots}" if view.paged else "slots"
    per_cell = len(view.owners) / max(1, cells)
    each = "a cell each" if per_cell == 1 else f"{per_cell:,.{0 if per_cell >= 10 else 1}f} to a cell"
    return f"{len(view.owners):,} {unit}, {each}"


def _queue(view: View) -> str:
    if view.over:
        return "the run is over"
    if view.idle_until_s is not None:
        return f"idle until {view.idle_until_s:.2f} s"
    return f"running {view.running:,}  waiting {view.waiting:,}"


def _counts(view: View) -> str:
    rejected = f"  rejected {view.rejected:,}" if view.rejected else ""
    return f"done {view.completed:,}/{view.num_requests:,}  preempted {view.preempted:,}{rejected}"


def _free(view: View) -> str:
    """How the free memory lies: its pieces and the largest, or the blocks of which any one serves."""
    sizes = free_runs(view.owners)
    if view.paged:
        kept = np.count_nonzero(view.owners == CACHED)
        serves = f"{kept:,} more are cached" if kept else "any of them serves"
        return f"free: {sum(sizes):,} blocks, {serves}"
    if not sizes:
        return "free: nothing"
    return f"free: {sum(sizes):,} in {len(sizes)} hole{'s' if len(sizes) > 1 else ''}, largest {max(sizes):,}"
