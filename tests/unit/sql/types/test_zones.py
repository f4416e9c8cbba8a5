"""Zones as java.time reads them."""

from __future__ import annotations

import pytest

from standpipe.sql.types.zones import zone_of

HOUR = 3_600_000
WINTER, SUMMER = 1_577_836_800_000, 1_593_561_600_000


@pytest.mark.parametrize(
    ("text", "name", "hours"),
    [
        ("Z", "Z", 0), ("UTC", "UTC", 0), ("+2", "+02:00", 2), ("+02", "+02:00", 2),
        ("-0330", "-03:30", -3.5), ("+02:00", "+02:00", 2), ("GMT+2", "GMT+02:00", 2),
        ("UTC-03:30", "UTC-03:30", -3.5), ("+00:00", "Z", 0), ("GMT+0", "GMT", 0),
        ("Europe/Paris", "Europe/Paris", 1), ("Asia/Kolkata", "Asia/Kolkata", 5.5),
        ("+18:00", "+18:00", 18),
    ],
)  # fmt: skip
def test_zones(text: str, name: str, hours: float) -> None:
    zone = zone_of(text)
    assert (zone.name, zone.offset_ms(WINTER)) == (name, hours * HOUR)


@pytest.mark.parametrize(
    "text",
    ["", "PST", "nowhere/x", "+18:01", "+2:00", "utc", "GMT2", "../x", "+0260", " UTC", "EST"],
)
def test_no_zones(text: str) -> None:
    with pytest.raises(ValueError, match="Unknown time zone"):
        zone_of(text)


def test_the_clock_change() -> None:
    paris = zone_of("Europe/Paris")
    assert paris.offset_ms(SUMMER) == 2 * HOUR
    assert paris.short_name(SUMMER) == "CEST"
    gap = 1_585_449_000_000  # 2020-03-29T02:30, which no clock in Paris showed
    assert paris.instant(gap) == gap - HOUR
    twice = 1_603_593_000_000  # 2020-10-25T02:30, which they showed twice
    assert paris.instant(twice) == twice - 2 * HOUR


@pytest.mark.parametrize(
    ("zone", "millis", "name", "why"),
    [
        ("Asia/Kolkata", -(10**13), "IST", "not LMT"),
        ("Europe/London", 0, "GMT", "standard time all year then, an hour ahead"),
        ("America/New_York", -790_000_000_000, "EDT", "the war time of 1944, EWT"),
        ("America/New_York", WINTER, "EST", ""),
    ],
)
def test_java_has_two_abbreviations_for_a_zone(zone: str, millis: int, name: str, why: str) -> None:
    assert zone_of(zone).short_name(millis) == name, why


def test_years_that_python_lacks() -> None:
    far = 2**63 // 1000 - 1
    assert zone_of("Europe/Paris").offset_ms(far) in (HOUR, 2 * HOUR)
    assert zone_of("Europe/Paris").offset_ms(-far) == 561_000, "local mean time"
