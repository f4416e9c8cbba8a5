"""The columns of a pull query: what names mean, and what of the full row is shown.

The full row is: key columns, WINDOWSTART and WINDOWEND if windowed, value columns; ROWTIME follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from standpipe.model import Source
from standpipe.sql import ast
from standpipe.sql.printer import expression_text
from standpipe.sql.refusals import nearest, place, refusal, unknown_name, unsupported
from standpipe.sql.typed import Column, Typed
from standpipe.sql.types import BIGINT, SqlType, parse_type, quoted

ROWKEY: Final = "ROWKEY"
_REFUSED: Final = ("ROWPARTITION", "ROWOFFSET")
HELP: Final = (
    " See https://cnfl.io/queries for more info."
    "\nAdd EMIT CHANGES if you intended to issue a push query."
)


@dataclass(frozen=True, slots=True)
class PullNames:
    """Names of a table in a pull query. `row`: name and type of the full row's columns."""

    source: Source
    alias: str
    row: tuple[tuple[str, SqlType], ...]
    key_count: int  # leading columns of `row` that are keys; window bounds count as such

    @classmethod
    def of(cls, source: Source, alias: str | None) -> PullNames:
        bounds = (("WINDOWSTART", BIGINT), ("WINDOWEND", BIGINT)) if source.window else ()
        keys = tuple((each.name, parse_type(each.type)) for each in source.key_columns)
        rest = tuple((each.name, parse_type(each.type)) for each in source.value_columns)
        row = (*keys, *bounds, *rest)
        return cls(source, alias or source.name, row, len(keys) + len(bounds))

    def index_of(self, name: str) -> int | None:
        """Place in the full row; ROWTIME's is its width; ROWKEY is the single key column."""
        for index, (each, _) in enumerate(self.row):
            if each == name:
                return index
        if name == "ROWTIME":
            return len(self.row)
        if name == ROWKEY and len(self.source.key_columns) == 1:
            return 0
        return None

    def type_of(self, index: int) -> SqlType:
        return BIGINT if index == len(self.row) else self.row[index][1]

    def resolve(self, node: ast.ColumnName, clause: str, *, in_aggregate: bool = False) -> Typed:
        """`expressions.Names`: a column of the row under its true name."""
        del in_aggregate  # pull queries have none
        if node.source is not None and node.source not in (self.alias, self.source.name):
            hint = nearest(node.source, (self.alias, self.source.name))
            message = f"'{node.source}' is not a valid stream/table name or alias."
            raise unknown_name(message, node.at, hint)
        index = self.index_of(node.name)
        if index is None:
            self._refuse(node, clause)
            hint = nearest(node.name, (name for name, _ in self.row))
            message = f"{clause} column '{expression_text(node)}' cannot be resolved."
            raise unknown_name(f"{place(node.at)}: {message}", node.at, hint)
        name = "ROWTIME" if index == len(self.row) else self.row[index][0]
        return Column(self.type_of(index), name)

    def _refuse(self, node: ast.ColumnName, clause: str) -> None:
        if node.name in _REFUSED:
            raise refusal(
                f"Pull queries don't support the following columns in {clause} clauses:"
                f" `{node.name}`.{HELP}",
                node.at,
            )


@dataclass(frozen=True, slots=True)
class Shown:
    """The columns of the answer. `projection` None: the full row as it is."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    schema: str
    projection: tuple[int, ...] | None


def shown_columns(query: ast.Query, names: PullNames) -> Shown:
    picked = list(_picked(query, names))
    columns = [(name, index, names.type_of(index)) for name, index in picked]
    _check_unique(columns, names, query)
    schema = ", ".join(
        f"{quoted(name)} {of}{' KEY' if index < names.key_count else ''}"
        for name, index, of in columns
    )
    everything = [(name, index) for index, (name, _) in enumerate(names.row)]
    projection = None if picked == everything else tuple(index for _, index in picked)
    shown = tuple(name for name, _, _ in columns)
    return Shown(shown, tuple(str(of) for _, _, of in columns), schema, projection)


def _picked(query: ast.Query, names: PullNames) -> Iterator[tuple[str, int]]:
    """Name in the answer and place in the full row of every column shown."""
    for item in query.items:
        if isinstance(item, ast.StructStar):
            raise unsupported("->* in a pull query", item.at)
        if isinstance(item, ast.Star):
            if item.source not in (None, names.alias, names.source.name):
                message = f"'{item.source}' is not a valid stream/table name or alias."
                raise unknown_name(message, item.at, nearest(str(item.source), (names.alias,)))
            yield from ((name, index) for index, (name, _) in enumerate(names.row))
            continue
        expression = item.expression
        if not isinstance(expression, ast.ColumnName):
            raise unsupported(
                f"The expression {expression_text(expression)} in a pull query", item.at
            )
        names.resolve(expression, "SELECT")
        index = names.index_of(expression.name)
        assert index is not None, "resolve would have refused it"
        yield item.alias or expression.name, index


def _check_unique(
    columns: list[tuple[str, int, SqlType]], names: PullNames, query: ast.Query
) -> None:
    seen: set[str] = set()
    for name, index, of in columns:
        if name in seen:
            part = "key" if index < names.key_count else "value"
            raise refusal(
                f"Duplicate {part} columns found in schema: {quoted(name)} {of}", query.at
            )
        seen.add(name)
