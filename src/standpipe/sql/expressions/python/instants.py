"""Dates, times and instants: their arithmetic, their zones, and their texts by a pattern.

A value that Java refuses (a pattern or a zone that does not exist, the 32nd of a month) is NULL
here, as in ksqlDB.
"""

# SQL values have no static types: these functions pass Any
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from standpipe.sql.expressions.python import formats, java_times
from standpipe.sql.expressions.python.computed import Computed
from standpipe.sql.expressions.python.formats import Moment
from standpipe.sql.functions import time_patterns
from standpipe.sql.functions.times import UNITS
from standpipe.sql.types.calendar import DAY_MS
from standpipe.sql.types.types import DATE_DAYS_MAX, INSTANT_MS_MAX
from standpipe.sql.types.zones import zone_of

_UTC: Final = zone_of("UTC")


def _or_null(function: Callable[..., Any]) -> Callable[..., Any]:
    """NULL where Java raises an exception."""

    def compute(*given: Any) -> Any:
        try:
            return function(*given)
        except (ValueError, OverflowError):
            return None

    return compute


def instant(millis: int) -> int | None:
    """NULL outside the range of instants that Spark can keep."""
    return millis if abs(millis) <= INSTANT_MS_MAX else None


@_or_null
def format_timestamp(millis: int, pattern: str, zone: str = "UTC") -> str | None:
    """An instant in Unix ms by a pattern, as a zone's clocks show it."""
    if abs(millis) > INSTANT_MS_MAX:
        return None
    return formats.formatted(Moment.at(millis, zone_of(zone)), pattern, time_patterns.SHOWN)


def _format_in_gmt(millis: int, pattern: str, zone: str = "GMT") -> str | None:
    """FORMAT_TIMESTAMP: without a zone it shows GMT, TIMESTAMPTOSTRING the server's zone: UTC."""
    return format_timestamp(millis, pattern, zone)


def _format_date(days: int, pattern: str) -> str | None:
    if abs(days) > DATE_DAYS_MAX:
        return None
    moment = Moment(days, 0, _UTC, 0, days * DAY_MS)
    return formats.formatted(moment, pattern, time_patterns.SHOWN_DATE)


def _format_time(millis: int, pattern: str) -> str:
    moment = Moment(0, millis, _UTC, 0, millis)
    return formats.formatted(moment, pattern, time_patterns.SHOWN_TIME)


@_or_null
def parse_timestamp(text: str, pattern: str, zone: str = "UTC") -> int | None:
    """Unix ms, also of a timestamp column (TIMESTAMP_FORMAT). `zone`: of a text without one. NULL
    for a text that the pattern does not read."""
    return instant(java_times.instant(text, pattern, zone_of(zone)))


def _convert_tz(millis: int, given: str, wanted: str) -> int:
    """The difference of the zones' offsets at this instant, as UTC has it, is added: ksqlDB's."""
    return millis + zone_of(wanted).offset_ms(millis) - zone_of(given).offset_ms(millis)


def _step(unit: str, count: int) -> int | None:
    length = UNITS.get(unit)
    return None if length is None else length * count


def _shifted(sign: int, shift: Callable[[int, int], int | None]) -> Callable[..., int | None]:
    def compute(unit: str, count: int, value: int) -> int | None:
        step = _step(unit, count)
        return None if step is None else shift(value, sign * step)

    return compute


def _shift_date(days: int, step: int) -> int:
    """Hours count: the day's midnight is moved, and the result cut off towards 1970."""
    moved = days * DAY_MS + step
    whole = abs(moved) // DAY_MS
    return ((whole if moved >= 0 else -whole) + 2**31) % 2**32 - 2**31


_SHIFTS: Final[Mapping[str, Callable[[int, int], int | None]]] = {
    "TIMESTAMP": lambda value, step: instant(value + step),
    "DATE": _shift_date,
    "TIME": lambda value, step: (value + step) % DAY_MS,
}


def _pattern_length(_value: Any, pattern: str, *_zone: Any) -> int:
    return 8 * len(pattern)  # each letter is looked up


def _parsed_length(text: str, pattern: str, *_zone: Any) -> int:
    return len(text) + 8 * len(pattern)


def _formats(function: Callable[..., Any]) -> Computed:
    return Computed(_or_null(function), work=_pattern_length)


def _parses(function: Callable[..., Any]) -> Computed:
    return Computed(_or_null(function), work=_parsed_length)


FUNCTIONS: Final[Mapping[str, Computed]] = {
    **{
        f"{kind}{word}": Computed(_shifted(sign, shift))
        for kind, shift in _SHIFTS.items()
        for word, sign in (("ADD", 1), ("SUB", -1))
    },
    "CONVERT_TZ": Computed(_or_null(_convert_tz)),
    "DATETOSTRING": _formats(_format_date),
    "FORMAT_DATE": _formats(_format_date),
    "FORMAT_TIME": _formats(_format_time),
    "FORMAT_TIMESTAMP": _formats(_format_in_gmt),
    "TIMESTAMPTOSTRING": _formats(format_timestamp),
    "FROM_DAYS": Computed(lambda days: days),
    "FROM_UNIXTIME": Computed(instant),
    "PARSE_DATE": _parses(java_times.lenient_date),
    "PARSE_TIME": _parses(java_times.time),
    "PARSE_TIMESTAMP": _parses(parse_timestamp),
    "STRINGTODATE": _parses(java_times.date),
    "STRINGTOTIMESTAMP": _parses(parse_timestamp),
    # without an argument they are the clock's, which a pure package does not have
    "UNIX_DATE": Computed(lambda days: days, counts=(1,)),
    "UNIX_TIMESTAMP": Computed(lambda millis: millis, counts=(1,)),
}
