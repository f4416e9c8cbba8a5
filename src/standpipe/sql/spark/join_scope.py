"""Joined sources as a scope of names: the names of their columns, and which one is the key.

Columns of a joined row are named ALIAS_COLUMN; a SELECT may omit the alias if that is unambiguous.
Not here: which joins are allowed (`join_analysis.py`), their SQL (`join_sql.py`, `join_steps.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from standpipe.model import Source
from standpipe.sql.expressions.scope import PSEUDO, WINDOW_BOUNDS, ambiguous, by_alias, unresolved
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.errors import nearest, refusal, unknown_name
from standpipe.sql.syntax.printer import expression_text
from standpipe.sql.types.typed_expression import Typed, TypedColumn, rewrite
from standpipe.sql.types.types import BIGINT, SqlType, parse_type

ROWKEY: Final = "ROWKEY"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the joined sources. `key`: its half of ON, over its own columns."""

    source: Source
    alias: str
    key: Typed
    node: ast.Expression
    kind: str = ""  # kind of the join that adds it; "" for the first
    within: ast.Within | None = None
    #: the side whose key must equal `key`; None for the first
    left: Side | None = None

    @property
    def text(self) -> str:
        """Its half of ON as messages show it: ALIAS.COLUMN, or an expression."""
        return text_of_side(self.node, self)

    @property
    def left_key(self) -> Typed:
        """What `key` must equal, over the columns of `left_alias`. Not for the first side."""
        assert self.left is not None
        return self.left.key

    @property
    def left_alias(self) -> str:
        """Alias of the source that `left_key` reads. Not for the first side."""
        assert self.left is not None
        return self.left.alias

    @property
    def is_foreign(self) -> bool:
        """Whether this is a foreign-key join: the left table's column in ON is not its key."""
        left = self.left
        return left is not None and left.source.kind == "TABLE" and not is_on_key(left)


@dataclass(frozen=True, slots=True)
class JoinScope:
    """Names over joined rows (`select_items.ScopeNames`)."""

    sides: tuple[Side, ...]
    #: whether rows keep ROWPARTITION and ROWOFFSET of each side: only if the query names them, as
    #: they are part of the state
    has_positions: bool = False
    #: whether `*` has the pseudo columns of each side: in ksqlDB it has after PARTITION BY
    shows_pseudo: bool = False
    #: whether the joined rows are grouped
    is_grouped: bool = False

    @property
    def key_type(self) -> SqlType:
        """Type of the key that the last join compares."""
        return self.sides[-1].key.type

    @property
    def is_synthetic(self) -> bool:
        """Whether no column is the key of the result, so that it gets one of its own."""
        return not self.keeps_left_key and not self.alternatives()

    @property
    def synthetic_name(self) -> str:
        """Name of the key that is no source's column: the first of ROWKEY, ROWKEY_1, … that is none
        (ksqlDB). In Spark SQL its column is always ROWKEY: joined columns have their alias before.
        """
        taken = {column.name for side in self.sides for column in side.source.columns}
        name, number = ROWKEY, 0
        while name in taken:
            number += 1
            name = f"{ROWKEY}_{number}"
        return name

    @property
    def is_on_one_key(self) -> bool:
        """Whether all sides are joined on one key, so that one GROUP BY can join their rows."""
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
        """Whether the last join is of tables on a foreign key: the result then has the first
        source's key. What a stream has been joined with is a stream, which has no foreign keys."""
        return self.sides[0].source.kind == "TABLE" and self.sides[-1].is_foreign

    def _keyed(self) -> list[Side]:
        """The sides whose key is the result's: those of the last join, and all on the same key;
        none after a FULL join, where each may be NULL."""
        found: list[Side] = []
        for side in self.sides[1:]:
            assert side.left is not None
            if side.kind == "FULL":
                found = []
                continue
            if not any(_same(side.left, other) for other in found):
                found = [side.left]
            found.append(side)
        return found

    def alternatives(self) -> list[tuple[str, Typed]]:
        """Columns that may be the key; the first that the SELECT list contains becomes it."""
        return [
            (side.text, TypedColumn(side.key.type, joined_name(side.alias, side.key.name)))
            for side in self._keyed()
            if isinstance(side.key, TypedColumn)
        ]

    def key_columns(self) -> list[tuple[str, Typed]]:
        """Keys of the joined rows: the left table's, the synthetic one, or the columns that are
        equal."""
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
            return [(self.synthetic_name, TypedColumn(self.key_type, ROWKEY))]
        return self.alternatives()

    def resolve(self, node: ast.ColumnName, clause: str, *, in_aggregate: bool = False) -> Typed:
        """The joined column of a name. Raises StatementError if it is unknown or ambiguous."""
        del in_aggregate
        sides = self.sides
        if node.source is not None:
            known = [name for side in sides for name in (side.alias, side.source.name)]
            if node.source not in known:
                aliases = [side.alias for side in self.sides]
                message = f"'{node.source}' is not a valid stream/table name or alias."
                raise unknown_name(message, node.at, nearest(node.source, aliases))
            named, sides = sides, tuple(side for side in sides if node.source == side.alias)
            if not sides:
                (alias,) = (side.alias for side in named if side.source.name == node.source)
                raise unresolved(node, clause, by_alias(node, alias))
            if node.name in WINDOW_BOUNDS and sides[0].source.window is not None:
                return TypedColumn(BIGINT, joined_name(sides[0].alias, node.name))
            if node.name in PSEUDO:
                self._check_pseudo(node)
                name = joined_name(sides[0].alias, node.name)
                return TypedColumn(PSEUDO[node.name], name)
        holders = [side.alias for side in sides if _has(side.source, node.name)]
        if len(holders) > 1:
            raise refusal(ambiguous(node, holders), node.at)
        found = [(side, column) for side in sides for column in side.source.columns]
        for side, column in found:
            if column.name == node.name:
                return TypedColumn(parse_type(column.type), joined_name(side.alias, column.name))
        if clause == "SELECT" and not self.is_grouped and self._is_synthetic(node):
            return TypedColumn(self.key_type, ROWKEY)
        hint = nearest(node.name, (c.name for side in self.sides for c in side.source.columns))
        raise unresolved(node, clause, hint)

    def _is_synthetic(self, node: ast.ColumnName) -> bool:
        """Whether this is the key that no source has. It is made for the projection, so no other
        clause sees it (ColumnReferenceValidator.couldBeSyntheticJoinColumn)."""
        return node.source is None and self.is_synthetic and node.name == self.synthetic_name

    def _check_pseudo(self, node: ast.ColumnName) -> None:
        if node.name != "ROWTIME" and self.sides[0].source.kind == "TABLE":
            raise refusal(
                f"{expression_text(node)}: a row of joined tables is made of several records, and"
                " has no position.",
                node.at,
            )

    def shown(self, node: ast.ColumnName) -> ast.ColumnName:
        """A column under its joined name."""
        for side in self.sides:
            if node.source == side.alias:
                return ast.ColumnName(node.at, joined_name(side.alias, node.name))
        return node

    def star(self, item: ast.Star) -> Iterator[tuple[ast.ColumnName, str]]:
        """The columns of all sides, or of one for `source.*`; before them a synthetic key, which
        stands last after PARTITION BY."""
        aliases = [side.alias for side in self.sides]
        if item.source is not None and item.source not in aliases:
            message = f"'{item.source}' is not a valid stream/table name or alias."
            raise unknown_name(message, item.at, nearest(item.source, aliases))
        synthetic = [self.synthetic_name] if item.source is None and self.is_synthetic else []
        if not self.shows_pseudo:
            yield from ((ast.ColumnName(item.at, name), name) for name in synthetic)
        for side in self.sides:
            if item.source in (None, side.alias):
                for name in self._names_of(side):
                    yield ast.ColumnName(item.at, name, side.alias), joined_name(side.alias, name)
        if self.shows_pseudo:
            yield from ((ast.ColumnName(item.at, name), name) for name in synthetic)

    def _names_of(self, side: Side) -> list[str]:
        """The columns of a side in `*`. After PARTITION BY, ksqlDB shows them as it keeps them:
        values, headers, pseudo columns, keys."""
        columns = side.source.columns
        if not self.shows_pseudo:
            return [column.name for column in columns]
        values = sorted(side.source.value_columns, key=lambda column: column.header is not None)
        keys = side.source.key_columns
        return [*(each.name for each in values), *PSEUDO, *(each.name for each in keys)]

    def own_columns(self) -> frozenset[str]:
        """The names that the columns have in their sources."""
        return frozenset(column.name for side in self.sides for column in side.source.columns)

    def column_names(self) -> frozenset[str]:
        """All joined names, without pseudo columns."""
        return frozenset(
            joined_name(side.alias, column.name)
            for side in self.sides
            for column in side.source.columns
        )

    def name_of(self, node: ast.ColumnName) -> str:
        """The column's own name if no other source has it, otherwise its joined name."""
        holders = [
            side
            for side in self.sides
            for column in side.source.columns
            if column.name == node.name
        ]
        if (len(holders) > 1 or node.name in PSEUDO) and node.source is not None:
            for side in self.sides:
                if node.source == side.alias:
                    return joined_name(side.alias, node.name)
        return node.name  # if the source is unknown, `resolve` reports it


def _has(source: Source, name: str) -> bool:
    """Whether the name alone may mean something of this source: pseudo columns are of each."""
    is_bound = name in WINDOW_BOUNDS and source.window is not None
    return name in PSEUDO or is_bound or any(column.name == name for column in source.columns)


def _same(left: Side, other: Side) -> bool:
    return left.alias == other.alias and left.key == other.key


def over_joined(typed: Typed, alias: str) -> Typed:
    """Rewrites an expression over a side's own columns to the joined columns."""

    def change(node: Typed) -> Typed | None:
        if isinstance(node, TypedColumn):
            return TypedColumn(node.type, joined_name(alias, node.name))
        return None

    return rewrite(typed, change)


def joined_name(alias: str, column: str) -> str:
    """The name of a side's column in the joined row."""
    return f"{alias}_{column}"


def is_on_key(side: Side) -> bool:
    """Whether a side is joined on its source's only key column."""
    keys = side.source.key_columns
    return len(keys) == 1 and isinstance(side.key, TypedColumn) and side.key.name == keys[0].name


def text_of_side(node: ast.Expression, side: Side) -> str:
    """Half of a join condition as messages show it."""
    if isinstance(node, ast.ColumnName):
        return f"{side.alias}.{node.name}"
    return expression_text(node)
