"""What is drawn where: block sizes along a panel, or workloads side by side."""

from dataclasses import replace

import pytest

figures = pytest.importorskip("matplotlib.figure", reason="matplotlib is not installed: pip install 'pagesim[report]'")

from test_measurement import row

from pagesim.kernels.harness.bench_plot import plot


def drawn(rows, tmp_path, monkeypatch):
    """Panels: title, labels of the ticks, and what each line shows at which x."""
    found = []
    save = figures.Figure.savefig

    def savefig(figure, path, **options):
        save(figure, path, **options)
        for axes in figure.axes:
            lines = {line.get_label(): dict(zip(*line.get_data(), strict=True)) for line in axes.get_lines()}
            found.append((axes.get_title(), [label.get_text() for label in axes.get_xticklabels()], lines))

    monkeypatch.setattr(figures.Figure, "savefig", savefig)
    plot(rows, tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 1000
    return found


def test_snapshots_of_a_sweep_share_a_panel_over_their_block_sizes(tmp_path, monkeypatch):
    rows = [replace(row("simulated", size, workload=f"paged {size}"), ceiling_share=0.9 + size / 1000)
            for size in (64, 1, 16)]
    (_, ticks, lines), = drawn(rows, tmp_path, monkeypatch)
    assert ticks == ["1", "16", "64"] and list(lines) == ["ours simulated NHD"]
    assert lines["ours simulated NHD"] == pytest.approx({1: 90.1, 16: 91.6, 64: 96.4})


def test_workloads_over_several_block_sizes_have_a_panel_each(tmp_path, monkeypatch):
    rows = [row(workload=name, block_size=size) for name in ("W1", "W2") for size in (8, 16)]
    assert [(title, ticks) for title, ticks, _ in drawn(rows, tmp_path, monkeypatch)] == [
        ("W1", ["8", "16"]), ("W2", ["8", "16"])]


def test_workloads_of_one_block_size_beside_others_are_named_over_their_panel(tmp_path, monkeypatch):
    rows = [row(workload="W1", block_size=size) for size in (8, 16)] + [row(workload=name) for name in ("R1", "R2")]
    assert [title for title, _, _ in drawn(rows, tmp_path, monkeypatch)] == ["W1", "R1, R2"]


def test_workloads_of_one_block_size_stand_side_by_side_and_wrong_kernels_are_left_out(tmp_path, monkeypatch):
    rows = [row(workload="W1"), replace(row(workload="W2", kernel="cudnn"), ceiling_share=0.5),
            replace(row(workload="W1", kernel="flex"), ceiling_share=None)]
    (_, ticks, lines), = drawn(rows, tmp_path, monkeypatch)
    assert ticks == ["W1", "W2"] and lines["cudnn shuffled NHD"] == {1: 50} and "flex shuffled NHD" not in lines
