import builtins
import sys

import pytest


@pytest.fixture
def terminal(monkeypatch):
    """Answers typed at a terminal, one line each; then the end of input."""

    def type_in(*lines: str) -> None:
        left = iter(lines)

        def read(prompt: str) -> str:
            try:
                return next(left)
            except StopIteration:
                raise EOFError from None

        monkeypatch.setattr(builtins, "input", read)
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)

    return type_in


@pytest.mark.parametrize(("lesson", "right"), [
    (("tokens",), "128"), (("translate",), "255"), (("translate", "7,2,15", "47"), "slot 112"),
    (("translate", "[3, 1]", "5", "--block-size", "4"), "7"), (("holes",), "1024"), (("ae",), "4"),
    (("softmax",), "0.135")])
def test_a_right_answer_ends_with_0_and_a_wrong_one_with_1(pagesim, lesson, right):
    good = pagesim("explain", *lesson, "--answer", right)
    assert (good.code, "Right: " in good.out) == (0, True)
    bad = pagesim("explain", *lesson, "--answer", "77")
    assert (bad.code, "Not so; the answer is " in bad.out) == (1, True)


def test_off_a_terminal_the_question_is_shown_and_nothing_is_read(pagesim):
    ended = pagesim("explain", "ae")
    assert ended.code == 0
    assert ended.out.endswith("To check your answer: pagesim explain ae --answer X\n")


def test_at_a_terminal_one_may_try_again(pagesim, terminal):
    terminal("3", "4")
    ended = pagesim("explain", "ae")
    assert ended.code == 0 and "Once more?" in ended.out and "Right: " in ended.out


def test_three_wrong_answers_are_enough(pagesim, terminal):
    terminal("1", "2", "3", "4")
    ended = pagesim("explain", "ae")
    assert ended.code == 1 and "Not so; the answer is 4" in ended.out


@pytest.mark.parametrize("lines", [[""], []])
def test_an_empty_line_or_the_end_of_input_shows_the_answer_and_is_no_mistake(pagesim, terminal, lines):
    terminal(*lines)
    ended = pagesim("explain", "ae")
    assert ended.code == 0 and "The answer is 4" in ended.out


def test_no_ask_asks_nobody_at_a_terminal(pagesim, terminal):
    terminal("4")
    assert "Right" not in pagesim("explain", "ae", "--no-ask").out


@pytest.mark.parametrize("table", ["7,two", "", "-1,3", "1.5"])
def test_a_table_that_is_none_is_a_usage_error_with_an_example(pagesim, table):
    ended = pagesim("explain", "translate", "--", table)
    assert ended.code == 2 and "such as 7,2,15" in ended.err


def test_the_corrupt_lesson_without_torch_names_the_extra(pagesim, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    ended = pagesim("explain", "corrupt")
    assert ended.code == 3 and "pip install 'pagesim[kernel]'" in ended.err
