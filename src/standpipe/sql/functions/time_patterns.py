"""Which patterns of dates and times are accepted: Java's letters that mean the same everywhere.

A literal with another letter is refused; such a pattern out of a column gives NULL. In ksqlDB a
DATE has no hours, and a TIME no days: a pattern that asks for them is an error there.
Not here: Y, w, W, e and c, whose weeks begin on a day that depends on the server's language.
Source: java.time.format.DateTimeFormatter, "Patterns for Formatting and Parsing".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_DATE: Final = {**dict.fromkeys("yu", 6), "M": 4, "L": 4, "d": 2, "D": 3}
_DATE_SHOWN: Final = {**_DATE, **dict.fromkeys("MLGEQq", 5)}
_TIME: Final = {"a": 1, **dict.fromkeys("hHKkms", 2), "S": 9}
_TIME_SHOWN: Final = {**_TIME, **dict.fromkeys("AnN", 19)}
_ZONE: Final = {**dict.fromkeys("ZXx", 5), "V": 2, "O": 4, "z": 3}


@dataclass(frozen=True, slots=True)
class Letters:
    """The letters that a function accepts. `counts`: how often each may be repeated."""

    counts: Mapping[str, int]

    def __hash__(self) -> int:
        return hash(frozenset(self.counts.items()))


SHOWN_DATE: Final = Letters(_DATE_SHOWN)
SHOWN_TIME: Final = Letters(_TIME_SHOWN)
SHOWN: Final = Letters({**_DATE_SHOWN, **_TIME_SHOWN, **_ZONE})
#: of PARSE_DATE, which reads what SimpleDateFormat does
PARSED_DATE: Final = Letters({"y": 6, "M": 4, "d": 2, "D": 3})
PARSED_TIME: Final = Letters(_TIME)
PARSED: Final = Letters({**_DATE, "E": 4, **_TIME, **_ZONE})
#: the first year that yy may mean to PARSE_DATE. SimpleDateFormat takes the year 80 years ago; a
#: year that moved on would make another row of a record that is replayed
CENTURY_FIRST: Final = 1946


@dataclass(frozen=True, slots=True)
class Part:
    """A field (`letter`, repeated `count` times), a bracket or, without a letter, plain text."""

    letter: str
    count: int
    text: str = ""


#: A pattern may come out of a column. Sections are read one within another, and all patterns that
#: were met are kept.
PATTERN_CHARS_MAX: Final = 200


def parts_of(pattern: str, letters: Letters) -> tuple[Part, ...]:
    """The pattern's parts. Raises ValueError if it is not valid, or too long."""
    if len(pattern) > PATTERN_CHARS_MAX:
        raise ValueError(f"the pattern has more than {PATTERN_CHARS_MAX} characters")
    return _parts_of(pattern, letters)


@lru_cache(maxsize=512)
def _parts_of(pattern: str, letters: Letters) -> tuple[Part, ...]:
    parts: list[Part] = []
    at = depth = 0
    while at < len(pattern):
        mark = pattern[at]
        if mark == "'":
            text, at = _quoted(pattern, at)
            parts.append(Part("", 0, text))
            continue
        end = at + 1
        if mark.isascii() and mark.isalpha():
            while pattern.startswith(mark, end):
                end += 1
            _check_field(mark, end - at, letters)
            parts.append(Part(mark, end - at))
        elif mark in "[]":
            depth += 1 if mark == "[" else -1
            if depth < 0:
                raise ValueError("the pattern has a ] without a [")
            parts.append(Part(mark, 1))
        elif mark in "{}#":
            raise ValueError(f"{mark} in the pattern must be quoted")
        else:
            parts.append(Part("", 0, mark))
        at = end
    return tuple(parts)


def _check_field(letter: str, count: int, letters: Letters) -> None:
    is_odd = (letter == "V" and count != 2) or (letter == "O" and count not in (1, 4))
    if is_odd or count > letters.counts.get(letter, 0):
        hint = ": it is the year of a week; write yyyy" if letter == "Y" else ""
        raise ValueError(f"{letter * count} in the pattern is not supported here{hint}")


def _quoted(pattern: str, at: int) -> tuple[str, int]:
    """The text that begins with a quote, and where it ends; two quotes are one."""
    made: list[str] = []
    place = at + 1
    while True:
        end = pattern.find("'", place)
        if end < 0:
            raise ValueError("the pattern has a ' without an end")
        made.append(pattern[place:end])
        if not pattern.startswith("''", end):
            return "".join(made) or "'", end + 1
        made.append("'")
        place = end + 2


def spark_test(letters: Letters) -> str:
    """Spark SQL: whether {1} is such a pattern, without brackets. Java's regular expressions need a
    stack as deep as the text, so its length is limited."""
    fields = "|".join(
        f"{letter}{{{{1,{most}}}}}+(?!{letter})"
        for letter, most in letters.counts.items()
        if letter not in "VO"
    )
    named = "|VV(?!V)|O(?!O)|OOOO(?!O)" if "V" in letters.counts else ""
    text = "\\'(?:[^\\']|\\'\\')*+\\'"
    return (
        f"length({{1}}) <= {PATTERN_CHARS_MAX} AND regexp_like({{1}},"
        f" '^(?:{text}|[^a-zA-Z\\'\\\\[\\\\]{{{{}}}}#]|{fields}{named})*+$')"
    )
