"""What a text says by one of Java's patterns: numbers, names and a zone, in English.

Which date and time that is: `java_times.py`. Source: java.time.format.DateTimeFormatter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from standpipe.sql.expressions.python.formats import DAYS, MONTHS
from standpipe.sql.expressions.python.zone_texts import zone_at
from standpipe.sql.functions.time_patterns import Letters, Part, parts_of
from standpipe.sql.types.zones import Zone


@dataclass(slots=True)
class Found:
    """Numbers that were read, by letter; `zone`: what text of a zone denotes."""

    numbers: dict[str, int] = field(default_factory=dict[str, int])
    nanos: int | None = None
    zone: Zone | None = None


class NoSuchTime(ValueError):
    """The text is not of the pattern."""


def read(text: str, pattern: str, letters: Letters) -> Found:
    """What the whole text says. Raises NoSuchTime if it is not of the pattern, ValueError for no
    pattern."""
    found = Found()
    end = _read(text, 0, parts_of(pattern, letters), found)
    if end != len(text):
        raise NoSuchTime(f"{text!r} goes on after the pattern")
    return found


def _read(text: str, at: int, parts: tuple[Part, ...], found: Found) -> int:
    """Reads the parts from a place on. Returns where they end."""
    index = 0
    while index < len(parts):
        part = parts[index]
        if part.letter == "[":
            end = _closing(parts, index)
            tried = Found(dict(found.numbers), found.nanos, found.zone)
            try:
                at = _read(text, at, parts[index + 1 : end], tried)
                found.numbers, found.nanos, found.zone = tried.numbers, tried.nanos, tried.zone
            except NoSuchTime:
                pass  # an optional section that is not there
            index = end + 1
            continue
        if part.letter == "S":
            at = _read_fraction(text, at, part.count, found)
        else:
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
_NUMBERS: Final = "yuMLdDhHKkms"


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
        is_fraction = part.letter == "S"
        is_long_year = part.letter in "yu" and part.count > 2
        if not is_fraction and (not _is_number(part) or part.count < 2 or is_long_year):
            break
        total += part.count
    return total


_DIGITS: Final = re.compile(r"[0-9]*")


def _read_part(text: str, at: int, part: Part, reserved: int, found: Found) -> int:
    if part.letter in ("", "]"):
        if not text[at : at + len(part.text)].lower() == part.text.lower():
            raise NoSuchTime(f"{part.text!r} is expected")
        return at + len(part.text)
    if _is_number(part):
        return _read_number(text, at, part, reserved, found)
    if part.letter in "ML":
        names = [name if part.count == 4 else name[:3] for name in MONTHS]
        return _read_name(text, at, names, found, "M", 1)
    if part.letter == "E":
        names = [name if part.count == 4 else name[:3] for name in DAYS]
        return _read_name(text, at, names, found, "E", 0)
    if part.letter == "a":
        return _read_name(text, at, ["AM", "PM"], found, "a", 0)
    return _read_zone(text, at, part, found)


def _read_fraction(text: str, at: int, count: int, found: Found) -> int:
    match = _DIGITS.match(text[at : at + count])
    digits = "" if match is None else match[0]
    if len(digits) < count:
        raise NoSuchTime("digits of a second are expected")
    found.nanos = int(digits.ljust(9, "0"))
    return at + len(digits)


def _read_number(text: str, at: int, part: Part, reserved: int, found: Found) -> int:
    is_year, count = part.letter in "yu", part.count
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
        raise NoSuchTime(f"{part.letter * count} is expected")
    value = int(digits)
    if is_year and count == 2:
        value += 2000
    letter = "M" if part.letter == "L" else part.letter
    _note(found, letter, -value if sign == "-" else value)
    return at + len(sign) + len(digits)


def _note(found: Found, letter: str, value: int) -> None:
    if found.numbers.setdefault(letter, value) != value:
        raise NoSuchTime(f"two values of {letter}")


def _read_name(
    text: str, at: int, names: list[str], found: Found, *field_and_first: str | int
) -> int:
    letter, first = field_and_first
    for index, name in enumerate(names):
        if text[at : at + len(name)].lower() == name.lower():
            _note(found, str(letter), index + int(first))
            return at + len(name)
    raise NoSuchTime("a name is expected")


def _read_zone(text: str, at: int, part: Part, found: Found) -> int:
    try:
        found.zone, end = zone_at(text, at, part)
    except ValueError as error:
        raise NoSuchTime(str(error)) from None
    return end
