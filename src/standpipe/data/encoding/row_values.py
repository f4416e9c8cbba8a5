"""Values of a table topic -> the JSON array of the value columns, as stores keep it.

Columns stay text: an object is cut into raw fields, never decoded. Names match exactly, else
case-insensitively (ksqlDB); an absent column is null. Not here: keys
(`data/encoding/store_keys.py`).
"""

from __future__ import annotations

import csv
import re
from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import msgspec

from standpipe.data.encoding.kafka_keys import UnfitKey, decode_key
from standpipe.model import Column, Source
from standpipe.sql.declarations.added_columns import ADDED_MAX

_encode = msgspec.json.Encoder().encode
_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_cells = msgspec.json.Decoder(list[msgspec.Raw]).decode
_as_tuple = cast(Callable[[Any], Sequence[msgspec.Raw]], msgspec.structs.astuple)

#: includes values nested deeper than the interpreter allows: a producer decides how deep
_NOT_READ: Final = (msgspec.MsgspecError, RecursionError)
_ABSENT: Final = msgspec.Raw(b"")
_NULL: Final = msgspec.Raw(b"null")
_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')
LINE_FEED: Final = ord("\n")
CARRIAGE_RETURN: Final = ord("\r")

#: value bytes -> JSON array; raises UnreadableValue
ToArray = Callable[[bytes], bytes]
#: the same for many; None if they must be converted, or refused, one by one
ToArrays = Callable[[Sequence[bytes]], list[bytes] | None]


class UnreadableValue(ValueError):
    """A value that is not of the table's format."""


def to_array(source: Source) -> ToArray:
    """The conversion for one table. Raises ValueError for a format that stores cannot keep."""
    columns = [column for column in source.value_columns if column.header is None]
    names = tuple(column.name for column in columns)
    if source.value_format == "NONE" or not names:
        return lambda _: b"[]"
    if source.value_format == "JSON" and (source.wrap_single_value or len(names) != 1):
        return _object_to_array(names)
    if source.value_format == "JSON":
        return _bare_to_array
    if source.value_format == "DELIMITED":
        types = tuple(column.type for column in columns)
        return _delimited_to_array(types, source.value_delimiter)
    if source.value_format == "KAFKA":
        return _kafka_to_array(tuple(columns))
    raise ValueError(f"values of format {source.value_format} cannot be kept in a store")


def own_columns_to_array(value: bytes) -> bytes:
    """An object as the array of all that it has, in its order: for a table that gets columns in
    place (`sql/declarations/added_columns.py`). So a row depends on its record alone, and replicas
    agree whenever they hear of a new column. Raises UnreadableValue."""
    try:
        return _one_line(_encode([*_decode_object(value).values()]))
    except _NOT_READ as error:
        raise UnreadableValue(f"{value[:80]!r}: {error}") from error


def count_beyond(array: bytes, first: int) -> int:
    """How many cells an array has beyond the first ones. Raises UnreadableValue if it has fewer, or
    so many that no writer of ours wrote it."""
    beyond = len(_decode_cells(array)) - first
    if not 0 <= beyond <= ADDED_MAX:
        raise UnreadableValue(f"{array[:80]!r}: not {first} columns and those that were added")
    return beyond


def object_names(source: Source) -> tuple[str, ...]:
    """Column names of a table whose values are JSON objects; empty if they are not."""
    names = tuple(column.name for column in source.value_columns if column.header is None)
    is_object = source.value_format == "JSON" and (source.wrap_single_value or len(names) > 1)
    return names if is_object else ()


def to_arrays(source: Source) -> ToArrays | None:
    """The conversion of many values at once; None if the format has none."""
    names = object_names(source)
    if not names or not _are_field_names(names):
        return None
    decode = _decoder_of_fields(names, may_be_absent=False)

    def convert(values: Sequence[bytes]) -> list[bytes] | None:
        together = b"".join(values)
        if LINE_FEED in together or CARRIAGE_RETURN in together:
            return None
        try:
            return [*map(_encode, map(_as_tuple, map(decode, values)))]
        except _NOT_READ:
            return None

    return convert


def _are_field_names(names: Sequence[str]) -> bool:
    """Whether msgspec's structs accept these names: not if JSON has to escape one."""
    return not any(map(_ESCAPED.search, names))


def _decoder_of_fields(names: tuple[str, ...], *, may_be_absent: bool) -> Callable[[bytes], Any]:
    """A decoder of objects into a struct with these names, whose fields stay text."""
    absent = [_ABSENT] if may_be_absent else []
    fields = [(f"f{n}", msgspec.Raw, *absent) for n in range(len(names))]
    row = msgspec.defstruct(
        "_Fields",
        cast("list[tuple[str, type]]", fields),
        rename={f"f{n}": name for n, name in enumerate(names)},
        gc=False,
    )
    return cast(Callable[[bytes], Any], msgspec.json.Decoder(row).decode)


def _object_to_array(names: tuple[str, ...]) -> ToArray:
    """Field by field: 0.6 us for five columns."""
    if not _are_field_names(names):
        return _any_object_to_array(names)
    decode = _decoder_of_fields(names, may_be_absent=True)

    def convert(value: bytes) -> bytes:
        try:
            cells = _as_tuple(decode(value))
            if _ABSENT in cells:
                cells = _matched_without_case(value, names)
        except _NOT_READ as error:
            raise UnreadableValue(f"{value[:80]!r}: {error}") from error
        array = _encode(cells)
        # as integers: `b"\n" in value` takes three times as long, and this runs once per record
        return _one_line(array) if LINE_FEED in value or CARRIAGE_RETURN in value else array

    return convert


def _any_object_to_array(names: tuple[str, ...]) -> ToArray:
    def convert(value: bytes) -> bytes:
        try:
            return _one_line(_encode(_matched_without_case(value, names)))
        except _NOT_READ as error:
            raise UnreadableValue(f"{value[:80]!r}: {error}") from error

    return convert


def _matched_without_case(value: bytes, names: tuple[str, ...]) -> list[msgspec.Raw]:
    found = _decode_object(value)
    folded = {name.upper(): raw for name, raw in found.items()}
    return [found.get(name) or folded.get(name.upper()) or _NULL for name in names]


def _bare_to_array(value: bytes) -> bytes:
    try:
        return _one_line(b"[%b]" % _decode_raw(value))
    except _NOT_READ as error:
        raise UnreadableValue(f"{value[:80]!r}: {error}") from error


def _one_line(array: bytes) -> bytes:
    """Rows are sent one per line, so line ends between tokens must be removed."""
    if LINE_FEED in array or CARRIAGE_RETURN in array:
        return msgspec.json.format(array, indent=-1)
    return array


def _delimited_to_array(types: tuple[str, ...], delimiter: str) -> ToArray:
    def convert(value: bytes) -> bytes:
        try:
            (fields,) = csv.reader([value.decode()], delimiter=delimiter, strict=True)
            cells = [_cell(text, type_) for text, type_ in zip(fields, types, strict=True)]
        except (ValueError, csv.Error, *_NOT_READ) as error:
            raise UnreadableValue(f"{value[:80]!r}: {error}") from error
        return b"[%b]" % b",".join(cells)

    return convert


def _kafka_to_array(columns: tuple[Column, ...]) -> ToArray:
    def convert(value: bytes) -> bytes:
        try:
            (cell,) = decode_key(value, columns, "KAFKA")
        except UnfitKey as error:
            raise UnreadableValue(str(error)) from error
        return b"[%b]" % _encode(cell)

    return convert


def _cell(text: str, type_: str) -> bytes:
    """One field of a DELIMITED value as JSON; an empty one is null, as in ksqlDB."""
    if not text:
        return bytes(_NULL)
    if type_ in {"STRING", "VARCHAR"}:
        return _encode(text)
    if type_ == "BYTES":
        return _encode(b64decode(text, validate=True))
    return bytes(_decode_raw(text.lower() if type_ == "BOOLEAN" else text))
