"""The functions that a statement may call: the allow-list of what reaches Spark.

A variant that accepts the arguments as they are is preferred. Otherwise an argument may be narrower
than its parameter (INTEGER where BIGINT is expected), or text where a time or BYTES is expected: it
is cast. What a variable like T stands for is never cast. The rows are in the modules beside this
one, by subject; `signature.py` defines a row. Source: ksqlDB's UdfIndex and GenericsUtil.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from standpipe.sql.functions import aggregate, binary, json_text, nested, numeric, text, times
from standpipe.sql.functions.signature import ANY, ANY_DECIMAL, NUMBER, VARIABLES, Function
from standpipe.sql.syntax.errors import nearest
from standpipe.sql.types.typed_expression import EXPLODE
from standpipe.sql.types.types import (
    FROM_TEXT,
    NULL,
    STRING,
    SqlType,
    as_decimal,
    common_type,
    widens,
)


@dataclass(frozen=True, slots=True)
class Resolved:
    """The function chosen for some arguments; `parameters` are the types to cast them to."""

    function: Function
    parameters: tuple[SqlType, ...]
    result: SqlType


#: ksqlDB's messages have function names in lower case, except these: what it built first
_UPPER: Final = frozenset(
    {
        *("COALESCE", "COUNT", "EARLIEST_BY_OFFSET", "LATEST_BY_OFFSET", "MAX", "MIN", "SUM"),
        *("TOPK", "TOPKDISTINCT"),
    }
)
#: how ksqlDB ends a message about arguments (UdfIndex)
DETAILS: Final = "For detailed information on a function run: DESCRIBE FUNCTION <Function-Name>;"
#: aggregates that compare their first argument, for which ksqlDB has plain types only
_COMPARING: Final = frozenset({"MIN", "MAX", "TOPK", "TOPKDISTINCT"})
#: functions with ksqlDB's variants: a call that several accept after a cast is ambiguous
_AS_VARIED: Final = frozenset({"ATAN2", "GREATEST", "LEAST", "LOG", "POWER", "ROUND", "TRUNC"})
_EXACT: Final = frozenset({"INTEGER", "BIGINT"})
_ORDERS: Final = frozenset({"ARRAY_MAX", "ARRAY_MIN", "ARRAY_SORT"})
#: elements that ARRAY_JOIN has a text for. For others ksqlDB's fails at each row that has one
_JOINED: Final = frozenset({"BOOLEAN", "INTEGER", "BIGINT", "DOUBLE", "DECIMAL", "STRING", "NULL"})


class NoSuchFunction(Exception):
    """No function of this name; `hint` names the nearest."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Can't find any functions with the name '{name}'")
        self.hint = nearest(name, _BY_NAME)


class NotAccepted(Exception):
    """The function exists, but not for these types."""


def resolve(name: str, arguments: Sequence[SqlType]) -> Resolved:
    """The variant of `name` that accepts the arguments, with the fewest conversions.

    Raises NoSuchFunction or NotAccepted with ksqlDB's texts.
    """
    variants = _BY_NAME.get(name)
    if variants is None:
        raise NoSuchFunction(name)
    fits = _fits(variants, arguments, casts=False) or _fits(variants, arguments, casts=True)
    if name in _ORDERS and any(each.contains("MAP") for each in arguments):
        fits = []  # maps have no order
    if name == "ARRAY_JOIN" and any(each.arguments[0].base not in _JOINED for each in _lists(fits)):
        fits = []
    compared = arguments[:1] if name in _COMPARING else ()
    if any(each.is_nested or each.base == "BOOLEAN" for each in compared):
        fits = []
    shown = name if name in _UPPER else name.lower()
    given = ", ".join("null" if each == NULL else str(each) for each in arguments)
    valid = "".join(f"\n{signature(variant)}" for variant in variants)
    if not fits:
        raise NotAccepted(
            f"Function '{shown}' does not accept parameters ({given})."
            f"\nValid alternatives are:{valid}\n{DETAILS}"
        )
    if len(fits) > 1 and name in _AS_VARIED:
        raise NotAccepted(
            f"Function '{shown}' cannot be resolved due to ambiguous method parameters ({given})."
            "\nUse CAST() to explicitly cast your parameters to one of the supported function"
            f" calls.\nValid function calls are:{valid}\n{DETAILS}"
        )
    return min(fits, key=lambda fit: sum(map(SqlType.__ne__, fit.parameters, arguments)))


def _lists(fits: Sequence[Resolved]) -> list[SqlType]:
    return [of for fit in fits for of in fit.parameters if of.base == "ARRAY"]


def is_aggregate(name: str) -> bool:
    """Whether the name is an aggregate's; False for an unknown name."""
    return any(variant.is_aggregate for variant in _BY_NAME.get(name, ()))


def is_table_function(name: str) -> bool:
    """Whether the name is that of a function that produces rows, like EXPLODE."""
    return any(variant.template == EXPLODE for variant in _BY_NAME.get(name, ()))


def is_on_tables(name: str) -> bool:
    """Whether a function may be used in an aggregation of a table's rows."""
    return all(not each.is_aggregate or each.on_tables for each in _BY_NAME.get(name, ()))


def names() -> tuple[str, ...]:
    """All names in order, for SHOW FUNCTIONS and for hints."""
    return tuple(sorted(_BY_NAME))


def variants(name: str) -> tuple[Function, ...]:
    """The rows of one name, one per signature; empty for an unknown name."""
    return _BY_NAME.get(name, ())


def signature(function: Function) -> str:
    """The signature as DESCRIBE FUNCTION and messages print it: ``SUBSTRING(STRING, INTEGER)``."""
    parts = [str(parameter) for parameter in function.parameters]
    if function.is_variadic:
        parts[-1] += "..."
    return f"{function.name}({', '.join(parts)})"


def _fits(
    variants: Sequence[Function], arguments: Sequence[SqlType], *, casts: bool
) -> list[Resolved]:
    fits = (_fit(variant, arguments, casts=casts) for variant in variants)
    return [found for found in fits if found is not None]


def _fit(function: Function, arguments: Sequence[SqlType], *, casts: bool) -> Resolved | None:
    parameters = function.parameters
    if function.is_variadic:
        if len(arguments) < len(parameters):
            return None
        parameters += (parameters[-1],) * (len(arguments) - len(parameters))
    if len(parameters) != len(arguments):
        return None
    bindings: dict[str, SqlType] = {}
    for parameter, argument in zip(parameters, arguments, strict=True):
        if not _bind(parameter, argument, bindings, casts=casts):
            return None
    bound = tuple(
        argument if parameter == ANY else _bound(parameter, bindings)
        for parameter, argument in zip(parameters, arguments, strict=True)
    )
    result = function.result
    given = _bound(result, bindings) if isinstance(result, SqlType) else result(bound)
    return Resolved(function, bound, given)


def _bind(
    parameter: SqlType, argument: SqlType, bindings: dict[str, SqlType], *, casts: bool
) -> bool:
    """Whether the argument fits; records in `bindings` which types variables denote."""
    if parameter == ANY or argument == NULL:
        return True
    if parameter.base in VARIABLES:
        known = bindings.setdefault(parameter.base, argument)
        if parameter == ANY_DECIMAL:
            fits = argument.base == "DECIMAL" or (casts and argument.base in _EXACT)
            bindings[parameter.base] = common_type(as_decimal(known), argument) or known
            return fits
        return known == argument and (parameter != NUMBER or argument.is_numeric)
    if parameter.arguments and argument.base == parameter.base:
        pairs = zip(parameter.arguments, argument.arguments, strict=True)
        return all(_bind(one, two, bindings, casts=casts) for one, two in pairs)
    if not casts:
        return argument == parameter
    return widens(argument, parameter) or (argument == STRING and parameter.base in FROM_TEXT)


def _bound(parameter: SqlType, bindings: dict[str, SqlType]) -> SqlType:
    if parameter.base in VARIABLES:
        return bindings.get(parameter.base, NULL)
    if parameter.arguments and not parameter.field_names:
        inner = tuple(_bound(part, bindings) for part in parameter.arguments)
        return SqlType(parameter.base, arguments=inner)
    return parameter


def _grouped(functions: Sequence[Function]) -> dict[str, tuple[Function, ...]]:
    grouped: dict[str, tuple[Function, ...]] = {}
    for function in functions:
        grouped[function.name] = (*grouped.get(function.name, ()), function)
    return grouped


_BY_NAME: Final = _grouped(
    (
        *numeric.FUNCTIONS,
        *text.FUNCTIONS,
        *nested.FUNCTIONS,
        *times.FUNCTIONS,
        *json_text.FUNCTIONS,
        *binary.FUNCTIONS,
        *aggregate.FUNCTIONS,
    )
)
