"""Values of a topic that others write, in the form that our own queries write: a JSON array.

A lookup splices stored cells into its answer without looking at them, so each is converted to its
column's type once, when it arrives; so is each record of a stream that a query of a client reads:

| JSON | columns |
|---|---|
| true, false | BOOLEAN |
| number, or its text | INTEGER, BIGINT, DATE, TIME, TIMESTAMP, all truncated; DOUBLE, DECIMAL |
| text | STRING, BYTES (base64) |
| any value | STRING: its JSON |
| array, object | ARRAY, MAP, STRUCT |
| null, or no such field | every column |

Names of fields match exactly, else in any case. What is no value of its type makes the whole record
unreadable, and so do more fields of STRUCTs than its bytes allow (`sql/types/made_fields.py`).
Source: ksqlDB's JSON, DELIMITED and KAFKA formats, as `pipeline/io/source.py` reads them.

JSON_SR is JSON behind the id of a schema, once Connect's own forms are undone
(`json_sr_reading.py`). Not here: keys (`kafka_keys.py`); values that our queries wrote
(`row_values.py`).
"""

from __future__ import annotations

import csv
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any, Final, cast

import msgspec

from standpipe.data.encoding.framed_values import avro_cells, unframed
from standpipe.data.encoding.json_sr_reading import to_json
from standpipe.data.encoding.kafka_keys import UnfitKey, decode_key
from standpipe.data.encoding.row_values import UnreadableValue
from standpipe.model import Column, Source
from standpipe.sql.schemas.registry import SchemaRegistryUnavailable, Schemas
from standpipe.sql.types.made_fields import MadeFields
from standpipe.sql.types.types import INSTANT_MS_MAX, SqlType, parse_type, struct
from standpipe.sql.types.values import (
    BIGINT_MAX,
    INTEGER_MAX,
    as_decimal,
    at_scale,
    is_finite,
    whole_number,
)

_decode: Final = msgspec.json.Decoder(float_hook=Decimal).decode
_encode: Final = msgspec.json.Encoder(decimal_format="number").encode
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_HEAD_BYTES: Final = 80
_BOOLEANS: Final = {"true": True, "false": False}
_NOT_FINITE: Final = ("NaN", "Infinity", "+Infinity", "-Infinity")
#: largest absolute value of a type that is a whole number
_WHOLE_MAX: Final = {
    "INTEGER": INTEGER_MAX,
    "BIGINT": BIGINT_MAX,
    "DATE": INTEGER_MAX,
    "TIME": INTEGER_MAX,
    "TIMESTAMP": INSTANT_MS_MAX,
}

#: cells of a value, in the order of the value columns, as `array_of` writes them
Cells = list[Any]


def array_of(cells: Cells) -> bytes:
    """The JSON array that a store keeps."""
    return _encode(cells)


def to_cells(source: Source) -> Callable[[bytes], Cells]:
    """The conversion for one table; it raises UnreadableValue, also for numbers that JSON has not.
    Raises ValueError for a format that nodes do not read."""
    columns = source.value_columns
    if columns and source.value_format not in ("JSON", "KAFKA"):
        raise ValueError(f"nodes do not read values of format {source.value_format}")
    read = to_values(source, columns)
    if not any(parse_type(column.type).contains("DOUBLE") for column in columns):
        return read

    def convert(value: bytes) -> Cells:
        cells = read(value)
        if not is_finite(cells):
            raise UnreadableValue(f"{value[:_HEAD_BYTES]!r}: a number that JSON has not")
        return cells

    return convert


def to_values(
    source: Source, columns: Sequence[Column], schemas: Schemas | None = None
) -> Callable[[bytes], Cells]:
    """The same for records that are shown and not kept: in all formats, NaN and infinity as well.
    `columns`: those of the value, without headers. `schemas`: the schema registry; None: there is
    none. The conversion raises SchemaRegistryUnavailable."""
    if source.value_format == "AVRO" and columns:
        wraps = source.wrap_single_value or len(columns) != 1
        return avro_cells(_there(schemas), columns, wraps=wraps).read
    is_bare = len(columns) == 1 and not source.wrap_single_value
    return _reader(columns, source.value_format, source.value_delimiter, is_bare=is_bare)


def to_key_values(source: Source, schemas: Schemas | None = None) -> Callable[[bytes], Cells]:
    """The conversion of a key without its window; of several columns, some may be null."""
    columns = source.key_columns
    if source.key_format == "AVRO" and columns:
        return avro_cells(_there(schemas), columns, wraps=len(columns) != 1).read
    is_bare = len(columns) == 1
    return _reader(columns, source.key_format, source.key_delimiter, is_bare=is_bare)


def _there(schemas: Schemas | None) -> Schemas:
    if schemas is None:
        raise SchemaRegistryUnavailable(
            "the source is in AVRO, and this node has no schema registry: set"
            " ksql.schema.registry.url on it"
        )
    return schemas


def _reader(
    columns: Sequence[Column], format_: str, delimiter: str, *, is_bare: bool
) -> Callable[[bytes], Cells]:
    if not columns or format_ == "NONE":
        return lambda _: []
    if format_ == "KAFKA":
        return _of_kafka(columns)
    if format_ == "DELIMITED":
        return _readable(_of_lines(columns, delimiter))
    fields = [(column.name, column.name.upper(), _converter(column)) for column in columns]
    decode = _decode if format_ == "JSON" else _json_sr_decoder(columns, is_bare=is_bare)

    def convert(value: bytes) -> Cells:
        found, made = decode(value), MadeFields(len(value))
        return [fields[0][2](found, made)] if is_bare else _row(found, fields, made)

    return _readable(convert)


def _json_sr_decoder(columns: Sequence[Column], *, is_bare: bool) -> Callable[[bytes], Any]:
    """Decodes a value of JSON_SR into one that JSON would have."""
    named = tuple((column.name, parse_type(column.type)) for column in columns)
    read = to_json(named[0][1] if is_bare else struct(named))
    if read is None:
        return lambda value: _decode(unframed(value)[1])
    return lambda value: read(_decode(unframed(value)[1]))


def _readable(convert: Callable[[bytes], Cells]) -> Callable[[bytes], Cells]:
    """The conversion with one exception for everything that a producer may send."""

    def checked(value: bytes) -> Cells:
        try:
            return convert(value)
        except (
            msgspec.MsgspecError,
            csv.Error,
            ValueError,
            TypeError,
            AttributeError,
            ArithmeticError,
            RecursionError,  # a producer decides how deep a value is nested
        ) as error:
            raise UnreadableValue(f"{value[:_HEAD_BYTES]!r}: {error}") from error

    return checked


_Convert = Callable[[Any, MadeFields], Any]
#: (name, the same in upper case, conversion) of a column
_Fields = Sequence[tuple[str, str, _Convert]]


def _row(found: Any, fields: _Fields, made: MadeFields) -> Cells:
    if not isinstance(found, dict):
        raise TypeError("it is no JSON object")
    named = cast("dict[str, Any]", found)
    cells = [convert(named.get(name), made) for name, _, convert in fields]
    if None in cells:
        folded = {name.upper(): value for name, value in named.items()}
        cells = [
            cell if name in named else convert(folded.get(upper), made)
            for cell, (name, upper, convert) in zip(cells, fields, strict=True)
        ]
    return cells


def _of_kafka(columns: Sequence[Column]) -> Callable[[bytes], Cells]:
    is_bytes = parse_type(columns[0].type).base == "BYTES"

    def convert(value: bytes) -> Cells:
        try:
            (cell,) = decode_key(value, columns, "KAFKA")
        except UnfitKey as error:
            raise UnreadableValue(error.message) from error
        return [b64encode(cast("bytes", cell)).decode() if is_bytes else cell]

    return convert


def _of_lines(columns: Sequence[Column], delimiter: str) -> Callable[[bytes], Cells]:
    """Lines of CSV: an empty field is null, and no field may be missing or too many."""
    converters = [_converter(column) for column in columns]
    are_texts = [parse_type(column.type).base == "BOOLEAN" for column in columns]

    def convert(value: bytes) -> Cells:
        (texts,) = csv.reader([value.decode()], delimiter=delimiter, strict=True)
        given, made = zip(texts, converters, are_texts, strict=True), MadeFields(len(value))
        return [
            read(_BOOLEANS.get(text.lower(), text) if is_boolean else text, made) if text else None
            for text, read, is_boolean in given
        ]

    return convert


def _converter(column: Column) -> _Convert:
    of = parse_type(column.type)

    def convert(value: Any, made: MadeFields) -> Any:
        try:
            return None if value is None else _fitted(value, of, made)
        except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
            raise ValueError(f"{column.name} is no {of}: {error}") from error

    return convert


def _fitted(value: Any, of: SqlType, made: MadeFields) -> Any:
    """A decoded JSON value that is not null, as JSON of the type. Raises ValueError and others."""
    base = of.base
    if base in _WHOLE_MAX:
        return _whole(value, _WHOLE_MAX[base])
    if base == "STRING":
        return value if isinstance(value, str) else _encode(value).decode()
    if base == "BOOLEAN":
        if isinstance(value, bool):
            return value
    elif base == "DOUBLE":
        return _double(value)
    elif base == "DECIMAL":
        return _decimal(value, of)
    elif base == "BYTES":
        if isinstance(value, str):
            return b64encode(b64decode(value, validate=True)).decode()
    elif base == "ARRAY":
        if isinstance(value, list):
            return [_part(each, of.arguments[0], made) for each in cast("list[Any]", value)]
    elif isinstance(value, dict):
        return _entries(cast("dict[str, Any]", value), of, made)
    raise ValueError(type(value).__name__)


def _part(value: Any, of: SqlType, made: MadeFields) -> Any:
    return None if value is None else _fitted(value, of, made)


def _entries(found: dict[str, Any], of: SqlType, made: MadeFields) -> dict[str, Any]:
    if of.base == "MAP":
        return {key: _part(each, of.arguments[1], made) for key, each in found.items()}
    made.make_named(of.field_names)
    folded = {name.upper(): each for name, each in found.items()}
    return {
        name: _part(found[name] if name in found else folded.get(name.upper()), part, made)
        for name, part in zip(of.field_names, of.arguments, strict=True)
    }


def _whole(value: Any, largest: int) -> int:
    if isinstance(value, bool):
        raise TypeError("a boolean")
    if isinstance(value, str):
        if not _WHOLE.fullmatch(value):
            raise ValueError(f"{value[:_HEAD_BYTES]!r}")
        value = int(value)
    number = value if isinstance(value, int) else whole_number(value)
    if not -largest - 1 <= number <= largest:
        raise ValueError(f"{number} is out of range")
    return number


def _exact(value: Any) -> Decimal:
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            raise ValueError(f"{value[:_HEAD_BYTES]!r}")
        return Decimal(value)
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        raise TypeError(type(value).__name__)
    return Decimal(value)


def _double(value: Any) -> float:
    if isinstance(value, str) and value in _NOT_FINITE:
        return float(value)
    return float(_exact(value))


def _decimal(value: Any, of: SqlType) -> Decimal:
    number = _exact(value)
    try:
        return as_decimal(at_scale(number, of.scale, ROUND_HALF_UP), of)
    except InvalidOperation as error:
        raise ValueError(f"{number} does not fit") from error
