"""Dates and times as text by Java's patterns, and back, in English.

Source: java.time.format.DateTimeFormatter, with the defaults of Spark's parser: a part that the
pattern does not have is that of 1970-01-01T00:00.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from standpipe.sql.expressions.python.zone_texts import zone_at
from standpipe.sql.functions.time_patterns import Letters, Part, parts_of
from standpipe.sql.types.calendar import DAY_MS, civil, days_of, month_length
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


def _named(names: tuple[str, ...], index: int, count: int, short: int = 3) -> str:
    return names[index][:short] if count < 4 else names[index]


def _month(moment: Moment, count: int) -> str:
    month = civil(moment.days)[1]
    return _number(count, month) if count < 3 else _named(MONTHS, month - 1, count)


def _quarter(moment: Moment, count: int) -> str:
    quarter = (civil(moment.days)[1] + 2) // 3
    if count < 3:
        return _number(count, quarter)
    return f"Q{quarter}" if count == 3 else _QUARTERS[quarter - 1]


def _era(moment: Moment, count: int) -> str:
    is_after = civil(moment.days)[0] > 0
    short, long = ("AD", "Anno Domini") if is_after else ("BC", "Before Christ")
    return long if count == 4 else short


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
    "z": lambda moment, _: moment.zone.short_name(moment.instant_ms),
    "Z": _basic_offset,
    "X": _offset("Z"),
    "x": _offset(""),
    "O": _localized,
    "V": lambda moment, _: moment.zone.name,
}


# --------------------------------------------------------------------------------------- parsing


@dataclass(slots=True)
class _Found:
    """Numbers that were read, by letter; `zone`: what text of a zone denotes."""

    numbers: dict[str, int] = field(default_factory=dict[str, int])
    nanos: int | None = None
    zone: Zone | None = None


class _Unreadable(ValueError):
    """The text is not of the pattern."""


@dataclass(frozen=True, slots=True)
class Read:
    """What a text says: a local date and time, and the zone, if it has one."""

    days: int
    of_day_ms: int
    zone: Zone | None


def parsed(text: str, pattern: str, letters: Letters) -> Read:
    """The date and time that the whole text denotes. Raises ValueError if it is not of the
    pattern, or denotes none."""
    found = _Found()
    end = _read(text, 0, parts_of(pattern, letters), found)
    if end != len(text):
        raise _Unreadable(f"{text!r} goes on after the pattern")
    return Read(_days(found), _time_of_day(found), found.zone)


def _read(text: str, at: int, parts: tuple[Part, ...], found: _Found) -> int:
    """Reads the parts from a place on. Returns where they end."""
    index = 0
    while index < len(parts):
        part = parts[index]
        if part.letter == "[":
            end = _closing(parts, index)
            tried = _Found(dict(found.numbers), found.nanos, found.zone)
            try:
                at = _read(text, at, parts[index + 1 : end], tried)
                found.numbers, found.nanos, found.zone = tried.numbers, tried.nanos, tried.zone
            except _Unreadable:
                pass  # an optional section that is not there
            index = end + 1
            continue
        at = _read_part(text, at, part, _reserved(parts, index), found)
        index += 1
    return at


def _closing(parts: tuple[Part, ...], index: int) -> int:
    depth = 0
    for place in range(index, len(parts)):
        depth += {"[": 1, "]": -1}.get(parts[place].letter, 0)
        if depth == 0:
            return place
    return len(parts)


#: fields that may have any number of digits, unless the pattern fixes it
_NUMBERS: Final = "yMLdDhHKkms"


def _is_number(part: Part) -> bool:
    return (
        part.letter in _NUMBERS
        and part.letter != ""
        and not (part.letter in "ML" and part.count > 2)
    )


def _reserved(parts: tuple[Part, ...], index: int) -> int:
    """Digits that belong to the fields of fixed width right behind a field."""
    total = 0
    for part in parts[index + 1 :]:
        if not _is_number(part) or part.count < 2 or (part.letter == "y" and part.count > 2):
            break
        total += part.count
    return total


_DIGITS: Final = re.compile(r"[0-9]*")


def _read_part(text: str, at: int, part: Part, reserved: int, found: _Found) -> int:
    if part.letter in ("", "]"):
        if not text[at : at + len(part.text)].lower() == part.text.lower():
            raise _Unreadable(f"{part.text!r} is expected")
        return at + len(part.text)
    if _is_number(part):
        return _read_number(text, at, part, reserved, found)
    if part.letter == "S":  # as many as there are, as Spark's parser has it
        match = _DIGITS.match(text[at : at + part.count])
        digits = "" if match is None else match[0]
        if not digits:
            raise _Unreadable("digits of a second are expected")
        found.nanos = int(digits.ljust(9, "0"))
        return at + len(digits)
    if part.letter in "ML":
        names = [name if part.count == 4 else name[:3] for name in MONTHS]
        return _read_name(text, at, names, found, "M", 1)
    if part.letter == "a":
        return _read_name(text, at, ["AM", "PM"], found, "a", 0)
    return _read_zone(text, at, part, found)


def _read_number(text: str, at: int, part: Part, reserved: int, found: _Found) -> int:
    is_year, count = part.letter == "y", part.count
    sign = text[at : at + 1] if is_year and count != 2 and text[at : at + 1] in ("+", "-") else ""
    match = _DIGITS.match(text, at + len(sign))
    digits = "" if match is None else match[0]
    if count == 2 or (count == 3 and part.letter == "D"):
        width = count
    else:
        width = max(count, min(len(digits) - reserved, 19))
    digits = digits[:width]
    too_wide = is_year and count > 3 and (len(digits) > count) is not (sign == "+")
    if len(digits) < count or not digits or (too_wide and sign != "-") or (sign and count < 4):
        raise _Unreadable(f"{part.letter * count} is expected")
    value = int(digits)
    if is_year and count == 2:
        value += 2000
    letter = "M" if part.letter == "L" else part.letter
    _note(found, letter, -value if sign == "-" else value)
    return at + len(sign) + len(digits)


def _note(found: _Found, letter: str, value: int) -> None:
    if found.numbers.setdefault(letter, value) != value:
        raise _Unreadable(f"two values of {letter}")


def _read_name(
    text: str, at: int, names: list[str], found: _Found, *field_and_first: str | int
) -> int:
    letter, first = field_and_first
    for index, name in enumerate(names):
        if text[at : at + len(name)].lower() == name.lower():
            _note(found, str(letter), index + int(first))
            return at + len(name)
    raise _Unreadable("a name is expected")


def _read_zone(text: str, at: int, part: Part, found: _Found) -> int:
    try:
        found.zone, end = zone_at(text, at, part)
    except ValueError as error:
        raise _Unreadable(str(error)) from None
    return end


def _days(found: _Found) -> int:
    numbers = found.numbers
    year = numbers.get("y", 1970)
    if "y" in numbers and year < 1:
        raise _Unreadable("a year of an era is positive")
    if "D" in numbers and "M" not in numbers:
        days = days_of(year, 1, 1) + numbers["D"] - 1
        if civil(days)[0] != year or numbers["D"] < 1:
            raise _Unreadable("no such day of the year")
        return days
    month, day = numbers.get("M", 1), numbers.get("d", 1)
    if not 1 <= month <= 12 or not 1 <= day <= month_length(year, month):
        raise _Unreadable("no such day")
    return days_of(year, month, day)


#: letter -> lowest and highest value
_RANGES: Final = {
    "H": (0, 23), "k": (1, 24), "K": (0, 11), "h": (1, 12), "m": (0, 59), "s": (0, 59),
}  # fmt: skip


def _time_of_day(found: _Found) -> int:
    numbers = found.numbers
    for letter, (low, high) in _RANGES.items():
        if letter in numbers and not low <= numbers[letter] <= high:
            raise _Unreadable(f"{letter} is {low} to {high}")
    half = numbers.get("a", 0) * 12
    if "H" in numbers:
        hour = numbers["H"]
    elif "k" in numbers:
        hour = numbers["k"] % 24
    else:
        hour = numbers.get("K", numbers.get("h", 0) % 12) + half
    if "a" in numbers and hour // 12 != numbers["a"]:
        raise _Unreadable("AM or PM contradicts the hour")
    seconds = (hour * 60 + numbers.get("m", 0)) * 60 + numbers.get("s", 0)
    return seconds * 1000 + (found.nanos or 0) // 1_000_000
