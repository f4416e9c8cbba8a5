"""Type conversion: which CASTs are allowed, how Spark does them, how Spark spells a type."""

from __future__ import annotations

from typing import Final

from standpipe.sql.syntax.ast import Position
from standpipe.sql.syntax.errors import nearest, refusal, unknown_name
from standpipe.sql.types import casts, types
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
        "BYTES",
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


def check_cast(source: SqlType, target: SqlType, at: Position | None, where: str = "") -> None:
    """Raises StatementError for a CAST that there is not. `where` begins its text."""
    if not castable(source, target):
        raise refusal(f"{where}Cast of {source} to {target} is not supported", at)


def convert(typed: Typed, target: SqlType) -> Typed:
    """The expression as `target`. Constants are converted now: ValueError if they do not fit."""
    if target in (typed.type, NULL):
        return typed
    if isinstance(typed, Constant):
        return Constant(target, casts.cast_value(typed.value, typed.type, target))
    return Operation(target, _cast(typed.type, target, "{0}"), (typed,))


#: a TIME as text, in the format of Java's LocalTime
TIME_TEXT: Final = (
    "date_format(timestamp_millis({0}), CASE WHEN {0} % 1000 <> 0"
    " THEN 'HH:mm:ss.SSS' WHEN {0} % 60000 <> 0 THEN 'HH:mm:ss' ELSE 'HH:mm' END)"
)
#: the blanks that Java's String.trim removes: all characters up to the blank
BLANKS: Final = "'" + "".join(f"\\u{code:04x}" for code in range(33)) + "'"
_TRIMMED: Final = f"btrim({{0}}, {BLANKS})"
_DIGITS: Final = "[0-9][0-9]?"
#: what `types.values.parse_timestamp` accepts; Spark's CAST accepts more, such as a time alone
_INSTANT: Final = (
    f"[0-9][0-9][0-9][0-9](-{_DIGITS}(-{_DIGITS}([T ]{_DIGITS}(:{_DIGITS}(:{_DIGITS}([.][0-9]+)?)?"
    ")?)?)?)?[ ]*(Z|[+-][0-9][0-9]:?[0-9][0-9])?"
)
_TIME: Final = f"{_DIGITS}:{_DIGITS}(:{_DIGITS}([.][0-9]+)?)?"


def _fitting(pattern: str, made: str) -> str:
    """NULL for text that does not have the form."""
    return f"if(regexp_like({_TRIMMED}, '^{pattern}$'), {made}, NULL)"


_FINITE: Final = "nullif(nullif({}, double('Infinity')), double('-Infinity'))"
#: Spark's CAST reads +01:00 and not +0100, and a zone only behind seconds
_WITH_COLON: Final = f"regexp_replace({_TRIMMED}, '([+-][0-9][0-9])([0-9][0-9])$', '$1:$2')"
_WITH_SECONDS: Final = (
    f"regexp_replace({_WITH_COLON}, '([T ]{_DIGITS}:{_DIGITS})([ ]*[Z+-].*)$', '$1:00$2')"
)
_AS_INSTANT: Final = _fitting(_INSTANT, f"cast({_WITH_SECONDS} AS TIMESTAMP)")
#: (from, to) -> template, where Spark's own CAST differs. TIME is the INT of its milliseconds
_CASTS: Final = {
    ("DATE", "TIMESTAMP"): (  # beyond Spark's range of instants: an error would end the query
        f"cast(if(unix_date({{0}}) BETWEEN -{types.DATE_DAYS_MAX} AND {types.DATE_DAYS_MAX}, {{0}},"
        " NULL) AS TIMESTAMP)"
    ),
    ("TIME", "TIME"): "{0}",
    ("TIME", "STRING"): TIME_TEXT,
    ("TIMESTAMP", "TIME"): "cast(pmod(unix_millis({0}), 86400000L) AS INT)",
    ("TIMESTAMP", "STRING"): f"date_format({{0}}, {ISO})",
    ("STRING", "BOOLEAN"): (f"(lower({_TRIMMED}) IN ({', '.join(map(repr, casts.TRUE_TEXTS))}))"),
    ("STRING", "INTEGER"): _fitting(casts.WHOLE, f"cast({_TRIMMED} AS INT)"),
    ("STRING", "BIGINT"): _fitting(casts.WHOLE, f"cast({_TRIMMED} AS BIGINT)"),
    ("STRING", "DOUBLE"): _fitting(
        f"{casts.REAL}[dDfF]?", _FINITE.format(f"cast({_TRIMMED} AS DOUBLE)")
    ),
    ("STRING", "BYTES"): _fitting("[A-Za-z0-9+/]*=?=?", f"try_to_binary({_TRIMMED}, 'base64')"),
    ("STRING", "TIMESTAMP"): _AS_INSTANT,
    ("STRING", "DATE"): (
        f"if(pmod(unix_millis({_AS_INSTANT}), 86400000L) = 0, cast({_AS_INSTANT} AS DATE), NULL)"
    ),
    ("STRING", "TIME"): _fitting(
        _TIME,
        f"cast(pmod(unix_millis(try_to_timestamp(concat('1970-01-01 ', {_TRIMMED}))), 86400000L)"
        " AS INT)",
    ),
}
#: BigDecimal.toString has an exponent below this, ksqlDB's text has none
_PLAIN_SCALE_MAX: Final = 6


def _cast(source: SqlType, target: SqlType, value: str) -> str:
    """Spark SQL of a conversion. `value`: what is converted, as SQL or a place in a template."""
    made = _CASTS.get((source.base, target.base))
    if made is not None:
        return made.replace("{0}", value)
    if target.base == "DECIMAL" and source.base == "STRING":
        made = _fitting(casts.REAL, f"cast({_TRIMMED} AS {target})")
        return made.replace("{0}", value)
    if target.base == "STRING" and source.base == "DECIMAL" and source.scale > _PLAIN_SCALE_MAX:
        return _decimal_text(source, value)
    if target.base == "STRING" and source.is_nested:
        return _java_text(source, value)
    if target.is_nested and source != target and _has_own(source, target):
        return _cast_nested(source, target, value)
    return f"cast({value} AS {spark_name(target)})"


def _has_own(source: SqlType, target: SqlType) -> bool:
    """Whether Spark's CAST differs for a part of a nested value."""
    if source.base == target.base == "STRUCT":
        return True
    if source.is_nested and source.base == target.base:
        return any(map(_has_own, source.arguments, target.arguments))
    return source != target and (
        (source.base, target.base) in _CASTS or "STRING" in (source.base, target.base)
    )


def _cast_nested(source: SqlType, target: SqlType, value: str) -> str:
    if source.base == "ARRAY":
        inner = _cast(source.arguments[0], target.arguments[0], "e")
        return f"transform({value}, e -> {inner})"
    if source.base == "MAP":
        key, item = (
            _cast(one, two, f"e.{part}")
            for one, two, part in zip(
                source.arguments, target.arguments, ("key", "value"), strict=True
            )
        )
        pair = f"struct({key} AS key, {item} AS value)"
        pairs = f"transform(map_entries({value}), e -> {pair})"
        if source.arguments[0] != target.arguments[0]:  # a null key would end the query
            pairs = f"filter({pairs}, e -> e.key IS NOT NULL)"
        return f"map_from_entries({pairs})"
    parts: list[str] = []
    for name, of in zip(target.field_names, target.arguments, strict=True):
        own = source.field(name)
        field = types.quoted(name).replace("{", "{{").replace("}", "}}")
        made = "NULL" if own is None else _cast(own, of, f"{value}.{field}")
        parts.append(f"cast({made} AS {spark_name(of)}) AS {field}")
    return f"if({value} IS NULL, NULL, struct({', '.join(parts)}))"


def _decimal_text(of: SqlType, value: str) -> str:
    """A DECIMAL without an exponent: its digits after the point, where all before are zeros."""
    digits = f"cast(cast(abs({value}) * 1{'0' * of.scale}BD AS DECIMAL(38, 0)) AS STRING)"
    small = f"concat(if({value} < 0, '-', ''), '0.', lpad({digits}, {of.scale}, '0'))"
    return f"if(abs({value}) < 0.000001BD, {small}, cast({value} AS STRING))"


def _java_text(of: SqlType, value: str) -> str:
    """Nested values as text, in Java's format: [1, 2], {a=1}, Struct{A=1}."""
    if of.base == "ARRAY":
        inner = _cast(of.arguments[0], types.STRING, "e")
        listed = f"concat_ws(', ', transform({value}, e -> coalesce({inner}, 'null')))"
        return f"if({value} IS NULL, NULL, concat('[', {listed}, ']'))"
    if of.base == "MAP":
        key, inner = (
            _cast(part, types.STRING, f"e.{n}")
            for part, n in zip(of.arguments, ("key", "value"), strict=True)
        )
        pair = f"concat({key}, '=', coalesce({inner}, 'null'))"
        listed = f"concat_ws(', ', transform(map_entries({value}), e -> {pair}))"
        return f"if({value} IS NULL, NULL, concat('{{{{', {listed}, '}}}}'))"
    parts: list[str] = []
    for name, part in zip(of.field_names, of.arguments, strict=True):
        field = types.quoted(name).replace("{", "{{").replace("}", "}}")
        shown = name.replace("{", "{{").replace("}", "}}").replace("\\", "").replace("'", "")
        inner = _cast(part, types.STRING, f"{value}.{field}")
        parts.append(f"concat('{shown}=', {inner})")
    listed = f"concat_ws(',', {', '.join(parts)})"
    return f"if({value} IS NULL, NULL, concat('Struct{{{{', {listed}, '}}}}'))"


#: types of other databases, and of old KSQL -> ours
_ELSEWHERE: Final = {
    **dict.fromkeys(("BLOB", "BINARY", "BYTEA", "VARBINARY"), "BYTES"),
    **dict.fromkeys(("FLOAT", "REAL"), "DOUBLE"),
    **dict.fromkeys(("SMALLINT", "TINYINT", "SERIAL"), "INTEGER"),
    **dict.fromkeys(("TEXT", "CHAR"), "STRING"),
    "BOOL": "BOOLEAN",
    "DATETIME": "TIMESTAMP",
    "LONG": "BIGINT",
    "NUMERIC": "DECIMAL",
}


def _hint(name: str) -> str:
    other = _ELSEWHERE.get(name.upper())
    return f"Did you mean {other}?" if other else nearest(name, types.NAMES)


def check_known(of: SqlType, at: Position) -> None:
    """Refuses an undeclared type name, a DECIMAL that Spark cannot hold, a STRUCT with two fields
    of one name, and a type that is nested too deeply."""
    if of.nesting > types.NESTING_MAX:
        raise refusal(types.TOO_DEEP, at)
    if of.base not in types.NAMES.values():
        raise unknown_name(
            f"Cannot resolve unknown type: {of.base}",
            at,
            _hint(of.base),
        )
    if of.base == "DECIMAL":
        _check_decimal(of, at)
    for number, name in enumerate(of.field_names):
        if name in (before := of.field_names[:number]):
            one, other = of.arguments[before.index(name)], of.arguments[number]
            raise refusal(
                "Duplicate field names found in STRUCT:"
                f" '{types.quoted(name)} {one}' and '{types.quoted(name)} {other}'",
                at,
            )
    for part in of.arguments:
        check_known(part, at)


def _check_decimal(of: SqlType, at: Position) -> None:
    """ksqlDB's texts (SqlDecimal); Spark holds no more than 38 digits."""
    digits = f"DECIMAL({of.precision},{of.scale})"
    if of.precision < 1:
        hint = "Write DECIMAL(precision, scale)."
        raise refusal(f"DECIMAL precision must be >= 1: {digits}", at, hint)
    if of.scale < 0:
        raise refusal(f"DECIMAL scale must be >= 0: {digits}", at)
    if of.scale > of.precision:
        raise refusal(f"DECIMAL precision must be >= scale: {digits}", at)
    if of.precision > types.PRECISION_MAX:
        raise refusal(f"DECIMAL precision must be <= {types.PRECISION_MAX}: {digits}", at)


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
