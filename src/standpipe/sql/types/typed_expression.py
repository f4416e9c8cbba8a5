"""Expressions after analysis: every node has a type, every name is a column that exists.

Emitting SQL needs nothing else: a scalar operation has its Spark template, a constant is a Python
value as types.py defines it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from standpipe.sql.types.types import SqlType

#: Template of the table function; `rowwise.py` removes it, as Spark SQL cannot nest it.
EXPLODE: Final = "explode({0})"


class Failing(Enum):
    """When computing an operation fails (ksqlDB: an exception), which makes NULL of a whole column,
    not of the operation alone. `expressions/failing.py` asks it."""

    PASSED = "if computing an argument fails"
    CAUGHT = "never: what fails within is NULL there"
    IF_NULL = "also if its value is NULL"
    TOO_LONG = "as PASSED, and if its value is NULL, which it is of nothing but its length"
    TESTED = "as PASSED; it is never NULL"
    COMPARED = "as TESTED; with NULL it is false"
    ALL = "at the first argument that is NULL, unless one before is false"
    ANY = "at the first argument that is NULL, unless one before is true"
    NOT = "also if its argument is NULL"
    CASE = "at the first condition that is NULL, and as the result that is chosen"
    FIELD = "as PASSED; NULL for NULL"
    ELEMENT = "also if the index is NULL"
    IN_LAMBDA = "as PASSED, and if its first argument is true"
    CALLED = "as PASSED, but arguments that are calls or fields are caught"
    STRICT_CALL = "as CALLED; NULL for NULL"
    FAILING_CALL = "as STRICT_CALL, and if its value is NULL"
    INVALID_CALL = "as STRICT_CALL, and if its value is NULL while no argument is"


@dataclass(frozen=True, slots=True)
class Typed:
    """Base of typed nodes. `type`: the SQL type of its values."""

    type: SqlType


@dataclass(frozen=True, slots=True)
class TypedColumn(Typed):
    """A column of the rows that the expression is evaluated over."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant(Typed):
    """A value as `types.py` defines it for the type; None is NULL."""

    value: object


@dataclass(frozen=True, slots=True)
class Operation(Typed):
    """A scalar operation: `template` has {0}, {1}… for its arguments, or {all} for a list.

    `size`: template of how many characters, bytes or items the result has, if its arguments decide
    that; Spark computes no result that is larger than the limit (`spark/expression_sql.py`).
    """

    template: str
    arguments: tuple[Typed, ...]
    size: str = ""
    failing: Failing = Failing.PASSED


@dataclass(frozen=True, slots=True)
class Aggregate(Operation):
    """An aggregate over the rows of a group; its arguments contain no aggregate."""


@dataclass(frozen=True, slots=True)
class WindowBound(Typed):
    """WINDOWSTART or WINDOWEND of the group, BIGINT ms."""

    name: str


@dataclass(frozen=True, slots=True)
class LambdaVariable(Typed):
    """A parameter of an enclosing lambda."""

    name: str


@dataclass(frozen=True, slots=True)
class LambdaBody(Typed):
    """What a lambda computes from its variables: an argument of TRANSFORM, FILTER or REDUCE."""

    variables: tuple[LambdaVariable, ...]
    body: Typed


def caught(typed: Typed, *, unless: Typed | None = None) -> Typed:
    """What fails within an operation is NULL there. `unless`: an operand that needed none."""
    if typed is unless or not isinstance(typed, Operation):
        return typed
    return replace(typed, failing=Failing.CAUGHT)


def aggregates_in(node: Typed) -> bool:
    """Whether the expression contains an aggregate."""
    if isinstance(node, Aggregate):
        return True
    if isinstance(node, LambdaBody):
        return aggregates_in(node.body)
    return isinstance(node, Operation) and any(map(aggregates_in, node.arguments))


def exploded_in(node: Typed) -> bool:
    """Whether the expression contains a table function."""
    if isinstance(node, Operation):
        return node.template == EXPLODE or any(map(exploded_in, node.arguments))
    return False


def variables_in(node: Typed) -> frozenset[LambdaVariable]:
    """The parameters of enclosing lambdas that an expression reads."""
    if isinstance(node, LambdaVariable):
        return frozenset({node})
    if isinstance(node, LambdaBody):
        return variables_in(node.body) - frozenset(node.variables)
    if isinstance(node, Operation):
        return frozenset(found for argument in node.arguments for found in variables_in(argument))
    return frozenset()


def columns_in(node: Typed) -> frozenset[TypedColumn]:
    """The columns that an expression reads."""
    if isinstance(node, TypedColumn):
        return frozenset({node})
    if isinstance(node, LambdaBody):
        return columns_in(node.body)
    if isinstance(node, Operation):
        return frozenset(found for argument in node.arguments for found in columns_in(argument))
    return frozenset()


def rewrite(node: Typed, change: Callable[[Typed], Typed | None]) -> Typed:
    """The expression, with every topmost node for which `change` returns a node replaced by it."""
    changed = change(node)
    if changed is not None:
        return changed
    if isinstance(node, Operation):
        arguments = tuple(rewrite(argument, change) for argument in node.arguments)
        return replace(node, arguments=arguments)
    if isinstance(node, LambdaBody):
        return LambdaBody(node.type, node.variables, rewrite(node.body, change))
    return node
