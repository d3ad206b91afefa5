"""report/plots.py: what is drawn are the run's numbers."""

import json
import re

import numpy as np
import pytest
from run_folders import make_run

from pagesim.errors import InputError
from pagesim.report.address_map import address_map
from pagesim.report.figures import textbook_shares
from pagesim.report.loaded import load_runs

matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'pagesim[report]'")

from pagesim.report import plots


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("plots"))


@pytest.fixture(scope="module")
def cases(run):
    return list(load_runs([run])[0].cases)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    keys = 'sweep: {"allocators.1.block_size": [16, 1, 8]}'
    return make_run(tmp_path_factory.mktemp("swept"), allocators="[{kind: contiguous}, {kind: paged}]", keys=keys)


@pytest.mark.parametrize("kind", [kind for kind in plots.PLOTS if kind != "sweep"])
@pytest.mark.parametrize(("ending", "begins"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_every_kind_is_drawn_in_every_format_the_same_each_time(cases, tmp_path, kind, ending, begins):
    paths = [tmp_path / f"{name}{ending}" for name in "ab"]
    for path in paths:
        plots.save(plots.PLOTS[kind](cases), path)
    assert paths[0].read_bytes() == paths[1].read_bytes() and paths[0].read_bytes().startswith(begins)


def test_the_ledger_of_each_case_is_stacked_to_the_full_capacity(cases):
    figure = plots.ledger(cases)
    assert [panel.get_title() for panel in figure.axes] == [case.name for case in cases]
    for panel, case in zip(figure.axes, cases):
        tops = [patch.get_data().values for patch in panel.patches]
        np.testing.assert_allclose(tops[-1], 100)
        rows = case.timeline()
        assert tops[0][0] == pytest.approx(100 * rows["mean_token_states_slots"][0] / 160)


def test_bars_are_the_shares_of_metrics_json_in_both_conventions(cases):
    papers, textbook = plots.sosp23(cases).axes
    widths = [bar.get_width() for bar in papers.patches]
    expected = [100 * share for case in cases for share in case.entry["sosp23"]["saturated"].values()]
    assert widths == pytest.approx(expected) and len(widths) == 16
    widths = [bar.get_width() for bar in textbook.patches]
    assert widths == pytest.approx([100 * v for case in cases for v in textbook_shares(case.entry).values()])


def test_both_conventions_sum_to_the_whole(cases):
    for case in cases:
        assert sum(textbook_shares(case.entry).values()) == pytest.approx(1)


def test_the_map_is_the_address_map(cases):
    for panel, case in zip(plots.owners(cases).axes, cases):
        seen = address_map(case.ownership(), 600, 1500)
        np.testing.assert_array_equal(panel.images[0].get_array(), seen.colours)


def test_latency_dots_are_the_percentiles(cases):
    for panel, key in zip(plots.latency(cases).axes, ("queue", "ttft", "tpot", "e2e")):
        for k, case in enumerate(cases):
            values = case.entry["latency"][key]
            assert panel.lines[2 * k].get_xdata().tolist() == [values["p50"], values["p90"], values["p99"]]
            assert panel.lines[2 * k + 1].get_xdata().tolist() == [values["mean"]]


def test_a_sweep_runs_along_its_key_in_order_and_its_best_point_is_ringed(swept):
    figure = plots.sweep(list(load_runs([swept])[0].cases))
    by_name = {entry["name"]: entry for entry in json.loads((swept / "metrics.json").read_text())["cases"]}
    panel = next(panel for panel in figure.subfigs[0].axes if panel.get_title().startswith("internal"))
    curve, best = panel.lines
    expected = [100 * by_name[f"paged {size}"]["internal_fragmentation"] for size in (1, 8, 16)]
    assert curve.get_ydata().tolist() == expected and curve.get_xdata().tolist() == [0, 3, 4]
    assert (best.get_xdata().tolist(), best.get_ydata().tolist()) == ([0], [min(expected)])


def test_where_nothing_was_swept_or_nothing_ran_there_is_nothing_to_draw(cases, tmp_path):
    with pytest.raises(InputError, match="nothing was swept"):
        plots.sweep(cases)
    empty = make_run(tmp_path, rows=((0.0, 500, 5),), allocators="[{kind: paged}]")
    with pytest.raises(InputError, match="paged 16: the run has no step"):
        plots.owners(list(load_runs([empty])[0].cases))
    for kind in ("ledger", "running", "sosp23", "latency", "histograms"):
        plots.save(plots.PLOTS[kind](list(load_runs([empty])[0].cases)), tmp_path / f"{kind}.svg")


def test_an_ending_that_is_not_written_is_an_error(cases, tmp_path):
    with pytest.raises(InputError, match=re.escape("a picture ends in .png, .svg, .pdf, not in '.gif'")):
        plots.save(plots.latency(cases), tmp_path / "x.gif")


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    keys = 'sweep: {"allocators.3.block_size": [1, 2, 4, 8, 16, 32, 64]}'
    return list(load_runs([make_run(tmp_path_factory.mktemp("many"), keys=keys)])[0].cases)


@pytest.mark.parametrize("kind", ["running", "histograms"])
def test_of_many_cases_each_has_a_line_of_its_own_and_the_legend_is_whole(many, kind):
    figure = plots.PLOTS[kind](many)
    figure.canvas.draw()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [case.name for case in many] and len(many) == 10
    looks = {(line.get_color(), line.get_linestyle()) for line in legend.get_lines()}
    assert len(looks) == len(many)
    assert figure.bbox.contains(*legend.get_window_extent().min) and figure.bbox.contains(*legend.get_window_extent().max)


@pytest.mark.parametrize("kind", [kind for kind in plots.PLOTS if kind != "sweep"])
def test_every_axis_has_two_ticks_at_least(cases, kind):
    figure = plots.PLOTS[kind](cases)
    figure.canvas.draw()
    for panel in figure.axes:
        low, high = panel.get_xlim()
        assert sum(low <= tick <= high for tick in panel.get_xticks()) >= 2, panel.get_title()
