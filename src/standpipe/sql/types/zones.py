"""Time zones as java.time.ZoneId reads them: regions, UTC, and offsets such as +02:00 and GMT+2."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from standpipe.sql.types.calendar import civil, days_of
from standpipe.sql.types.zone_abbreviations import ZONES

#: hours, minutes and seconds of an offset: 5, 05, 0530, 05:30, 053000, 05:30:00
_OFFSET: Final = re.compile(
    r"([+-])(?:(\d)|(\d\d)|(\d\d)(\d\d)|(\d\d):(\d\d)|(\d\d)(\d\d)(\d\d)"
    r"|(\d\d):(\d\d):(\d\d))",
    re.ASCII,
)
_REGION: Final = re.compile(r"[A-Za-z][A-Za-z0-9~/._+-]+")
_PREFIXES: Final = ("UTC", "GMT", "UT")
_LACKING: Final = frozenset(
    {"EST", "Factory", "GMT+0", "GMT-0", "HST", "MST", "ROC", "localtime", "posixrules"}
)
#: Java's letter z stops behind Etc/GMT
_NOT_BY_NAME: Final = re.compile(r"Etc/GMT(?:[+-][0-9]+|0)")
_SECONDS_MAX: Final = 18 * 3600
_DAY_MS: Final = 86_400_000
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - of any zone


class Zone:
    """A zone. `name`: as Java's ZoneId.getId has it. `is_offset`: one offset at all times."""

    def __init__(self, name: str, rules: tzinfo, *, is_offset: bool) -> None:
        self.name = name
        self.is_offset = is_offset
        self._rules = rules
        self._names: dict[bool, str] = {}

    def offset_ms(self, millis: int) -> int:
        """Local time less UTC, at an instant in Unix ms."""
        at = _datetime(millis).replace(tzinfo=UTC).astimezone(self._rules)
        return _millis(at.utcoffset())

    def short_name(self, millis: int) -> str:
        """The zone's abbreviation at an instant: CET or CEST. Java has two of them for each zone,
        and none of old ones such as LMT."""
        if self.is_offset:
            return self.name
        at = _datetime(millis).replace(tzinfo=UTC).astimezone(self._rules)
        if not self._names:
            months = (datetime(2020, month, 1, tzinfo=self._rules) for month in range(1, 13))
            self._names = {bool(each.dst()): each.tzname() or self.name for each in months}
        return self._names.get(bool(at.dst()), at.tzname() or self.name)

    def instant(self, local_ms: int) -> int:
        """The instant of a local time. Where two have it, the first; where none has it, the clock
        would have shown it without the change (java.time.ZonedDateTime.ofLocal)."""
        at = _datetime(local_ms).replace(tzinfo=self._rules)
        return local_ms - _millis(at.utcoffset())


@lru_cache(maxsize=256)
def zone_of(text: str) -> Zone:
    """The zone of a name. Raises ValueError if Java has none of that name."""
    if text == "Z":
        return Zone("Z", UTC, is_offset=True)
    if text.startswith(("+", "-")):
        seconds = _seconds(text)
        return Zone(offset_text(seconds) if seconds else "Z", _fixed(seconds), is_offset=True)
    for prefix in _PREFIXES:
        rest = text.removeprefix(prefix)
        if rest == "" and text == prefix:
            return Zone(text, UTC, is_offset=True)
        if rest != text and rest.startswith(("+", "-")):
            seconds = _seconds(rest)
            name = prefix + (offset_text(seconds) if seconds else "")
            return Zone(name, _fixed(seconds), is_offset=True)
    if _REGION.fullmatch(text) is None or text in _LACKING:
        raise ValueError(f"Unknown time zone: {text!r}")
    try:
        return Zone(text, ZoneInfo(text), is_offset=False)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"Unknown time zone: {text!r}") from error


@lru_cache(maxsize=512)
def region_of(text: str, *, abbreviated: bool) -> Zone | None:
    """The zone of a region's name in any case, as it stands in a text; None if there is none.

    `abbreviated`: or of an abbreviation, as Java's pattern letter z reads it, which stops behind
    Etc/GMT; otherwise as VV does.
    """
    folded = text.lower()
    if abbreviated and folded in ZONES:
        return zone_of(ZONES[folded])
    name = _regions().get(folded)
    if name is None or (abbreviated and _NOT_BY_NAME.fullmatch(name)):
        return None
    return zone_of(name)


@lru_cache(maxsize=1)
def _regions() -> dict[str, str]:
    """Java's regions by name in lower case. Those of _LACKING are in Python's list only."""
    known = {*available_timezones(), "UT"} - _LACKING
    return {name.lower(): name for name in known}


def offset_text(seconds: int) -> str:
    """An offset as ZoneOffset prints it: +02:00, or +00:09:21."""
    sign, seconds = ("-" if seconds < 0 else "+"), abs(seconds)
    text = f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}"
    return f"{text}:{seconds % 60:02d}" if seconds % 60 else text


def _seconds(text: str) -> int:
    match = _OFFSET.fullmatch(text)
    if match is None:
        raise ValueError(f"Unknown time zone: {text!r}")
    hours, minutes, seconds = (*(int(part) for part in match.groups()[1:] if part), 0, 0)[:3]
    total = hours * 3600 + minutes * 60 + seconds
    if minutes > 59 or seconds > 59 or total > _SECONDS_MAX:
        raise ValueError(f"Unknown time zone: {text!r}")
    return -total if match[1] == "-" else total


def _fixed(seconds: int) -> tzinfo:
    return timezone(timedelta(seconds=seconds))


def _datetime(millis: int) -> datetime:
    """The moment in Python's calendar: a year that it lacks becomes one with the same rules."""
    days, of_day = divmod(millis, _DAY_MS)
    year, month, day = civil(days)
    if year > 9990:
        days = days_of(9600 + year % 400 - (400 if year % 400 > 390 else 0), month, day)
    elif year < 2:
        days = days_of(4, month, day)
    return _EPOCH + timedelta(days=days, milliseconds=of_day)


def _millis(offset: timedelta | None) -> int:
    return 0 if offset is None else round(offset.total_seconds() * 1000)
