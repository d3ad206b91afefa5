import sys

import pytest

from pagesim.allocators import KINDS
from pagesim.cli import doctor


@pytest.fixture
def without(monkeypatch):
    """As if a package were not installed."""

    def hide(*packages):
        installed = doctor._installed
        monkeypatch.setattr(doctor, "_installed", lambda name: None if name in packages else installed(name))

    return hide


def test_it_says_what_is_installed_and_what_the_engine_has_compiled(pagesim):
    ended = pagesim("doctor")
    assert ended.code == 0 and ended.err == ""
    assert f"Python {sys.version.split()[0]}" in ended.out and "numba" in ended.out
    engine = ended.out.split("engine\n")[1].split("extras\n")[0]
    assert all(kind.name in engine for kind in KINDS) or "cannot be written" in engine


def test_a_missing_extra_is_off_and_says_how_it_comes(pagesim, without):
    without("textual", "matplotlib")
    out = pagesim("doctor").out
    assert "watch: off (watch), textual not installed: pip install 'pagesim[watch]'" in out
    assert "report: off (plot), matplotlib not installed: pip install 'pagesim[report]'" in out


def test_without_torch_no_gpu_is_looked_for(pagesim, without):
    without("torch")
    out = pagesim("doctor").out
    assert "torch not installed: pip install 'pagesim[kernel]'" in out and "not looked for: that needs torch" in out


def test_a_cache_that_cannot_be_written_is_named_with_the_way_out(pagesim, monkeypatch):
    monkeypatch.setattr("pagesim.engine.compiled._CACHES", False)
    out = pagesim("doctor").out
    assert "cannot be written" in out and "PAGESIM_CACHE_DIR" in out
