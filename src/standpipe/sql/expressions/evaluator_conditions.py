"""Conditions as Python functions over a row: AND, OR, NOT, IN, LIKE, IS NULL and CASE.

What fails raises Failed (`failing.py` says what does): an operand of AND that is NULL, LIKE of
NULL. `Evaluator` is the caller; comparisons are there.
"""

# SQL values have no static types: these functions pass Any
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol

from standpipe.sql.expressions import coercion
from standpipe.sql.expressions.like import LikePattern
from standpipe.sql.expressions.python.collections import key_of
from standpipe.sql.expressions.python.computed import Computed, Failed
from standpipe.sql.expressions.python.logic import connected
from standpipe.sql.expressions.typer import Typer
from standpipe.sql.syntax import ast
from standpipe.sql.types.types import SqlType

Row = Sequence[Any]
Compute = Callable[[Row], Any]


class ConditionCompiler(Protocol):
    """The part of the Evaluator that this module calls (the Evaluator imports this module)."""

    typer: Typer

    def type(self, node: ast.Expression) -> SqlType:
        """The type of an expression."""
        ...

    def compile(self, node: ast.Expression) -> Compute:
        """The expression as a function of a row."""
        ...

    def failing(self, compute: Compute) -> Compute:
        """Raises Failed where the value is NULL."""
        ...

    def converted(self, compute: Compute, source: SqlType, target: SqlType) -> Compute:
        """The value as another type, NULL where it does not fit."""
        ...

    def coerced(self, node: ast.Expression, wanted: SqlType) -> Compute:
        """An item of a list as the list's common type."""
        ...

    def limited(self, name: str, made: Computed, arguments: Sequence[Compute]) -> Compute:
        """A function over texts, whose work is limited."""
        ...


def strict(function: Callable[..., Any], *arguments: Compute) -> Compute:
    """NULL if any argument is NULL."""

    def compute(row: Row) -> Any:
        given = [argument(row) for argument in arguments]
        return (
            None if None in [value if value is None else 0 for value in given] else function(*given)
        )

    return compute


def raising(compute: Compute, unless_null: Sequence[Compute] = ()) -> Compute:
    """Raises Failed where the value is NULL, except if one of `unless_null` is."""

    def certain(row: Row) -> Any:
        value = compute(row)
        if value is None and all(each(row) is not None for each in unless_null):
            raise Failed
        return value

    return certain


def null_if_failed(compute: Compute) -> Compute:
    """NULL where it raises Failed."""

    def whole(row: Row) -> Any:
        try:
            return compute(row)
        except Failed:
            return None

    return whole


def decided(compiler: ConditionCompiler, compute: Compute, node: ast.Expression) -> Compute:
    """A condition that must not be NULL. `node`: what it was compiled from."""
    return compute if _is_never_null(node) else compiler.failing(compute)


def _is_never_null(condition: ast.Expression) -> bool:
    if isinstance(condition, ast.Logical):
        return all(map(_is_never_null, condition.operands))
    if isinstance(condition, ast.Not):
        return _is_never_null(condition.operand)
    return isinstance(condition, (ast.Comparison, ast.Between, ast.InList, ast.IsNull))


# -------------------------------------------------------------------------------------- handlers


def logical(compiler: ConditionCompiler, node: ast.Logical) -> Compute:
    """AND and OR: the first operand that decides; one that is NULL fails."""
    compute = connected(node.operator, [compiler.compile(operand) for operand in node.operands])
    return decided(compiler, compute, node)


def not_(compiler: ConditionCompiler, node: ast.Not) -> Compute:
    """NOT operand; NULL fails."""
    operand = decided(compiler, compiler.compile(node.operand), node)
    return lambda row: not operand(row)


def in_list(compiler: ConditionCompiler, node: ast.InList) -> Compute:
    """value [NOT] IN (…), all as their common type; nothing compares with NULL."""
    compiler.type(node)  # refuses a list without one
    wanted = coercion.common([compiler.typer.type(each) for each in (node.value, *node.items)])
    value = _compared(compiler, node.value, wanted)
    constants: set[Any] = set()
    others: list[Compute] = []
    for item in node.items:
        if isinstance(item, ast.LiteralValue):
            constants.add(key_of(compiler.coerced(item, wanted)(())))
        else:
            others.append(_compared(compiler, item, wanted))
    constants.discard(None)
    negated = node.negated

    def is_in(row: Row) -> bool:
        found = value(row)
        rest = [other(row) for other in others]  # all, as one of them may fail
        if found is None:
            return negated
        key = key_of(found)
        return (key in constants or any(key == key_of(each) for each in rest)) is not negated

    return is_in


def _compared(compiler: ConditionCompiler, node: ast.Expression, wanted: SqlType) -> Compute:
    """As the list's type, which takes a CAST that catches what fails."""
    if compiler.type(node) == wanted:
        return compiler.compile(node)
    return compiler.coerced(node, wanted)


def like(compiler: ConditionCompiler, node: ast.Like) -> Compute:
    """value [NOT] LIKE pattern [ESCAPE character]; NULL fails."""
    escape, negated = node.escape, node.negated
    made = lru_cache(maxsize=16)(lambda pattern: LikePattern(pattern, escape))

    def matches(text: str, pattern: str) -> bool:
        return made(pattern).matches(text) is not negated

    def steps(text: str, pattern: str) -> int:
        return made(pattern).steps(text) + 10 * len(pattern)

    given = [compiler.compile(node.value), compiler.compile(node.pattern)]
    return compiler.failing(compiler.limited("LIKE", Computed(matches, work=steps), given))


def is_null(compiler: ConditionCompiler, node: ast.IsNull) -> Compute:
    """value IS [NOT] NULL."""
    operand, negated = compiler.compile(node.value), node.negated
    return lambda row: (operand(row) is None) is not negated


def case(compiler: ConditionCompiler, node: ast.Case) -> Compute:
    """CASE: the first branch whose condition is true, otherwise ELSE, otherwise NULL."""
    of = compiler.type(node)

    def result_of(result: ast.Expression) -> Compute:
        return compiler.converted(compiler.compile(result), compiler.type(result), of)

    whens: list[tuple[Compute, Compute]] = []
    for given, result in node.whens:
        condition = given
        if node.operand is not None:
            condition = ast.Comparison(given.at, "=", node.operand, given)
        compute = decided(compiler, compiler.compile(condition), condition)
        whens.append((compute, result_of(result)))
    otherwise = None if node.otherwise is None else result_of(node.otherwise)

    def choose(row: Row) -> Any:
        for condition, result in whens:
            if condition(row) is True:
                return result(row)
        return None if otherwise is None else otherwise(row)

    return choose
