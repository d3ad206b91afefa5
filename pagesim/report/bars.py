"""The two conventions as stacked bars, one a case."""

from collections.abc import Callable

from pagesim.report.colours import DARK, PAPER_COLOURS, TEXTBOOK_COLOURS
from pagesim.report.figures import paper_shares, percent, shown_window, textbook_shares
from pagesim.report.svg import Box, drawing, scale, tag, text

_WIDTH, _ROW, _BAR = 470, 44, 20
_LEAST_LABELLED = 0.09  # a narrower piece has no room for its number


CONVENTIONS = (
    ("As SOSP'23 Figure 2", paper_shares, PAPER_COLOURS),
    ("As a textbook", textbook_shares, TEXTBOOK_COLOURS),
)


def bars_figure(title: str, cases: list[tuple[str, dict]], shares_of: Callable[[dict], dict | None],
                colours: dict[str, str]) -> str:
    """A bar of 100 % for each case, its name and window above it."""
    rows = []
    for k, (name, case) in enumerate(cases):
        box = Box(0, k * _ROW + 18, _WIDTH, _BAR)
        rows.append(text(f"{name} ({shown_window(case)})", 0, box.top - 5, class_="name"))
        shares = shares_of(case)
        if shares is None:
            rows.append(text("nothing ran", 0, box.top + 14, class_="tick"))
        else:
            rows.append(_bar(box, name, shares, colours))
    return drawing(_WIDTH, len(cases) * _ROW + 6, f"{title}; left and right keys move through it", *rows)


def _bar(box: Box, name: str, shares: dict[str, float], colours: dict[str, str]) -> str:
    x_at = scale(0, 1, box.left, box.right)
    left, pieces = 0.0, []
    for part, share in shares.items():
        if share <= 0:
            continue
        shown = percent(share)
        piece = tag("rect", x=x_at(left), y=box.top, width=x_at(share), height=box.height, fill=colours[part],
                    class_="idle" if part == "free" else "piece")
        if share >= _LEAST_LABELLED:
            ink = "onfree" if part == "free" else "light" if colours[part] in DARK else "dark"
            piece += text(shown, x_at(left + share / 2), box.top + 14.5, class_=f"in {ink}", text_anchor="middle")
        tip = tag("title", f"{name}: {part.replace('_', ' ')} {shown} %".replace("&", "&amp;").replace("<", "&lt;"))
        pieces.append(tag("g", tip, piece, class_="mark"))
        left += share
    return "".join(pieces)
