"""Days and years, against Python's calendar where that has them."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from standpipe.sql.types.calendar import civil, date_text, days_of, time_text, timestamp_text

EPOCH = date(1970, 1, 1)


def test_days_are_those_of_pythons_calendar() -> None:
    for days in range(-719_162, 2_932_897, 997):
        day = EPOCH + timedelta(days=days)
        assert civil(days) == (day.year, day.month, day.day)
        assert days_of(day.year, day.month, day.day) == days


@pytest.mark.parametrize(
    ("days", "text"),
    [
        (0, "1970-01-01"), (2_932_896, "9999-12-31"), (2_932_897, "+10000-01-01"),
        (-719_163, "0000-12-31"), (-719_529, "-0001-12-31"),
    ],
)  # fmt: skip
def test_dates(days: int, text: str) -> None:
    assert date_text(days) == text
    assert days_of(*civil(days)) == days


@pytest.mark.parametrize("day", [(2019, 2, 29), (2020, 13, 1), (2020, 4, 31), (2020, 1, 0)])
def test_no_such_day(day: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="no such day"):
        days_of(*day)


def test_times() -> None:
    assert [time_text(each) for each in (0, 60_000, 61_000, 61_001)] == [
        "00:00", "00:01", "00:01:01", "00:01:01.001",
    ]  # fmt: skip
    assert timestamp_text(1_582_979_696_789) == "2020-02-29T12:34:56.789"
    assert timestamp_text(-62_167_219_200_001) == "0002-12-31T23:59:59.999", "1 BC and before"
