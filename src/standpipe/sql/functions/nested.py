"""Scalar functions of ARRAY, MAP and STRUCT, and of nulls: ksqlDB's semantics in Spark SQL.

Not here: functions with a lambda (`expressions/constructors.py`), equality of elements that
contain maps (`expressions/map_sets.py`).
"""

from __future__ import annotations

from typing import Final

from standpipe.sql.functions.signature import Function, K, T, V
from standpipe.sql.functions.text import LITERALLY, literally
from standpipe.sql.types.typed_expression import EXPLODE
from standpipe.sql.types.types import (
    BIGINT,
    BOOLEAN,
    INTEGER,
    STRING,
    SqlType,
    array,
    map_of,
    struct,
)

_NULLS: Final = (
    Function("AS_VALUE", (T,), T, "{0}"),
    Function("COALESCE", (T,), T, "coalesce({all})", is_variadic=True),
    Function("IFNULL", (T, T), T, "ifnull({0}, {1})"),
    Function("NULLIF", (T, T), T, "nullif({0}, {1})"),
)

_PAIR: Final = f"split(e, {literally('{2}')})"


def _entries(types: tuple[SqlType, ...]) -> SqlType:
    key, value = types[0].arguments
    return array(struct((("K", key), ("V", value))))


_ENTRIES: Final = "transform(map_entries({0}), e -> named_struct('K', e.key, 'V', e.value))"

#: every combination of elements, the others null; a null element gives no alternatives
_CUBE: Final = (
    "aggregate({0}, array(slice({0}, 1, 0)), (s, e) -> flatten(transform(s, p -> if(e IS NULL,"
    " array(concat(p, array(e))), array(concat(p, array(nullif(e, e))), concat(p, array(e)))))))"
)

#: items of a series, in a type that does not overflow
_SPAN: Final = "abs(cast({1} AS DECIMAL(20)) - cast({0} AS DECIMAL(20))) + 1"
_STEPS: Final = (
    "abs(cast({1} AS DECIMAL(20)) - cast({0} AS DECIMAL(20)))"
    " / greatest(1, abs(cast({2} AS BIGINT))) + 1"
)
#: ksqlDB refuses such a step; Spark would end the query
_NO_STEPS: Final = "{2} = 0 OR {2} > 0 AND {1} < {0} OR {2} < 0 AND {1} > {0}"

_COLLECTIONS: Final = (
    Function("EXPLODE", (array(T),), T, EXPLODE),
    Function(
        "CUBE_EXPLODE",
        (array(T),),
        array(T),
        EXPLODE,
        inner=_CUBE,
        size="shiftleft(1L, least(40, array_size({0})))",
    ),
    Function(
        "ARRAY_CONCAT",
        (array(T), array(T)),
        array(T),
        "if({0} IS NULL AND {1} IS NULL, NULL,"
        " concat(coalesce({0}, array()), coalesce({1}, array())))",
    ),
    Function(
        "ARRAY_CONTAINS", (array(T), T), BOOLEAN, "coalesce(exists({0}, e -> e <=> {1}), false)"
    ),
    Function("ARRAY_DISTINCT", (array(T),), array(T), "array_distinct({0})"),
    Function("ARRAY_EXCEPT", (array(T), array(T)), array(T), "array_except({0}, {1})"),
    Function("ARRAY_INTERSECT", (array(T), array(T)), array(T), "array_intersect({0}, {1})"),
    Function("ARRAY_JOIN", (array(T),), STRING, "array_join({0}, ',', 'null')"),
    Function(
        "ARRAY_JOIN",
        (array(T), STRING),
        STRING,
        "array_join({0}, coalesce({1}, ''), 'null')",
    ),
    Function("ARRAY_LENGTH", (array(T),), INTEGER, "array_size({0})"),
    Function("ARRAY_MAX", (array(T),), T, "array_max({0})"),
    Function("ARRAY_MIN", (array(T),), T, "array_min({0})"),
    Function("ARRAY_REMOVE", (array(T), T), array(T), "filter({0}, e -> NOT (e <=> {1}))"),
    Function("ARRAY_SORT", (array(T),), array(T), "array_sort({0})"),
    Function(
        "ARRAY_SORT",
        (array(T), STRING),
        array(T),
        "CASE WHEN upper({1}) IN ('DESC', 'DESCENDING') THEN sort_array({0}, false)"
        " WHEN upper({1}) IN ('ASC', 'ASCENDING') THEN array_sort({0}) END",
    ),
    Function("ARRAY_UNION", (array(T), array(T)), array(T), "array_union({0}, {1})"),
    Function(
        "AS_MAP",
        (array(K), array(V)),
        map_of(K, V),
        # Spark would end the query for a key that is null, or has no value
        "if({1} IS NULL, NULL, map_from_entries(filter(transform({0}, (k, i) ->"
        " struct(k AS key, try_element_at({1}, i + 1) AS value)), e -> e.key IS NOT NULL)))",
    ),
    Function(
        "ENTRIES",
        (map_of(K, V), BOOLEAN),
        _entries,
        f"if({{1}}, array_sort({_ENTRIES}), {_ENTRIES})",
    ),
    Function(
        "GENERATE_SERIES",
        (INTEGER, INTEGER),
        array(INTEGER),
        "sequence({0}, {1})",
        size=_SPAN,
    ),
    Function(
        "GENERATE_SERIES",
        (INTEGER, INTEGER, INTEGER),
        array(INTEGER),
        f"if({_NO_STEPS}, NULL, sequence({{0}}, {{1}}, {{2}}))",
        size=_STEPS,
    ),
    Function("GENERATE_SERIES", (BIGINT, BIGINT), array(BIGINT), "sequence({0}, {1})", size=_SPAN),
    Function(
        "GENERATE_SERIES",
        (BIGINT, BIGINT, INTEGER),
        array(BIGINT),
        f"if({_NO_STEPS}, NULL, sequence({{0}}, {{1}}, cast({{2}} AS BIGINT)))",
        size=_STEPS,
    ),
    Function("MAP_KEYS", (map_of(K, V),), array(K), "map_keys({0})"),
    Function(
        "MAP_UNION",
        (map_of(K, V), map_of(K, V)),
        map_of(K, V),
        "if({0} IS NULL AND {1} IS NULL, NULL,"
        " map_concat(coalesce({0}, map()), coalesce({1}, map())))",
    ),
    Function("MAP_VALUES", (map_of(K, V),), array(V), "map_values({0})"),
    Function(
        "SLICE",
        (array(T), INTEGER, INTEGER),
        array(T),
        # an end outside is an error in ksqlDB, and null
        "if(coalesce({1}, 1) < 1 OR {2} > array_size({0})"
        " OR coalesce({1}, 1) - 1 > coalesce({2}, array_size({0})), NULL, slice({0},"
        " coalesce({1}, 1), coalesce({2}, array_size({0})) - coalesce({1}, 1) + 1))",
    ),
    Function(
        "SPLIT_TO_MAP",
        (STRING, STRING, STRING),
        map_of(STRING, STRING),
        "if(coalesce({1}, '') IN ('', {2}) OR coalesce({2}, '') = '', NULL,"
        " map_from_entries(transform(filter("
        f"split({{0}}, {LITERALLY}), e -> contains(e, {{2}})),"
        f" e -> struct({_PAIR}[0] AS k, {_PAIR}[1] AS v))))",
    ),
)

FUNCTIONS: Final = (*_NULLS, *_COLLECTIONS)
