"""The commands that draw: pagesim report, pagesim plot."""

import sys

import pytest
from tiny import write_experiment


@pytest.fixture
def run(pagesim, tmp_path):
    folder = tmp_path / "run"
    assert pagesim("simulate", write_experiment(tmp_path), "-q", "-o", folder).code == 0
    return folder


def test_the_page_lies_in_the_run_folder_or_where_it_is_wanted(pagesim, run, tmp_path):
    ended = pagesim("report", run)
    assert ended.code == 0 and ended.out == "" and ended.err.startswith(f"written to {run}/report.html (0.")
    assert pagesim("report", run, "-o", tmp_path / "page.html").code == 0
    assert (tmp_path / "page.html").read_bytes() == (run / "report.html").read_bytes()


def test_cases_are_chosen_by_name(pagesim, run):
    assert pagesim("report", run, "--case", "paged 16").code == 0
    page = (run / "report.html").read_text()
    assert 'aria-label="paged 16: ledger' in page and 'aria-label="contiguous' not in page


def test_what_is_no_run_folder_exits_2_and_says_what_is(pagesim, tmp_path):
    ended = pagesim("report", tmp_path / "nothing")
    assert (ended.code, ended.err) == (
        2,
        f"pagesim: {tmp_path}/nothing: not a run folder; it is what 'pagesim simulate CONFIG -o DIR' writes\n",
    )


def test_without_matplotlib_plot_exits_3_and_says_how_to_get_it(pagesim, run, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ended = pagesim("plot", run, "--kind", "ledger")
    assert ended.code == 3 and ended.err.endswith(": pip install 'pagesim[report]'\n")


def test_a_picture_lies_in_the_run_folder_or_where_it_is_wanted(pagesim, run, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'pagesim[report]'")
    ended = pagesim("plot", run, "--kind", "running")
    assert (ended.code, ended.err) == (0, f"written to {run}/running.png\n") and (run / "running.png").exists()
    assert pagesim("plot", run, "--kind", "map", "-o", tmp_path / "map.svg").code == 0
    assert (tmp_path / "map.svg").exists()
