"""Arrivals are read as the file writes them, and rounded to nanoseconds once, after the first is subtracted."""

import json
from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_files import write

from pagesim.errors import InputError, TraceError
from pagesim.trace import Trace, read_trace
from pagesim.trace.decimals import parse_instants
from pagesim.trace.instants import BAD, FAR, whole_ns

UNITS = {"arrival_s": 9, "arrival_ms": 6, "arrival_us": 3, "arrival_ns": 0}  # digits that make it nanoseconds


def arrival_ns(folder, column: str, texts: list[str], form: str) -> list[int]:
    if form == "csv":
        text = f"{column},prompt_tokens,output_tokens\n" + "".join(f"{arrival},1,2\n" for arrival in texts)
    else:
        text = "".join(f'{{"{column}": {arrival}, "prompt_tokens": 1, "output_tokens": 2}}\n' for arrival in texts)
    return read_trace(write(folder, text)).arrival_ns.tolist()


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize(("column", "texts", "expected"), [
    ("arrival_ns", ["1787267980082740300", "1787267980082740400", "1787267980082741300"], [0, 100, 1000]),
    ("arrival_s", ["1787267980.0827403", "1787267980.5827404", "1787267981.0827411"], [0, 500_000_100, 1_000_000_800]),
    ("arrival_s", ["1787267980.082740300", "1787267980.082740301"], [0, 1]),
    ("arrival_ms", ["1787267980082.7403", "1787267980082.7414"], [0, 1100]),
    ("arrival_us", ["1787267980082740.3", "1787267980082740.4"], [0, 100]),
    ("arrival_s", ["1.7872679800827403e9", "1787267980.0827404"], [0, 100]),
    ("arrival_s", ["0.0000000014", "0.0000000019", "0.0000000020"], [0, 1, 1])])  # 0, 0.5 and 0.6 ns after the first
def test_no_digit_of_a_time_since_1970_is_lost(tmp_path, column, texts, expected, form):
    assert arrival_ns(tmp_path, column, texts, form) == expected


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@given(column=st.sampled_from(sorted(UNITS)), epoch=st.decimals(0, 2 * 10**9, places=12),
       steps=st.lists(st.decimals(0, 10, places=12), min_size=1, max_size=5))
def test_a_trace_since_1970_is_its_relative_twin_to_the_last_digit(tmp_path_factory, form, column, epoch, steps):
    folder = tmp_path_factory.mktemp("twin")
    times = [sum(steps[:i], Decimal(0)) for i in range(len(steps))]
    absolute = arrival_ns(folder, column, [f"{epoch + time:f}" for time in times], form)
    assert absolute == arrival_ns(folder, column, [f"{time:f}" for time in times], form)
    assert absolute == [int((time * 10 ** UNITS[column]).to_integral_value(ROUND_HALF_UP)) for time in times]


@given(st.lists(st.one_of(st.integers(0, 10**20).map(str), st.decimals(0, 10**12, places=7).map(str),
                          st.from_regex(r"[0-9]{0,11}\.[0-9]{1,24}", fullmatch=True),
                          st.floats(0, 1e12).map(repr)), min_size=1, max_size=9), st.sampled_from((0, 3, 6, 9)))
def test_a_column_of_times_is_what_decimals_say_of_each(texts, unit_digits):
    end = np.cumsum([len(text) + 1 for text in texts]) - 1
    start = np.concatenate(([0], end[:-1] + 1))
    parsed = parse_instants(np.frombuffer(",".join(texts).encode() + b"\n", dtype=np.uint8), start, end, unit_digits)
    for text, ns, atto in zip(texts, parsed.ns.tolist(), parsed.atto.tolist()):
        exact = Decimal(text).scaleb(18 - unit_digits)
        assert ns == FAR if exact >= FAR * 10**9 else divmod(int(exact), 10**9) == (ns, atto)


@pytest.mark.parametrize(("text", "ns"), [("", BAD), ("nan", BAD), ("1e999", BAD), ("x", BAD), ("1.2.3", BAD), ("-0", 0),
                                          ("1e30", FAR), ("9223372037", FAR), (" 5 ", 5 * 10**9), ("1e-99999", 0)])
def test_what_is_no_time_or_too_far_is_marked(text, ns):
    data = np.frombuffer(text.encode() + b"\n", dtype=np.uint8)
    assert parse_instants(data, np.array([0]), np.array([len(text)]), 0).ns.tolist() == [ns]


def test_a_clock_of_ten_digits_is_rounded_after_the_first_is_subtracted(tmp_path):
    text = "timestamp,prompt_tokens,output_tokens\n2024-05-10 00:00:00.0000000004,1,2\n2024-05-10 00:00:00.0000000010,1,2\n"
    assert read_trace(write(tmp_path, text)).arrival_ns.tolist() == [0, 1]


def test_rows_whose_times_differ_below_a_nanosecond_are_sorted(tmp_path):
    text = "arrival_ns,prompt_tokens,output_tokens\n5.4,1,2\n5.2,3,4\n5.3,5,6\n"
    assert read_trace(write(tmp_path, text)).prompt_tokens.tolist() == [3, 5, 1]


def test_a_number_in_json_is_quoted_as_written(tmp_path):
    row = json.dumps({"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 2}).replace(": 1", ": 1.50")
    with pytest.raises(TraceError, match="got '1.50'"):
        read_trace(write(tmp_path, row + "\n"))


def test_arrivals_in_memory_are_whole_nanoseconds():
    ones = np.ones(2, dtype=np.int32)
    with pytest.raises(TraceError, match="arrival_ns must be whole nanoseconds, int64, got float64"):
        Trace(np.zeros(2), ones, ones)
    assert Trace(np.array([0, 1_500_000_000]), ones, ones).arrival_s.tolist() == [0, 1.5]


def test_seconds_become_the_nearest_nanosecond_or_are_refused():
    assert whole_ns(np.array([0.1, 0.3, 1e-10, 6e-10])).tolist() == [10**8, 3 * 10**8, 0, 1]
    with pytest.raises(InputError, match="span more than 292 years"):
        whole_ns(np.array([1e10]))
