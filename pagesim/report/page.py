"""One self-contained HTML page of run folders: no library, no network, a few hundred kilobytes."""

import json
from html import escape
from importlib.resources import files

from pagesim import __version__
from pagesim.core.units import format_bytes
from pagesim.report import bars, sweeps
from pagesim.report.colours import SERIES
from pagesim.report.distributions import DISTRIBUTIONS, LATENCIES, bin_number, having, histogram_figure, latency_figure
from pagesim.report.folder import config_text
from pagesim.report.loaded import LoadedCase, LoadedRun
from pagesim.report.markup import Section, figure, legend, page_body, section, spaced
from pagesim.report.page_case import case_sections
from pagesim.report.page_tables import all_numbers, glance

# Pictures over time are the page's weight: of more cases there are only tables and bars.
MOST_PICTURED = 24


def page_html(runs: list[LoadedRun], cases: list[LoadedCase]) -> str:
    """The page.

    Args:
        runs: what was loaded: their configs and machines are shown.
        cases: those of them that are shown.
    """
    entries = [(case.name, case.entry) for case in cases]
    sections = [
        section("At a glance", glance(entries)),
        section("Where the memory went", _conventions(entries)),
        *_sweep_sections(cases),
        *case_sections(cases[:MOST_PICTURED]),
        section("Distributions", _distributions(entries[:MOST_PICTURED])),
        section("Latency of completed requests", _latencies(entries[:MOST_PICTURED])),
        section("All numbers", all_numbers(entries)),
        section("What made it", "".join(map(_origin, runs))),
    ]
    note = ""
    if len(cases) > MOST_PICTURED:
        note = (f"<p class=note>Pictures are of the first {MOST_PICTURED} of {len(cases)} cases; <code>--case "
                "NAME</code> chooses others.</p>")
    title = ", ".join(run.path.resolve().name for run in runs)
    return _asset("page.html").format(
        title=escape(title), style=_asset("page.css"), script=_asset("page.js"), version=escape(__version__),
        facts="".join(f"<p>{escape(line)}</p>" for run in runs for line in _facts(run)), body=page_body(sections, note))


def _asset(name: str) -> str:
    return files("pagesim.report").joinpath("assets", name).read_text(encoding="utf-8")


def _facts(run: LoadedRun) -> list[str]:
    """What was read and how much memory there was, where the cases agree."""
    trace, capacity = run.document["trace"], run.document["capacity"]
    lines = []
    if trace.get("read") is not None:
        lines.append(f"{run.path.resolve().name}: trace {trace['format']}, {trace['read']:,} rows read = "
                     f"{trace['dropped']:,} dropped + {trace['requests']:,} requests")
    if capacity.get("slots") is not None:
        size = capacity.get("bytes")
        lines.append(f"KV memory: {capacity['slots']:,} token slots" + (f", {format_bytes(size)}" if size else "")
                     + f"; max_model_len {capacity['max_model_len']:,}")
    lines += [f"Not here: {each['name']}: {each['error']}" for each in run.document["failed"]]
    return lines


def _conventions(cases: list[tuple[str, dict]]) -> str:
    parts = (f"<div><h3>{escape(title)}, %</h3>{legend(spaced(colours))}"
             + figure("marks", bars.bars_figure(title, cases, shares_of, colours)) + "</div>"
             for title, shares_of, colours in bars.CONVENTIONS)
    return (f"<div class=pair>{''.join(parts)}</div><p class=note>The window of each bar is in brackets. What a buddy "
            "allocator rounds up is external in the paper's figure and internal in a textbook; free memory is "
            "external there and free here.</p>")


def _sweep_sections(cases: list[LoadedCase]) -> list[Section]:
    sections = []
    for key, found in sweeps.curves(cases).items():
        pictures = [sweeps.curve_figure(found, each) for each in sweeps.MEASURES if sweeps.tells(found, each)]
        sections.append(section(f"Swept: {key}",
                                legend({curve.name: SERIES[k % len(SERIES)] for k, curve in enumerate(found)}),
                                f"<div class=pair>{''.join(figure('marks', picture) for picture in pictures)}</div>",
                                "<p class=note>The ring marks the best point.</p>"))
    return sections


def _distributions(cases: list[tuple[str, dict]]) -> str:
    parts = []
    for k, what in enumerate(DISTRIBUTIONS):
        found = having(cases, what.key)
        if found:
            last = max(bin_number(row[0]) for _, rows in found for row in rows)
            figures = "".join(figure("marks", histogram_figure(name, what, rows, last, SERIES[k]))
                              for name, rows in found)
            parts.append(f"<h3>{what.title}, {what.unit}; % of {what.entry}</h3><div class=many>{figures}</div>")
    return "".join(parts) or "<p>Nothing was allocated.</p>"


def _latencies(cases: list[tuple[str, dict]]) -> str:
    parts = (f"<div><h3>{escape(title)}</h3>{figure('marks', latency_figure(key, cases))}</div>"
             for key, title in LATENCIES.items())
    return (f"<div class=pair>{''.join(parts)}</div><p class=note>Dots: 50th, 90th and 99th percentile, nearest rank; "
            "ring: mean; the scale is logarithmic, a 0 stands at its left end.</p>")


def _origin(run: LoadedRun) -> str:
    resolved = {case.entry["name"]: case.resolved for case in run.cases}
    if len(resolved) == 1:
        resolved = run.cases[0].resolved
    return (
        f"<h3>{escape(str(run.path))}</h3><details><summary>resolved config</summary>"
        f"<pre>{escape(config_text(resolved))}</pre></details><details open><summary>environment</summary>"
        f"<pre>{escape(json.dumps(run.environment, indent=2, ensure_ascii=False))}</pre></details>"
    )
