"""Dates and times as text by Java's patterns, in English. The way back: `time_reading.py`.

Source: java.time.format.DateTimeFormatter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from standpipe.sql.functions.time_patterns import Letters, parts_of
from standpipe.sql.types.calendar import DAY_MS, civil, days_of
from standpipe.sql.types.zones import Zone

MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_QUARTERS: Final = ("1st quarter", "2nd quarter", "3rd quarter", "4th quarter")


@dataclass(frozen=True, slots=True)
class Moment:
    """What is formatted: a local date, a time of the day, and the zone that they are in."""

    days: int
    of_day_ms: int
    zone: Zone
    offset_s: int
    instant_ms: int

    @classmethod
    def at(cls, millis: int, zone: Zone) -> Moment:
        """What a zone's clocks show at an instant."""
        offset = zone.offset_ms(millis)
        days, of_day = divmod(millis + offset, DAY_MS)
        return cls(days, of_day, zone, offset // 1000, millis)


def formatted(moment: Moment, pattern: str, letters: Letters) -> str:
    """The moment as text. Raises ValueError for a pattern that is not valid."""
    made: list[str] = []
    for part in parts_of(pattern, letters):
        if part.letter not in "[]":
            made.append(_SHOWN[part.letter](moment, part.count))
        else:
            made.append(part.text)
    return "".join(made)


def _number(count: int, value: int) -> str:
    return f"{value:0{count}d}"


def _year(moment: Moment, count: int) -> str:
    """The year of its era; from 10000 on with a sign, if it is padded to four digits or more."""
    year = civil(moment.days)[0]
    year = year if year > 0 else 1 - year
    if count == 2:
        return f"{year % 100:02d}"
    return ("+" if count > 3 and year >= 10**count else "") + _number(count, year)


def _proleptic_year(moment: Moment, count: int) -> str:
    """The year, which is 0 before the year 1, and negative before that."""
    year = civil(moment.days)[0]
    if count == 2:
        return f"{abs(year) % 100:02d}"
    sign = "-" if year < 0 else "+" if count > 3 and year >= 10**count else ""
    return sign + _number(count, abs(year))


def _named(names: tuple[str, ...], index: int, count: int) -> str:
    """Three letters of the name, all of them or, of five pattern letters, the first."""
    return names[index][: {4: None, 5: 1}.get(count, 3)]


def _month(moment: Moment, count: int) -> str:
    month = civil(moment.days)[1]
    return _number(count, month) if count < 3 else _named(MONTHS, month - 1, count)


def _quarter(moment: Moment, count: int) -> str:
    quarter = (civil(moment.days)[1] + 2) // 3
    if count < 3:
        return _number(count, quarter)
    return {3: f"Q{quarter}", 5: str(quarter)}.get(count, _QUARTERS[quarter - 1])


def _era(moment: Moment, count: int) -> str:
    is_after = civil(moment.days)[0] > 0
    short, long = ("AD", "Anno Domini") if is_after else ("BC", "Before Christ")
    return {4: long, 5: short[0]}.get(count, short)


def _day_of_year(moment: Moment, count: int) -> str:
    return _number(count, moment.days - days_of(civil(moment.days)[0], 1, 1) + 1)


def _of_day(divisor: int, modulo: int, zero: int = 0) -> Callable[[Moment, int], str]:
    """A number of the time of the day; `zero`: what stands for 0."""
    return lambda moment, count: _number(count, moment.of_day_ms // divisor % modulo or zero)


def _offset(mark: str) -> Callable[[Moment, int], str]:
    """X, x and Z: an offset in one of Java's five forms; `mark`: what stands for none at all."""

    def show(moment: Moment, count: int) -> str:
        if mark == "Z" and moment.offset_s == 0:
            return "Z"
        return offset(moment.offset_s, count)

    return show


def offset(seconds: int, count: int) -> str:
    """An offset as x to xxxxx show it: +02 or +0230, +0200, +02:00, then with seconds if any."""
    sign, seconds = ("-" if seconds < 0 else "+"), abs(seconds)
    hours, minutes, seconds = seconds // 3600, seconds // 60 % 60, seconds % 60
    if count == 1:
        return f"{sign}{hours:02d}" + (f"{minutes:02d}" if minutes else "")
    colon = ":" if count in (3, 5) else ""
    text = f"{sign}{hours:02d}{colon}{minutes:02d}"
    return text + (f"{colon}{seconds:02d}" if seconds and count > 3 else "")


def _basic_offset(moment: Moment, count: int) -> str:
    if count == 4:
        return _localized(moment, 4)
    if count == 5:
        return "Z" if moment.offset_s == 0 else offset(moment.offset_s, 5)
    return offset(moment.offset_s, 2)


def _localized(moment: Moment, count: int) -> str:
    """O and OOOO: GMT+2, GMT+02:00."""
    if moment.offset_s == 0:
        return "GMT"
    sign, total = ("-" if moment.offset_s < 0 else "+"), abs(moment.offset_s)
    hours, minutes, seconds = total // 3600, total // 60 % 60, total % 60
    if count == 4:
        text = f"{hours:02d}:{minutes:02d}"
    else:
        text = str(hours) + (f":{minutes:02d}" if minutes or seconds else "")
    return f"GMT{sign}{text}" + (f":{seconds:02d}" if seconds else "")


_SHOWN: Final[dict[str, Callable[[Moment, int], str]]] = {
    "G": _era,
    "y": _year,
    "u": _proleptic_year,
    "M": _month,
    "L": _month,
    "d": lambda moment, count: _number(count, civil(moment.days)[2]),
    "D": _day_of_year,
    "E": lambda moment, count: _named(DAYS, (moment.days + 3) % 7, count),
    "Q": _quarter,
    "q": _quarter,
    "a": lambda moment, _: "AM" if moment.of_day_ms < DAY_MS // 2 else "PM",
    "h": _of_day(3_600_000, 12, 12),
    "K": _of_day(3_600_000, 12),
    "H": _of_day(3_600_000, 24),
    "k": _of_day(3_600_000, 24, 24),
    "m": _of_day(60_000, 60),
    "s": _of_day(1000, 60),
    "S": lambda moment, count: f"{moment.of_day_ms % 1000:03d}000000"[:count],
    "A": _of_day(1, DAY_MS),
    "n": lambda moment, count: _number(count, moment.of_day_ms % 1000 * 1_000_000),
    "N": lambda moment, count: _number(count, moment.of_day_ms * 1_000_000),
    "z": lambda moment, _: moment.zone.short_name(moment.instant_ms),
    "Z": _basic_offset,
    "X": _offset("Z"),
    "x": _offset(""),
    "O": _localized,
    "V": lambda moment, _: moment.zone.name,
}
