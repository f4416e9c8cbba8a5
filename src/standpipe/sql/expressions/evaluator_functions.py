"""The functions that pull queries can compute, in Python. Persistent queries have all of them."""

# SQL values have no static types: these functions pass Any
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo

from standpipe.sql.types.values import EPOCH, at_scale


@dataclass(frozen=True, slots=True)
class Computed:
    """A function in Python. `is_strict`: NULL, without a call, if any argument is NULL.

    `work`: characters that it reads or makes, or items that it looks at; None: a fixed amount.
    """

    compute: Callable[..., Any]
    is_strict: bool = True
    work: Callable[..., int] | None = None


def _half_up(value: Any, scale: int | None = None) -> Any:
    if scale is None:
        if isinstance(value, Decimal):
            return at_scale(value, 0, ROUND_HALF_UP)
        return value if isinstance(value, int) else math.floor(value + 0.5)
    number = Decimal(repr(value) if isinstance(value, float) else value)
    rounded = at_scale(number, scale, ROUND_HALF_UP)
    return float(rounded) if isinstance(value, float) else rounded


def _whole(value: Any, way: str) -> Any:
    if isinstance(value, Decimal):
        return value.to_integral_value(way)
    if isinstance(value, float):
        return float(math.floor(value) if way == ROUND_FLOOR else math.ceil(value))
    return value


def _substring(text: Any, start: int, length: int | None = None) -> Any:
    """SUBSTRING: positions start at 1; a negative start counts from the end."""
    first = start - 1 if start > 0 else max(0, len(text) + start) if start < 0 else 0
    return text[first:] if length is None else text[first : first + max(0, length)]


#: Java's pattern letters -> strftime's, longest first
_PATTERN: Final = (
    ("yyyy", "%Y"), ("MM", "%m"), ("dd", "%d"), ("HH", "%H"), ("mm", "%M"), ("ss", "%S"),
    ("zzz", "%Z"), ("Z", "%z"),
)  # fmt: skip


def format_instant(millis: int, pattern: str, zone: str = "UTC") -> str:
    """Formats by a DateTimeFormatter pattern: the letters above, SSS and quoted text."""
    moment = (EPOCH + timedelta(milliseconds=millis)).astimezone(
        UTC if zone == "UTC" else ZoneInfo(zone)
    )
    made: list[str] = []
    at = 0
    while at < len(pattern):
        if pattern[at] == "'":
            end = pattern.find("'", at + 1)
            end = len(pattern) if end < 0 else end
            made.append("'" if end == at + 1 else pattern[at + 1 : end])
            at = end + 1
            continue
        letters, text = _letters(pattern, at, moment)
        made.append(text)
        at += letters
    return "".join(made)


def _letters(pattern: str, at: int, moment: datetime) -> tuple[int, str]:
    count = 0
    while pattern.startswith("S", at + count):
        count += 1
    if count:
        return count, f"{moment.microsecond:06d}".ljust(9, "0")[:count]
    for letters, directive in _PATTERN:
        if pattern.startswith(letters, at):
            return len(letters), moment.strftime(directive)
    return 1, pattern[at]


def _present(*values: Any) -> list[Any]:
    return [value for value in values if value is not None]


def _first_length(first: Any, *_: Any) -> int:
    return 0 if first is None else len(first)


def _pattern_length(_millis: Any, pattern: str, *_zone: Any) -> int:
    return 8 * len(pattern)  # each letter is looked up


def _concatenated_length(*given: Any) -> int:
    return sum(map(len, _present(*given)))


def _joined_length(by: Any, *given: Any) -> int:
    return _concatenated_length(*given) + len(by or "") * len(given)


def _replaced_length(text: str, old: str, new: str) -> int:
    return len(text) + text.count(old) * max(0, len(new) - len(old))


def _exp(value: Any) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _power(base: Any, exponent: Any) -> float:
    """As Java's Math.pow, where Python raises an error."""
    base, exponent = float(base), float(exponent)
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 == 1 else math.inf
    except ValueError:
        return math.inf if base == 0 else math.nan


CONCAT: Final = Computed(operator.add, work=_concatenated_length)


FUNCTIONS: Final[Mapping[str, Computed]] = {
    "ABS": Computed(abs),
    "CEIL": Computed(lambda value: _whole(value, ROUND_CEILING)),
    "FLOOR": Computed(lambda value: _whole(value, ROUND_FLOOR)),
    "ROUND": Computed(_half_up),
    "EXP": Computed(_exp),
    "LN": Computed(lambda value: math.log(value) if value > 0 else math.nan),
    "SQRT": Computed(lambda value: math.sqrt(value) if value >= 0 else math.nan),
    "POWER": Computed(_power),
    "SIGN": Computed(lambda value: (value > 0) - (value < 0)),
    "GREATEST": Computed(lambda *given: max(_present(*given), default=None), is_strict=False),
    "LEAST": Computed(lambda *given: min(_present(*given), default=None), is_strict=False),
    "CONCAT": Computed(
        lambda *given: "".join(_present(*given)), is_strict=False, work=_concatenated_length
    ),
    "CONCAT_WS": Computed(
        lambda by, *given: None if by is None else by.join(_present(*given)),
        is_strict=False,
        work=_joined_length,
    ),
    "INSTR": Computed(lambda text, part: text.find(part) + 1, work=_first_length),
    "LCASE": Computed(str.lower, work=len),
    "UCASE": Computed(str.upper, work=len),
    "LEN": Computed(len),
    "REPLACE": Computed(str.replace, work=_replaced_length),
    "SUBSTRING": Computed(_substring, work=_first_length),
    "TRIM": Computed(str.strip, work=len),
    "AS_VALUE": Computed(lambda value: value),
    "COALESCE": Computed(lambda *given: next(iter(_present(*given)), None), is_strict=False),
    "IFNULL": Computed(lambda one, two: two if one is None else one, is_strict=False),
    "NULLIF": Computed(lambda one, two: None if one == two else one, is_strict=False),
    "ARRAY_LENGTH": Computed(len),
    "ARRAY_CONTAINS": Computed(
        lambda items, item: None if items is None else item in items,
        is_strict=False,
        work=_first_length,
    ),
    "MAP_KEYS": Computed(list, work=len),
    "MAP_VALUES": Computed(lambda entries: list(entries.values()), work=len),
    "TIMESTAMPTOSTRING": Computed(format_instant, work=_pattern_length),
    "FORMAT_TIMESTAMP": Computed(format_instant, work=_pattern_length),
    "UNIX_TIMESTAMP": Computed(lambda millis: millis),
    "FROM_UNIXTIME": Computed(lambda millis: millis),
    "UNIX_DATE": Computed(lambda days: days),
}
