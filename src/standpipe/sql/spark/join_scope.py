"""Joined sources as a scope of names: what their columns are called, which is the key.

Columns of a joined row are called ALIAS_COLUMN; a SELECT may name them shorter where that is plain.
Not here: which joins are allowed (`join_analysis.py`), their SQL (`join_sql.py`, `join_steps.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from standpipe.model import Source
from standpipe.sql.expressions.scope import PSEUDO, WINDOW_BOUNDS
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.errors import nearest, place, refusal, unknown_name
from standpipe.sql.syntax.printer import expression_text
from standpipe.sql.types.typed_expression import Typed, TypedColumn, rewrite
from standpipe.sql.types.types import BIGINT, SqlType, parse_type

ROWKEY: Final = "ROWKEY"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the joined sources. `key`: what the others' keys must equal, over its own columns."""

    source: Source
    alias: str
    key: Typed
    node: ast.Expression
    kind: str = ""  # of the join that brings it in; "" for the first
    within: ast.Within | None = None
    #: what `key` must equal, over the columns of `left_alias`; None of the first
    left: Side | None = None

    @property
    def text(self) -> str:
        """The side of ON as messages show it: ALIAS.COLUMN, or an expression."""
        return text_of_side(self.node, self)

    @property
    def left_key(self) -> Typed:
        """What `key` must equal, over the columns of `left_alias`. Not of the first side."""
        assert self.left is not None
        return self.left.key

    @property
    def left_alias(self) -> str:
        """Alias of the source that `left_key` reads. Not of the first side."""
        assert self.left is not None
        return self.left.alias

    @property
    def is_foreign(self) -> bool:
        """Whether the left table names its partner in a column that is not its key."""
        left = self.left
        return left is not None and left.source.kind == "TABLE" and not is_on_key(left)


@dataclass(frozen=True, slots=True)
class JoinScope:
    """Names over joined rows (`select_items.ScopeNames`)."""

    sides: tuple[Side, ...]

    @property
    def key_type(self) -> SqlType:
        """Type of the key that the last join compares."""
        return self._keyed()[0].key.type

    @property
    def is_synthetic(self) -> bool:
        """No column is the key of the result: ROWKEY is."""
        if self.keeps_left_key:
            return False
        is_full = any(side.kind == "FULL" for side in self.sides)
        return is_full or not self.alternatives()

    @property
    def is_on_one_key(self) -> bool:
        """Whether all sides have one key, by which their rows can be put together at once."""
        before: list[Side] = [self.sides[0]]
        if any(side.is_foreign for side in self.sides):
            return False
        for side in self.sides[1:]:
            left = side.left
            if left is None or not any(_same(left, other) for other in before):
                return False
            before.append(side)
        return True

    @property
    def keeps_left_key(self) -> bool:
        """The last join is of tables on a foreign key: the result has the key of the first."""
        return self.sides[-1].is_foreign

    def _keyed(self) -> list[Side]:
        """The sides whose keys are the result's: those of the last join, and all equal to them."""
        found: list[Side] = []
        for side in self.sides[1:]:
            assert side.left is not None
            if not any(_same(side.left, other) for other in found):
                found = [side.left]
            found.append(side)
        return found

    def alternatives(self) -> list[tuple[str, Typed]]:
        """Columns that may be the key, the first one that the SELECT list has."""
        return [
            (side.text, TypedColumn(side.key.type, joined_name(side.alias, side.key.name)))
            for side in self._keyed()
            if isinstance(side.key, TypedColumn)
        ]

    def key_columns(self) -> list[tuple[str, Typed]]:
        """Keys of the joined rows: of the left table, ROWKEY, or the columns that are equal."""
        if self.keeps_left_key:
            first = self.sides[0]
            return [
                (
                    joined_name(first.alias, column.name),
                    TypedColumn(parse_type(column.type), joined_name(first.alias, column.name)),
                )
                for column in first.source.key_columns
            ]
        if self.is_synthetic:
            return [(ROWKEY, TypedColumn(self.key_type, ROWKEY))]
        return self.alternatives()

    def resolve(self, node: ast.ColumnName, clause: str, *, in_aggregate: bool = False) -> Typed:
        """The joined column that a name means. Raises StatementError: unknown or ambiguous."""
        del in_aggregate
        sides = self.sides
        if node.source is not None:
            sides = tuple(side for side in sides if node.source in (side.alias, side.source.name))
            if not sides:
                known = [side.alias for side in self.sides]
                message = f"'{node.source}' is not a valid stream/table name or alias."
                raise unknown_name(message, node.at, nearest(node.source, known))
            if node.name in WINDOW_BOUNDS and sides[0].source.window is not None:
                return TypedColumn(BIGINT, joined_name(sides[0].alias, node.name))
            if node.name in PSEUDO:
                name = joined_name(sides[0].alias, node.name)
                return TypedColumn(PSEUDO[node.name], name)
        found = [(side, column) for side in sides for column in side.source.columns]
        found = [(side, column) for side, column in found if column.name == node.name]
        if len(found) > 1:
            could = " or ".join(f"{side.alias}.{node.name}" for side, _ in found)
            raise refusal(
                f"{place(node.at)}: Column '{expression_text(node)}' is ambiguous. Could be"
                f" {could}.",
                node.at,
            )
        if found:
            side, column = found[0]
            return TypedColumn(parse_type(column.type), joined_name(side.alias, column.name))
        if node.source is None and node.name == "ROWTIME":
            return TypedColumn(BIGINT, "ROWTIME")
        if node.source is None and node.name == ROWKEY and self.is_synthetic:
            return TypedColumn(self.key_type, ROWKEY)
        hint = nearest(node.name, (c.name for side in self.sides for c in side.source.columns))
        message = f"{clause} column '{expression_text(node)}' cannot be resolved."
        raise unknown_name(f"{place(node.at)}: {message}", node.at, hint)

    def shown(self, node: ast.ColumnName) -> ast.ColumnName:
        """A column under its joined name."""
        for side in self.sides:
            if node.source in (side.alias, side.source.name):
                return ast.ColumnName(node.at, joined_name(side.alias, node.name))
        return node

    def star(self, item: ast.Star) -> Iterator[tuple[ast.ColumnName, str]]:
        """The columns of all sides, or of that of `source.*`; ROWKEY first if synthetic."""
        aliases = [side.alias for side in self.sides]
        known = [name for side in self.sides for name in (side.alias, side.source.name)]
        if item.source is not None and item.source not in known:
            message = f"'{item.source}' is not a valid stream/table name or alias."
            raise unknown_name(message, item.at, nearest(item.source, aliases))
        if item.source is None and self.is_synthetic:
            yield ast.ColumnName(item.at, ROWKEY), ROWKEY
        for side in self.sides:
            if item.source in (None, side.alias, side.source.name):
                for column in side.source.columns:
                    node = ast.ColumnName(item.at, column.name, side.alias)
                    yield node, joined_name(side.alias, column.name)

    def column_names(self) -> frozenset[str]:
        """All joined names, without pseudo columns."""
        return frozenset(
            joined_name(side.alias, column.name)
            for side in self.sides
            for column in side.source.columns
        )

    def name_of(self, node: ast.ColumnName) -> str:
        """The column's own name where no other source has it."""
        holders = [
            side
            for side in self.sides
            for column in side.source.columns
            if column.name == node.name
        ]
        if (len(holders) > 1 or node.name in PSEUDO) and node.source is not None:
            for side in self.sides:
                if node.source in (side.alias, side.source.name):
                    return joined_name(side.alias, node.name)
        return node.name  # of a source that is not there: `resolve` says so


def _same(left: Side, other: Side) -> bool:
    return left.alias == other.alias and left.key == other.key


def over_joined(typed: Typed, alias: str) -> Typed:
    """An expression over a side's own columns, over the joined ones."""

    def change(node: Typed) -> Typed | None:
        if isinstance(node, TypedColumn):
            return TypedColumn(node.type, joined_name(alias, node.name))
        return None

    return rewrite(typed, change)


def joined_name(alias: str, column: str) -> str:
    """The name of a side's column in the joined row."""
    return f"{alias}_{column}"


def is_on_key(side: Side) -> bool:
    """Whether a side is joined on the one key column of its source."""
    keys = side.source.key_columns
    return len(keys) == 1 and isinstance(side.key, TypedColumn) and side.key.name == keys[0].name


def text_of_side(node: ast.Expression, side: Side) -> str:
    """Half of a join condition as messages show it."""
    if isinstance(node, ast.ColumnName):
        return f"{side.alias}.{node.name}"
    return expression_text(node)
