"""Python values as SQL literals, and statements with their parameters put in. Pure.

`bound("… WHERE ID = ?", ["O'Hara"])` gives `… WHERE ID =  'O''Hara' `. A `?` in a text, a quoted
name or a comment is no parameter. Each literal stands between blanks: `-?` with -1 must not become
the comment `--1`, nor `'a'?` one text with the literal after it.

| Python | literal |
|---|---|
| None, bool, int | NULL, TRUE, 5 |
| float, Decimal | 1.5E0, 1.50: the exponent makes it a DOUBLE |
| str | 'it''s': only the quote is special |
| bytes | its base64 as a text, which the analyser turns into BYTES |
| date, time, datetime | ISO 8601 as a text; a datetime in UTC, a naive one counts as UTC |
| list, tuple | ARRAY[…] |
| dict | MAP(…), or STRUCT(…) for a column of that type |

`tests/unit/client/core/test_literals.py` gives each literal to the parser, and compares values.
"""

from __future__ import annotations

import math
import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final, cast

from standpipe.errors import BadRequest
from standpipe.sql.types.types import SqlType, quoted

#: what the grammar reads as one piece (`sql/syntax/ksql.lark`); an opening without an end reaches
#: to the end of the text, so that nothing after it passes for a parameter
_PIECE: Final = re.compile(
    r"'[^']*(?:''[^']*)*(?:'|\Z)|\"[^\"]*(?:\"\"[^\"]*)*(?:\"|\Z)|`[^`]*(?:``[^`]*)*(?:`|\Z)"
    r"|--[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/|\Z)|(\?)",
    re.DOTALL,
)


class UnfitParameter(BadRequest):
    """A value that no SQL literal stands for, or another number of values than of `?`."""


def bound(text: str, parameters: Sequence[object]) -> str:
    """The statement with a literal for each `?`. Raises UnfitParameter."""
    if isinstance(parameters, str | bytes | Mapping):
        raise UnfitParameter("the parameters are a list: one value for each ?, in their order")
    pieces: list[str] = []
    end = count = 0
    for match in _PIECE.finditer(text):
        if match[1] is None:
            continue
        if count < len(parameters):
            pieces += [text[end : match.start()], " ", literal(parameters[count]), " "]
        end = match.end()
        count += 1
    if count != len(parameters):
        raise UnfitParameter(f"the statement has {count} parameters (?), not {len(parameters)}")
    return "".join([*pieces, text[end:]]) if count else text


def without_texts(text: str) -> str:
    """The statement with a blank for each text, quoted name and comment: its keywords are left."""
    return _PIECE.sub(lambda match: match[1] or " ", text)


def literal(value: object, of: SqlType | None = None) -> str:
    """A value as a literal; `of`: the type of its column, which tells STRUCT from MAP.

    Raises UnfitParameter.
    """
    make = _MAKERS.get(type(value))
    if make is None:
        make = next((m for kind, m in _MAKERS.items() if isinstance(value, kind)), None)
    if make is not None:
        return make(value)
    if isinstance(value, Mapping):
        return _entries(cast("Mapping[Any, object]", value), of)
    if isinstance(value, Sequence):
        part = of.arguments[0] if of is not None and of.base == "ARRAY" else None
        return f"ARRAY[{', '.join(literal(each, part) for each in cast('Sequence[Any]', value))}]"
    if (plain := _plain(value)) is not None:
        return literal(plain)
    raise UnfitParameter(
        f"{type(value).__name__} {value!r} has no SQL literal: give a text, a number, a bool, a"
        " date, a time, a datetime, bytes, a list, a dict, or None for NULL"
    )


def _plain(value: Any) -> bool | int | float | None:
    """The Python value of a number of numpy's; None: it is none."""
    if type(value).__module__ != "numpy" or value.dtype.kind not in "biuf":
        return None
    found = value.item()
    return found if isinstance(found, bool | int | float) else None


def moment_text(value: datetime) -> str:
    """An instant in UTC to the millisecond, as TIMESTAMP has it."""
    moment = value.astimezone(UTC) if value.tzinfo else value
    shown = moment.replace(tzinfo=None, microsecond=moment.microsecond // 1000 * 1000)
    return shown.isoformat(timespec="milliseconds")


def _text(value: Any) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise UnfitParameter(f"{value!r} is no UTF-8: {error.reason}") from error
    return "'" + value.replace("'", "''") + "'"


def _double(value: float) -> str:
    if not math.isfinite(value):
        raise UnfitParameter(f"{value} has no SQL literal: give None for NULL")
    text = repr(float(value))
    return text if "e" in text else text + "E0"


def _moment(value: datetime) -> str:
    if value != value:  # noqa: PLR0124 pandas' NaT, which is a datetime that equals nothing
        raise UnfitParameter(f"{value} has no SQL literal: give None for NULL")
    return f"'{moment_text(value)}'"


def _decimal(value: Decimal) -> str:
    if not value.is_finite() or abs(value.adjusted()) > 100:
        raise UnfitParameter(f"{value} fits no DECIMAL")
    return f"{value:f}"


def _entries(value: Mapping[Any, object], of: SqlType | None) -> str:
    if of is not None and of.base == "STRUCT":
        parts = zip(of.field_names, of.arguments, strict=True)
        known = {name.upper(): (name, part) for name, part in parts}
        pairs: list[str] = []
        for key, each in value.items():
            name, part = known.get(str(key).upper(), (str(key), None))
            pairs.append(f"{quoted(name)} := {literal(each, part)}")
        return f"STRUCT({', '.join(pairs)})"
    part = of.arguments[-1] if of is not None and of.base == "MAP" else None
    shown = (f"{literal(key)} := {literal(each, part)}" for key, each in value.items())
    return f"MAP({', '.join(shown)})"


#: datetime before date, bool before int: the first that fits is taken
_MAKERS: Final[dict[type, Callable[[Any], str]]] = {
    str: _text,
    bool: lambda value: "TRUE" if value else "FALSE",
    int: lambda value: str(int(value)),
    float: _double,
    Decimal: _decimal,
    datetime: _moment,
    date: lambda value: f"'{value.isoformat()}'",
    time: lambda value: f"'{value.replace(tzinfo=None).isoformat(timespec='milliseconds')}'",
    bytes: lambda value: f"'{b64encode(value).decode()}'",
    bytearray: lambda value: f"'{b64encode(value).decode()}'",
    memoryview: lambda value: f"'{b64encode(value).decode()}'",
    type(None): lambda _: "NULL",
}
