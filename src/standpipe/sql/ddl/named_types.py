"""CREATE TYPE and DROP TYPE, and what the name of a type means in a later statement.

The analyser replaces a type's name by its definition: later passes see no such names, and a dropped
type stays in the columns that were declared with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from standpipe.sql.context import Context
from standpipe.sql.declarations import names
from standpipe.sql.functions.cast import check_known
from standpipe.sql.plans import CreateTypePlan, DropTypePlan
from standpipe.sql.syntax.ast import SyntaxNode, rewritten
from standpipe.sql.syntax.ast_statements import CreateType, DropType
from standpipe.sql.syntax.errors import refusal
from standpipe.sql.types import types
from standpipe.sql.types.types import SqlType, parse_type

_Part = TypeVar("_Part")
_BUILT_IN = frozenset(types.NAMES.values())


def create_type(statement: CreateType, _sources: object, _context: Context) -> CreateTypePlan:
    """Raises StatementError for a built-in name, or an undeclared one in the definition."""
    names.check_name("type", statement.name, statement.at)
    names.check_marks("field", str(statement.type), statement.at)
    if statement.name.upper() in types.NAMES:
        raise refusal(f"{statement.name} is a type already.", statement.at)
    check_known(statement.type, statement.at)
    return CreateTypePlan(
        name=statement.name,
        definition=str(statement.type),
        if_not_exists=statement.if_not_exists,
    )


def drop_type(statement: DropType, _sources: object, _context: Context) -> DropTypePlan:
    """DROP TYPE. The catalog checks whether the type exists."""
    return DropTypePlan(name=statement.name, if_exists=statement.if_exists)


def resolved(statement: _Part, known: Mapping[str, str]) -> _Part:
    """The statement with each name of `known` replaced by its type."""
    if not known:
        return statement
    return rewritten(statement, lambda part: _named_type(part, known))


def _named_type(part: SyntaxNode | SqlType, known: Mapping[str, str]) -> SqlType | None:
    if isinstance(part, SqlType) and part.base not in _BUILT_IN and part.base in known:
        return parse_type(known[part.base])
    return None
