"""CREATE TYPE and DROP TYPE, and what the name of a type means in a later statement.

The analyser replaces a type's name by its definition: later passes see no such names, and a dropped
type stays in the columns that were declared with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from standpipe.errors import StatementError
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
    """The statement with each name of `known` replaced by its type. Raises StatementError if these
    types are longer than TYPE_CHARS_MAX together."""
    if not known:
        return statement
    room = types.TYPE_CHARS_MAX

    def named(part: SyntaxNode | SqlType) -> SqlType | None:
        nonlocal room
        if not isinstance(part, SqlType) or part.base in _BUILT_IN or part.base not in known:
            return None
        room -= len(known[part.base])
        if room < 0:
            raise StatementError(
                "The types that this statement names are longer than"
                f" {types.TYPE_CHARS_MAX} characters together."
            )
        return parse_type(known[part.base])

    return rewritten(statement, named)
