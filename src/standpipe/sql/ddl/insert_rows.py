"""Rows of /inserts-stream: a JSON object becomes the row that INSERT INTO … VALUES would write.

| JSON | columns it may fill |
|---|---|
| true, false | BOOLEAN |
| whole number | INTEGER, BIGINT (if it fits), DECIMAL, DOUBLE |
| other number | DOUBLE (if it fits), DECIMAL: rounded half up to the column's scale |
| string | STRING, DATE, TIME, TIMESTAMP, BYTES (base64), DECIMAL |
| array | ARRAY |
| object | MAP, STRUCT |
| null, or no such field | every value column; never a key column |

Field names are read like names in SQL: upper case unless quoted. A field without a column is
ignored, as in ksqlDB; ROWTIME is the record's timestamp, as in INSERT INTO … VALUES (our
extension: ksqlDB ignores it too). Source: ksqlDB's REST API, /inserts-stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Final, cast

from standpipe.errors import BadRequest
from standpipe.model import Source
from standpipe.sql.ddl.insert_values import check_writable
from standpipe.sql.plans import InsertValuesPlan, Value
from standpipe.sql.syntax.errors import refusal
from standpipe.sql.types import types, values
from standpipe.sql.types.made_fields import MadeFields, TooManyFields
from standpipe.sql.types.types import SqlType, parse_type
from standpipe.topics import TopicRules

_QUOTES: Final = ("`", '"')


def identifier(text: str) -> str:
    """The name that a text means: as written if it is quoted, otherwise in upper case."""
    quote = text[:1]
    if quote in _QUOTES and len(text) > 2 and text.endswith(quote):
        return text[1:-1].replace(quote * 2, quote)
    return text.upper()


def insert_target(text: str, sources: Mapping[str, Source], rules: TopicRules) -> Source:
    """The stream to insert into. Raises StatementError if it is unknown or not writable."""
    name = identifier(text)
    source = sources.get(name)
    if source is None:
        raise refusal(f"Cannot insert values into an unknown stream: {types.quoted(name)}")
    if source.kind == "TABLE":
        raise refusal("Cannot insert into a table")
    check_writable(source, sources, rules, None)
    return source


class RowReader:
    """Converts JSON objects to rows of one stream."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._columns = [
            (column, parse_type(column.type)) for column in source.columns if column.header is None
        ]
        self._has_rowtime = any(column.name == "ROWTIME" for column in source.columns)

    def plan(self, fields: Mapping[str, object], size_bytes: int = 0) -> InsertValuesPlan:
        """The plan of one full-width row. `size_bytes`: of its JSON, which bounds how many fields
        its STRUCTs may make. Raises BadRequest that names the field or its type."""
        folded = {identifier(name): value for name, value in fields.items()}
        if len(folded) != len(fields):
            raise BadRequest(f"Found non-unique columns: {', '.join(fields)}")
        row: dict[str, Value] = {}
        made = MadeFields(size_bytes)
        for column, of in self._columns:
            value = folded.get(column.name)
            if value is not None:
                row[column.name] = _fitted(value, of, made)
            elif column.is_key:
                raise BadRequest(f"Key field must be specified: {column.name}")
        rowtime = None if self._has_rowtime else folded.get("ROWTIME")
        rowtime_ms = None if rowtime is None else cast("int", _fitted(rowtime, types.BIGINT, made))
        if rowtime_ms is not None and rowtime_ms < 0:  # Kafka takes -1 for none
            raise BadRequest(f"Invalid timestamp: {rowtime_ms}")
        full = tuple(row.get(column.name) for column in self.source.columns)
        return InsertValuesPlan(source=self.source, values=full, rowtime_ms=rowtime_ms)


def _fitted(value: object, of: SqlType, made: MadeFields) -> Value:
    try:
        fitted = _coerced(value, of, made)
        if not values.is_finite(fitted):
            raise ValueError(value)
    except TooManyFields as error:
        raise BadRequest(f"Can't coerce a row into type {of}: {error}") from None
    except ValueError:
        raise BadRequest(
            f"Can't coerce a field of type {_kind(value)} ({value}) into type {of}"
        ) from None
    return fitted


def _coerced(value: object, of: SqlType, made: MadeFields) -> object:
    """Raises ValueError. JSON numbers with a fraction arrive as Decimal, so no digit is lost."""
    if value is None:
        return None
    if of.is_nested:
        return _nested(value, of, made)
    if of.base == "DECIMAL" and isinstance(value, (int, str, Decimal)):
        return _decimal(value, of)
    return values.coerce(value, _type_of(value), of)


def _nested(value: object, of: SqlType, made: MadeFields) -> object:
    if of.base == "ARRAY" and isinstance(value, list):
        items = cast("list[object]", value)
        return [_coerced(item, of.arguments[0], made) for item in items]
    if not isinstance(value, dict) or of.base == "ARRAY":
        raise ValueError(of)
    entries = cast("dict[str, object]", value)
    if of.base == "MAP":
        key_of, value_of = of.arguments
        return {
            _coerced(key, key_of, made): _coerced(each, value_of, made)
            for key, each in entries.items()
        }
    made.make_named(of.field_names)
    folded = {identifier(name): each for name, each in entries.items()}
    fields = zip(of.field_names, of.arguments, strict=True)
    return {name: _coerced(folded.get(name), field, made) for name, field in fields}


def _decimal(value: int | str | Decimal, of: SqlType) -> Decimal:
    if isinstance(value, bool):
        raise ValueError(value)
    try:
        number = values.at_scale(Decimal(value), of.scale, ROUND_HALF_UP)
    except InvalidOperation as error:
        raise ValueError(value) from error
    return values.as_decimal(number, of)


def _type_of(value: object) -> SqlType:
    """The narrowest type of a JSON value. Raises ValueError if it has none."""
    if isinstance(value, bool):
        return types.BOOLEAN
    if isinstance(value, int):
        for bound, of in ((values.INTEGER_MAX, types.INTEGER), (values.BIGINT_MAX, types.BIGINT)):
            if -bound - 1 <= value <= bound:
                return of
        raise ValueError(value)
    if isinstance(value, Decimal):
        return types.DOUBLE
    if isinstance(value, str):
        return types.STRING
    raise ValueError(value)


def _kind(value: object) -> str:
    for kind, name in ((list, "ARRAY"), (dict, "OBJECT"), (int, "NUMBER")):
        if isinstance(value, kind) and not isinstance(value, bool):
            return name
    return str(_type_of(value))
