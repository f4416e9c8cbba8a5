"""Texts of dates and times as ksqlDB's functions read them: java.time's style SMART, and lenient.

`tests/e2e/both_times.py` compares many more with java.time itself.
"""

from __future__ import annotations

import pytest

from standpipe.sql.expressions.python import java_times
from standpipe.sql.types.calendar import days_of
from standpipe.sql.types.zones import zone_of

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
UTC = zone_of("UTC")


@pytest.mark.parametrize(
    ("text", "pattern", "day", "why"),
    [
        ("2021-02-30", "yyyy-MM-dd", (2021, 2, 28), "the last day of the month"),
        ("2020-02-31", "yyyy-MM-dd", (2020, 2, 29), ""),
        ("2021-04-31", "uuuu-MM-dd", (2021, 4, 30), ""),
        ("2021-060", "yyyy-DDD", (2021, 3, 1), ""),
        ("Mon, 1 Mar 2021", "EEE, d MMM yyyy", (2021, 3, 1), ""),
        ("2021-12-31 24:00", "yyyy-MM-dd HH:mm", (2022, 1, 1), "the midnight behind it"),
        ("2021-12-31 23:00", "yyyy-MM-dd HH:mm", (2021, 12, 31), "a time is not used"),
    ],
)
def test_date(text: str, pattern: str, day: tuple[int, int, int], why: str) -> None:
    assert java_times.date(text, pattern) == days_of(*day), why


@pytest.mark.parametrize(
    ("text", "pattern", "why"),
    [
        ("2021-04-32", "yyyy-MM-dd", "no month has it"),
        ("2021-13-01", "yyyy-MM-dd", ""),
        ("2021-366", "yyyy-DDD", "not of that year"),
        ("2021-02", "yyyy-MM", "no day"),
        ("02-03", "MM-dd", "no year"),
        ("Tue, 1 Mar 2021", "EEE, d MMM yyyy", "a Monday"),
        ("2021-02-03 x", "yyyy-MM-dd", "text behind it"),
        ("2021-12-31 24:01", "yyyy-MM-dd HH:mm", ""),
    ],
)
def test_no_date(text: str, pattern: str, why: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - NULL, whatever the reason
        pytest.fail(f"{java_times.date(text, pattern)}: {why}")


@pytest.mark.parametrize(
    ("text", "pattern", "day", "why"),
    [
        ("2021-02-30", "yyyy-MM-dd", (2021, 3, 2), "days go on into the next month"),
        ("2021-13-01", "yyyy-MM-dd", (2022, 1, 1), "months into the next year"),
        ("2021-00-00", "yyyy-MM-dd", (2020, 11, 30), "... or the last one"),
        ("2021-2-3 and more", "yyyy-MM-dd", (2021, 2, 3), "fewer digits; the rest is not read"),
        ("45-01-01", "yy-MM-dd", (2045, 1, 1), "a century from 1946 on"),
        ("46-01-01", "yy-MM-dd", (1946, 1, 1), ""),
        ("45-01-01", "yyyy-MM-dd", (45, 1, 1), "four letters are that year"),
        ("20210230", "yyyyMMdd", (2021, 3, 2), "as many digits as letters"),
        ("30 february 2021", "d MMM yyyy", (2021, 3, 2), "a name of either length"),
        ("  2021- 2- 3", "yyyy-MM-dd", (2021, 2, 3), "blanks before a number"),
        ("2021-400", "yyyy-DDD", (2022, 2, 4), ""),
        ("2021", "yyyy", (2021, 1, 1), ""),
        ("x", "", (1970, 1, 1), ""),
    ],
)
def test_lenient_date(text: str, pattern: str, day: tuple[int, int, int], why: str) -> None:
    assert java_times.lenient_date(text, pattern) == days_of(*day), why


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("2021/02/03", "yyyy-MM-dd"), ("x", "yyyy"), ("2021-Xyz", "yyyy-MMM"), ("2021", "yyyy-MM"),
        ("99999999999-01-01", "yyyy-MM-dd"), ("2021-02-03", "yyyy'A'MM"),
    ],
)  # fmt: skip
def test_no_lenient_date(text: str, pattern: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - NULL, whatever the reason
        java_times.lenient_date(text, pattern)


@pytest.mark.parametrize(
    ("text", "pattern", "millis", "why"),
    [
        ("24:00", "HH:mm", 0, "midnight"),
        ("12:30 am", "hh:mm a", HOUR_MS // 2, ""),
        ("24:30", "kk:mm", HOUR_MS // 2, "0 to 23 are 24 to 23 as well"),
        ("7", "H", 7 * HOUR_MS, ""),
        ("PM", "a", 18 * HOUR_MS, "the middle of it"),
    ],
)
def test_time(text: str, pattern: str, millis: int, why: str) -> None:
    assert java_times.time(text, pattern) == millis, why


@pytest.mark.parametrize(
    ("text", "pattern", "why"),
    [
        ("24:01", "HH:mm", ""),
        ("07:30", "hh:mm", "of which half of the day?"),
        ("30:15", "mm:ss", "no hour"),
        ("07:15", "HH:ss", "no minute"),
        ("12:34:56.7", "HH:mm:ss.SSS", "three digits"),
        ("13:00 PM", "hh:mm a", ""),
        ("11:00 PM", "HH:mm a", "a contradiction"),
    ],
)
def test_no_time(text: str, pattern: str, why: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - NULL, whatever the reason
        pytest.fail(f"{java_times.time(text, pattern)}: {why}")


@pytest.mark.parametrize(
    ("text", "pattern", "millis", "why"),
    [
        ("2021-02-30 24:00", "yyyy-MM-dd HH:mm", days_of(2021, 3, 1) * DAY_MS, ""),
        ("02-30", "MM-dd", days_of(1970, 2, 28) * DAY_MS, "in 1970, from the day on"),
        ("Mon", "EEE", days_of(1969, 12, 29) * DAY_MS, "in the week of 1970-01-01"),
        ("30:15", "mm:ss", 1_815_000, "a part of a time"),
        ("20200229123456789", "yyyyMMddHHmmssSSS", 1_582_979_696_789, "a fraction has its digits"),
        ("1970-01-02 00:00+01:00", "yyyy-MM-dd HH:mmXXX", DAY_MS - HOUR_MS, "its own zone counts"),
    ],
)
def test_instant(text: str, pattern: str, millis: int, why: str) -> None:
    assert java_times.instant(text, pattern, UTC) == millis, why


@pytest.mark.parametrize(
    ("text", "pattern", "zone", "millis", "why"),
    [
        ("2020-10-25 02:30", "yyyy-MM-dd HH:mm", "Europe/Paris", 1_603_589_400_000,
         "of two instants, that with the offset of 1970"),
        ("2020-10-25 02:30 Europe/Paris", "yyyy-MM-dd HH:mm VV", "UTC", 1_603_585_800_000,
         "... and the first, where the text has the zone"),
    ],
)  # fmt: skip
def test_a_local_time_that_there_is_twice(
    text: str, pattern: str, zone: str, millis: int, why: str
) -> None:
    assert java_times.instant(text, pattern, zone_of(zone)) == millis, why
