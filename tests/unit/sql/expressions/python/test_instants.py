"""Functions of dates and instants, as ksqlDB's Java computes them."""

from __future__ import annotations

from datetime import date

import pytest

from standpipe.sql.expressions.python.instants import FUNCTIONS, parse_timestamp
from standpipe.sql.types.calendar import days_of

HOUR_MS = 3_600_000
#: 2021-03-14T07:00Z, when the clocks of New York went from 2 to 3
CHANGE = 1_615_705_200_000


def day(text: str) -> int:
    found = date.fromisoformat(text)
    return days_of(found.year, found.month, found.day)


@pytest.mark.parametrize(
    ("name", "unit", "count", "given", "result", "why"),
    [
        ("DATEADD", "DAYS", 3, "2020-02-27", "2020-03-01", ""),
        ("DATESUB", "HOURS", 12, "2020-01-02", "2020-01-01", "noon of the day before"),
        ("DATEADD", "HOURS", 12, "2020-01-02", "2020-01-02", ""),
        ("DATEADD", "HOURS", -12, "2020-01-02", "2020-01-01", ""),
        ("DATEADD", "HOURS", 12, "1960-01-02", "1960-01-03", "cut off towards 1970"),
        ("DATEADD", "WEEKS", -1, "2020-01-02", "2019-12-26", ""),
    ],
)
def test_shifted_dates(name: str, unit: str, count: int, given: str, result: str, why: str) -> None:
    assert FUNCTIONS[name].compute(unit, count, day(given)) == day(result), why


@pytest.mark.parametrize(
    ("at", "given", "wanted", "hours", "why"),
    [
        (CHANGE, "UTC", "America/New_York", -4, "summer time begins at this instant"),
        (CHANGE - 1, "UTC", "America/New_York", -5, ""),
        (CHANGE, "America/New_York", "UTC", 4, "the offset of the instant as UTC has it"),
        (CHANGE - 1, "America/New_York", "UTC", 5, ""),
        (CHANGE, "America/New_York", "America/New_York", 0, ""),
    ],
)
def test_convert_tz(at: int, given: str, wanted: str, hours: int, why: str) -> None:
    assert FUNCTIONS["CONVERT_TZ"].compute(at, given, wanted) == at + hours * HOUR_MS, why


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [("FORMAT_TIMESTAMP", "GMT GMT", "its zone is GMT"), ("TIMESTAMPTOSTRING", "UTC UTC", "")],
)
def test_the_zone_that_is_not_given(name: str, text: str, why: str) -> None:
    assert FUNCTIONS[name].compute(0, "z VV") == text, why


@pytest.mark.parametrize(
    ("text", "pattern", "millis", "why"),
    [
        ("1970-02-30 00:00", "yyyy-MM-dd HH:mm", 58 * 24 * HOUR_MS, "the last day of February"),
        ("1970-01-01T24:00Z", "yyyy-MM-dd'T'HH:mmX", 24 * HOUR_MS, "midnight"),
        ("Fri 1970-01-02", "EEE yyyy-MM-dd", 24 * HOUR_MS, "the day of the week"),
        ("Sat 1970-01-02", "EEE yyyy-MM-dd", None, "not a Saturday"),
        ("noon", "HH:mm", None, ""),
    ],
)
def test_a_timestamp_column_is_read_as_parse_timestamp_does(
    text: str, pattern: str, millis: int | None, why: str
) -> None:
    assert parse_timestamp(text, pattern) == millis, why
    assert FUNCTIONS["PARSE_TIMESTAMP"].compute(text, pattern) == millis, why
