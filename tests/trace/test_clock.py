from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagesim.trace.clock import has_zone, parse_clocks
from pagesim.trace.instants import BAD

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse(texts: list[str], *, zoned: bool = True) -> list[int]:
    encoded = [text.encode() for text in texts]
    end = np.cumsum([len(text) + 1 for text in encoded]) - 1
    start = np.concatenate(([0], end[:-1] + 1))
    return parse_clocks(np.frombuffer(b"\n".join(encoded) + b"\n", dtype=np.uint8), start, end, zoned=zoned).ns.tolist()


zones = st.integers(-12 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
times = st.datetimes(datetime(1970, 1, 3), datetime(2261, 1, 1), timezones=zones)


@given(st.lists(times, min_size=1, max_size=10), st.sampled_from(" T"))
def test_times_with_zones_are_what_datetime_says(moments, separator):
    expected = [(moment - EPOCH) // timedelta(microseconds=1) * 1000 for moment in moments]
    assert parse([moment.isoformat(separator) for moment in moments]) == expected


def test_seven_digits_of_a_second_are_kept():
    first, second = parse(["2023-11-16 18:15:46.6805900", "2023-11-16 18:15:50.9951691"], zoned=False)
    assert second - first == 4_314_579_100


def test_a_whole_second_may_lack_its_fraction():
    first, second = parse(["2024-05-10 00:00:00+00:00", "2024-05-10 00:00:00.009930+00:00"])
    assert second - first == 9_930_000


@pytest.mark.parametrize("zone", ["Z", "+00:00", "+0000", "+00", " UTC"])
def test_utc_has_several_spellings(zone):
    assert parse([f"1970-01-02T00:00:01{zone}"]) == [86401 * 10**9]


@pytest.mark.parametrize("text", ["", "2023-11-16", "2023-13-01 00:00:00", "2023-02-29 00:00:00", "2023-01-01 24:00:00", "1.5",
                                  "0001-01-01 00:00:00"])
@pytest.mark.parametrize("zone", ["", "Z"])
def test_what_is_no_time_is_bad(text, zone):
    assert parse([text + zone, "2024-02-29 00:00:00" + zone], zoned=bool(zone)) == [BAD, 1709164800 * 10**9]


@pytest.mark.parametrize("zone", ["x", "+99:00", "+1", "-00:60", " CET"])
def test_an_unknown_zone_is_bad(zone):
    assert parse(["2023-01-01 00:00:00" + zone]) == [BAD]


@pytest.mark.parametrize("zoned", [True, False])
def test_a_zone_in_some_rows_only_is_bad(zoned):
    first, second = parse(["2024-05-10 00:00:00+00:00", "2024-05-10 00:00:01"], zoned=zoned)
    assert (first == BAD, second == BAD) == (not zoned, zoned)


@pytest.mark.parametrize(("text", "zone"), [("2023-11-16 18:17:03.9799600", False), ("2023-11-16T18:17:03Z", True),
                                            ("2023-11-16 18:17:03.97+00:00", True), ("1699999999.5", None), ("", None)])
def test_a_time_shows_whether_it_has_a_zone(text, zone):
    assert has_zone(text) is zone
