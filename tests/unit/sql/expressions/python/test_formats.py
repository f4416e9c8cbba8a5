"""Dates and times as text by a pattern, against what java.time gives."""

from __future__ import annotations

import sys

import pytest

from standpipe.sql.expressions.python.formats import Moment, formatted
from standpipe.sql.expressions.python.time_reading import read
from standpipe.sql.functions.time_patterns import PARSED, SHOWN
from standpipe.sql.types.zones import zone_of

UTC = zone_of("UTC")
LEAP_DAY = 1_582_979_696_789  # 2020-02-29T12:34:56.789Z, a Saturday


@pytest.mark.parametrize(
    ("pattern", "zone", "text"),
    [
        ("yyyy-MM-dd'T'HH:mm:ss.SSS", "UTC", "2020-02-29T12:34:56.789"),
        ("d/M/yy h:mm a", "UTC", "29/2/20 12:34 PM"),
        ("EEE, MMMM d, y G", "UTC", "Sat, February 29, 2020 AD"),
        ("D QQQ E EEEE LLL", "UTC", "60 Q1 Sat Saturday Feb"),
        ("K k H hh SSSSSS", "UTC", "0 12 12 12 789000"),
        ("'it''s' ''", "UTC", "it's '"),
        ("HH:mm z", "Europe/Paris", "13:34 CET"),
        ("HH:mm Z ZZZZ ZZZZZ", "GMT+2", "14:34 +0200 GMT+02:00 +02:00"),
        ("X XX XXX x xxx O OOOO VV", "UTC", "Z Z Z +00 +00:00 GMT GMT UTC"),
        ("X x O", "-03:30", "-0330 -0330 GMT-3:30"),
        ("yyyy[-MM]", "UTC", "2020-02"),
        ("uuuu-MM-dd uu u", "UTC", "2020-02-29 20 2020"),
        ("MMMMM LLLLL EEEEE GGGGG QQQQQ", "UTC", "F F S A 1"),
        ("A n N", "UTC", "45296789 789000000 45296789000000"),
    ],
)
def test_formatted(pattern: str, zone: str, text: str) -> None:
    assert formatted(Moment.at(LEAP_DAY, zone_of(zone)), pattern, SHOWN) == text


@pytest.mark.parametrize(
    ("days", "text"),
    [
        (-719_528, "0000 000 00 | 0001 1 01 BC"),
        (-800_000, "-0221 -221 21 | 0222 222 22 BC"),
        (3_000_000, "+10183 10183 83 | +10183 10183 83 AD"),
    ],
)
def test_a_year_and_a_year_of_its_era(days: int, text: str) -> None:
    shown = formatted(Moment(days, 0, UTC, 0, 0), "uuuu uuu uu | yyyy y yy G", SHOWN)
    assert shown == text


@pytest.mark.parametrize(
    "pattern", ["w", "YYYY", "e", "MMMMMM", "b", "V", "OO", "{", "]", "'x", "zzzz"]
)
def test_no_patterns(pattern: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        formatted(Moment.at(LEAP_DAY, zone_of("UTC")), pattern, SHOWN)


@pytest.mark.parametrize(
    "pattern",
    ["[" * 201, "[" * 30_000 + "]" * 30_000, "." * 1_000_000, "'" + "x" * 200 + "'", "y-" * 101],
)
def test_a_long_pattern_is_none(pattern: str) -> None:
    """Sections in sections took 3 s and then Python's stack, and each pattern that was met was kept
    with its parts: 512 of a million."""
    references = sys.getrefcount(pattern)
    with pytest.raises(ValueError, match="more than 200 characters"):
        read("1", pattern, PARSED)
    with pytest.raises(ValueError, match="more than 200 characters"):
        formatted(Moment.at(LEAP_DAY, zone_of("UTC")), pattern, SHOWN)
    assert sys.getrefcount(pattern) == references


def test_the_longest_pattern_is_one() -> None:
    pattern = "[" * 98 + "yyyy" + "]" * 98
    assert read("2020", pattern, PARSED).numbers == {"y": 2020}
