"""The functions that a statement may call: the allow-list of what reaches Spark.

An argument may be narrower than its parameter (INTEGER where BIGINT is expected): it is cast. The
rows are in the modules beside this one, by subject; `signature.py` defines a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from standpipe.sql.functions import aggregate, binary, json_text, nested, numeric, text, times
from standpipe.sql.functions.signature import ANY, VARIABLES, Function
from standpipe.sql.syntax.errors import nearest
from standpipe.sql.types.typed_expression import EXPLODE
from standpipe.sql.types.types import NULL, SqlType, common_type, widens


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
#: the same for all arguments
_GREATEST: Final = frozenset({"GREATEST", "LEAST"})
_ORDERS: Final = frozenset({"ARRAY_MAX", "ARRAY_MIN", "ARRAY_SORT"})


class NoSuchFunction(Exception):
    """No function of this name; `hint` names the nearest."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Can't find any functions with the name '{name}'")
        self.hint = nearest(name, _BY_NAME)


class NotAccepted(Exception):
    """The function exists, but not for these types."""


def resolve(name: str, arguments: Sequence[SqlType]) -> Resolved:
    """The variant of `name` that accepts the arguments with the fewest conversions.

    Raises NoSuchFunction or NotAccepted with ksqlDB's texts.
    """
    variants = _BY_NAME.get(name)
    if variants is None:
        raise NoSuchFunction(name)
    fits = [found for variant in variants if (found := _fit(variant, arguments)) is not None]
    if name in _ORDERS and any(each.contains("MAP") for each in arguments):
        fits = []  # maps have no order
    compared = arguments[:1] if name in _COMPARING else arguments if name in _GREATEST else ()
    if any(each.is_nested or each.base == "BOOLEAN" for each in compared):
        fits = []
    if not fits:
        given = ", ".join("null" if each == NULL else str(each) for each in arguments)
        valid = "".join(f"\n{signature(variant)}" for variant in variants)
        raise NotAccepted(
            f"Function '{name if name in _UPPER else name.lower()}' does not accept parameters"
            f" ({given})."
            f"\nValid alternatives are:{valid}\n{DETAILS}"
        )
    return min(fits, key=lambda fit: sum(map(SqlType.__ne__, fit.parameters, arguments)))


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
    bound = tuple(
        argument if parameter == ANY else _bound(parameter, bindings)
        for parameter, argument in zip(parameters, arguments, strict=True)
    )
    result = function.result
    given = _bound(result, bindings) if isinstance(result, SqlType) else result(bound)
    return Resolved(function, bound, given)


def _bind(parameter: SqlType, argument: SqlType, bindings: dict[str, SqlType]) -> bool:
    """Whether the argument fits; records in `bindings` which types T, K, V and NUMBER denote."""
    if parameter == ANY:
        return True
    if parameter.base in VARIABLES:
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
