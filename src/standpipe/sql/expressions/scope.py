"""Which names an expression may use: columns of one source, pseudo columns, window bounds.

Not here: the names of a pull query (`sql.lookup.columns`) and of joins
(`sql.spark.join_scope`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn, Protocol

from standpipe.errors import UnknownName
from standpipe.model import Source
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.errors import nearest, place, refusal, unknown_name
from standpipe.sql.syntax.printer import expression_text
from standpipe.sql.types.typed_expression import Typed, TypedColumn, WindowBound
from standpipe.sql.types.types import BIGINT, INTEGER, SqlType, parse_type, quoted

#: Columns that every row has besides its own.
PSEUDO: Final[dict[str, SqlType]] = {
    "ROWTIME": BIGINT,
    "ROWPARTITION": INTEGER,
    "ROWOFFSET": BIGINT,
}
WINDOW_BOUNDS: Final = ("WINDOWSTART", "WINDOWEND")
#: No column may be declared with, or aliased to, one of these.
RESERVED: Final = frozenset({*PSEUDO, *WINDOW_BOUNDS})


class Names(Protocol):
    """What a Typer needs to know about columns: `Scope`, `lookup.columns.PullNames` …"""

    def resolve(self, node: ast.ColumnName, clause: str, *, in_aggregate: bool = False) -> Typed:
        """The column that a name refers to. Raises StatementError, which names the clause."""
        ...

    def own_columns(self) -> frozenset[str]:
        """Names of the columns of all sources, without pseudo columns and window bounds."""
        ...


@dataclass(frozen=True, slots=True)
class Scope:
    """The names of one source. `alias`: the source's name in this query."""

    source: Source
    alias: str
    #: WINDOWSTART and WINDOWEND mean the group's window
    has_window: bool = False
    types: Mapping[str, SqlType] = field(default_factory=dict[str, SqlType])

    @classmethod
    def of(cls, source: Source, alias: str | None, *, has_window: bool = False) -> Scope:
        """The scope of a source under its alias. `has_window`: the query has a WINDOW clause."""
        types = {column.name: parse_type(column.type) for column in source.columns}
        return cls(source, alias or source.name, has_window, types)

    def resolve(self, node: ast.ColumnName, clause: str, *, in_aggregate: bool = False) -> Typed:
        """The column that a name refers to. Raises UnknownName, whose text names `clause`."""
        if node.source is not None and node.source not in (self.alias, self.source.name):
            message = f"'{node.source}' is not a valid stream/table name or alias."
            hint = nearest(node.source, (self.alias, self.source.name))
            raise unknown_name(message, node.at, hint)
        if node.source not in (None, self.alias):
            raise unresolved(node, clause, by_alias(node, self.alias))
        if node.name in self.types:
            return TypedColumn(self.types[node.name], node.name)
        if node.name in PSEUDO:
            return TypedColumn(PSEUDO[node.name], node.name)
        if node.name in WINDOW_BOUNDS and self.source.window is not None:
            return TypedColumn(BIGINT, node.name)
        if node.name in WINDOW_BOUNDS and self.has_window:
            if clause != "SELECT" or in_aggregate:
                raise refusal(
                    f"Window bounds column {node.name} can only be used in the SELECT clause of"
                    " windowed aggregations and can not be passed to aggregate functions.",
                    node.at,
                )
            return WindowBound(BIGINT, node.name)
        return self._unknown(node, clause)

    # -------------------------------------------------------- spark.select_items.ScopeNames

    def key_columns(self) -> list[tuple[str, Typed]]:
        """The source's keys, quoted as messages show them."""
        return [
            (quoted(each.name), TypedColumn(self.types[each.name], each.name))
            for each in self.source.key_columns
        ]

    def star(self, item: ast.Star) -> Iterator[tuple[ast.ColumnName, str]]:
        """The source's columns in order. Raises UnknownName for `other.*`."""
        if item.source not in (None, self.alias):
            message = f"'{item.source}' is not a valid stream/table name or alias."
            raise unknown_name(message, item.at, nearest(str(item.source), (self.alias,)))
        for column in self.source.columns:
            yield ast.ColumnName(item.at, column.name), column.name

    def column_names(self) -> frozenset[str]:
        """The names of the source's columns, without pseudo columns."""
        return frozenset(self.types)

    own_columns = column_names

    def name_of(self, node: ast.ColumnName) -> str:
        """The column's own name, which is unique within one source."""
        return node.name

    def _unknown(self, node: ast.ColumnName, clause: str) -> NoReturn:
        raise unresolved(node, clause, nearest(node.name, self.types))


def unresolved(node: ast.ColumnName, clause: str, hint: str) -> UnknownName:
    """The refusal of a column that there is not (UnknownColumnException)."""
    message = f"{clause} column '{expression_text(node)}' cannot be resolved."
    if clause == "PARTITION BY":
        message += (
            f" '{node.name}' must be a column in the source schema since PARTITION BY is"
            " applied on the input."
        )
    return unknown_name(f"{place(node.at)}: {message}", node.at, hint)


def ambiguous(node: ast.ColumnName, aliases: Sequence[str]) -> str:
    """What is wrong with a column that several sources have (AmbiguousColumnException)."""
    *others, last = sorted(
        expression_text(ast.ColumnName(node.at, node.name, alias)) for alias in aliases
    )
    could = f"{', '.join(others)} or {last}"
    return f"{place(node.at)}: Column '{expression_text(node)}' is ambiguous. Could be {could}."


def by_alias(node: ast.ColumnName, alias: str) -> str:
    """The hint for a column that is named by its source, where that has an alias."""
    shown = expression_text(ast.ColumnName(node.at, node.name, alias))
    return f"Write {shown}: an alias replaces the name."


def find_source(name: str, sources: Mapping[str, Source], at: ast.Position | None = None) -> Source:
    """The stream or table of that name. Raises UnknownName, which suggests the nearest name."""
    source = sources.get(name)
    if source is None:
        prefix = "" if at is None else f"{place(at)}: "
        message = f"{prefix}Source `{name}` does not exist."
        raise unknown_name(message, at, nearest(name, sources))
    return source
