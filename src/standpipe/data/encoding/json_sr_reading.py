"""Values of JSON_SR as values of JSON: maps that Connect wrote become objects.

A value of JSON_SR is JSON behind the id of its schema. Connect writes a map as an array of objects,
each with a key and a value. The columns say where a map stands, so the schema is not needed.
Source: Confluent's `JsonSchemaData`; ksqlDB writes such maps and does not read them. Not here:
values of JSON as cells (`source_values.py`); rows as JSON_SR (`json_sr_writing.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, cast

from standpipe.sql.schemas.json_schema import ENTRY
from standpipe.sql.types.types import SqlType

_KEY, _VALUE = ENTRY
_ToJson = Callable[[Any], Any]
#: (name, the same in upper case, conversion) of each field
_Fields = Sequence[tuple[str, str, _ToJson]]


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
        parts = [to_json(part) for part in of.arguments]
        if any(part is not None for part in parts):
            named = zip(of.field_names, parts, strict=True)
            fields = [(name, name.upper(), part or _same) for name, part in named]
            return lambda value: _struct(value, fields)
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


def _struct(value: Any, fields: _Fields) -> Any:
    """The values of the fields that have one, under their exact names: those without take no
    memory here. Two fields may differ only in case, and both may read one value of a third case,
    each as its own type."""
    if not isinstance(value, dict):
        return value
    found = cast("dict[str, Any]", value)
    folded: dict[str, Any] = {}
    if any(name not in found for name, _, _ in fields):
        folded = {name.upper(): each for name, each in found.items()}
    return {
        name: part(found[name] if name in found else folded.get(upper))
        for name, upper, part in fields
        if name in found or upper in folded
    }
