"""Scalar functions of numbers: ksqlDB's semantics in Spark SQL.

Where Spark's function differs (ROUND, LN, TRUNC …), the template computes ksqlDB's result; the
comment at the row explains the difference.
"""

from __future__ import annotations

from typing import Final

from standpipe.sql.functions.cast import BLANKS
from standpipe.sql.functions.signature import ANY_DECIMAL, NUMBER, Function
from standpipe.sql.types.types import (
    BIGINT,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    SqlType,
)


def _same(types: tuple[SqlType, ...]) -> SqlType:
    return types[0]


def _rounded(types: tuple[SqlType, ...]) -> SqlType:
    """ROUND and TRUNC without a scale: BIGINT for a DOUBLE; a DECIMAL loses its scale."""
    first = types[0]
    if first.base == "DECIMAL":
        return SqlType("DECIMAL", max(first.precision - first.scale, 1), 0)
    return BIGINT if first.base == "DOUBLE" else first


#: units of GEO_DISTANCE, in any case; kilometres are the default
MILES: Final = ("mi", "mile", "miles")
KILOMETRES: Final = ("km", "kilometer", "kilometers", "kilometre", "kilometres")
_RADIANS: Final = "radians({2} - {0})", "radians({3} - {1})"
_HAVERSINE: Final = (
    f"(2.0D * asin(sqrt(power(sin({_RADIANS[0]} / 2.0D), 2) + cos(radians({{0}})) * "
    f"cos(radians({{2}})) * power(sin({_RADIANS[1]} / 2.0D), 2))))"
)
#: NULL for what is no latitude or longitude (ksqlDB: an error, which is NULL of a row)
_ON_EARTH: Final = "greatest(abs({0}), abs({2})) <= 90 AND greatest(abs({1}), abs({3})) <= 180"
_UNIT_NAME: Final = f"lower(btrim(coalesce({{4}}, ''), {BLANKS}))"
_RADIUS: Final = (
    f"(CASE WHEN {_UNIT_NAME} IN {MILES} THEN 3959.0D"
    f" WHEN {_UNIT_NAME} IN {('', *KILOMETRES)} THEN 6371.0D END)"
)


#: from 2^52 on, a DOUBLE has no fraction; Spark's CEIL and FLOOR make a BIGINT of it
_WHOLE_FROM: Final = "4503599627370496.0D"
#: half up rounds towards positive infinity: -1.5 becomes -1; Spark rounds half away from zero.
#: Spark's ROUND of a DOUBLE takes the shortest decimal that denotes it, as ksqlDB's does
_ROUNDED: Final = "round({0}, {1})"
_UNIT: Final = "power(10.0D, -({1}))"
_EXACT: Final = "cast({} AS DECIMAL(38, 18))"
_IS_HALF: Final = (
    f"{_EXACT.format('({0})')} - {_EXACT.format(_ROUNDED)} = {_EXACT.format(f'0.5D * {_UNIT}')}"
)
#: NaN, which Spark takes for the largest, and the infinities have no decimal: Java's BigDecimal
_IF_FINITE: Final = "if(abs({{0}}) < double('Infinity'), {}, NULL)"
_ROUNDED_TO: Final = _IF_FINITE.format(
    f"if({{0}} < 0 AND {_IS_HALF}, round({_ROUNDED} + {_UNIT}, {{1}}), {_ROUNDED})"
)
#: Java's Math.round: 0.49999999999999994 + 0.5 would be 1
_NEAREST: Final = (
    f"if(abs({{0}}) < {_WHOLE_FROM}, floor({{0}}) + if({{0}} - floor({{0}}) >= 0.5D, 1L, 0L),"
    " cast({0} AS BIGINT))"
)
#: the nearer of the two neighbours, and the upper one of two that are equally near
_HALF_UP: Final = (
    "if({0} - floor({0}, {1}) < ceil({0}, {1}) - {0}, floor({0}, {1}), ceil({0}, {1}))"
)
#: rounded, and one step back where that went away from zero
_CUT_TO: Final = _IF_FINITE.format(
    f"if(abs({_ROUNDED}) > abs({{0}}), round({_ROUNDED} - sign({{0}}) * {_UNIT}, {{1}}),"
    f" {_ROUNDED})"
)


def _real(name: str, template: str) -> Function:
    return Function(name, (NUMBER,), DOUBLE, template)


def _of_two(name: str, template: str) -> tuple[Function, ...]:
    """Of two whole numbers or two DOUBLEs; of both kinds is ambiguous (ksqlDB)."""
    return tuple(Function(name, (of, of), DOUBLE, template) for of in (INTEGER, BIGINT, DOUBLE))


#: what has an order; ksqlDB has a variant for each
_ORDERED: Final = (*(INTEGER, BIGINT, DOUBLE, ANY_DECIMAL, STRING, BYTES, DATE, TIME, TIMESTAMP),)


def _extreme(name: str) -> tuple[Function, ...]:
    template = f"{name.lower()}({{all}}, {{0}})"
    return tuple(Function(name, (of,), of, template, is_variadic=True) for of in _ORDERED)


FUNCTIONS: Final = (
    Function("ABS", (NUMBER,), NUMBER, "abs({0})"),
    *(
        row
        for name in ("CEIL", "FLOOR")
        for row in (
            Function(
                name,
                (DOUBLE,),
                DOUBLE,
                f"if(abs({{0}}) < {_WHOLE_FROM}, cast({name.lower()}({{0}}) AS DOUBLE), {{0}})",
            ),
            Function(name, (NUMBER,), _same, f"{name.lower()}({{0}})"),
        )
    ),
    Function("ROUND", (INTEGER,), BIGINT, "{0}"),
    Function("ROUND", (BIGINT,), BIGINT, "{0}"),
    Function("ROUND", (DOUBLE,), BIGINT, _NEAREST),
    Function("ROUND", (ANY_DECIMAL,), _rounded, "floor({0} + 0.5BD)"),
    Function("ROUND", (DOUBLE, INTEGER), DOUBLE, _ROUNDED_TO, literals=(1,)),
    Function("ROUND", (ANY_DECIMAL, INTEGER), _same, _HALF_UP, literals=(1,)),
    Function("TRUNC", (INTEGER,), BIGINT, "{0}"),
    Function("TRUNC", (BIGINT,), BIGINT, "{0}"),
    Function("TRUNC", (DOUBLE,), BIGINT, "cast({0} AS BIGINT)"),
    Function("TRUNC", (ANY_DECIMAL,), _rounded, "if({0} < 0, ceil({0}), floor({0}))"),
    Function("TRUNC", (DOUBLE, INTEGER), DOUBLE, _CUT_TO, literals=(1,)),
    Function(
        "TRUNC",
        (ANY_DECIMAL, INTEGER),
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
    *_of_two(
        "LOG",
        "(CASE WHEN {0} IS NULL OR {1} IS NULL THEN NULL"
        " WHEN {0} <= 0 OR {0} = 1 OR {1} < 0 THEN double('NaN')"
        " WHEN {1} = 0 THEN double('-Infinity') / ln({0}) ELSE ln({1}) / ln({0}) END)",
    ),
    _real("SQRT", "sqrt({0})"),
    _real("CBRT", "cbrt({0})"),
    *_of_two("POWER", "power({0}, {1})"),
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
    *_of_two("ATAN2", "atan2({0}, {1})"),
    *_extreme("GREATEST"),
    *_extreme("LEAST"),
    Function(
        "GEO_DISTANCE", (DOUBLE,) * 4, DOUBLE, f"if({_ON_EARTH}, {_HAVERSINE} * 6371.0D, NULL)"
    ),
    Function(
        "GEO_DISTANCE",
        (*(DOUBLE,) * 4, STRING),
        DOUBLE,
        f"if({_ON_EARTH}, {_HAVERSINE} * {_RADIUS}, NULL)",
    ),
)
