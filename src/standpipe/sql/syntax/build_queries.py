"""Grammar callbacks for SELECT: its clauses, joins and windows."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal, NamedTuple, cast

from lark import Token

from standpipe.sql.syntax import ast
from standpipe.sql.syntax.ast import START, Expression, LiteralValue, Query
from standpipe.sql.syntax.build_expressions import ExpressionBuilder, Name, position
from standpipe.sql.syntax.errors import refusal
from standpipe.sql.types.types import INSTANT_MS_MAX

#: ms of a unit; its plural adds an S
UNITS_MS: Final = {
    "MILLISECOND": 1,
    "SECOND": 1_000,
    "MINUTE": 60_000,
    "HOUR": 3_600_000,
    "DAY": 86_400_000,
}
#: Spark counts in microseconds of 64 bits, also where a window ends that begins at any instant
DURATION_MS_MAX: Final = INSTANT_MS_MAX // 4


class Clause(NamedTuple):
    """A named optional part of a query, which `query` assembles."""

    name: str
    value: object


class QueryBuilder(ExpressionBuilder):
    """Queries on top of expressions. A clause becomes a `Clause`; `query` assembles them."""

    def star(self, token: Token) -> ast.Star:
        """*"""
        return ast.Star(position(token))

    def source_star(self, source: Name, _star: Token) -> ast.Star:
        """source.*"""
        return ast.Star(source.at, source.text)

    def struct_star(self, base: Expression, _star: Token) -> ast.StructStar:
        """base->*"""
        return ast.StructStar(base.at, base)

    def select_item(self, expression: Expression, alias: Name | None) -> ast.SelectItem:
        """expression [AS alias]."""
        return ast.SelectItem(expression.at, expression, alias and alias.text)

    def items(self, *items: ast.Star | ast.StructStar | ast.SelectItem) -> Clause:
        """The SELECT list."""
        return Clause("items", items)

    def relation(self, name: Name, alias: Name | None) -> ast.Relation:
        """A source after FROM or JOIN."""
        return ast.Relation(name.at, name.text, alias and alias.text)

    def join_kind(self, word: Token, _outer: bool | None = None) -> str:
        """INNER, LEFT, RIGHT or FULL [OUTER]."""
        return word.type

    def within(self, duration_ms: int, grace: Clause | None) -> ast.Within:
        """WITHIN duration: the same before and after."""
        return ast.Within(START, duration_ms, duration_ms, _ms(grace))

    def within_before_after(
        self, before_ms: int, after_ms: int, grace: Clause | None
    ) -> ast.Within:
        """WITHIN (before, after)."""
        return ast.Within(START, before_ms, after_ms, _ms(grace))

    def join(
        self,
        kind: Literal["INNER", "LEFT", "RIGHT", "FULL"] | None,
        relation: ast.Relation,
        within: ast.Within | None,
        condition: Expression,
    ) -> ast.Join:
        """[kind] JOIN relation [WITHIN …] ON condition."""
        return ast.Join(relation.at, kind or "INNER", relation, within, condition)

    def from_clause(self, relation: ast.Relation, *joins: ast.Join) -> tuple[object, object]:
        """FROM relation joins."""
        return relation, joins

    def unit(self, word: Token) -> int:
        """SECOND, MINUTES, …: its length in ms."""
        return UNITS_MS[str(word).upper().removesuffix("S")]

    def duration(self, count: LiteralValue, unit_ms: int) -> int:
        """10 SECONDS, in ms. Raises StatementError for more than DURATION_MS_MAX."""
        duration_ms = cast("int", count.value) * unit_ms
        if duration_ms > DURATION_MS_MAX:
            raise refusal(f"A duration is longer than {DURATION_MS_MAX} ms.", count.at)
        return duration_ms

    def retention(self, duration_ms: int) -> Clause:
        """RETENTION duration."""
        return Clause("retention", duration_ms)

    def grace(self, duration_ms: int) -> Clause:
        """GRACE PERIOD duration."""
        return Clause("grace", duration_ms)

    def tumbling(
        self, size_ms: int, retention: Clause | None, grace: Clause | None
    ) -> ast.WindowClause:
        """TUMBLING (SIZE …): advances by its size."""
        return ast.WindowClause(START, "TUMBLING", size_ms, size_ms, _ms(retention), _ms(grace))

    def hopping(
        self, size_ms: int, advance_ms: int, retention: Clause | None, grace: Clause | None
    ) -> ast.WindowClause:
        """HOPPING (SIZE …, ADVANCE BY …)."""
        return ast.WindowClause(START, "HOPPING", size_ms, advance_ms, _ms(retention), _ms(grace))

    def session(
        self, gap_ms: int, retention: Clause | None, grace: Clause | None
    ) -> ast.WindowClause:
        """SESSION (gap)."""
        return ast.WindowClause(START, "SESSION", gap_ms, 0, _ms(retention), _ms(grace))

    def window(self, word: Token, _name: Token | None, clause: ast.WindowClause) -> Clause:
        """WINDOW clause."""
        return Clause("window", replace(clause, at=position(word)))

    def where(self, condition: Expression) -> Clause:
        """WHERE condition."""
        return Clause("where", condition)

    def group_by(self, *keys: Expression) -> Clause:
        """GROUP BY keys."""
        return Clause("group_by", keys)

    def partition_by(self, *keys: Expression) -> Clause:
        """PARTITION BY keys."""
        return Clause("partition_by", keys)

    def having(self, condition: Expression) -> Clause:
        """HAVING condition."""
        return Clause("having", condition)

    def emit(self, word: Token) -> Clause:
        """EMIT CHANGES or FINAL."""
        return Clause("emit", word.type)

    def direction(self, word: Token) -> Token:
        """ASC or DESC."""
        return word

    def order_by(self, word: Token, *parts: Expression | Token | Clause | None) -> Clause:
        """ORDER BY keys [DESC] [AFTER …]."""
        *keys, direction, after = parts
        return Clause(
            "order_by",
            ast.OrderBy(
                position(word),
                cast("tuple[Expression, ...]", tuple(keys)),
                is_descending=direction is not None and str(direction).upper() == "DESC",
                after=cast(
                    "tuple[Expression, ...]", after.value if isinstance(after, Clause) else ()
                ),
            ),
        )

    def after(self, *values: Expression) -> Clause:
        """AFTER values."""
        return Clause("after", values)

    def limit(self, count: LiteralValue) -> Clause:
        """LIMIT n."""
        return Clause("limit", count)

    def query(
        self,
        word: Token,
        items: Clause,
        from_clause: tuple[ast.Relation, tuple[ast.Join, ...]],
        *clauses: Clause | None,
    ) -> Query:
        """A whole SELECT, assembled from its clauses by their names."""
        relation, joins = from_clause
        given: dict[str, object] = {clause.name: clause.value for clause in clauses if clause}
        chosen = cast("tuple[ast.SelectItem, ...]", items.value)
        return Query(position(word), chosen, relation, joins, **given)  # pyright: ignore[reportArgumentType]


def _ms(clause: Clause | None) -> int | None:
    return None if clause is None else cast("int", clause.value)
