import sys

import pytest
from tiny import write_experiment

from pagesim.cli.watch import choose
from pagesim.config import load
from pagesim.errors import InputError

SWEEP = {"keys": 'sweep: {"allocators.1.block_size": [8, 16]}'}


def cases(folder, **options):
    return load(write_experiment(folder, **options)).cases


def test_by_default_the_first_contiguous_and_the_first_paged_case_play(tmp_path):
    every = cases(tmp_path, **SWEEP)
    chosen = choose(every, [])
    assert [type(case.allocator).__name__ for case in chosen] == ["Contiguous", "Paged"]
    assert chosen[1].allocator.block_size == 8


def test_cases_are_chosen_by_name_in_the_order_given(tmp_path):
    every = cases(tmp_path, **SWEEP)
    names = [case.name for case in reversed(every)][:2]
    assert [case.name for case in choose(every, names)] == names


def test_an_unknown_name_and_a_fourth_case_are_refused(tmp_path):
    every = cases(tmp_path)
    with pytest.raises(InputError, match="no case 'none'; the cases are "):
        choose(every, ["none"])
    with pytest.raises(InputError, match="3 cases fit"):
        choose(every, [every[0].name] * 4)


def test_off_a_terminal_it_says_that_it_needs_one(tmp_path, pagesim):
    pytest.importorskip("textual", reason="textual is not installed: pip install 'pagesim[watch]'")
    ended = pagesim("watch", write_experiment(tmp_path))
    assert ended.code == 2 and "plays on a terminal" in ended.err


@pytest.mark.parametrize("term", [None, "", "dumb"])
def test_a_terminal_that_cannot_move_its_cursor_is_refused(tmp_path, pagesim, monkeypatch, term):
    pytest.importorskip("textual", reason="textual is not installed: pip install 'pagesim[watch]'")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.delenv("TERM", raising=False)
    if term is not None:
        monkeypatch.setenv("TERM", term)
    ended = pagesim("watch", write_experiment(tmp_path))
    assert ended.code == 2 and f"TERM={term or ''} says that this one cannot; set TERM" in ended.err


def test_without_textual_it_names_the_extra(tmp_path, pagesim, monkeypatch):
    for name in [name for name in sys.modules if name == "pagesim.watch.app" or name.split(".")[0] == "textual"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "textual", None)
    ended = pagesim("watch", write_experiment(tmp_path))
    assert ended.code == 3 and "pip install 'pagesim[watch]'" in ended.err
