"""The functions that a statement may call: the allow-list of what reaches Spark.

A row says: name, types of the arguments, type of the result, Spark template. T, K and V stand for
any type (the same one wherever they occur), NUMBER for any number. An argument may be narrower than
its place (INTEGER where BIGINT is asked for): it is cast. A template has {0}, {1}… per argument and
{all} for all of them. The last type of a variadic row may be repeated.

ksqlDB's meaning wins over Spark's: see the notes at single rows (conformance surface, section d).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from standpipe.sql.refusals import nearest
from standpipe.sql.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    NULL,
    STRING,
    TIMESTAMP,
    SqlType,
    array,
    common_type,
    map_of,
    widens,
)

T: Final = SqlType("T")
K: Final = SqlType("K")
V: Final = SqlType("V")
NUMBER: Final = SqlType("NUMBER")
_VARIABLES: Final = frozenset({"T", "K", "V", "NUMBER"})

#: By the type of an argument: what the result is.
ResultRule = Callable[[tuple[SqlType, ...]], SqlType]


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    parameters: tuple[SqlType, ...]
    result: SqlType | ResultRule
    template: str
    is_aggregate: bool = False
    is_variadic: bool = False
    #: of an aggregate: may be computed over a table, whose rows are taken back (undo)
    on_tables: bool = True
    #: places of arguments that must be literals
    literals: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Resolved:
    """A function chosen for given arguments; `parameters` are the types to cast them to."""

    function: Function
    parameters: tuple[SqlType, ...]
    result: SqlType


class NoSuchFunction(Exception):
    """No function of this name; `hint` names the nearest."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Can't find any functions with the name '{name}'")
        self.hint = nearest(name, _BY_NAME)


class NotAccepted(Exception):
    """The function exists, but not for these types."""


def resolve(name: str, arguments: Sequence[SqlType]) -> Resolved:
    """The variant of `name` that takes the arguments with the fewest conversions.

    Raises NoSuchFunction or NotAccepted with ksqlDB's texts.
    """
    variants = _BY_NAME.get(name)
    if variants is None:
        raise NoSuchFunction(name)
    fits = [found for variant in variants if (found := _fit(variant, arguments)) is not None]
    if not fits:
        given = ", ".join("null" if each == NULL else str(each) for each in arguments)
        valid = "".join(f"\n{signature(variant)}" for variant in variants)
        raise NotAccepted(
            f"Function '{name.lower()}' does not accept parameters ({given})."
            f"\nValid alternatives are:{valid}"
        )
    return min(fits, key=lambda fit: sum(map(SqlType.__ne__, fit.parameters, arguments)))


def is_aggregate(name: str) -> bool:
    return any(variant.is_aggregate for variant in _BY_NAME.get(name, ()))


def names() -> tuple[str, ...]:
    return tuple(sorted(_BY_NAME))


def variants(name: str) -> tuple[Function, ...]:
    return _BY_NAME.get(name, ())


def signature(function: Function) -> str:
    """As DESCRIBE FUNCTION and messages print it: ``SUBSTRING(STRING, INTEGER)``."""
    parts = [str(parameter) for parameter in function.parameters]
    if function.is_variadic:
        parts[-1] += "..."
    return f"{function.name}({', '.join(parts)})"


def _fit(function: Function, arguments: Sequence[SqlType]) -> Resolved | None:
    parameters = function.parameters
    if function.is_variadic:
        if len(arguments) < len(parameters):
            return None
        parameters += (parameters[-1],) * (len(arguments) - len(parameters))
    if len(parameters) != len(arguments):
        return None
    bindings: dict[str, SqlType] = {}
    for parameter, argument in zip(parameters, arguments, strict=True):
        if not _bind(parameter, argument, bindings):
            return None
    bound = tuple(_bound(parameter, bindings) for parameter in parameters)
    result = function.result
    given = _bound(result, bindings) if isinstance(result, SqlType) else result(bound)
    return Resolved(function, bound, given)


def _bind(parameter: SqlType, argument: SqlType, bindings: dict[str, SqlType]) -> bool:
    """Whether the argument fits; notes in `bindings` what T, K, V and NUMBER stand for."""
    if parameter.base in _VARIABLES:
        if parameter.base == "NUMBER" and argument != NULL and not argument.is_numeric:
            return False
        known = bindings.get(parameter.base, NULL)
        common = common_type(known, argument)
        if common is None:
            return False
        bindings[parameter.base] = common
        return True
    if parameter.arguments and argument.base == parameter.base:
        pairs = zip(parameter.arguments, argument.arguments, strict=True)
        return all(_bind(one, two, bindings) for one, two in pairs)
    return argument == NULL or widens(argument, parameter)


def _bound(parameter: SqlType, bindings: dict[str, SqlType]) -> SqlType:
    if parameter.base in _VARIABLES:
        return bindings.get(parameter.base, NULL)
    if parameter.arguments and not parameter.field_names:
        inner = tuple(_bound(part, bindings) for part in parameter.arguments)
        return SqlType(parameter.base, arguments=inner)
    return parameter


def _whole(types: tuple[SqlType, ...]) -> SqlType:
    """FLOOR and CEIL keep the type; a DECIMAL loses its scale."""
    first = types[0]
    return SqlType("DECIMAL", first.precision, 0) if first.base == "DECIMAL" else first


#: Java's String.trim: everything up to and including the blank; Spark's trim knows the blank only
_BLANKS: Final = "' \\t\\n\\r\\f\\u000b'"

_SCALAR: Final = (
    # -- numbers
    Function("ABS", (NUMBER,), NUMBER, "abs({0})"),
    Function("CEIL", (NUMBER,), _whole, "ceil({0})"),
    Function("FLOOR", (NUMBER,), _whole, "floor({0})"),
    Function("ROUND", (INTEGER,), INTEGER, "{0}"),
    Function("ROUND", (BIGINT,), BIGINT, "{0}"),
    Function("ROUND", (DOUBLE,), BIGINT, "floor({0} + 0.5D)"),  # half up, as Java's Math.round
    Function("ROUND", (DOUBLE, INTEGER), DOUBLE, "round({0}, {1})"),
    Function("EXP", (DOUBLE,), DOUBLE, "exp({0})"),
    Function("LN", (DOUBLE,), DOUBLE, "ln({0})"),
    Function("SQRT", (DOUBLE,), DOUBLE, "sqrt({0})"),
    Function("POWER", (DOUBLE, DOUBLE), DOUBLE, "power({0}, {1})"),
    Function("SIGN", (NUMBER,), INTEGER, "sign({0})"),
    Function("GREATEST", (T,), T, "greatest({all}, {0})", is_variadic=True),
    Function("LEAST", (T,), T, "least({all}, {0})", is_variadic=True),
    # -- text
    Function(
        "CONCAT", (STRING, STRING), STRING, "concat_ws('', {all})", is_variadic=True
    ),  # skips null
    Function("CONCAT_WS", (STRING, STRING), STRING, "concat_ws({all})", is_variadic=True),
    Function("INITCAP", (STRING,), STRING, "initcap({0})"),
    Function("INSTR", (STRING, STRING), INTEGER, "instr({0}, {1})"),
    Function("LCASE", (STRING,), STRING, "lower({0})"),
    Function("LEN", (STRING,), INTEGER, "length({0})"),
    Function("LPAD", (STRING, INTEGER, STRING), STRING, "lpad({0}, {1}, {2})"),
    Function("REPLACE", (STRING, STRING, STRING), STRING, "replace({0}, {1}, {2})"),
    Function("RPAD", (STRING, INTEGER, STRING), STRING, "rpad({0}, {1}, {2})"),
    Function("SUBSTRING", (STRING, INTEGER), STRING, "substring({0}, {1})"),
    Function("SUBSTRING", (STRING, INTEGER, INTEGER), STRING, "substring({0}, {1}, {2})"),
    Function("TRIM", (STRING,), STRING, f"btrim({{0}}, {_BLANKS})"),
    Function("UCASE", (STRING,), STRING, "upper({0})"),
    # -- nulls
    Function("AS_VALUE", (T,), T, "{0}"),
    Function("COALESCE", (T,), T, "coalesce({all})", is_variadic=True),
    Function("IFNULL", (T, T), T, "ifnull({0}, {1})"),
    Function("NULLIF", (T, T), T, "nullif({0}, {1})"),
    # -- collections
    Function("ARRAY_CONTAINS", (array(T), T), BOOLEAN, "array_contains({0}, {1})"),
    Function("ARRAY_LENGTH", (array(T),), INTEGER, "size({0})"),
    Function("MAP_KEYS", (map_of(K, V),), array(K), "map_keys({0})"),
    Function("MAP_VALUES", (map_of(K, V),), array(V), "map_values({0})"),
    # -- time
    Function("FROM_UNIXTIME", (BIGINT,), TIMESTAMP, "timestamp_millis({0})"),
    Function("UNIX_TIMESTAMP", (TIMESTAMP,), BIGINT, "unix_millis({0})"),
    Function("UNIX_DATE", (DATE,), INTEGER, "unix_date({0})"),
)


def _sum_type(types: tuple[SqlType, ...]) -> SqlType:
    return types[0]


def _latest(order: str) -> tuple[Function, ...]:
    """LATEST_BY_OFFSET or EARLIEST_BY_OFFSET: `order` is max_by or min_by over arrival order.

    A row whose value is null has no order, so it loses to all that have one: ksqlDB's ignoreNulls.
    """
    name = "LATEST_BY_OFFSET" if order == "max_by" else "EARLIEST_BY_OFFSET"
    skipping = f"{order}({{0}}, if({{0}} IS NULL, NULL, `__ORDER`))"
    asked = f"{order}({{0}}, if({{1}} AND {{0}} IS NULL, NULL, `__ORDER`))"
    return (
        Function(name, (T,), T, skipping, is_aggregate=True, on_tables=False),
        Function(name, (T, BOOLEAN), T, asked, is_aggregate=True, on_tables=False, literals=(1,)),
    )


_AGGREGATE: Final = (
    Function("COUNT", (), BIGINT, "count(1)", is_aggregate=True),
    Function("COUNT", (T,), BIGINT, "count({0})", is_aggregate=True),
    Function("SUM", (NUMBER,), _sum_type, "coalesce(sum({0}), 0)", is_aggregate=True),
    Function("AVG", (DOUBLE,), DOUBLE, "coalesce(avg({0}), 0.0D)", is_aggregate=True),
    Function("MIN", (T,), T, "min({0})", is_aggregate=True, on_tables=False),
    Function("MAX", (T,), T, "max({0})", is_aggregate=True, on_tables=False),
    *_latest("max_by"),
    *_latest("min_by"),
)


def _grouped(functions: Sequence[Function]) -> dict[str, tuple[Function, ...]]:
    grouped: dict[str, tuple[Function, ...]] = {}
    for function in functions:
        grouped[function.name] = (*grouped.get(function.name, ()), function)
    return grouped


_BY_NAME: Final = _grouped((*_SCALAR, *_AGGREGATE))
