"""EXPLODE over a stream's records: one row for each element of the longest array, as in ksqlDB.

Each call becomes a column behind the full row, which holds one element at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Final

from standpipe.errors import NotComputable
from standpipe.sql.expressions.evaluator import Evaluator
from standpipe.sql.expressions.result_names import ResultNames
from standpipe.sql.expressions.scope import PSEUDO
from standpipe.sql.expressions.statement_values import Draw
from standpipe.sql.expressions.typer import Typer
from standpipe.sql.functions.registry import is_table_function
from standpipe.sql.lookup.columns import Cell, PullNames
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.ast import Query
from standpipe.sql.syntax.errors import refusal, unsupported
from standpipe.sql.types.types import SqlType

#: rows that one row may become: they are made at once
ROWS_MAX: Final = 10_000
#: no statement can write such a name
_ELEMENT: Final = "\0{}"
_COMPUTED: Final = "EXPLODE"


@dataclass(frozen=True, slots=True)
class ElementNames(PullNames):
    """Names of a record of a stream and, behind its position, of an element of each array."""

    marks_keys = False

    elements: tuple[tuple[str, SqlType], ...] = ()

    @property
    def pseudo(self) -> tuple[tuple[str, SqlType], ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What follows the full row."""
        return (*PSEUDO.items(), *self.elements)


def has_calls(query: Query) -> bool:
    """Whether a table function stands in the SELECT list."""
    return any(
        isinstance(node, ast.FunctionCall) and is_table_function(node.name)
        for node, _ in ast.walk(query.items)
    )


def without_calls(
    query: Query, names: PullNames, kind: str, draw: Draw | None = None
) -> tuple[Query, ElementNames, tuple[Cell, ...]]:
    """The query with columns in place of the calls, the names of its rows, and the arrays, as
    functions of the full row. Raises StatementError."""
    if names.source.kind == "TABLE":
        raise refusal("Table source is not supported with table functions", query.at)
    typer, evaluator = (
        Typer(names, "SELECT", takes_tables=True),
        Evaluator(names, "SELECT", kind, draw),
    )
    elements: list[tuple[str, SqlType]] = []
    arrays: list[Cell] = []

    def change(node: Any) -> Any:
        if not isinstance(node, ast.FunctionCall) or not is_table_function(node.name):
            return None
        if node.name != _COMPUTED:
            raise unsupported(f"The function {node.name} in {kind}", node.at)
        name = _ELEMENT.format(len(elements))
        elements.append((name, typer.type(node).type))
        arrays.append(evaluator.compile(node.arguments[0]))
        return ast.ColumnName(node.at, name)

    items: list[Any] = []
    for item in _named(query.items, names):
        if isinstance(item, ast.SelectItem):
            typer.type(item.expression)  # refuses what may not stand around a call
        items.append(ast.rewritten(item, change))
    found = ElementNames(names.source, names.alias, names.row, names.key_count, tuple(elements))
    return replace(query, items=tuple(items)), found, tuple(arrays)


def rows(row: list[Any], arrays: Sequence[Cell]) -> Iterator[list[Any]]:
    """The rows that one row becomes: shorter arrays are filled with NULL. Raises NotComputable if
    they are more than ROWS_MAX."""
    if not arrays:
        yield row
        return
    given = [array(row) or () for array in arrays]
    count = max(map(len, given))
    if count > ROWS_MAX:
        raise NotComputable(f"EXPLODE would make {count} rows of one; {ROWS_MAX} are allowed.")
    for elements in zip_longest(*given):
        yield [*row, *elements]


def _named(items: Sequence[Any], names: PullNames) -> Iterator[Any]:
    """The items, where a computed one without a name gets the one that it would have had: the
    column that takes the place of a call has none."""
    generated = ResultNames((name for name, _ in names.row), items)
    for item in items:
        is_plain = not isinstance(item, ast.SelectItem) or item.alias is not None
        if is_plain or isinstance(item.expression, ast.ColumnName):
            yield item
            continue
        yield replace(item, alias=generated.of(item.expression))
