"""CREATE TYPE and DROP TYPE, and what such a name means in a later statement.

A name is replaced by what it stands for when a statement is analysed: nothing behind the analyser
knows of names, and a type that is dropped stays what it was in the columns declared with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from standpipe.sql.context import Context
from standpipe.sql.functions.cast import check_known
from standpipe.sql.plans import CreateTypePlan, DropTypePlan
from standpipe.sql.syntax.ast import Node, Position, walk
from standpipe.sql.syntax.ast_statements import CreateType, DropType
from standpipe.sql.syntax.errors import refusal
from standpipe.sql.types import types
from standpipe.sql.types.types import SqlType, parse_type

_Part = TypeVar("_Part")
_BUILT_IN = frozenset(types.NAMES.values())


def create_type(statement: CreateType, _sources: object, _context: Context) -> CreateTypePlan:
    """Raises StatementError for a name of ksqlDB's own, or one inside that nobody declared."""
    if statement.name.upper() in types.NAMES:
        raise refusal(f"{statement.name} is a type already.", statement.at)
    check_known(statement.type, statement.at)
    return CreateTypePlan(
        name=statement.name,
        definition=str(statement.type),
        if_not_exists=statement.if_not_exists,
    )


def drop_type(statement: DropType, _sources: object, _context: Context) -> DropTypePlan:
    return DropTypePlan(name=statement.name, if_exists=statement.if_exists)


def resolved(statement: _Part, known: Mapping[str, str]) -> _Part:
    """The statement with each name of `known` replaced by its type."""
    if not known or not any(_is_named(node, known) for node, _ in walk(statement)):
        return statement
    return _resolved(statement, known)


def _is_named(node: Node | SqlType, known: Mapping[str, str]) -> bool:
    return isinstance(node, SqlType) and node.base not in _BUILT_IN and node.base in known


def _resolved(part: Any, known: Mapping[str, str]) -> Any:
    if isinstance(part, SqlType) and _is_named(part, known):
        return parse_type(known[part.base])
    if isinstance(part, tuple) and not isinstance(part, Position):
        parts: tuple[Any, ...] = part  # pyright: ignore[reportUnknownVariableType]
        return tuple(_resolved(each, known) for each in parts)
    if isinstance(part, (Node, SqlType)):
        changed = {each.name: _resolved(getattr(part, each.name), known) for each in fields(part)}
        return replace(part, **changed)
    return part
