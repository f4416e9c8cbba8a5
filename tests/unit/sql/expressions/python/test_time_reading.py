"""What texts say by a pattern."""

from __future__ import annotations

import pytest

from standpipe.sql.expressions.python.time_reading import read
from standpipe.sql.functions.time_patterns import PARSED


@pytest.mark.parametrize(
    ("text", "pattern", "numbers", "nanos"),
    [
        (
            "2020-02-29 12:34",
            "yyyy-MM-dd HH:mm",
            {"y": 2020, "M": 2, "d": 29, "H": 12, "m": 34},
            None,
        ),
        (
            "29/2/20 1:05 PM",
            "d/M/yy h:mm a",
            {"d": 29, "M": 2, "y": 2020, "h": 1, "m": 5, "a": 1},
            None,
        ),
        ("20200229", "uuuuMMdd", {"u": 2020, "M": 2, "d": 29}, None),
        ("29 feb 2020", "dd MMM yyyy", {"d": 29, "M": 2, "y": 2020}, None),
        ("2020", "yyyy[-MM]", {"y": 2020}, None),
        ("2020-02", "yyyy[-MM]", {"y": 2020, "M": 2}, None),
        ("2020T12", "yyyy'T'HH", {"y": 2020, "H": 12}, None),
        ("00.123456", "ss.SSSSSS", {"s": 0}, 123_456_000),
    ],
)
def test_numbers(text: str, pattern: str, numbers: dict[str, int], nanos: int | None) -> None:
    found = read(text, pattern, PARSED)
    assert (found.numbers, found.nanos, found.zone) == (numbers, nanos, None)


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
    found = read(text, pattern, PARSED).zone
    assert found is not None
    assert found.name == zone, why


@pytest.mark.parametrize(
    "text",
    ["12:00 NOPE", "12:00 ", "12:00 GMT+2", "12:00 +01", "12:00 Etc/GMT+5", "12:00 Pacific Time"],
)
def test_no_zones_by_name(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        read(text, "HH:mm z", PARSED)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("2020-2-9", "yyyy-MM-dd"), ("2020-02-29 x", "yyyy-MM-dd"), ("", "yyyy"),
        ("99999-01-01", "yyyy-MM-dd"), ("01.5", "ss.SSS"), ("2020t12", "yyyy-HH"),
    ],
)  # fmt: skip
def test_texts_that_are_not_of_the_pattern(text: str, pattern: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - NULL, whatever the reason
        read(text, pattern, PARSED)
