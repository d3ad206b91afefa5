"""One self-contained HTML page of run folders: no library, no network, a few hundred kilobytes."""

import json
from html import escape
from importlib.resources import files

from pagesim import __version__
from pagesim.core.units import format_bytes
from pagesim.engine.result import PARTS
from pagesim.report import bars, sweeps
from pagesim.report.colours import PART_COLOURS, SERIES
from pagesim.report.distributions import (
    DISTRIBUTIONS,
    LATENCIES,
    bin_number,
    having,
    histogram_figure,
    latency_figure,
)
from pagesim.report.figures import number, percent
from pagesim.report.files import flat
from pagesim.report.folder import config_text
from pagesim.report.loaded import LoadedCase, LoadedRun
from pagesim.report.over_time import load_figure, map_figure
from pagesim.report.svg import tag
from pagesim.report.thinning import thin

# Pictures over time are the page's weight: with more cases each is drawn in less detail, and some only in the tables.
MOST_PICTURED = 24
_STRETCHES = 4_000
_MAP_CELLS = 600_000
_CASES_A_TABLE = 5
_GLANCE = (
    ("token use, %", "utilization_share", percent),
    ("block use, %", "block_use_share", percent),
    ("internal fragm., %", "internal_fragmentation_share", percent),
    ("blocked, % of time", "external_fragmentation.blocked_by_fragmentation_share", percent),
    ("running, mean", "mean.running", number),
    ("running, peak", "peak.running", number),
    ("preemptions", "preemptions", number),
    ("requests/s", "throughput.requests_per_s", number),
    ("output tokens/s", "throughput.output_tokens_per_s", number),
    ("ttft p99, s", "latency.ttft.p99_s", number),
    ("e2e p99, s", "latency.e2e.p99_s", number),
)


def page_html(runs: list[LoadedRun], cases: list[LoadedCase]) -> str:
    """The page.

    Args:
        runs: what was loaded: their configs and machines are shown.
        cases: those of them that are shown.
    """
    entries = [(case.name, case.entry) for case in cases]
    sections = [
        _section("At a glance", _glance(entries)),
        _section("Where the memory went", _conventions(entries)),
        *_sweep_sections(cases),
        *_case_sections(cases[:MOST_PICTURED]),
        _section("Distributions", _distributions(entries[:MOST_PICTURED])),
        _section("Latency of completed requests", _latencies(entries[:MOST_PICTURED])),
        _section("All numbers", _numbers(entries)),
        _section("What made it", "".join(map(_origin, runs))),
    ]
    if len(cases) > MOST_PICTURED:
        sections.insert(
            2,
            f"<p class=note>Pictures are of the first {MOST_PICTURED} of {len(cases)} cases; "
            "<code>--case NAME</code> chooses others.</p>",
        )
    title = ", ".join(run.path.resolve().name for run in runs)
    return _asset("page.html").format(
        title=escape(title),
        style=_asset("page.css"),
        script=_asset("page.js"),
        version=escape(__version__),
        facts="".join(f"<p>{escape(line)}</p>" for run in runs for line in _facts(run)),
        body="\n".join(sections),
    )


def _asset(name: str) -> str:
    return files("pagesim.report").joinpath("assets", name).read_text(encoding="utf-8")


def _section(title: str, *inside: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{''.join(inside)}</section>"


def _figure(kind: str, picture: str, data: dict | None = None, caption: str = "") -> str:
    """A drawing with the line that shows the values under the pointer or the cursor keys."""
    held = ""
    if data is not None:
        content = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
        held = tag("script", content, type="application/json")
    head = caption and f"<figcaption>{caption}</figcaption>"
    return f'<figure data-kind="{kind}">{head}{picture}<output aria-live="polite"></output>{held}</figure>'


def _legend(colours: dict[str, str]) -> str:
    keys = (
        f'<span><i class="{escape(name)}" style="background:{colour}"></i>{escape(name)}</span>'
        for name, colour in colours.items()
    )
    return f"<p class=legend>{''.join(keys)}</p>"


def _spaced(colours: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", " "): colour for name, colour in colours.items()}


def _facts(run: LoadedRun) -> list[str]:
    """What was read and how much memory there was, where the cases agree."""
    trace, capacity = run.document["trace"], run.document["capacity"]
    lines = []
    if trace.get("read") is not None:
        lines.append(
            f"{run.path.resolve().name}: trace {trace['format']}, {trace['read']:,} rows read = "
            f"{trace['dropped']:,} dropped + {trace['requests']:,} requests"
        )
    if capacity.get("slots") is not None:
        size = capacity.get("bytes")
        lines.append(
            f"KV memory: {capacity['slots']:,} token slots"
            + (f", {format_bytes(size)}" if size else "")
            + f"; max_model_len {capacity['max_model_len']:,}"
        )
    lines += [f"Not here: {each['name']}: {each['error']}" for each in run.document["failed"]]
    return lines


def _glance(cases: list[tuple[str, dict]]) -> str:
    head = "".join(f"<th scope=col>{escape(title)}</th>" for title, _, _ in _GLANCE)
    rows = []
    for name, case in cases:
        values = flat(case)
        cells = "".join(_cell(values.get(key), shown(values.get(key)), key) for _, key, shown in _GLANCE)
        rows.append(f"<tr><th scope=row>{escape(name)}</th>{cells}</tr>")
    return (
        f'<div class="wide glance" tabindex=0 role=region aria-label="at a glance"><table><thead><tr><th scope=col>case</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
        "<p class=note>Shares and means are over the time in which something runs; blocked: by fragmentation, the next "
        "request would fit the free memory but no hole.</p>"
    )


def _cell(value: object, shown: str, key: str = "") -> str:
    given = f' data-key="{escape(key)}"' if key else ""
    return f'<td{given} data-value="{escape(json.dumps(value))}">{escape(shown)}</td>'


def _conventions(cases: list[tuple[str, dict]]) -> str:
    parts = (
        f"<div><h3>{escape(title)}, %</h3>{_legend(_spaced(colours))}"
        + _figure("marks", bars.bars_figure(title, cases, shares_of, colours))
        + "</div>"
        for title, shares_of, colours in bars.CONVENTIONS
    )
    return (
        f"<div class=pair>{''.join(parts)}</div><p class=note>The window of each bar is in brackets. What a buddy "
        "allocator rounds up is external in the paper's figure and internal in a textbook; free memory is external "
        "there and free here.</p>"
    )


def _sweep_sections(cases: list[LoadedCase]) -> list[str]:
    sections = []
    for key, found in sweeps.curves(cases).items():
        figures = [figure for measure in sweeps.MEASURES if (figure := sweeps.curve_figure(found, measure))]
        legend = _legend({curve.name: SERIES[k % len(SERIES)] for k, curve in enumerate(found)})
        sections.append(
            _section(
                f"Swept: {key}",
                legend,
                '<div class="pair">',
                *(_figure("marks", each) for each in figures),
                "</div><p class=note>The ring marks the best point.</p>",
            )
        )
    return sections


def _case_sections(cases: list[LoadedCase]) -> list[str]:
    stretches = max(80, min(400, _STRETCHES // len(cases)))
    cells = min(300 * 600, _MAP_CELLS // len(cases))
    most_rows = max(60, int((cells / 2.5) ** 0.5))
    return [_case_section(case, stretches, most_rows, 5 * most_rows // 2) for case in cases]


def _case_section(case: LoadedCase, stretches: int, most_rows: int, most_columns: int) -> str:
    slots = case.entry["capacity"]["slots"]
    thinned = thin(case.timeline(), stretches)
    if len(thinned.edges_s) < 2:
        return _section(case.name, "<p>The run has no step: nothing was admitted.</p>")
    load, values = load_figure(case.name, thinned, slots)
    present = {part: PART_COLOURS[part] for part in PARTS if thinned.values[f"mean_{part}_slots"].any()}
    detail = (
        "Every step or timeline row is drawn."
        if thinned.exact
        else (
            f"Means over {len(thinned.edges_s) - 1} equal stretches of time; the thin line is the most token states in "
            "each, the lines below it the most running and waiting."
        )
    )
    recorded = case.ownership()
    picture, owners, seen = map_figure(case.name, recorded, most_rows, most_columns)
    steps = case.entry["time"]["steps"]
    which = (
        "Every step"
        if len(recorded.start_s) >= steps
        else (f"Steps {recorded.first_step:,} to {recorded.last_step:,} of {steps:,}, around the peak")
    )
    thin_map = (
        ""
        if len(seen.steps) == len(recorded.start_s) and len(seen.units) == recorded.num_units
        else (f" {len(seen.steps):,} steps × {len(seen.units):,} addresses are drawn, evenly spaced, each as it was.")
    )
    unit = "slots" if recorded.unit_slots == 1 else f"blocks of {recorded.unit_slots} slots"
    return _section(
        case.name,
        _legend(_spaced(present)),
        _figure("time", load, values, f"Ledger and load. {detail}"),
        _figure(
            "map",
            picture,
            owners,
            f"Address map: who owned which {unit}. {which}.{thin_map} A colour is a request (colours repeat); "
            "what is not coloured is free.",
        ),
    )


def _distributions(cases: list[tuple[str, dict]]) -> str:
    parts = []
    for k, what in enumerate(DISTRIBUTIONS):
        found = having(cases, what.key)
        if found:
            last = max(bin_number(row[0]) for _, rows in found for row in rows)
            figures = "".join(
                _figure("marks", histogram_figure(name, what, rows, last, SERIES[k])) for name, rows in found
            )
            parts.append(f"<h3>{what.title}, {what.unit}; % of {what.entry}</h3><div class=many>{figures}</div>")
    return "".join(parts) or "<p>Nothing was allocated.</p>"


def _latencies(cases: list[tuple[str, dict]]) -> str:
    parts = (
        f"<div><h3>{escape(title)}</h3>{_figure('marks', latency_figure(key, cases))}</div>"
        for key, title in LATENCIES.items()
    )
    return (
        f"<div class=pair>{''.join(parts)}</div><p class=note>Dots: 50th, 90th and 99th percentile, nearest rank; "
        "ring: mean; the scale is logarithmic, a 0 stands at its left end.</p>"
    )


def _numbers(cases: list[tuple[str, dict]]) -> str:
    """Every figure of metrics.json in tables of a few cases each; ``data-value`` holds it to the last digit."""
    tables = []
    for begin in range(0, len(cases), _CASES_A_TABLE):
        some = cases[begin : begin + _CASES_A_TABLE]
        columns = [flat(case) for _, case in some]
        head = "".join(f"<th scope=col>{escape(name)}</th>" for name, _ in some)
        keys = [key for key in dict.fromkeys(key for values in columns for key in values) if key != "name"]
        rows = "".join(
            f"<tr><th scope=row>{escape(key)}</th>"
            + "".join(_cell(values.get(key), _shown(values.get(key))) for values in columns)
            + "</tr>"
            for key in keys
        )
        tables.append(
            f'<div class="wide numbers" tabindex=0 role=region aria-label="all numbers"><table><thead><tr><th scope=col>figure</th>{head}</tr></thead>'
            f"<tbody>{rows}</tbody></table></div>"
        )
    return "".join(tables)


def _shown(value: object) -> str:
    if isinstance(value, bool | str):
        return str(value) if len(str(value)) <= 32 else f"{value[:12]}…"  # a sha256
    if isinstance(value, int):
        return f"{value:,}"
    return number(value)


def _origin(run: LoadedRun) -> str:
    resolved = {case.entry["name"]: case.resolved for case in run.cases}
    if len(resolved) == 1:
        resolved = run.cases[0].resolved
    return (
        f"<h3>{escape(str(run.path))}</h3><details><summary>resolved config</summary>"
        f"<pre>{escape(config_text(resolved))}</pre></details><details open><summary>environment</summary>"
        f"<pre>{escape(json.dumps(run.environment, indent=2, ensure_ascii=False))}</pre></details>"
    )
