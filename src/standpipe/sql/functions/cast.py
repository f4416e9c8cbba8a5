"""Type conversion: which CASTs are allowed, how Spark does them, how Spark spells a type."""

from __future__ import annotations

from typing import Final

from standpipe.sql.syntax.ast import Position
from standpipe.sql.syntax.errors import nearest, refusal, unknown_name
from standpipe.sql.types import types, values
from standpipe.sql.types.typed_expression import Constant, Operation, Typed
from standpipe.sql.types.types import NULL, SqlType

#: What CAST can convert, by base type; ARRAY, MAP and STRUCT convert to their own kind, by parts.
_CASTABLE: Final = {
    "BOOLEAN": {"BOOLEAN", "STRING"},
    "INTEGER": {"INTEGER", "BIGINT", "DECIMAL", "DOUBLE", "STRING"},
    "BIGINT": {"INTEGER", "BIGINT", "DECIMAL", "DOUBLE", "STRING"},
    "DECIMAL": {"INTEGER", "BIGINT", "DECIMAL", "DOUBLE", "STRING"},
    "DOUBLE": {"INTEGER", "BIGINT", "DECIMAL", "DOUBLE", "STRING"},
    "STRING": {
        "BOOLEAN", "INTEGER", "BIGINT", "DECIMAL", "DOUBLE", "STRING", "DATE", "TIME", "TIMESTAMP",
    },
    "BYTES": {"BYTES"},
    "DATE": {"DATE", "TIMESTAMP", "STRING"},
    "TIME": {"TIME", "STRING"},
    "TIMESTAMP": {"DATE", "TIME", "TIMESTAMP", "STRING"},
}  # fmt: skip


#: how ksqlDB shows a TIMESTAMP as text
ISO: Final = "'yyyy-MM-dd\\'T\\'HH:mm:ss.SSS'"


def castable(source: SqlType, target: SqlType) -> bool:
    """Whether CAST may convert `source` to `target`; nested types are checked by their parts."""
    if source == NULL or (source.is_nested and target.base == "STRING"):
        return True
    if source.is_nested and source.base == target.base:
        if source.base == "STRUCT":
            return all(
                castable(part, of)
                for name, part in zip(source.field_names, source.arguments, strict=True)
                if (of := target.field(name)) is not None
            )
        return all(map(castable, source.arguments, target.arguments))
    return target.base in _CASTABLE.get(source.base, ())


def convert(typed: Typed, target: SqlType) -> Typed:
    """The expression as `target`. Constants are converted now: ValueError if they do not fit."""
    if target in (typed.type, NULL):
        return typed
    if isinstance(typed, Constant):
        return Constant(target, values.cast_value(typed.value, typed.type, target))
    if "TIME" in (typed.type.base, target.base):  # Spark sees the INT of its milliseconds
        return Operation(target, _TIME_CASTS[typed.type.base, target.base], (typed,))
    if target.base == "STRING" and typed.type.base == "TIMESTAMP":
        return Operation(target, f"date_format({{0}}, {ISO})", (typed,))
    if target.base == "STRING" and typed.type.is_nested:
        return Operation(target, _java_text(typed.type, "{0}"), (typed,))
    return Operation(target, f"cast({{0}} AS {spark_name(target)})", (typed,))


#: a TIME as text, in the format of Java's LocalTime
TIME_TEXT: Final = (
    "date_format(timestamp_millis({0}), CASE WHEN {0} % 1000 <> 0"
    " THEN 'HH:mm:ss.SSS' WHEN {0} % 60000 <> 0 THEN 'HH:mm:ss' ELSE 'HH:mm' END)"
)
#: (from, to) -> template: TIME is the INT of its milliseconds, and its text is Java's LocalTime's
_TIME_CASTS: Final = {
    ("TIME", "TIME"): "{0}",
    ("TIME", "STRING"): TIME_TEXT,
    ("STRING", "TIME"): "cast(pmod(unix_millis(try_to_timestamp(concat('1970-01-01 ', {0}))),"
    " 86400000L) AS INT)",
    ("TIMESTAMP", "TIME"): "cast(pmod(unix_millis({0}), 86400000L) AS INT)",
}


def _java_text(of: SqlType, value: str) -> str:
    """Nested values as text, in Java's format: [1, 2], {a=1}, Struct{A=1}."""
    if of.base == "ARRAY":
        inner = _java_text(of.arguments[0], "e")
        listed = f"concat_ws(', ', transform({value}, e -> coalesce({inner}, 'null')))"
        return f"if({value} IS NULL, NULL, concat('[', {listed}, ']'))"
    if of.base == "MAP":
        key, inner = (
            _java_text(part, f"e.{n}")
            for part, n in zip(of.arguments, ("key", "value"), strict=True)
        )
        pair = f"concat({key}, '=', coalesce({inner}, 'null'))"
        listed = f"concat_ws(', ', transform(map_entries({value}), e -> {pair}))"
        return f"if({value} IS NULL, NULL, concat('{{{{', {listed}, '}}}}'))"
    if of.base == "STRUCT":
        parts: list[str] = []
        for name, part in zip(of.field_names, of.arguments, strict=True):
            field = types.quoted(name).replace("{", "{{").replace("}", "}}")
            shown = name.replace("{", "{{").replace("}", "}}").replace("\\", "").replace("'", "")
            parts.append(f"concat('{shown}=', {_java_text(part, f'{value}.{field}')})")
        listed = f"concat_ws(',', {', '.join(parts)})"
        return f"if({value} IS NULL, NULL, concat('Struct{{{{', {listed}, '}}}}'))"
    return f"cast({value} AS STRING)"


def check_known(of: SqlType, at: Position) -> None:
    """Refuses an undeclared type name, and a DECIMAL that Spark cannot hold."""
    if of.base not in types.NAMES.values():
        raise unknown_name(
            f"Cannot resolve unknown type: {of.base}",
            at,
            nearest(of.base, types.NAMES),
        )
    if of.base == "DECIMAL" and not (
        1 <= of.precision <= types.PRECISION_MAX and 0 <= of.scale <= of.precision
    ):
        raise refusal(f"{of}: precision must be 1..{types.PRECISION_MAX}, scale 0..precision.", at)
    for part in of.arguments:
        check_known(part, at)


def spark_name(of: SqlType) -> str:
    """Spark's spelling of a type. TIME is the INT of its milliseconds."""
    simple = {"INTEGER": "INT", "BYTES": "BINARY", "TIME": "INT"}
    if of.base == "STRUCT":
        pairs = zip(of.field_names, of.arguments, strict=True)
        return f"STRUCT<{', '.join(f'{types.quoted(name)}: {spark_name(t)}' for name, t in pairs)}>"
    if of.arguments:
        return f"{of.base}<{', '.join(map(spark_name, of.arguments))}>"
    return simple.get(of.base, str(of))


def comparable(typed: Typed) -> Typed:
    """The value in a form that Spark can compare: a MAP becomes text with sorted keys."""
    if not typed.type.contains("MAP"):
        return typed
    return Operation(types.STRING, canonical(typed.type, "{0}"), (typed,))


_TEXT: Final = "to_json({}, map('ignoreNullFields', 'false'))"


def canonical(of: SqlType, value: str) -> str:
    """Text that is the same for equal values, and for no others."""
    if of.base == "MAP":
        inner = "e.value"
        if of.arguments[1].contains("MAP"):
            inner = canonical(of.arguments[1], "e.value")
        entries = f"transform(map_entries({value}), e -> struct(e.key AS k, {inner} AS v))"
        order = "(l, r) -> CASE WHEN l.k < r.k THEN -1 WHEN l.k > r.k THEN 1 ELSE 0 END"
        return _TEXT.format(f"array_sort({entries}, {order})")
    if of.base == "ARRAY":
        inner = canonical(of.arguments[0], "x") if of.arguments[0].contains("MAP") else "x"
        return _TEXT.format(f"transform({value}, x -> {inner})")
    return _TEXT.format(value)
