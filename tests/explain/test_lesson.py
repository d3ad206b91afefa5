import pytest

from pagesim.explain.lesson import Question


@pytest.mark.parametrize("given", ["36", " 36 ", "slot 36", "36 slots", "36.0"])
def test_a_whole_number_is_right_whatever_words_stand_around_it(given):
    assert Question("?", 36, "").accepts(given)


@pytest.mark.parametrize("given", ["35", "36.5", "", "slot", "3 6", "36 or 35", "nan", "360"])
def test_another_number_or_none_or_two_are_wrong(given):
    assert not Question("?", 36, "").accepts(given)


def test_thousands_may_be_separated():
    assert Question("?", 1024, "").accepts("1,024 MiB")
    assert not Question("?", 1024, "").accepts("1,24")


def test_a_fraction_is_right_within_one_percent():
    question = Question("?", 0.1353, "")
    assert question.accepts("0.135") and question.accepts("1.353e-1")
    assert not question.accepts("0.13") and not question.accepts("0.137")


def test_a_word_is_right_by_its_first_letter_in_any_case():
    question = Question("?", "no", "")
    assert question.accepts("No") and question.accepts("n") and not question.accepts("yes") and not question.accepts("")
