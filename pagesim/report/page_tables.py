"""The page's two tables: the figures at a glance, and every figure of metrics.json."""

from pagesim.report.figures import number, percent
from pagesim.report.files import flat
from pagesim.report.markup import cell, table

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


def glance(cases: list[tuple[str, dict]]) -> str:
    """A row a case, the figures that decide."""
    rows = []
    for name, case in cases:
        values = flat(case)
        rows.append((name, "".join(cell(values.get(key), shown(values.get(key)), key) for _, key, shown in _GLANCE)))
    return (table("glance", "at a glance", ["case", *(title for title, _, _ in _GLANCE)], rows)
            + "<p class=note>Shares and means are over the time in which something runs; blocked: by fragmentation, "
              "the next request would fit the free memory but no hole.</p>")


def all_numbers(cases: list[tuple[str, dict]]) -> str:
    """Every figure of metrics.json in tables of a few cases each."""
    tables = []
    for begin in range(0, len(cases), _CASES_A_TABLE):
        some = cases[begin:begin + _CASES_A_TABLE]
        columns = [flat(case) for _, case in some]
        keys = [key for key in dict.fromkeys(key for values in columns for key in values) if key != "name"]
        rows = [(key, "".join(cell(values.get(key), _shown(values.get(key))) for values in columns)) for key in keys]
        tables.append(table("numbers", "all numbers", ["figure", *(name for name, _ in some)], rows))
    return "".join(tables)


def _shown(value: object) -> str:
    if isinstance(value, bool | str):
        return str(value) if len(str(value)) <= 32 else f"{value[:12]}…"  # a sha256
    if isinstance(value, int):
        return f"{value:,}"
    return number(value)
