"""JSON in texts, as ksqlDB's functions have it, and Jackson, which they use.

What follows the first value of a text is not read. Keys keep their order, and the last of equal
ones wins. Numbers keep their digits: a number with a point or an exponent is a BigDecimal.
`pipeline/run/start/JsonTexts.java` is the same in Spark.
"""

# SQL values have no static types: these functions pass Any
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Context, Decimal, InvalidOperation, Overflow
from typing import Any, Final

from standpipe.sql.expressions.python.computed import (
    ITEM_WORK,
    Computed,
    lengths,
    of_types,
    times,
)
from standpipe.sql.types.calendar import date_text, time_text, timestamp_text
from standpipe.sql.types.casts import cast_value
from standpipe.sql.types.types import STRING, SqlType

#: depth of arrays and objects
_DEPTH_MAX: Final = 200
#: digits of a number, and of its exponent where it is written without one (Jackson's limits)
_DIGITS_MAX: Final = 1_000
_SCALE_MAX: Final = 9_999
_BLANKS: Final = " \t\n\r"
_STRUCTURE: Final = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\Z)|[\[\]{}]', re.DOTALL)
_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')
_ESCAPES: Final = {
    **{code: f"\\u{code:04X}" for code in range(32)},
    **{ord(a): f"\\{b}" for a, b in zip('"\\\b\f\n\r\t', '"\\bfnrt', strict=True)},
}
_ZERO_LED: Final = re.compile(r"-?0[0-9]")
#: Java's part of an identifier, after true, false or null
_IN_WORD: Final = re.compile(r"[\w$]")
#: A value of JSON is an object or two, which are made one by one, and freed all at once.
_VALUE_WORK: Final = 2 * ITEM_WORK
_LARGE: Final = Context(prec=2 * _DIGITS_MAX)


class _Invalid(ValueError):
    """No JSON, or none that Jackson takes."""


class _Number(str):
    """An integer, as it is written."""

    __slots__ = ()


def _integer(text: str) -> _Number:
    if len(text) > _DIGITS_MAX:
        raise _Invalid
    return _Number("0" if text == "-0" else text)


def _decimal(text: str) -> Decimal:
    if len(text) > _DIGITS_MAX:
        raise _Invalid
    try:
        return _LARGE.create_decimal(text)
    except (InvalidOperation, Overflow):
        raise _Invalid from None


def _no_constant(_: str) -> Any:
    raise _Invalid  # NaN, Infinity


_DECODER: Final = json.JSONDecoder(
    parse_int=_integer, parse_float=_decimal, parse_constant=_no_constant
)


def _value_at(text: str, start: int) -> tuple[Any, int]:
    """The value that begins there, and where it ends. Raises _Invalid."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError, IndexError):
        raise _Invalid from None
    following = text[end : end + 1]
    if isinstance(value, _Number) and (following in (*".eE",) or _ZERO_LED.match(text, start)):
        raise _Invalid
    if (value is None or isinstance(value, bool)) and _IN_WORD.match(following):
        raise _Invalid
    return value, end


def _first(text: str, start: int = 0) -> int:
    while start < len(text) and text[start] in _BLANKS:
        start += 1
    return start


def _is_too_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= _DEPTH_MAX:
        return False
    depth = 0
    for found in _STRUCTURE.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if depth > _DEPTH_MAX:
            return True
        if depth == 0 and found[0] in "]}":
            return False
    return False


def _parsed(text: str) -> Any:
    """The first value of a text. Raises _Invalid."""
    start = _first(text)
    if start == len(text) or _is_too_deep(text):
        raise _Invalid
    value, end = _value_at(text, start)
    if isinstance(value, (_Number, Decimal)) and text[end : end + 1] not in (*_BLANKS, ""):
        raise _Invalid  # numbers at the top are followed by a blank
    return value


def _quoted(text: str) -> str:
    if _ESCAPED.search(text):
        text = text.translate(_ESCAPES)
    return f'"{_whole(text)}"'


def _whole(text: str) -> str:
    """Half a character becomes a question mark, as in Java's UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _written(value: Any, *, is_plain: bool = False) -> str:
    """Compact JSON. `is_plain`: numbers without an exponent. Raises _Invalid for one too large."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, Decimal):
        value = value.copy_abs() if value.is_zero() else value  # a BigDecimal has one zero
        if not is_plain:
            return str(value)
        if abs(int(value.as_tuple().exponent)) > _SCALE_MAX:
            raise _Invalid
        return f"{value:f}"
    if isinstance(value, list):
        return f"[{','.join(_written(item, is_plain=is_plain) for item in value)}]"
    pairs = (f"{_quoted(key)}:{_written(item, is_plain=is_plain)}" for key, item in value.items())
    return f"{{{','.join(pairs)}}}"


def _or_null(function: Callable[..., Any]) -> Callable[..., Any]:
    def compute(*given: Any) -> Any:
        try:
            return function(*given)
        except _Invalid:
            return None

    return compute


def _is_json(text: str | None) -> bool:
    try:
        return text is not None and (_parsed(text), True)[1]
    except _Invalid:
        return False


def _length(text: str) -> int | None:
    value = _parsed(text)
    return len(value) if isinstance(value, list) else None


def _items(text: str) -> list[str] | None:
    value = _parsed(text)
    return [_written(item) for item in value] if isinstance(value, list) else None


def _keys(text: str) -> list[str] | None:
    value = _parsed(text)
    return [_whole(key) for key in value] if isinstance(value, dict) else None


def _records(text: str) -> dict[str, str] | None:
    value = _parsed(text)
    if not isinstance(value, dict):
        return None
    return {_whole(key): _text(item) for key, item in value.items()}


def _text(value: Any) -> str:
    """A text as it is, all others as JSON. Raises _Invalid for a number that is too large."""
    is_text = isinstance(value, str) and not isinstance(value, _Number)
    return _whole(value) if is_text else _written(value)


#: .name, ["any text"], [name or index]; names of letters, digits and _, behind a point also : and @
_NAME: Final = r"[^\W\U00010000-\U0010ffff]"
_TOKEN: Final = re.compile(rf'\.((?:{_NAME}|[:@])+)|\["((?:[^"\\]|\\["\\])*)"\]|\[({_NAME}+)\]')
_QUOTED_MARK: Final = re.compile(r"\\(.)")
_INDEX: Final = re.compile(r"[+-]?[0-9]{1,10}")


def _extract(text: str, path: str) -> str | None:
    """The value at a path: $.name, $["name"], $[0]. A text is itself, all others are JSON."""
    at, value = 1, _parsed(text)
    tokens: list[str] = []
    while at < len(path):
        found = _TOKEN.match(path, at)
        if found is None:
            return None
        name, text_of, index = found.groups()
        tokens.append(_QUOTED_MARK.sub(r"\1", text_of) if text_of is not None else name or index)
        at = found.end()
    if not path.startswith("$"):
        return None
    for token in tokens:
        if isinstance(value, list):
            index = int(token) if _INDEX.fullmatch(token) else -1
            if not 0 <= index < len(value):
                return None
            value = value[index]
        elif isinstance(value, dict) and token in value:
            value = value[token]
        else:
            return None
    return _text(value)


def _elements(text: str) -> Iterator[Any]:
    """The elements of an array, as far as they are valid."""
    at = _first(text)
    if text[at : at + 1] != "[" or _is_too_deep(text):
        return
    at = _first(text, at + 1)
    while text[at : at + 1] != "]":
        value, at = _value_at(text, at)
        yield value
        at = _first(text, at)
        if text[at : at + 1] != ",":
            return
        at = _first(text, at + 1)


def _contains(text: str | None, wanted: Any, bits: int) -> bool | None:
    """Whether an array has the value. Integers equal only integers, DOUBLEs only other numbers."""
    if text is None:
        return None
    try:
        return any(_is_same(value, wanted, bits) for value in _elements(text))
    except _Invalid:
        return False


def _is_same(value: Any, wanted: Any, bits: int) -> bool:
    """Raises _Invalid for an integer that the type of the other has no place for."""
    if wanted is None or isinstance(wanted, bool):
        return value is wanted
    if isinstance(value, _Number):
        if not isinstance(wanted, int):
            return False
        if not -(1 << bits) <= int(value) < 1 << bits:
            raise _Invalid
        return int(value) == wanted
    if isinstance(value, Decimal):
        return isinstance(wanted, float) and repr(float(value)) == repr(wanted)
    return isinstance(value, str) and isinstance(wanted, str) and value == wanted


def _contains_for(parameters: tuple[SqlType, ...], _: SqlType) -> Callable[..., Any]:
    """No element is equal to a date or a time, which are integers here, or to a DECIMAL."""
    is_scalar = parameters[1].base in ("INTEGER", "BIGINT", "DOUBLE", "STRING", "BOOLEAN", "NULL")

    def compute(text: str | None, wanted: Any) -> bool | None:
        if wanted is None or is_scalar:
            return _contains(text, wanted, 31 if parameters[1].base == "INTEGER" else 63)
        return None if text is None else False

    return compute


def _concat(*texts: str) -> str:
    """Objects are merged; otherwise arrays are concatenated, and other values become items."""
    values = [_parsed(text) for text in texts]
    if all(isinstance(value, dict) for value in values):
        merged: dict[str, Any] = {}
        for value in values:
            merged.update(value)
        return _written(merged, is_plain=True)
    joined: list[Any] = []
    for value in values:
        joined += value if isinstance(value, list) else [value]
    return _written(joined, is_plain=True)


def _to_json(value: Any, of: SqlType) -> str:
    """A value of SQL as JSON; structs and maps in the order of their names."""
    if value is None:
        return "null"
    match of.base:
        case "STRING":
            return _quoted(value)
        case "BYTES":
            return f'"{base64.b64encode(value).decode()}"'
        case "DATE":
            return f'"{date_text(value)}"'
        case "TIME":
            return f'"{time_text(value)}"'
        case "TIMESTAMP":
            return f'"{timestamp_text(value)}"'
        case "DOUBLE":
            shown = str(cast_value(value, of, STRING))
            return shown if math.isfinite(value) else f'"{shown}"'
        case "ARRAY":
            return f"[{','.join(_to_json(item, of.arguments[0]) for item in value)}]"
        case "MAP":
            key_of, value_of = of.arguments
            named = {str(cast_value(key, key_of, STRING)): item for key, item in value.items()}
            pairs = (f"{_quoted(key)}:{_to_json(named[key], value_of)}" for key in sorted(named))
            return f"{{{','.join(pairs)}}}"
        case "STRUCT":
            pairs = (
                f"{_quoted(name)}:{_to_json(value[name], of.field(name) or of)}"
                for name in sorted(value)
            )
            return f"{{{','.join(pairs)}}}"
        case _:
            return _written(value, is_plain=True) if of.base == "DECIMAL" else _plain(value)


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _to_json_for(parameters: tuple[SqlType, ...], _: SqlType) -> Callable[..., Any]:
    return lambda value: _to_json(value, parameters[0])


def _work(text: str | None, *_: Any) -> int:
    """Its characters, and the values made of them. A comma in a text counts as one more."""
    return 0 if text is None else len(text) + _VALUE_WORK * (text.count(",") + text.count(":"))


def _concat_work(*texts: str) -> int:
    return sum(map(_work, texts))


FUNCTIONS: Final[Mapping[str, Computed]] = {
    "EXTRACTJSONFIELD": Computed(_or_null(_extract), work=_work),
    "IS_JSON_STRING": Computed(_is_json, is_strict=False, work=_work),
    "JSON_ARRAY_CONTAINS": of_types(_contains_for, is_strict=False, work=_work),
    "JSON_ARRAY_LENGTH": Computed(_or_null(_length), work=_work),
    "JSON_CONCAT": Computed(_or_null(_concat), work=_concat_work),
    "JSON_ITEMS": Computed(_or_null(_items), work=_work),
    "JSON_KEYS": Computed(_or_null(_keys), work=_work),
    "JSON_RECORDS": Computed(_or_null(_records), work=_work),
    "TO_JSON_STRING": of_types(_to_json_for, is_strict=False, work=times(4, lengths)),
}
