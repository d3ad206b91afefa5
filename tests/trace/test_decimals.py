import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagesim.trace.decimals import parse_decimals, parse_number


def parse(texts: list[str]) -> np.ndarray:
    encoded = [text.encode() for text in texts]
    end = np.cumsum([len(text) + 1 for text in encoded]) - 1
    start = np.concatenate(([0], end[:-1] + 1))
    return parse_decimals(np.frombuffer(b",".join(encoded) + b"\n", dtype=np.uint8), start, end)


decimals = st.one_of(st.integers(-10**20, 10**20).map(str), st.floats(allow_nan=False, allow_infinity=False).map(repr),
                     st.decimals(0, 10**9, places=7).map(str), st.from_regex(r"[0-9]{0,3}\.[0-9]{1,20}", fullmatch=True))


@given(st.lists(decimals, min_size=1, max_size=20))
def test_a_column_is_what_float_makes_of_each_field(texts):
    np.testing.assert_array_equal(parse(texts), [float(text) for text in texts])


@pytest.mark.parametrize("text", ["", "abc", "nan", "NaN", "inf", "-inf", "1e999", "1_000", "1.2.3", ".", "0x10", "١٢", "1 2", "--3", "e5"])
def test_what_is_no_finite_decimal_number_is_nan(text):
    assert math.isnan(parse([text, "7"])[0]) and math.isnan(parse_number(text))
    assert parse([text, "7"])[1] == 7


@pytest.mark.parametrize(("text", "value"), [(" 12 ", 12), ("+3", 3), ("1e3", 1000), ("5.", 5), (".5", 0.5), ("-5", -5), ("007", 7)])
def test_other_spellings_of_a_number_are_read(text, value):
    assert parse([text])[0] == value
