"""Values of JSON_SR as values of JSON: what Connect writes otherwise is brought into its form.

A value of JSON_SR is JSON behind the id of its schema. Two types are written as Connect writes
them: a map may be an array of objects, each with a key and a value, and a union, of which SQL makes
a STRUCT with a field for each branch, is the value of one branch alone. The columns say where a map
or a union stands, so the schema is not needed. Source: Confluent's `JsonSchemaData`; ksqlDB writes
such maps and does not read them. Not here: values of JSON as cells (`source_values.py`); rows as
JSON_SR (`json_sr_writing.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, cast

from standpipe.sql.schemas.json_columns import is_of_branches
from standpipe.sql.schemas.json_schema import ENTRY
from standpipe.sql.types.types import SqlType

_KEY, _VALUE = ENTRY
#: SQL type -> Python's of the values that a branch of this type takes
_TAKEN: Final[dict[str, tuple[type, ...]]] = {
    "BOOLEAN": (bool,),
    "INTEGER": (int,),
    "BIGINT": (int,),
    "DATE": (int,),
    "TIME": (int,),
    "TIMESTAMP": (int,),
    "DOUBLE": (int, Decimal),
    "DECIMAL": (int, Decimal),
    "STRING": (str,),
    "BYTES": (str,),
    "ARRAY": (list,),
    "MAP": (dict, list),
}

_ToJson = Callable[[Any], Any]


def to_json(of: SqlType) -> _ToJson | None:
    """The conversion of a decoded value of this type; None: all have JSON's form. It raises
    ValueError for one that has neither form."""
    if of.base == "ARRAY":
        item = to_json(of.arguments[0])
        return None if item is None else lambda value: _array(value, item)
    if of.base == "MAP":
        part = to_json(of.arguments[1]) or _same
        return lambda value: _map(value, part)
    if of.base == "STRUCT":
        named = zip(of.field_names, of.arguments, strict=True)
        parts = {name: found for name, part in named if (found := to_json(part)) is not None}
        if is_of_branches(of):
            return lambda value: _union(value, of, parts)
        if parts:
            folded = {name.upper(): part for name, part in parts.items()}
            return lambda value: _struct(value, parts, folded)
    return None


def _same(value: Any) -> Any:
    return value


def _array(value: Any, item: _ToJson) -> Any:
    return [*map(item, cast("list[Any]", value))] if isinstance(value, list) else value


def _map(value: Any, part: _ToJson) -> Any:
    if isinstance(value, dict):
        return {key: part(each) for key, each in cast("dict[str, Any]", value).items()}
    if not isinstance(value, list):
        return value
    made: dict[str, Any] = {}
    for each in cast("list[Any]", value):
        entry = cast("dict[str, Any]", each if isinstance(each, dict) else {})
        made[_key_text(entry.get(_KEY))] = part(entry.get(_VALUE))
    return made


def _key_text(key: Any) -> str:
    if isinstance(key, (bool, int)):
        return json.dumps(key)
    if not isinstance(key, str):
        raise ValueError("a map has a key that is no text, whole number or boolean")
    return key


def _struct(value: Any, exact: dict[str, _ToJson], folded: dict[str, _ToJson]) -> Any:
    if not isinstance(value, dict):
        return value
    return {
        name: (exact.get(name) or folded.get(name.upper()) or _same)(each)
        for name, each in cast("dict[str, Any]", value).items()
    }


def _union(value: Any, of: SqlType, parts: dict[str, _ToJson]) -> Any:
    """A STRUCT with the field of the first branch that takes the value. A declared STRUCT with such
    names is written as an object, whose fields are those names."""
    if value is None:
        return None
    given = cast("dict[str, Any]", value if isinstance(value, dict) else {})
    if any(name in given for name in of.field_names):
        return _struct(given, parts, {})
    for name, part in zip(of.field_names, of.arguments, strict=True):
        if _takes(part, value):
            return {name: parts.get(name, _same)(value)}
    raise ValueError("no branch of a union takes the value")


def _takes(of: SqlType, value: Any) -> bool:
    if of.base != "STRUCT":
        is_boolean = isinstance(value, bool)
        return isinstance(value, _TAKEN[of.base]) and is_boolean == (of.base == "BOOLEAN")
    if is_of_branches(of):
        return any(_takes(part, value) for part in of.arguments)
    if not isinstance(value, dict):
        return False
    known = {name.upper() for name in of.field_names}
    return all(name.upper() in known for name in cast("dict[str, Any]", value))
