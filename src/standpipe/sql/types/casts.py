"""CAST of a value, for INSERT, pull and push queries and for constants: what Java's conversions do.

The Spark form of the same conversions is `functions/cast.py`; `tests/e2e/both_ways.py` compares
the two. Source: ksqlDB's reference of CAST; java.lang's parse and toString methods.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any, Final, cast

from standpipe.sql.types import values
from standpipe.sql.types.calendar import DAY_MS, date_text, time_text, timestamp_text
from standpipe.sql.types.types import DATE_DAYS_MAX, SqlType

#: texts that a CAST to a number accepts, between blanks: those of Java's parsers
WHOLE: Final = r"[+-]?[0-9]+"
REAL: Final = r"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?"
#: any beginning of true and yes; all other text is false
TRUE_TEXTS: Final = ("t", "tr", "tru", "true", "y", "ye", "yes")
BLANKS: Final = "".join(map(chr, range(33)))  # what Java's trim removes
_WHOLE: Final = re.compile(WHOLE)
_REAL: Final = re.compile(REAL + "([dDfF])?")
_DECIMAL: Final = re.compile(REAL)
_BITS: Final = {"INTEGER": 32, "BIGINT": 64}


def cast_value(value: object, source: SqlType, target: SqlType) -> object:
    """CAST of a value. Raises ValueError if the text or the number does not fit."""
    if value is None or source == target:
        return value
    if target.base == "STRING":
        return text_of(value, source)
    if target.is_nested and target.base == source.base:
        return _cast_nested(value, source, target)
    scalar = _TO.get(target.base)
    if scalar is not None:
        return scalar(value, source, target)
    moment = _MOMENTS.get((source.base, target.base))
    if moment is not None:
        return moment(cast(int, value))
    return values.coerce(value, source, target)


def wrapped(number: int, base: str) -> int:
    """The number in the bits of INTEGER or BIGINT, as Java's narrowing leaves them."""
    half = 1 << (_BITS[base] - 1)
    return (number + half) % (2 * half) - half


def saturated(number: float, base: str) -> int:
    """A DOUBLE as INTEGER or BIGINT: cut, at most the largest; NaN is 0 (Java's narrowing)."""
    half = 1 << (_BITS[base] - 1)
    if math.isnan(number):
        return 0
    return (
        int(max(-half, min(number, half - 1)))
        if math.isfinite(number)
        else (half - 1 if number > 0 else -half)
    )


# ------------------------------------------------------------------------------------ as text


def text_of(value: Any, of: SqlType) -> str:
    """A value that is not NULL as CAST to STRING shows it."""
    made = _TEXTS.get(of.base)
    if made is not None:
        return made(value)
    if of.base == "ARRAY":
        return f"[{', '.join(_shown(item, of.arguments[0]) for item in value)}]"
    if of.base == "MAP":
        key_of, value_of = of.arguments
        pairs = (f"{_shown(key, key_of)}={_shown(item, value_of)}" for key, item in value.items())
        return "{" + ", ".join(pairs) + "}"
    if of.base == "STRUCT":  # Kafka Connect's Struct, which leaves nulls out
        fields = zip(of.field_names, of.arguments, strict=True)
        shown = ((name, value.get(name), part) for name, part in fields)
        listed = (f"{name}={text_of(item, part)}" for name, item, part in shown if item is not None)
        return f"Struct{{{','.join(listed)}}}"
    return str(value)


def _shown(value: Any, of: SqlType) -> str:
    return "null" if value is None else text_of(value, of)


def double_text(number: float) -> str:
    """Java's Double.toString: 1.0, 1.0E7, 1.0E-4, NaN, Infinity."""
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return f"{Decimal(repr(number)):f}" if "e" in repr(number) else repr(number)
    # two digits at least, the closest ones: 4.9E-324, which Python shortens to 5e-324
    closest = f"{number:.1e}"
    written = closest if float(closest) == number else repr(number)
    sign, digits, exponent = Decimal(written).normalize().as_tuple()
    assert isinstance(exponent, int), "a finite number"
    first, rest = str(digits[0]), "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{first}.{rest}E{exponent + len(digits) - 1}"


_TEXTS: Final[dict[str, Callable[[Any], str]]] = {
    "BOOLEAN": lambda value: "true" if value else "false",
    "INTEGER": str,
    "BIGINT": str,
    "DECIMAL": lambda value: f"{value:f}",
    "DOUBLE": double_text,
    "STRING": str,
    "DATE": date_text,
    "TIME": time_text,
    "TIMESTAMP": timestamp_text,
}


# ------------------------------------------------------------------------------ as other types


def _boolean(value: object, source: SqlType, target: SqlType) -> bool:
    if source.base == "STRING":
        return str(value).strip(BLANKS).lower() in TRUE_TEXTS
    return bool(_given(value, source, target, bool))


def _whole(value: object, source: SqlType, target: SqlType) -> int:
    if isinstance(value, str):
        text = _parsed(value, _WHOLE, target)
        if wrapped(int(text), target.base) != int(text):
            raise ValueError(f"Numeric field overflow: {value} does not fit {target}")
        return int(text)
    number = _given(value, source, target, int, Decimal, float)
    if isinstance(number, float):
        return saturated(number, target.base)
    return wrapped(int(number), target.base)


def _double(value: object, source: SqlType, target: SqlType) -> float:
    if isinstance(value, str):
        number = float(_parsed(value, _REAL, target).rstrip("dDfF"))
        if math.isinf(number):
            raise ValueError(f"Numeric field overflow: {value} does not fit {target}")
        return number
    return float(_given(value, source, target, int, Decimal, float))


def _decimal(value: object, source: SqlType, target: SqlType) -> Decimal:
    given: str | int | Decimal
    if isinstance(value, str):
        given = _parsed(value, _DECIMAL, target)
    else:
        number = _given(value, source, target, int, Decimal, float)
        given = repr(number) if isinstance(number, float) else number
    try:
        number = Decimal(given)
        return values.as_decimal(values.at_scale(number, target.scale, ROUND_HALF_UP), target)
    except (InvalidOperation, OverflowError) as error:
        raise ValueError(f"Cannot convert {value!r} to {target}") from error


def _parsed(text: str, pattern: re.Pattern[str], target: SqlType) -> str:
    text = text.strip(BLANKS)
    if pattern.fullmatch(text) is None:
        raise ValueError(f"Cannot convert {text!r} to {target}")
    return text


def _given(value: Any, source: SqlType, target: SqlType, *allowed: type) -> Any:
    """The value, if its type is one of those. Raises ValueError."""
    if isinstance(value, bool) is not (bool in allowed) or not isinstance(value, allowed):
        raise ValueError(f"Cannot convert {source} to {target}")
    return value


def _cast_nested(value: Any, source: SqlType, target: SqlType) -> object:
    if target.base == "ARRAY":
        return [_part(item, source.arguments[0], target.arguments[0]) for item in value]
    if target.base == "MAP":
        key_of, value_of = zip(source.arguments, target.arguments, strict=True)
        entries = ((_part(key, *key_of), _part(item, *value_of)) for key, item in value.items())
        return {key: item for key, item in entries if key is not None}
    return {
        name: _part(value.get(name), source.field(name) or of, of)
        for name, of in zip(target.field_names, target.arguments, strict=True)
    }


def _part(value: object, source: SqlType, target: SqlType) -> object:
    """NULL for a part that does not fit."""
    try:
        return cast_value(value, source, target)
    except (ValueError, ArithmeticError):
        return None


def _midnight(days: int) -> int:
    if abs(days) > DATE_DAYS_MAX:
        raise ValueError(f"Cannot convert day {days} to TIMESTAMP")
    return days * DAY_MS


_TO: Final[dict[str, Callable[[object, SqlType, SqlType], object]]] = {
    "BOOLEAN": _boolean,
    "INTEGER": _whole,
    "BIGINT": _whole,
    "DOUBLE": _double,
    "DECIMAL": _decimal,
}
_MOMENTS: Final[dict[tuple[str, str], Callable[[int], int]]] = {
    ("DATE", "TIMESTAMP"): _midnight,
    ("TIMESTAMP", "DATE"): lambda millis: millis // DAY_MS,
    ("TIMESTAMP", "TIME"): lambda millis: millis % DAY_MS,
}
