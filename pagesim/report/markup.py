"""Pieces of the page: sections, pictures with the line that reads them, legends, tables."""

import json
from html import escape
from typing import NamedTuple

from pagesim.report.svg import tag


class Section(NamedTuple):
    title: str
    inside: str


def section(title: str, *inside: str) -> Section:
    return Section(title, "".join(inside))


def page_body(sections: list[Section], note: str = "") -> str:
    """A list of contents, the note, and the sections."""
    links = "".join(f'<li><a href="#part{k}">{escape(each.title)}</a>' for k, each in enumerate(sections))
    parts = (f"<section id=part{k}><h2>{escape(each.title)}</h2>{each.inside}</section>"
             for k, each in enumerate(sections))
    return f"<nav aria-label=contents><ul>{links}</ul></nav>{note}" + "\n".join(parts)


def figure(kind: str, picture: str, data: dict | None = None, caption: str = "") -> str:
    """A drawing with the line that shows the values under the pointer or the cursor keys."""
    held = ""
    if data is not None:
        content = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
        held = tag("script", content, type="application/json")
    head = caption and f"<figcaption>{caption}</figcaption>"
    return (f'<figure data-kind="{kind}">{head}<div class=pan>{picture}</div><output aria-live="polite"></output>'
            f"{held}</figure>")


def legend(colours: dict[str, str]) -> str:
    # What is free has the colour of idle memory, which depends on the light.
    classes = {name: "idle" if name == "free" else escape(name) for name in colours}
    keys = (f'<span><i class="{classes[name]}" style="background:{colour}"></i>{escape(name)}</span>'
            for name, colour in colours.items())
    return f"<p class=legend>{''.join(keys)}</p>"


def spaced(colours: dict[str, str]) -> dict[str, str]:
    """Colours of things by their names as they are read."""
    return {name.replace("_", " "): colour for name, colour in colours.items()}


def cell(value: object, shown: str, key: str = "") -> str:
    """A number as it is read; ``data-value`` holds it to the last digit, ``data-key`` may name it."""
    given = f' data-key="{escape(key)}"' if key else ""
    return f'<td{given} data-value="{escape(json.dumps(value))}">{escape(shown)}</td>'


def table(kind: str, label: str, columns: list[str], rows: list[tuple[str, str]]) -> str:
    """A table that scrolls where the window is too narrow.

    Args:
        kind: its class.
        label: what a screen reader calls it.
        columns: headings; the first is that of the rows' names.
        rows: name and cells (markup) of each.
    """
    head = "".join(f"<th scope=col>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr><th scope=row>{escape(name)}</th>{cells}</tr>" for name, cells in rows)
    return (f'<div class="wide {kind}" tabindex=0 role=region aria-label="{escape(label)}">'
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>")
