"""PARSE_DATE, STRINGTOTIMESTAMP and the like, as ksqlDB's read a text by a pattern.

All but PARSE_DATE use java.time's parser in its style SMART: the 30th of February is the last day
of that month, 24:00 the midnight that ends a day. PARSE_DATE uses a lenient one, to which that is a
day in March, and which does not read what follows the date. What is no date raises ValueError.

`pipeline/run/start/TimeTexts.java` is the same in Spark. Source: ksqlDB's ParseDate, StringToDate,
ParseTime and StringToTimestampParser; java.time.format.Parsed and IsoChronology.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from standpipe.sql.expressions.python.formats import MONTHS
from standpipe.sql.expressions.python.time_reading import NoSuchTime, read
from standpipe.sql.functions import time_patterns
from standpipe.sql.functions.time_patterns import CENTURY_FIRST, Part, parts_of
from standpipe.sql.types.calendar import DAY_MS, civil, days_of, month_length
from standpipe.sql.types.zones import Zone

#: letter -> lowest and highest value
_RANGES: Final = {
    "H": (0, 24), "k": (0, 24), "K": (0, 11), "h": (0, 12), "m": (0, 59), "s": (0, 59),
    "d": (1, 31), "M": (1, 12), "D": (1, 366),
}  # fmt: skip
_DAYS_MAX: Final = 2**31 - 1
_INTEGER_MAX: Final = 2**31 - 1
_THURSDAY: Final = 3  # 1970-01-01, from Monday on


def instant(text: str, pattern: str, zone: Zone) -> int:
    """Unix ms. A zone in the text counts, not `zone`; what the pattern does not have is that of
    1970-01-01T00:00."""
    found = read(text, pattern, time_patterns.PARSED)
    numbers = _checked(found.numbers)
    days, (of_day_ms, extra_days, is_whole) = _full_date(numbers), _time(numbers, found.nanos)
    if days is not None and is_whole and found.zone is not None:
        return found.zone.instant((days + extra_days) * DAY_MS + of_day_ms)
    days = _date_from_1970(numbers) if days is None else days + extra_days
    return _in_zone(days * DAY_MS + of_day_ms, found.zone or zone)


def date(text: str, pattern: str) -> int:
    """Days since 1970-01-01 of a text with a whole date."""
    found = read(text, pattern, time_patterns.PARSED)
    numbers = _checked(found.numbers)
    days, (_, extra_days, _) = _full_date(numbers), _time(numbers, found.nanos)
    if days is None or abs(days) >= _DAYS_MAX:
        raise NoSuchTime("a date has a year, a month and a day")
    return days + extra_days


def time(text: str, pattern: str) -> int:
    """Milliseconds of the day, of a text with an hour, and no hole behind it."""
    found = read(text, pattern, time_patterns.PARSED_TIME)
    of_day_ms, _, is_whole = _time(_checked(found.numbers), found.nanos)
    if not is_whole:
        raise NoSuchTime("a time has an hour, and minutes if it has seconds")
    return of_day_ms


def _checked(numbers: Mapping[str, int]) -> dict[str, int]:
    for letter, (low, high) in _RANGES.items():
        if letter in numbers and not low <= numbers[letter] <= high:
            raise NoSuchTime(f"{letter} is {low} to {high}")
    if numbers.get("y", 1) < 1:
        raise NoSuchTime("a year of an era is positive")
    years = {numbers[letter] for letter in "yu" if letter in numbers}
    if len(years) > 1:
        raise NoSuchTime("two years")
    return {**numbers, **({"y": years.pop()} if years else {})}


def _full_date(numbers: Mapping[str, int]) -> int | None:
    """A day that the month lacks is its last one. None if the text does not say a whole date."""
    if "y" not in numbers:
        return None
    year, days = numbers["y"], None
    if "M" in numbers and "d" in numbers:
        month = numbers["M"]
        days = days_of(year, month, min(numbers["d"], month_length(year, month)))
    if "D" in numbers:
        of_year = days_of(year, 1, 1) + numbers["D"] - 1
        if civil(of_year)[0] != year or days not in (None, of_year):
            raise NoSuchTime("no such day of the year")
        days = of_year
    if days is not None and numbers.get("E", (days + _THURSDAY) % 7) != (days + _THURSDAY) % 7:
        raise NoSuchTime("another day of the week")
    return days


def _date_from_1970(numbers: Mapping[str, int]) -> int:
    """1970-01-01 with what the text says in its place, from the smallest part on."""
    year, month, day = civil(numbers.get("E", _THURSDAY) - _THURSDAY)
    if "d" in numbers:
        day = numbers["d"]
        if day > month_length(year, month):
            raise NoSuchTime("no such day")
    if "D" in numbers:
        if numbers["D"] == 366:
            raise NoSuchTime("no such day of the year")
        year, month, day = civil(days_of(year, 1, 1) + numbers["D"] - 1)
    month = numbers.get("M", month)
    day = min(day, month_length(year, month))
    year = numbers.get("y", year)
    return days_of(year, month, min(day, month_length(year, month)))


def _time(numbers: Mapping[str, int], nanos: int | None) -> tuple[int, int, bool]:
    """(ms of the day, days to add, whether it is a whole time)."""
    hours = {numbers[letter] % limit for letter, limit in (("k", 24),) if letter in numbers}
    half = numbers.get("a")
    of_half = {numbers[letter] % 12 for letter in "hK" if letter in numbers}
    if len(of_half) > 1:
        raise NoSuchTime("two hours")
    if half is not None and of_half:
        hours |= {half * 12 + hour for hour in of_half}
    if "H" in numbers:
        hours.add(numbers["H"])
    if len(hours) > 1 or (hours and half is not None and min(hours) // 12 != half):
        raise NoSuchTime("two hours")
    minute, second = numbers.get("m"), numbers.get("s")
    below = (minute or 0) * 60_000 + (second or 0) * 1000 + (nanos or 0) // 1_000_000
    if not hours:
        if half is not None and not of_half and (minute, second, nanos) == (None, None, None):
            return (half * 12 + 6) * 3_600_000, 0, True  # the middle, since Java 16
        hour = (half or 0) * 12 + (of_half.pop() if of_half else 0)
        return hour * 3_600_000 + below, 0, False
    hour = hours.pop()
    has_hole = (minute is None and (second, nanos) != (None, None)) or (
        second is None and nanos is not None
    )
    if hour == 24:
        if below or nanos or has_hole:
            raise NoSuchTime("24:00 has nothing behind it")
        return 0, 1, True
    return hour * 3_600_000 + below, 0, not has_hole


def _in_zone(local_ms: int, zone: Zone) -> int:
    """The instant of a local time. Of two, that with the offset of 1970, which the parser begins
    with and keeps."""
    first = zone.offset_ms(zone.instant(0))
    if zone.offset_ms(local_ms - first) == first:
        return local_ms - first
    return zone.instant(local_ms)


# --------------------------------------------------------------------------------------- lenient


_DIGITS: Final = re.compile(r"[0-9]+")
#: what Java's Character.isWhitespace skips before a number
_BLANKS: Final = re.compile(
    r"[\t-\r\x1c-\x20\u1680\u2000-\u2006\u2008-\u200a\u2028\u2029\u205f\u3000]*"
)


def lenient_date(text: str, pattern: str) -> int:
    """Days of the date that a text begins with: the 32nd of January is the 1st of February."""
    year, month, day, is_of_year = 1970, 1, 1, False
    at, parts = 0, parts_of(pattern, time_patterns.PARSED_DATE)
    for index, part in enumerate(parts):
        if part.letter in ("", "[", "]"):
            at = _literal(text, at, part.text or part.letter)
        elif part.letter == "M" and part.count > 2:
            month, at = _month(text, at)
        else:
            is_fixed = any(map(_is_number, parts[index + 1 : index + 2]))
            value, at = _number(text, at, part.count if is_fixed else None)
            if part.letter == "y":
                year = value if part.count > 2 or value > 99 else _of_century(value)
            elif part.letter == "M":
                month = value
            else:
                day, is_of_year = value, part.letter == "D"
    years, month = divmod(0 if is_of_year else month - 1, 12)
    days = days_of(year + years, month + 1, 1) + day - 1
    if abs(days) > _DAYS_MAX:
        raise NoSuchTime("too far away")
    return days


def _is_number(part: Part) -> bool:
    return part.letter in ("y", "d", "D") or (part.letter == "M" and part.count < 3)


def _literal(text: str, at: int, wanted: str) -> int:
    if not text.startswith(wanted, at):
        raise NoSuchTime(f"{wanted!r} is expected")
    return at + len(wanted)


def _month(text: str, at: int) -> tuple[int, int]:
    for index, name in enumerate(MONTHS):
        for shown in (name, name[:3]):
            if text[at : at + len(shown)].lower() == shown.lower():
                return index + 1, at + len(shown)
    raise NoSuchTime("a month is expected")


def _number(text: str, at: int, width: int | None) -> tuple[int, int]:
    """`width`: if another number follows at once; blanks are skipped otherwise."""
    if width is None:
        blanks = _BLANKS.match(text, at)
        at = at if blanks is None else blanks.end()
    match = _DIGITS.match(text, at, len(text) if width is None else at + width)
    if match is None or int(match[0]) > _INTEGER_MAX:
        raise NoSuchTime("a number is expected")
    return int(match[0]), match.end()


def _of_century(value: int) -> int:
    year = CENTURY_FIRST // 100 * 100 + value
    return year + 100 if year < CENTURY_FIRST else year
