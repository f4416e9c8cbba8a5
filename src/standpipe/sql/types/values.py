"""Conversion of values between SQL types (types.py defines the Python value of each type).

`coerce` raises ValueError, never a StatementError: only the caller knows the text of the refusal.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Context, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Final, cast

from standpipe.sql.types.types import SqlType, common_type, widens

BIGINT_MAX: Final = 2**63 - 1
INTEGER_MAX: Final = 2**31 - 1
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
DAY_MS: Final = 86_400_000
#: DECIMAL has up to 38 digits, Python's own context 28
DECIMALS: Final = Context(prec=38)
#: largest power of ten that fits BIGINT
_BIGINT_EXPONENT_MAX: Final = 18
#: places of a number that is written without an exponent, more than any type holds
_PLACES_MAX: Final = 1000

#: ksqlDB accepts any prefix that has the year: 2020, 2020-02, 2020-02-23T23:45, …, and then a zone
_DATETIME: Final = re.compile(
    r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[T ](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})"
    r"(?:\.(\d{1,9}))?)?)?)?)?)?\s*(Z|[+-]\d{2}:?\d{2})?",
    re.ASCII,
)
_TIME: Final = re.compile(r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?", re.ASCII)


#: of a datetime text without the blanks around it: there may be any number before the zone
_DATETIME_CHARS_MAX: Final = 100


def parse_timestamp(text: str) -> int:
    """Unix ms of datetime text; UTC if no zone is given. Raises ValueError."""
    stripped = text.strip()
    if len(stripped) > _DATETIME_CHARS_MAX:
        raise ValueError(f"Failed to parse timestamp: {stripped[:_DATETIME_CHARS_MAX]}")
    return _parse_stripped(stripped)


@lru_cache(maxsize=4096)
def _parse_stripped(text: str) -> int:
    """Cached, because pull queries repeat their window bounds."""
    match = _DATETIME.fullmatch(text)
    if match is None:
        raise ValueError(f"Failed to parse timestamp: {text}")
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    millis = int((match[7] or "0").ljust(3, "0")[:3])
    zone = _zone(match[8])
    extra = timedelta(0)
    if hour == 24 and not (minute or second or millis):  # midnight at the end of the day
        hour, extra = 0, timedelta(days=1)
    when = datetime(year, month or 1, day or 1, hour, minute, second, tzinfo=zone)
    return (when + extra - EPOCH) // timedelta(milliseconds=1) + millis


def _zone(text: str | None) -> timezone:
    if text is None or text == "Z":
        return UTC
    digits = text[1:].replace(":", "")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-offset if text[0] == "-" else offset)


def parse_date(text: str) -> int:
    """Days since 1970-01-01 of `yyyy-MM-dd`; any time must be midnight. Raises ValueError."""
    millis = parse_timestamp(text)
    if millis % DAY_MS:
        raise ValueError(f"Failed to parse date: {text}")
    return millis // DAY_MS


def parse_time(text: str) -> int:
    """Milliseconds of the day of `HH:mm[:ss[.SSS]]`. Raises ValueError."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"Failed to parse time: {text}")
    hour, minute, second = (int(part or 0) for part in match.groups()[:3])
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"Failed to parse time: {text}")
    millis = int((match[4] or "0").ljust(3, "0")[:3])
    return ((hour * 60 + minute) * 60 + second) * 1000 + millis


def parse_bytes(text: str) -> bytes:
    """Decodes base64, ksqlDB's text for BYTES; as in Java, padding may be left out, but is right if
    it is there. Raises ValueError."""
    padding = "" if "=" in text else "=" * (-len(text) % 4)
    try:
        return base64.b64decode(text + padding, validate=True)
    except binascii.Error as error:
        raise ValueError(f"Failed to parse bytes: {text}") from error


def at_scale(number: Decimal, scale: int, rounding: str | None = None) -> Decimal:
    """Rounded to `scale` decimal places. Raises InvalidOperation for more than 38 digits."""
    made = number.quantize(Decimal(1).scaleb(-scale), rounding, DECIMALS)
    return made if made else made.copy_abs()  # BigDecimal has no negative zero


def whole_number(number: Decimal | float) -> int:
    """Truncates to a whole number. Raises ValueError beyond BIGINT, before `int` expands the digits
    of 1e999999999; NaN and infinity raise it, or OverflowError."""
    if isinstance(number, Decimal) and number.adjusted() > _BIGINT_EXPONENT_MAX:
        raise ValueError(f"Numeric field overflow: {number} does not fit BIGINT")
    return int(number)


def plain_text(number: Decimal) -> str:
    """The number without an exponent. Raises ValueError beyond 1,000 places, before the zeros of
    1e999999999 fill the memory, and for NaN and infinity."""
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or not -_PLACES_MAX <= exponent <= _PLACES_MAX:
        raise ValueError(f"Numeric field overflow: {number} does not fit DECIMAL")
    return f"{number:f}"


def as_decimal(value: int | Decimal | str, of: SqlType) -> Decimal:
    """The number at the type's scale; raises ValueError if digits would be lost or do not fit."""
    try:
        number = Decimal(value)
        whole = at_scale(number, of.scale)
    except InvalidOperation as error:
        raise ValueError(f"Numeric field overflow: {value} does not fit {of}") from error
    digits = len(whole.as_tuple().digits)
    if digits > of.precision or whole != number:
        raise ValueError(f"Numeric field overflow: {value} does not fit {of}")
    return whole


_FROM_TEXT: Final[dict[str, Callable[[str], object]]] = {
    "STRING": str,
    "DATE": parse_date,
    "TIME": parse_time,
    "TIMESTAMP": parse_timestamp,
    "BYTES": parse_bytes,
}


def coerce(value: object, source: SqlType, target: SqlType) -> object:
    """Converts `value` from `source` to `target`: widening, and text to date, time and bytes.

    Raises ValueError if ksqlDB would require a CAST.
    """
    if value is None:
        return None
    if source.base == "STRING" and target.base in _FROM_TEXT:
        return _FROM_TEXT[target.base](str(value))
    if target.base == "DECIMAL" and source.base in ("INTEGER", "BIGINT", "DECIMAL"):
        return as_decimal(cast("int | Decimal", value), target)
    if target.base == "DOUBLE" and source.is_numeric:
        return float(cast("int | Decimal | float", value))
    if target.base == source.base and target.is_nested:
        return _coerce_nested(value, source, target)
    if not widens(source, target) or source.is_nested:
        raise ValueError(f"Cannot convert {source} to {target}")
    return value


def _coerce_nested(value: object, source: SqlType, target: SqlType) -> object:
    if target.base == "ARRAY":
        items = cast("list[Any]", value)
        return [coerce(item, source.arguments[0], target.arguments[0]) for item in items]
    entries = cast("dict[Any, Any]", value)
    if target.base == "MAP":
        key_of, value_of = zip(source.arguments, target.arguments, strict=True)
        return {coerce(key, *key_of): coerce(of, *value_of) for key, of in entries.items()}
    return {  # without the fields that the target does not have (DefaultSqlValueCoercer)
        name: coerce(entries.get(name), source.field(name) or of, of)
        for name, of in zip(target.field_names, target.arguments, strict=True)
    }


def is_finite(value: object) -> bool:
    """False if `value` contains, at any depth, a NaN or infinite DOUBLE: JSON cannot express it,
    and a record would have null instead."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        entries = cast("dict[object, object]", value).items()
        return all(is_finite(key) and is_finite(item) for key, item in entries)
    return not isinstance(value, list) or all(map(is_finite, cast("list[object]", value)))


def unified(one: SqlType, two: SqlType) -> SqlType | None:
    """The type that holds both; text beside a date or time counts as one."""
    if one.base == "STRING" and two.base in _FROM_TEXT:
        return two
    if two.base == "STRING" and one.base in _FROM_TEXT:
        return one
    if {one.base, two.base} == {"DATE", "TIMESTAMP"}:
        return one if one.base == "TIMESTAMP" else two
    return common_type(one, two)


def today(days: int) -> date:
    """The calendar day of a DATE's number of days."""
    return (EPOCH + timedelta(days=days)).date()


def format_date(days: int) -> str:
    """A DATE as answers show it: 2020-02-23."""
    return today(days).isoformat()


def format_time(millis: int) -> str:
    """A TIME as answers show it: HH:mm, with seconds if they are not 0; no milliseconds."""
    minutes, seconds = divmod(millis // 1000, 60)
    text = f"{minutes // 60:02d}:{minutes % 60:02d}"
    return f"{text}:{seconds:02d}" if seconds else text


def format_timestamp(millis: int) -> str:
    """A TIMESTAMP as answers show it, in UTC: 2020-02-23T23:45:12.000."""
    moment = EPOCH + timedelta(milliseconds=millis)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{millis % 1000:03d}"
