"""What texts say by a pattern, and what Spark makes of them."""

from __future__ import annotations

import pytest

from standpipe.sql.expressions.python.time_reading import parsed
from standpipe.sql.functions.time_patterns import PARSED


@pytest.mark.parametrize(
    ("text", "pattern", "days", "of_day_ms"),
    [
        ("2020-02-29 12:34:56", "yyyy-MM-dd HH:mm:ss", 18_321, 45_296_000),
        ("29/2/20 1:05 PM", "d/M/yy h:mm a", 18_321, 47_100_000),
        ("20200229", "yyyyMMdd", 18_321, 0),
        ("29 feb 2020", "dd MMM yyyy", 18_321, 0),
        ("2020", "yyyy[-MM]", 18_262, 0),
        ("2020-02", "yyyy[-MM]", 18_293, 0),
        ("60", "D", 59, 0),
        ("1970-01-01 00:00:01.5", "yyyy-MM-dd HH:mm:ss.SSS", 0, 1500),
        ("00:00:01.123456", "HH:mm:ss.SSSSSS", 0, 1123),
    ],
)
def test_parsed(text: str, pattern: str, days: int, of_day_ms: int) -> None:
    found = parsed(text, pattern, PARSED)
    assert (found.days, found.of_day_ms, found.zone) == (days, of_day_ms, None)


@pytest.mark.parametrize(
    ("text", "pattern", "zone", "why"),
    [
        ("12:00 PST", "HH:mm z", "America/Los_Angeles", "an abbreviation is its zone"),
        ("12:00 pdt", "HH:mm zzz", "America/Los_Angeles", "in any case, in any season"),
        ("12:00 CET", "HH:mm z", "Europe/Paris", "before the region of that name"),
        ("12:00 BST", "HH:mm z", "Pacific/Bougainville", "of several zones, Java's"),
        ("12:00 america/new_york", "HH:mm zz", "America/New_York", "a region"),
        ("12:00 america/new_york", "HH:mm VV", "America/New_York", ""),
        ("12:00 utc", "HH:mm VV", "UTC", ""),
        ("12:00 UTC", "HH:mm z", "UTC", ""),
        ("12:00 Z", "HH:mm z", "Z", ""),
        ("12:00 Zulu", "HH:mm z", "Zulu", "the longest name"),
        ("12:00 GMT+02:00", "HH:mm z", "GMT+02:00", ""),
        ("12:00 -05:30", "HH:mm z", "-05:30", ""),
        ("12:00PST2020", "HH:mmzy", "America/Los_Angeles", "what follows is not part of it"),
    ],
)
def test_zones_by_name(text: str, pattern: str, zone: str, why: str) -> None:
    found = parsed(text, pattern, PARSED).zone
    assert found is not None
    assert found.name == zone, why


@pytest.mark.parametrize(
    "text",
    ["12:00 NOPE", "12:00 ", "12:00 GMT+2", "12:00 +01", "12:00 Etc/GMT+5", "12:00 Pacific Time"],
)
def test_no_zones_by_name(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        parsed(text, "HH:mm z", PARSED)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("2019-02-29", "yyyy-MM-dd"), ("2020-2-9", "yyyy-MM-dd"), ("24:00", "HH:mm"),
        ("2020-02-29 x", "yyyy-MM-dd"), ("13:00 PM", "hh:mm a"), ("", "yyyy"),
        ("99999-01-01", "yyyy-MM-dd"),
    ],
)  # fmt: skip
def test_texts_that_are_not_of_the_pattern(text: str, pattern: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - NULL, whatever the reason
        parsed(text, pattern, PARSED)
