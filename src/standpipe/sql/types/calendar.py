"""Days and years beyond those of Python's datetime, and the texts that Java makes of them.

Days count from 1970-01-01, in the calendar of ISO 8601 at all times; years below 1 are negative
or 0, as java.time has them.
"""

from __future__ import annotations

from typing import Final

DAY_MS: Final = 86_400_000
_DAYS_OF_400_YEARS: Final = 146_097
#: days from 0000-03-01 to 1970-01-01
_EPOCH: Final = 719_468


def civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of the month of a day.

    Source: H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days.
    """
    era, day = divmod(days + _EPOCH, _DAYS_OF_400_YEARS)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day_of_year = day - (365 * year + year // 4 - year // 100)  # from the 1st of March
    month = (5 * day_of_year + 2) // 153
    day_of_month = day_of_year - (153 * month + 2) // 5 + 1
    month += 3 if month < 10 else -9
    return year + era * 400 + (month <= 2), month, day_of_month


def days_of(year: int, month: int, day: int) -> int:
    """The day of a year, month and day of the month. Raises ValueError for 02-30."""
    if not 1 <= month <= 12 or not 1 <= day <= month_length(year, month):
        raise ValueError(f"no such day: {year}-{month}-{day}")
    year -= month <= 2
    era, year = divmod(year, 400)
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * _DAYS_OF_400_YEARS + year * 365 + year // 4 - year // 100 + day_of_year - _EPOCH


def month_length(year: int, month: int) -> int:
    """Days of a month."""
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def date_text(days: int) -> str:
    """yyyy-MM-dd as Java's LocalDate prints it: a year of five digits has a sign."""
    year, month, day = civil(days)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def time_text(millis: int) -> str:
    """A time of the day as Java's LocalTime prints it: the shortest of HH:mm[:ss[.SSS]]."""
    minutes, millis = divmod(millis, 60_000)
    text = f"{minutes // 60:02d}:{minutes % 60:02d}"
    if not millis:
        return text
    seconds, millis = divmod(millis, 1000)
    return f"{text}:{seconds:02d}" + (f".{millis:03d}" if millis else "")


def timestamp_text(millis: int) -> str:
    """An instant as yyyy-MM-ddTHH:mm:ss.SSS in UTC."""
    days, of_day = divmod(millis, DAY_MS)
    year, month, day = civil(days)
    shown = year if year > 0 else 1 - year  # yyyy is the year of its era
    sign = "+" if shown > 9999 else ""
    minutes, rest = divmod(of_day, 60_000)
    return (
        f"{sign}{shown:04d}-{month:02d}-{day:02d}T{minutes // 60:02d}:{minutes % 60:02d}:"
        f"{rest // 1000:02d}.{rest % 1000:03d}"
    )
