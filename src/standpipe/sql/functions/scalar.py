"""Scalar functions of numbers, text, nulls and collections: ksqlDB's meaning in Spark's words.

ksqlDB's meaning wins over Spark's: see the notes at single rows (ksqlDB's function reference).
Functions of time, JSON, URLs and bytes are in `time_json_url.py`.
"""

from __future__ import annotations

from typing import Final

from standpipe.sql.functions.signature import NUMBER, Function, K, T, V
from standpipe.sql.functions.time_json_url import MORE_SCALARS
from standpipe.sql.types.typed_expression import EXPLODE
from standpipe.sql.types.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DOUBLE,
    INTEGER,
    STRING,
    SqlType,
    array,
    map_of,
    struct,
)


def _whole(types: tuple[SqlType, ...]) -> SqlType:
    """FLOOR and CEIL keep the type; a DECIMAL loses its scale."""
    first = types[0]
    return SqlType("DECIMAL", first.precision, 0) if first.base == "DECIMAL" else first


def _same(types: tuple[SqlType, ...]) -> SqlType:
    return types[0]


def _rounded(types: tuple[SqlType, ...]) -> SqlType:
    """ROUND and TRUNC without a scale: BIGINT of a DOUBLE, DECIMAL without its scale."""
    first = types[0]
    if first.base == "DECIMAL":
        return SqlType("DECIMAL", max(first.precision - first.scale, 1), 0)
    return BIGINT if first.base == "DOUBLE" else first


#: Java's String.trim: everything up to and including the blank; Spark's trim knows the blank only
_BLANKS: Final = "' \\t\\n\\r\\f\\u000b'"
_POW: Final = "power(10.0D, {1})"
_RADIANS: Final = "radians({2} - {0})", "radians({3} - {1})"
_HAVERSINE: Final = (
    f"(2.0D * asin(sqrt(power(sin({_RADIANS[0]} / 2.0D), 2) + cos(radians({{0}})) * "
    f"cos(radians({{2}})) * power(sin({_RADIANS[1]} / 2.0D), 2))))"
)
_RADIUS: Final = "if(lower({4}) LIKE 'mi%', 3959.0D, 6371.0D)"


#: half up is towards positive: -1.5 becomes -1; Spark's round goes away from zero
_EXACT: Final = "cast({} AS DECIMAL(38, 18))"
_UNIT: Final = "power(10.0D, -({1}))"
_ROUNDED_TO: Final = (
    "if({0} >= 0, round({0}, {1}), 0.0D - if("
    f"{_EXACT.format('round(-({0}), {1})')} + {_EXACT.format('({0})')}"
    f" = {_EXACT.format(f'0.5D * {_UNIT}')},"
    f" round(round(-({{0}}), {{1}}) - {_UNIT}, {{1}}), round(-({{0}}), {{1}})))"
)


def _real(name: str, template: str) -> Function:
    return Function(name, (DOUBLE,), DOUBLE, template)


_NUMBERS: Final = (
    Function("ABS", (NUMBER,), NUMBER, "abs({0})"),
    Function("CEIL", (NUMBER,), _whole, "ceil({0})"),
    Function("FLOOR", (NUMBER,), _whole, "floor({0})"),
    Function("ROUND", (INTEGER,), INTEGER, "{0}"),
    Function("ROUND", (BIGINT,), BIGINT, "{0}"),
    Function("ROUND", (DOUBLE,), BIGINT, "floor({0} + 0.5D)"),  # half up, as Java's Math.round
    Function("ROUND", (NUMBER,), _rounded, "floor({0} + 0.5BD)"),
    Function("ROUND", (DOUBLE, INTEGER), DOUBLE, _ROUNDED_TO),
    Function("ROUND", (NUMBER, INTEGER), _same, "round({0}, {1})", literals=(1,)),
    Function("TRUNC", (INTEGER,), INTEGER, "{0}"),
    Function("TRUNC", (BIGINT,), BIGINT, "{0}"),
    Function("TRUNC", (DOUBLE,), BIGINT, "cast({0} AS BIGINT)"),
    Function("TRUNC", (NUMBER,), _rounded, "if({0} < 0, ceil({0}), floor({0}))"),
    Function(
        "TRUNC",
        (DOUBLE, INTEGER),
        DOUBLE,
        f"(if({{0}} < 0, ceil({{0}} * {_POW}), floor({{0}} * {_POW})) / {_POW})",
    ),
    Function(
        "TRUNC",
        (NUMBER, INTEGER),
        _same,
        "if({0} < 0, ceil({0}, {1}), floor({0}, {1}))",
        literals=(1,),
    ),
    _real("EXP", "exp({0})"),
    _real(
        "LN",
        "(CASE WHEN {0} = 0 THEN double('-Infinity') WHEN {0} < 0 THEN double('NaN')"
        " ELSE ln({0}) END)",
    ),
    _real(
        "LOG",
        "(CASE WHEN {0} = 0 THEN double('-Infinity') WHEN {0} < 0 THEN double('NaN')"
        " ELSE ln({0}) END)",
    ),
    Function(
        "LOG",
        (DOUBLE, DOUBLE),
        DOUBLE,
        "(CASE WHEN {0} IS NULL OR {1} IS NULL THEN NULL"
        " WHEN {0} <= 0 OR {0} = 1 OR {1} < 0 THEN double('NaN')"
        " WHEN {1} = 0 THEN double('-Infinity') ELSE ln({1}) / ln({0}) END)",
    ),
    _real("SQRT", "sqrt({0})"),
    _real("CBRT", "cbrt({0})"),
    Function("POWER", (DOUBLE, DOUBLE), DOUBLE, "power({0}, {1})"),
    Function("PI", (), DOUBLE, "pi()"),
    Function("RANDOM", (), DOUBLE, "rand()"),
    Function("SIGN", (NUMBER,), INTEGER, "sign({0})"),
    *(
        _real(name, f"{name.lower()}({{0}})")
        for name in (
            *("SIN", "COS", "TAN", "ASIN", "ACOS", "ATAN", "SINH", "COSH", "TANH", "COT"),
            *("DEGREES", "RADIANS"),
        )
    ),
    Function("ATAN2", (DOUBLE, DOUBLE), DOUBLE, "atan2({0}, {1})"),
    Function("GREATEST", (T,), T, "greatest({all}, {0})", is_variadic=True),
    Function("LEAST", (T,), T, "least({all}, {0})", is_variadic=True),
    Function("GEO_DISTANCE", (DOUBLE,) * 4, DOUBLE, f"({_HAVERSINE} * 6371.0D)"),
    Function("GEO_DISTANCE", (*(DOUBLE,) * 4, STRING), DOUBLE, f"({_HAVERSINE} * {_RADIUS})"),
)

#: a text as a regular expression that matches just it
_LITERALLY: Final = "concat('\\\\Q', {1}, '\\\\E')"
_PAIR: Final = "split(e, concat('\\\\Q', {2}, '\\\\E'))"
#: as text of which each character is a byte
_SPLIT_BYTES: Final = (
    "transform(if(octet_length({1}) = 0, split(decode({0}, 'ISO-8859-1'), ''),"
    " split(decode({0}, 'ISO-8859-1'), concat('\\\\Q', decode({1}, 'ISO-8859-1'), '\\\\E'), -1)),"
    " e -> encode(e, 'ISO-8859-1'))"
)
_MASKED: Final = "mask({text}, 'X', 'x', 'n', '-')"


def _mask(template: str) -> str:
    return _MASKED.replace("{text}", template)


_PLACES: Final = (
    "filter(sequence(1, greatest(1, length({0}))), i -> substring({0}, i, length({1})) = {1})"
)
#: the n-th place of a text from a position on; from the end where that is negative
_NTH_PLACE: Final = (
    f"coalesce(try_element_at(if({{2}} >= 0, filter({_PLACES}, i -> i >= {{2}}),"
    f" reverse(filter({_PLACES}, i -> i <= length({{0}}) + {{2}} + 1))), greatest(1, {{3}})), 0)"
)

_TEXT: Final = (
    Function(
        "CHR",
        (INTEGER,),
        STRING,
        "if({0} BETWEEN 0 AND 1114111, decode(unhex(lpad(hex({0}), 8, '0')), 'UTF-32'), NULL)",
    ),
    Function(
        "CHR",
        (STRING,),
        STRING,
        # \\u0041, also pairs of them: as JSON spells a character
        "if(regexp_like({0}, '^(\\\\\\\\u[0-9a-fA-F]{{4}})+$'),"
        " from_json(concat('{{\"v\":\"', {0}, '\"}}'), 'v STRING').v, NULL)",
    ),
    Function("CONCAT", (STRING, STRING), STRING, "concat_ws('', {all})", is_variadic=True),
    Function("CONCAT", (BYTES, BYTES), BYTES, "concat({all})", is_variadic=True),
    Function("CONCAT_WS", (STRING, STRING), STRING, "concat_ws({all})", is_variadic=True),
    Function(
        "CONCAT_WS",
        (BYTES, BYTES),
        BYTES,
        "if({0} IS NULL, NULL, coalesce(aggregate(filter(slice(array({all}), 2, 10000),"
        " e -> e IS NOT NULL), cast(NULL AS BINARY), (s, e) -> if(s IS NULL, e,"
        " concat(s, {0}, e))), X''))",
        is_variadic=True,
    ),
    Function(
        "ELT",
        (INTEGER, STRING),
        STRING,
        "if({0} < 1, NULL, try_element_at(array({all}), {0} + 1))",
        is_variadic=True,
    ),
    Function(
        "FIELD",
        (STRING, STRING),
        INTEGER,
        "coalesce(array_position(slice(array({all}), 2, 10000), {0}), 0)",
        is_variadic=True,
    ),
    Function("INITCAP", (STRING,), STRING, "initcap({0})"),
    Function("INSTR", (STRING, STRING), INTEGER, "instr({0}, {1})"),
    Function("INSTR", (STRING, STRING, INTEGER), INTEGER, "locate({1}, {0}, {2})"),
    Function("INSTR", (STRING, STRING, INTEGER, INTEGER), INTEGER, _NTH_PLACE),
    Function("LCASE", (STRING,), STRING, "lower({0})"),
    Function("LEN", (STRING,), INTEGER, "length({0})"),
    Function("LEN", (BYTES,), INTEGER, "octet_length({0})"),
    *(
        Function(
            name,
            (of, INTEGER, of),
            of,
            f"if({{1}} < 0 OR length({{2}}) = 0, NULL, {name.lower()}({{0}}, {{1}}, {{2}}))",
        )
        for name in ("LPAD", "RPAD")
        for of in (STRING, BYTES)
    ),
    Function("MASK", (STRING,), STRING, _mask("{0}")),
    Function(
        "MASK_LEFT",
        (STRING, INTEGER),
        STRING,
        f"concat({_mask('left({0}, {1})')}, substring({{0}}, {{1}} + 1))",
    ),
    Function(
        "MASK_RIGHT",
        (STRING, INTEGER),
        STRING,
        "concat(left({0}, greatest(0, length({0}) - {1})), " + _mask("right({0}, {1})") + ")",
    ),
    Function(
        "MASK_KEEP_LEFT",
        (STRING, INTEGER),
        STRING,
        f"concat(left({{0}}, {{1}}), {_mask('substring({0}, {1} + 1)')})",
    ),
    Function(
        "MASK_KEEP_RIGHT",
        (STRING, INTEGER),
        STRING,
        "concat(" + _mask("left({0}, greatest(0, length({0}) - {1}))") + ", right({0}, {1}))",
    ),
    Function("MD5", (STRING,), STRING, "md5({0})"),
    Function(
        "REGEXP_EXTRACT",
        (STRING, STRING),
        STRING,
        "if(regexp_like({1}, {0}), regexp_extract({1}, {0}, 0), NULL)",
    ),
    Function(
        "REGEXP_EXTRACT",
        (STRING, STRING, INTEGER),
        STRING,
        "if(regexp_like({1}, {0}), regexp_extract({1}, {0}, {2}), NULL)",
    ),
    Function(
        "REGEXP_EXTRACT_ALL", (STRING, STRING), array(STRING), "regexp_extract_all({1}, {0}, 0)"
    ),
    Function(
        "REGEXP_EXTRACT_ALL",
        (STRING, STRING, INTEGER),
        array(STRING),
        "regexp_extract_all({1}, {0}, {2})",
    ),
    Function("REGEXP_REPLACE", (STRING,) * 3, STRING, "regexp_replace({0}, {1}, {2})"),
    Function("REGEXP_SPLIT_TO_ARRAY", (STRING, STRING), array(STRING), "split({0}, {1}, -1)"),
    Function("REPLACE", (STRING, STRING, STRING), STRING, "replace({0}, {1}, {2})"),
    Function(
        "SPLIT",
        (STRING, STRING),
        array(STRING),
        f"if({{1}} = '', split({{0}}, ''), split({{0}}, {_LITERALLY}, -1))",
    ),
    Function("SPLIT", (BYTES, BYTES), array(BYTES), _SPLIT_BYTES),
    Function("SUBSTRING", (STRING, INTEGER), STRING, "substring({0}, {1})"),
    Function("SUBSTRING", (STRING, INTEGER, INTEGER), STRING, "substring({0}, {1}, {2})"),
    Function("SUBSTRING", (BYTES, INTEGER), BYTES, "substring({0}, {1})"),
    Function("SUBSTRING", (BYTES, INTEGER, INTEGER), BYTES, "substring({0}, {1}, {2})"),
    Function("TRIM", (STRING,), STRING, f"btrim({{0}}, {_BLANKS})"),
    Function("UCASE", (STRING,), STRING, "upper({0})"),
    Function("UUID", (), STRING, "uuid()"),
)

_NULLS: Final = (
    Function("AS_VALUE", (T,), T, "{0}"),
    Function("COALESCE", (T,), T, "coalesce({all})", is_variadic=True),
    Function("IFNULL", (T, T), T, "ifnull({0}, {1})"),
    Function("NULLIF", (T, T), T, "nullif({0}, {1})"),
)

_JOINED: Final = "transform({0}, e -> cast(e AS STRING))"


def _entries(types: tuple[SqlType, ...]) -> SqlType:
    key, value = types[0].arguments
    return array(struct((("K", key), ("V", value))))


_ENTRIES: Final = "transform(map_entries({0}), e -> named_struct('K', e.key, 'V', e.value))"

#: every choice of elements, the others null; a null is no choice
_CUBE: Final = (
    "aggregate({0}, array(slice({0}, 1, 0)), (s, e) -> flatten(transform(s, p -> if(e IS NULL,"
    " array(concat(p, array(e))), array(concat(p, array(nullif(e, e))), concat(p, array(e)))))))"
)

_COLLECTIONS: Final = (
    Function("EXPLODE", (array(T),), T, EXPLODE),
    Function("CUBE_EXPLODE", (array(T),), array(T), EXPLODE, inner=_CUBE),
    Function(
        "ARRAY_CONCAT",
        (array(T), array(T)),
        array(T),
        "if({0} IS NULL AND {1} IS NULL, NULL,"
        " concat(coalesce({0}, array()), coalesce({1}, array())))",
    ),
    Function("ARRAY_CONTAINS", (array(T), T), BOOLEAN, "exists({0}, e -> e <=> {1})"),
    Function("ARRAY_DISTINCT", (array(T),), array(T), "array_distinct({0})"),
    Function("ARRAY_EXCEPT", (array(T), array(T)), array(T), "array_except({0}, {1})"),
    Function("ARRAY_INTERSECT", (array(T), array(T)), array(T), "array_intersect({0}, {1})"),
    Function("ARRAY_JOIN", (array(T),), STRING, f"array_join({_JOINED}, ',', 'null')"),
    Function("ARRAY_JOIN", (array(T), STRING), STRING, f"array_join({_JOINED}, {{1}}, 'null')"),
    Function("ARRAY_LENGTH", (array(T),), INTEGER, "array_size({0})"),
    Function("ARRAY_MAX", (array(T),), T, "array_max({0})"),
    Function("ARRAY_MIN", (array(T),), T, "array_min({0})"),
    Function("ARRAY_REMOVE", (array(T), T), array(T), "filter({0}, e -> NOT (e <=> {1}))"),
    Function("ARRAY_SORT", (array(T),), array(T), "array_sort({0})"),
    Function(
        "ARRAY_SORT",
        (array(T), STRING),
        array(T),
        "if(upper({1}) LIKE 'DESC%', sort_array({0}, false), array_sort({0}))",
    ),
    Function("ARRAY_UNION", (array(T), array(T)), array(T), "array_union({0}, {1})"),
    Function("AS_MAP", (array(K), array(V)), map_of(K, V), "map_from_arrays({0}, {1})"),
    Function(
        "ENTRIES",
        (map_of(K, V), BOOLEAN),
        _entries,
        f"if({{1}}, array_sort({_ENTRIES}), {_ENTRIES})",
    ),
    Function("GENERATE_SERIES", (INTEGER, INTEGER), array(INTEGER), "sequence({0}, {1})"),
    Function(
        "GENERATE_SERIES", (INTEGER, INTEGER, INTEGER), array(INTEGER), "sequence({0}, {1}, {2})"
    ),
    Function("GENERATE_SERIES", (BIGINT, BIGINT), array(BIGINT), "sequence({0}, {1})"),
    Function(
        "GENERATE_SERIES",
        (BIGINT, BIGINT, INTEGER),
        array(BIGINT),
        "sequence({0}, {1}, cast({2} AS BIGINT))",
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
        "slice({0}, greatest(1, coalesce({1}, 1)),"
        " greatest(0, coalesce({2}, array_size({0})) - greatest(1, coalesce({1}, 1)) + 1))",
    ),
    Function(
        "SPLIT_TO_MAP",
        (STRING, STRING, STRING),
        map_of(STRING, STRING),
        "if(coalesce({1}, '') = '' OR coalesce({2}, '') = '', NULL,"
        " map_from_entries(transform(filter("
        f"split({{0}}, {_LITERALLY}), e -> contains(e, {{2}})),"
        f" e -> struct({_PAIR}[0] AS k, {_PAIR}[1] AS v))))",
    ),
)

SCALARS: Final = (*_NUMBERS, *_TEXT, *_NULLS, *_COLLECTIONS, *MORE_SCALARS)
