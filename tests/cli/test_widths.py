"""Every command's output in windows of several widths: nothing is wider, and no figure and no word is broken."""

import pytest
from tiny import write_experiment

from pagesim import simulate

SWEPT = "sweep: {allocators.1.block_size: [1, 2, 4, 8, 16]}"
COMMANDS = {
    "simulate": ("simulate", "few/config.yaml"),
    "simulate with many cases": ("simulate", "many/config.yaml"),
    "compare": ("compare", "a", "b"),
    "compare with a measured timeline": ("compare", "a", "measured.csv", "--case", "paged 16"),
    "trace inspect": ("trace", "inspect", "few/trace.csv", "--max-model-len", 64),
    "config validate": ("config", "validate", "few/config.yaml"),
    "size": ("size", "--model", "llama-3.1-8b", "--gpu", "h100-sxm"),
    "kernel": ("kernel", "peak.npz", "--heads", "2/1", "--head-dim", 16, "--dtype", "fp32", "--device", "cpu"),
    "explain": ("explain", "softmax", "--no-ask"),
}
WIDER = {"explain": 80}  # drawings, which have one width


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("widths")
    write_experiment(folder / "few")
    write_experiment(folder / "many", keys=SWEPT)
    simulate(folder / "few" / "config.yaml", folder=folder / "a")
    simulate(folder / "few" / "config.yaml", ("durations.step_s=0.3",), folder=folder / "b")
    (folder / "measured.csv").write_text("time_s,running,waiting,kv_pct\n0.02,1,0,20\n0.12,3,0,60\n")
    return folder


@pytest.fixture(scope="module")
def whole():
    return {}


def words(text):
    return {word for word in text.split() if set(word) != {"─"}}


@pytest.mark.parametrize("width", [60, 80, 100, 120])
@pytest.mark.parametrize("name", COMMANDS)
def test_no_line_is_wider_than_the_window_and_nothing_in_it_is_broken(pagesim, folder, whole, monkeypatch, name, width):
    if name == "kernel":
        pytest.importorskip("torch", reason="the kernels need torch")
        pytest.importorskip("triton", reason="the kernels need triton")
        from pagesim.core.blocktables import from_rows

        from_rows([[5, 1], [3, 0], [2, 6], [4]], [8, 5, 7, 1], 4, 9, origin={"step": 3}).save(folder / "peak.npz")
    monkeypatch.chdir(folder)
    if name not in whole:
        monkeypatch.setenv("COLUMNS", "100000")
        whole[name] = pagesim(*COMMANDS[name])
    monkeypatch.setenv("COLUMNS", str(width))
    ended = pagesim(*COMMANDS[name])
    for here, anywhere in zip(ended[1:], whole[name][1:], strict=True):
        wide = [line for line in here.splitlines() if len(line) > max(width, WIDER.get(name, 0))]
        assert not [line for line in wide if len(line.split()) > 1]  # one long word, such as a digest, stays whole
        assert words(anywhere) - {"–"} <= words(here) | {"µs", "GB/s", "of", "read", "ceiling"}
