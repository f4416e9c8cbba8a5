"""Scalar functions of JSON in a STRING: ksqlDB's semantics in Spark SQL."""

from __future__ import annotations

from typing import Final

from standpipe.sql.functions.cast import ISO, TIME_TEXT
from standpipe.sql.functions.signature import Function, K, T, V
from standpipe.sql.types.types import BOOLEAN, INTEGER, STRING, TIME, array, map_of

#: any value as JSON text: to_json accepts no plain value, so it is wrapped in an array
_AS_JSON: Final = (
    f"to_json(array({{0}}), map('ignoreNullFields', 'false', 'timestampFormat', {ISO}))"
)

#: in the order of the keys; a map within another value keeps its own
_MAP_AS_JSON: Final = _AS_JSON.replace(
    "{0}",
    "map_from_entries(array_sort(map_entries({0}), (l, r) ->"
    " CASE WHEN l.key < r.key THEN -1 WHEN l.key > r.key THEN 1 ELSE 0 END))",
)

FUNCTIONS: Final = (
    # Spark's own read other JSON, reorder keys and change numbers (`JsonTexts.java`)
    Function(
        "JSON_CONCAT",
        (STRING,),
        STRING,
        "standpipe_json_concat(array({all}), NULL)",
        is_variadic=True,
    ),
    Function("EXTRACTJSONFIELD", (STRING, STRING), STRING, "standpipe_json_extract({0}, {1})"),
    Function("IS_JSON_STRING", (STRING,), BOOLEAN, "standpipe_json_is_valid({0}, NULL)"),
    Function("JSON_ARRAY_LENGTH", (STRING,), INTEGER, "standpipe_json_length({0}, NULL)"),
    Function(
        "JSON_ARRAY_CONTAINS",
        (STRING, TIME),
        BOOLEAN,
        # an integer in Spark, which an element could equal
        "standpipe_json_contains({0}, if({1} IS NULL, NULL, date_from_unix_date(0)))",
    ),
    Function("JSON_ARRAY_CONTAINS", (STRING, T), BOOLEAN, "standpipe_json_contains({0}, {1})"),
    Function("JSON_ITEMS", (STRING,), array(STRING), "standpipe_json_items({0}, NULL)"),
    Function("JSON_KEYS", (STRING,), array(STRING), "standpipe_json_keys({0}, NULL)"),
    Function(
        "JSON_RECORDS", (STRING,), map_of(STRING, STRING), "standpipe_json_records({0}, NULL)"
    ),
    Function(
        "TO_JSON_STRING",
        (TIME,),
        STRING,
        f"coalesce(concat('\"', {TIME_TEXT}, '\"'), 'null')",
    ),
    Function(
        "TO_JSON_STRING",
        (map_of(K, V),),
        STRING,
        f"coalesce(substring({_MAP_AS_JSON}, 2, length({_MAP_AS_JSON}) - 2), 'null')",
    ),
    Function(
        "TO_JSON_STRING",
        (T,),
        STRING,
        f"coalesce(substring({_AS_JSON}, 2, length({_AS_JSON}) - 2), 'null')",
    ),
)
