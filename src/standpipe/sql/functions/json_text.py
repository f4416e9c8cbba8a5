"""Scalar functions of JSON in a STRING: ksqlDB's semantics in Spark SQL."""

from __future__ import annotations

from typing import Final

from standpipe.sql.functions.cast import ISO, TIME_TEXT
from standpipe.sql.functions.signature import Function, T
from standpipe.sql.types.types import BOOLEAN, INTEGER, STRING, TIME, array, map_of

#: any value as JSON text: to_json accepts no plain value, so it is wrapped in an array
_AS_JSON: Final = (
    f"to_json(array({{0}}), map('ignoreNullFields', 'false', 'timestampFormat', {ISO}))"
)

_IS_A: Final = "schema_of_variant(try_parse_json({text})) LIKE '{kind}%'"
_OBJECT: Final = "cast(try_parse_json({text}) AS MAP<STRING, VARIANT>)"
_LIST: Final = "cast(try_parse_json({text}) AS ARRAY<VARIANT>)"


def _both(template: str, kind: str = "") -> tuple[str, str]:
    one, two = (template.replace("{text}", text).replace("{kind}", kind) for text in ("s", "e"))
    return one, two


def _json_concat() -> str:
    """Objects are merged, arrays are concatenated; anything else becomes an array of both."""
    objects, lists = _both(_IS_A, "OBJECT"), _both(_IS_A, "ARRAY")
    merged, joined = _both(_OBJECT), _both(_LIST)
    step = (
        "CASE WHEN try_parse_json(s) IS NULL OR try_parse_json(e) IS NULL THEN NULL"
        f" WHEN {objects[0]} AND {objects[1]} THEN to_json(map_concat({merged[0]}, {merged[1]}))"
        f" WHEN {lists[0]} AND {lists[1]} THEN to_json(concat({joined[0]}, {joined[1]}))"
        f" WHEN {lists[0]} THEN to_json(concat({joined[0]}, array(try_parse_json(e))))"
        f" WHEN {lists[1]} THEN to_json(concat(array(try_parse_json(s)), {joined[1]}))"
        " ELSE to_json(array(try_parse_json(s), try_parse_json(e))) END"
    )
    return f"aggregate(slice(array({{all}}), 2, 10000), {{0}}, (s, e) -> {step})"


FUNCTIONS: Final = (
    Function("JSON_CONCAT", (STRING, STRING), STRING, _json_concat(), is_variadic=True),
    Function("EXTRACTJSONFIELD", (STRING, STRING), STRING, "get_json_object({0}, {1})"),
    Function("IS_JSON_STRING", (STRING,), BOOLEAN, "(try_parse_json({0}) IS NOT NULL)"),
    Function("JSON_ARRAY_LENGTH", (STRING,), INTEGER, "json_array_length({0})"),
    Function(
        "JSON_ARRAY_CONTAINS",
        (STRING, STRING),
        BOOLEAN,
        "coalesce(exists(cast(try_parse_json({0}) AS ARRAY<VARIANT>),"
        " e -> schema_of_variant(e) = 'STRING' AND cast(e AS STRING) <=> {1}), false)",
    ),
    Function(
        "JSON_ARRAY_CONTAINS",
        (STRING, T),
        BOOLEAN,
        "coalesce(exists(cast(try_parse_json({0}) AS ARRAY<VARIANT>),"
        " e -> schema_of_variant(e) <> 'STRING'"
        " AND cast(e AS STRING) <=> cast({1} AS STRING)), false)",
    ),
    Function("JSON_ITEMS", (STRING,), array(STRING), "from_json({0}, 'array<string>')"),
    Function("JSON_KEYS", (STRING,), array(STRING), "json_object_keys({0})"),
    Function(
        "JSON_RECORDS", (STRING,), map_of(STRING, STRING), "from_json({0}, 'map<string,string>')"
    ),
    Function(
        "TO_JSON_STRING",
        (TIME,),
        STRING,
        f"coalesce(concat('\"', {TIME_TEXT}, '\"'), 'null')",
    ),
    Function(
        "TO_JSON_STRING",
        (T,),
        STRING,
        f"coalesce(substring({_AS_JSON}, 2, length({_AS_JSON}) - 2), 'null')",
    ),
)
