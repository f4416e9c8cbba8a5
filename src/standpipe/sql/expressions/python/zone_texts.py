"""Zones in a text, by the letters of Java's patterns for them: `zone_at`.

Source: java.time.format.DateTimeFormatter, whose parser Spark makes blind to case.
"""

from __future__ import annotations

import re
from typing import Final

from standpipe.sql.functions.time_patterns import Part
from standpipe.sql.types.zones import Zone, region_of, zone_of

#: letter and count -> what it reads
_OFFSETS: Final = {
    "X1": r"Z|[+-]\d\d(?:\d\d)?", "X2": r"Z|[+-]\d\d\d\d", "X3": r"Z|[+-]\d\d:\d\d",
    "X4": r"Z|[+-]\d\d\d\d(?:\d\d)?", "X5": r"Z|[+-]\d\d:\d\d(?::\d\d)?",
    "x1": r"[+-]\d\d(?:\d\d)?", "x2": r"[+-]\d\d\d\d", "x3": r"[+-]\d\d:\d\d",
    "x4": r"[+-]\d\d\d\d(?:\d\d)?", "x5": r"[+-]\d\d:\d\d(?::\d\d)?",
    "Z1": r"[+-]\d\d\d\d", "Z2": r"[+-]\d\d\d\d", "Z3": r"[+-]\d\d\d\d",
    "Z4": r"GMT(?:[+-]\d\d:\d\d(?::\d\d)?)?", "Z5": r"Z|[+-]\d\d:\d\d(?::\d\d)?",
    "O1": r"GMT(?:[+-]\d\d?(?::\d\d)?)?", "O4": r"GMT(?:[+-]\d\d:\d\d(?::\d\d)?)?",
}  # fmt: skip
#: what z and VV read besides names
_NAMED_OFFSET: Final = re.compile(
    r"(?:UTC|GMT|UT)?[+-]\d\d:\d\d(?::\d\d)?", re.IGNORECASE | re.ASCII
)
_NAME: Final = re.compile(r"[A-Za-z0-9~/._+-]*")


def zone_at(text: str, at: int, part: Part) -> tuple[Zone, int]:
    """The zone that stands in a text from a place on, and where it ends. Raises ValueError."""
    kind = _OFFSETS.get(f"{part.letter}{part.count}")
    expression = re.compile(kind, re.IGNORECASE | re.ASCII) if kind else _NAMED_OFFSET
    match = expression.match(text, at)
    if match is not None:
        return zone_of(match[0].upper()), match.end()
    if part.letter in "zV":
        return _named(text, at, abbreviated=part.letter == "z")
    raise ValueError("a zone is expected")


def _named(text: str, at: int, *, abbreviated: bool) -> tuple[Zone, int]:
    """The longest name that there is; other letters may follow it."""
    match = _NAME.match(text, at)
    word = "" if match is None else match[0]
    for end in range(len(word), 0, -1):
        zone = region_of(word[:end], abbreviated=abbreviated)
        if zone is not None:
            return zone, at + end
    if word[:1] in ("Z", "z"):
        return zone_of("Z"), at + 1
    raise ValueError("a zone is expected")
