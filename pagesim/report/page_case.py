"""A case on the page: its ledger and load over time, and its address map."""

from pagesim.engine.ownership import Ownership
from pagesim.core.ledger import PARTS
from pagesim.report.colours import KEPT, PART_COLOURS, SHARED
from pagesim.report.loaded import LoadedCase
from pagesim.report.markup import Section, figure, legend, section, spaced
from pagesim.report.over_time import load_figure, map_figure
from pagesim.report.thinning import thin

# Of all the cases together: with more of them each is drawn in less detail.
_STRETCHES = 4_000
_MAP_CELLS = 600_000


def case_sections(cases: list[LoadedCase]) -> list[Section]:
    stretches = max(80, min(400, _STRETCHES // len(cases)))
    cells = min(300 * 600, _MAP_CELLS // len(cases))
    most_rows = max(60, int((cells / 2.5) ** 0.5))
    until_s = max((case.entry["time"]["end_s"] for case in cases), default=0.0)  # one axis: who is done first shows
    return [_case_section(case, stretches, most_rows, 5 * most_rows // 2, until_s) for case in cases]


def _case_section(case: LoadedCase, stretches: int, most_rows: int, most_columns: int,
                  until_s: float) -> Section:
    slots = case.entry["capacity"]["slots"]
    thinned = thin(case.timeline(), stretches)
    if len(thinned.edges_s) < 2:
        return section(case.name, "<p>The run has no step: nothing was admitted.</p>")
    load, values = load_figure(case.name, thinned, slots, until_s)
    present = {part: PART_COLOURS[part] for part in PARTS if thinned.values[f"mean_{part}_slots"].any()}
    detail = "Every step or timeline row is drawn."
    if not thinned.exact:
        detail = (f"Means over {len(thinned.edges_s) - 1} equal stretches of time; the thin line is the most token "
                  "states in each, the lines below it the most running and waiting.")
    recorded = case.ownership()
    picture, owners, seen = map_figure(case.name, recorded, most_rows, most_columns)
    which = _which_steps(case, recorded)
    thin_map = ""
    if len(seen.steps) < len(recorded.start_s) or len(seen.units) < recorded.num_units:
        thin_map = (f" {len(seen.steps):,} steps × {len(seen.units):,} addresses are drawn, evenly spaced, each as it "
                    "was.")
    shared = [legend({"owned by several": SHARED, "kept by the prefix cache": KEPT})] if case.entry["sharing"] else []
    unit = "slots" if recorded.unit_slots == 1 else f"blocks of {recorded.unit_slots} slots"
    return section(case.name, legend(spaced(present)),
                   figure("time", load, values, f"Ledger and load. {detail}{_warmup(case)}"),
                   figure("map", picture, owners,
                          f"Address map: who owned which {unit}. {which}.{thin_map} A colour is a request (colours "
                          "repeat); what is not coloured is free."), *shared)


def _warmup(case: LoadedCase) -> str:
    warmup_s = case.resolved["trace"]["warmup_s"]
    return f" The tables and distributions leave out the first {warmup_s:g} s, the warm-up." if warmup_s > 0 else ""


def _which_steps(case: LoadedCase, recorded: Ownership) -> str:
    steps = case.entry["time"]["steps"]
    if case.resolved["trace"]["warmup_s"] > 0:  # its steps are not counted among those of the run
        return f"Steps {recorded.first_step:,} to {recorded.last_step:,}"
    if len(recorded.start_s) == steps:
        return "Every step"
    return f"Steps {recorded.first_step:,} to {recorded.last_step:,} of {steps:,}, around the peak"
