import tomllib
from pathlib import Path

import pytest

from pagesim.config import load, shipped
from pagesim.errors import ConfigError

SOURCES = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (SOURCES / "configs").glob("*.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_experiment_is_copied_with_its_trace_and_asks_the_same(name, tmp_path):
    written = shipped.copy(name, tmp_path / "mine.yaml")
    assert written[0] == tmp_path / "mine.yaml" and {path.parent for path in written} == {tmp_path}
    mine, theirs = load(written[0]).cases, load(SOURCES / "configs" / f"{name}.yaml").cases
    assert [case.name for case in mine] == [case.name for case in theirs]
    assert {Path(case.trace.path).parent for case in mine} == {tmp_path}


def test_every_config_and_trace_is_installed_with_the_package():
    data = tomllib.loads((SOURCES / "pyproject.toml").read_text())["tool"]["setuptools"]["data-files"]
    for folder in ("configs", "traces"):
        (pattern,) = data[f"share/pagesim/{folder}"]
        assert set(SOURCES.glob(pattern)) == {path for path in (SOURCES / folder).iterdir() if path.suffix != ".md" or
                                              folder == "traces"}


def test_a_second_experiment_of_the_same_trace_finds_it_there(tmp_path):
    shipped.copy("quickstart", tmp_path / "a.yaml")
    shipped.copy("quickstart", tmp_path / "b.yaml")
    assert (tmp_path / "a.yaml").read_text() == (tmp_path / "b.yaml").read_text()


def test_nothing_is_replaced_and_nothing_is_left_half_written(tmp_path):
    (tmp_path / "azure_conv_like.csv").write_text("mine")
    with pytest.raises(ConfigError, match=r"azure_conv_like.csv: exists already"):
        shipped.copy("quickstart", tmp_path / "a.yaml")
    assert [path.name for path in tmp_path.iterdir()] == ["azure_conv_like.csv"]


def test_an_unknown_name_lists_the_known_ones(tmp_path):
    with pytest.raises(ConfigError, match="no experiment 'quick' to start from; there are azure_conv_h200, "):
        shipped.copy("quick", tmp_path / "a.yaml")
    assert shipped.names() == NAMES
