"""report/page.py: the page shows what the run folder holds, and needs nothing else."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from run_folders import make_run

from pagesim.errors import InputError
from pagesim.report.files import flat
from pagesim.report.loaded import chosen, load_runs
from pagesim.report.page import page_html


class Cells(HTMLParser):
    """The cells of the table of all numbers: ``values[case][figure]`` is the JSON text, ``shown`` what is read."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.values, self.shown = {}, {}
        self._names, self._row, self._column, self._inside, self._class = [], "", 0, "", ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag == "div":
            self._class = given.get("class", "")
        if tag == "table":
            self._names = []
        if tag in ("th", "td"):
            self._inside = f"{tag} {given.get('scope', '')}"
        if tag == "td" and "numbers" in self._class:
            self.values.setdefault(self._names[self._column], {})[self._row] = given["data-value"]
            self._column += 1

    def handle_data(self, data):
        if self._inside == "th col" and data not in ("figure", "case"):
            self._names.append(data)
        if self._inside == "th row":
            self._row, self._column = data, 0
        if self._inside == "td " and "numbers" in self._class:
            self.shown.setdefault(self._names[self._column - 1], {})[self._row] = data

    def handle_endtag(self, tag):
        if tag in ("th", "td"):
            self._inside = ""


def page_of(*runs: Path, cases: tuple = ()) -> str:
    loaded = load_runs(list(runs))
    return page_html(loaded, chosen(loaded, list(cases)))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("four"))


@pytest.fixture(scope="module")
def page(run):
    return page_of(run)


def test_every_figure_of_metrics_json_is_in_the_page_to_the_last_digit(run, page):
    cells = Cells(page)
    entries = json.loads((run / "metrics.json").read_text())["cases"]
    assert list(cells.values) == [entry["name"] for entry in entries]
    for entry in entries:
        figures = {key: value for key, value in flat(entry).items() if key != "name"}
        found = {key: json.loads(text) for key, text in cells.values[entry["name"]].items()}
        assert {key: found[key] for key in figures} == figures
        assert all(found[key] is None for key in found.keys() - figures.keys())  # figures of the other cases


def test_what_is_read_is_the_value_to_four_digits(page):
    cells, checked = Cells(page), 0
    for case, figures in cells.shown.items():
        for figure, shown in figures.items():
            value = json.loads(cells.values[case][figure])
            if isinstance(value, float):
                assert float(shown.replace(",", "")) == pytest.approx(value, rel=6e-4)
                checked += 1
            elif value is None:
                assert shown == "–"
    assert checked > 100


def test_the_page_asks_for_nothing_outside_itself(page):
    assert not re.search(r"https?://|//cdn|@import|<link|\bsrc=", page)
    assert all(value.startswith(("data:image/png", "#")) for value in re.findall(r'href="([^"]*)"', page))
    assert "default-src 'none'" in page


def test_each_case_has_its_ledger_its_map_and_its_distributions(run, page):
    cases = [entry["name"] for entry in json.loads((run / "metrics.json").read_text())["cases"]]
    for name in cases:
        assert f'aria-label="{name}: ledger, running' in page and f'aria-label="{name}: which request owned' in page
        assert f"Waste of a request: allocated and never filled: {name}" in page
    assert page.count('aria-label="Sizes of holes') == 3 and page.count('aria-label="Lifetime of a block') == 1
    assert "1.5" in Cells(page).shown[cases[0]]["allocator.growth"]


def test_names_cannot_become_markup(tmp_path):
    run = make_run(tmp_path / "<b>&amp;", allocators="[{kind: paged}]")
    page = page_of(run)
    assert "&lt;b&gt;&amp;amp;" in page and "<b>" not in page


def test_several_runs_share_a_page_each_case_named_after_its_run(tmp_path):
    (tmp_path / "a").mkdir()
    runs = [make_run(tmp_path / name, allocators="[{kind: paged}]").rename(tmp_path / f"{name}-run") for name in "ab"]
    assert list(Cells(page_of(*runs)).values) == ["a-run: paged 16", "b-run: paged 16"]


def test_a_sweep_is_drawn_along_its_key_with_the_best_point_marked(tmp_path):
    run = make_run(tmp_path, allocators="[{kind: paged}]", keys='sweep: {"allocators.0.block_size": [1, 8, 16]}')
    page = page_of(run)
    assert "Swept: allocators.block_size" in page
    best = re.findall(r"<title>(paged \d+): internal fragmentation, % 0 at allocators.block_size = 1 \(best\)", page)
    assert best == ["paged 1"]


def test_the_pictures_say_which_steps_they_show(run, page, tmp_path):
    assert page.count("Every step. ") == 4 and "warm-up" not in page
    warmed = page_of(make_run(tmp_path, allocators="[{kind: paged}]", overrides=("trace.warmup_s=0.5",)))
    assert "leave out the first 0.5 s, the warm-up." in warmed and re.search(r"Steps 0 to \d+\. ", warmed)


def test_a_run_in_which_nothing_ran_is_a_page_too(tmp_path):
    page = page_of(make_run(tmp_path, rows=((0.0, 500, 5),)))
    assert "The run has no step" in page and "nothing ran" in page and "nothing completed" in page


def test_a_million_requests_or_a_dozen_cases_stay_below_two_megabytes(tmp_path):
    """The files of a run have a most: 8,192 rows of timeline, some hundred thousand changes of hands."""
    sweep = 'sweep: {"allocators.0.block_size": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}'
    run = make_run(tmp_path, allocators="[{kind: paged}]", keys=sweep)
    rng = np.random.default_rng(0)
    steps, units = 1000, 20_000
    changes = [[step, int(unit), 1, int(owner)] for step in range(steps)
               for unit, owner in zip(rng.integers(0, units, 50), rng.integers(0, 500, 50) + step)]
    events = {
        "unit_slots": 1,
        "num_units": units,
        "first_step": 0,
        "last_step": steps - 1,
        "start_s": np.cumsum(rng.uniform(0, 1, steps)).tolist(),
        "changes": changes,
    }
    for timeline in run.glob("cases/*/timeline.csv"):
        head, first, *_ = timeline.read_text().splitlines()
        cells = first.split(",")
        rows = []
        for k in range(8192):
            used, running = rng.uniform(0, 150), rng.integers(0, 99)
            row = [k, k * 0.1, 0.1, running / 3, running / 7, 0.5, used, (160 - used) / 2, 0.0, 0.0, 0.0, 0.0,
                   (160 - used) / 2, 0.0, *rng.integers(0, 99, 4), *cells[18:]]
            rows.append(",".join(map(str, row)))
        timeline.write_text("\n".join([head, *rows]) + "\n")
        (timeline.parent / "events.json").write_text(json.dumps(events))
    assert len(page_of(run).encode()) <= 2_000_000


@pytest.mark.parametrize(("damage", "message"), [
    (lambda run: (run / "metrics.json").unlink(), r"metrics\.json: No such file or directory; a run folder is what"),
    (lambda run: (run / "timeline.csv").unlink(), r"timeline\.csv: No such file or directory; the run folder is not"),
    (lambda run: (run / "timeline.csv").write_text("a,b\n1,x\n"), r"timeline\.csv: not a timeline: "),
    (lambda run: (run / "events.json").write_text("{}"), r"events\.json: not the events of a case: KeyError"),
    (lambda run: (run / "events.json").write_text("[1"), r"events\.json: not the events of a case: "),
    (lambda run: (run / "events.json").unlink(), r"events\.json: No such file or directory; the run folder is not whole"),
    (lambda run: (run / "timeline.csv").write_text("a,b\n1,2\n"), r"timeline\.csv: not a timeline: no column start_s"),
    (lambda run: (run / "timeline.csv").write_bytes(b"\xff"), r"timeline\.csv: not a timeline: 'utf-8' codec"),
    (lambda run: (run / "environment.json").write_text("{"), r"environment\.json: not the environment of a run: "),
    (lambda run: (run / "config.yaml").write_text("- 1"), r"config\.yaml: not the config of a case: no mapping with a"),
    (lambda run: (run / "config.yaml").write_text("["), r"config\.yaml: not the config of a case: while parsing"),
    (lambda run: (run / "metrics.json").write_text('{"schema_version": 1}'), r"metrics\.json: .* it has no cases"),
])
def test_a_damaged_run_folder_is_an_error_that_names_the_file(tmp_path, damage, message):
    run = make_run(tmp_path, allocators="[{kind: paged}]")
    damage(run)
    with pytest.raises(InputError, match=message):
        page_of(run)


def test_a_file_that_is_no_run_folder_and_an_unknown_case_are_errors(run, tmp_path):
    with pytest.raises(InputError, match="config.yaml: not a run folder"):
        load_runs([run / "config.yaml"])
    with pytest.raises(InputError, match="there is no case 'paged 9'; the run has contiguous max_model_len buddy, "):
        page_of(run, cases=("paged 9",))
