"""Expressions after analysis: every node has a type, every name is a column that exists.

The emitter needs nothing else: a scalar operation brings its Spark template along, a constant is a
Python value as types.py defines it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from standpipe.sql.types import SqlType


@dataclass(frozen=True, slots=True)
class Typed:
    type: SqlType


@dataclass(frozen=True, slots=True)
class Column(Typed):
    """A column of the rows that the expression is evaluated over."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant(Typed):
    value: object


@dataclass(frozen=True, slots=True)
class Operation(Typed):
    """A scalar operation: `template` has a place {0}, {1}… per argument, or {all} for a list."""

    template: str
    arguments: tuple[Typed, ...]


@dataclass(frozen=True, slots=True)
class Aggregate(Operation):
    """An aggregate over the rows of a group; its arguments hold no aggregate."""


@dataclass(frozen=True, slots=True)
class WindowBound(Typed):
    """WINDOWSTART or WINDOWEND of the group, BIGINT ms."""

    name: str


def aggregates_in(node: Typed) -> bool:
    """Whether an aggregate is somewhere in the expression."""
    if isinstance(node, Aggregate):
        return True
    return isinstance(node, Operation) and any(map(aggregates_in, node.arguments))


def rewrite(node: Typed, change: Callable[[Typed], Typed | None]) -> Typed:
    """The expression with every topmost node replaced for which `change` gives another."""
    changed = change(node)
    if changed is not None:
        return changed
    if isinstance(node, Operation):
        arguments = tuple(rewrite(argument, change) for argument in node.arguments)
        return type(node)(node.type, node.template, arguments)
    return node
