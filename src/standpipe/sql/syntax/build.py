"""Callbacks of the grammar for queries and statements (see build_expressions.py for the rest)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal, NamedTuple, cast

from lark import Token

from standpipe.sql.syntax import ast, ast_statements
from standpipe.sql.syntax.ast import START, Expression, LiteralValue, Query, Statement
from standpipe.sql.syntax.ast_statements import ColumnDefinition, Creation, Kind, Property
from standpipe.sql.syntax.build_expressions import ExpressionBuilder, Name, position, text_of
from standpipe.sql.types.types import SqlType

#: ms of a unit; its plural adds an S
UNITS_MS: Final = {
    "MILLISECOND": 1,
    "SECOND": 1_000,
    "MINUTE": 60_000,
    "HOUR": 3_600_000,
    "DAY": 86_400_000,
}


class Clause(NamedTuple):
    """An optional part of a query under its name, to be put together in `query`."""

    name: str
    value: object


class Ended(NamedTuple):
    """A statement and the offset behind its semicolon."""

    statement: Statement
    end: int


class StatementBuilder(ExpressionBuilder):
    """The whole grammar. `start` gives Ended statements; parser.py cuts out their texts."""

    def start(self, *parts: Ended | Statement | None) -> tuple[Ended, ...]:
        whole = [part if isinstance(part, Ended) else Ended(part, -1) for part in parts if part]
        return tuple(whole)

    def ended(self, statement: Statement, semicolon: Token) -> Ended:
        return Ended(statement, (semicolon.start_pos or 0) + 1)

    # ------------------------------------------------------------------------- sources and rows

    def kind(self, token: Token) -> Kind:
        return "STREAM" if token.type == "STREAM" else "TABLE"

    def _yes(self, *_words: Token) -> bool:
        return True

    or_replace = source_word = if_not_exists = if_exists = _yes
    delete_topic = extended = everything = from_beginning = not_exists = outer_word = _yes

    def create_head(
        self,
        or_replace: bool | None,
        source_word: bool | None,
        kind: Kind,
        if_not_exists: bool | None,
        name: Name,
    ) -> Creation:
        flags = (bool(or_replace), bool(if_not_exists), bool(source_word))
        return Creation(name.at, kind, name.text, *flags)

    def key_mark(self) -> tuple[str, None]:
        return ("KEY", None)

    def primary_key_mark(self) -> tuple[str, None]:
        return ("PRIMARY KEY", None)

    def headers_mark(self) -> tuple[str, None]:
        return ("HEADERS", None)

    def header_mark(self, key: Token) -> tuple[str, str]:
        return ("HEADER", text_of(key))

    def column_definition(
        self, name: Name, of: SqlType, mark: tuple[str, str | None] | None
    ) -> ColumnDefinition:
        word, key = mark or ("", None)
        return ColumnDefinition(name.at, name.text, of, word, key)  # type: ignore[arg-type]

    def columns(self, *definitions: ColumnDefinition) -> tuple[ColumnDefinition, ...]:
        return definitions

    def property(self, name: Name | LiteralValue, value: LiteralValue) -> Property:
        key = name.text if isinstance(name, Name) else str(name.value)
        return Property(name.at, key.upper(), value)

    def with_clause(self, *properties: Property) -> tuple[Property, ...]:
        return properties

    def create_source(
        self,
        creation: Creation,
        columns: tuple[ColumnDefinition, ...] | None,
        properties: tuple[Property, ...] | None,
    ) -> Statement:
        return ast_statements.CreateSource(START, creation, columns or (), properties or ())

    def create_as(
        self, creation: Creation, properties: tuple[Property, ...] | None, query: Query
    ) -> Statement:
        return ast_statements.CreateAs(START, creation, properties or (), query)

    def insert_select(
        self, target: Name, properties: tuple[Property, ...] | None, query: Query
    ) -> Statement:
        return ast_statements.InsertSelect(START, target.text, target.at, properties or (), query)

    def names(self, *names: Name) -> tuple[str, ...]:
        return tuple(name.text for name in names)

    def insert_values(
        self, target: Name, columns: tuple[str, ...] | None, *values: Expression
    ) -> Statement:
        return ast_statements.InsertValues(START, target.text, columns or (), values)

    def drop_source(
        self, kind: Kind, if_exists: bool | None, name: Name, delete_topic: bool | None
    ) -> Statement:
        return ast_statements.DropSource(
            START, kind, name.text, bool(if_exists), bool(delete_topic)
        )

    def create_type(self, if_not_exists: bool | None, name: Name, of: SqlType) -> Statement:
        return ast_statements.CreateType(START, name.text, of, bool(if_not_exists))

    def drop_type(self, if_exists: bool | None, name: Name) -> Statement:
        return ast_statements.DropType(START, name.text, bool(if_exists))

    def addition(self, name: Name, of: SqlType) -> ColumnDefinition:
        return ColumnDefinition(name.at, name.text, of)

    def alter_source(self, kind: Kind, name: Name, *additions: ColumnDefinition) -> Statement:
        return ast_statements.AlterSource(START, kind, name.text, additions)

    def alter_system(self, name: Token, value: Token) -> Statement:
        return ast_statements.AlterSystem(START, text_of(name), text_of(value))

    # --------------------------------------------------------------------------- administration

    def terminate(self, which: Name | bool) -> Statement:
        query_id = which.text if isinstance(which, Name) else None
        return ast_statements.ControlQuery(START, "TERMINATE", query_id)

    def pause(self, which: Name | bool) -> Statement:
        query_id = which.text if isinstance(which, Name) else None
        return ast_statements.ControlQuery(START, "PAUSE", query_id)

    def resume(self, which: Name | bool) -> Statement:
        query_id = which.text if isinstance(which, Name) else None
        return ast_statements.ControlQuery(START, "RESUME", query_id)

    def showable(self, *words: Token) -> str:
        return " ".join(str(word).upper() for word in words)

    describable = showable

    def show(self, what: str, extended: bool | None) -> Statement:
        return ast_statements.Show(START, what, bool(extended))

    def describe(self, name: Name, extended: bool | None) -> Statement:
        return ast_statements.Describe(START, name.text, bool(extended))

    def describe_all(self, what: str, extended: bool | None) -> Statement:
        return ast_statements.DescribeAll(START, what, bool(extended))

    def describe_function(self, name: Name) -> Statement:
        return ast_statements.DescribeFunction(START, name.text)

    def explain_query(self, statement: Statement) -> Statement:
        return ast_statements.Explain(START, statement)

    def explain_route(self, query: Query) -> Statement:
        return ast_statements.ExplainRoute(START, query)

    def explain_id(self, name: Name) -> Statement:
        if name.text == "ASSIGNMENT":  # no id of a query looks like that, and columns may
            return ast_statements.ExplainAssignment(START)
        return ast_statements.Explain(START, name.text)

    def set_property(self, name: Token, value: Token) -> Statement:
        return ast_statements.SetProperty(START, text_of(name), text_of(value))

    def unset_property(self, name: Token) -> Statement:
        return ast_statements.SetProperty(START, text_of(name), None)

    def define(self, name: Name, value: Token) -> Statement:
        return ast_statements.Define(START, name.text, text_of(value))

    def undefine(self, name: Name) -> Statement:
        return ast_statements.Define(START, name.text, None)

    def interval(self, count: Token) -> int:
        return int(str(count))

    def print_topic(
        self,
        topic: Name | LiteralValue,
        from_beginning: bool | None,
        interval: int | None,
        limit: Clause | None,
    ) -> Statement:
        count = None if limit is None else cast("LiteralValue", limit.value)
        # ksqlDB: here a name counts as it is written, quoted or not
        name = topic.written if isinstance(topic, Name) else str(topic.value)
        return ast_statements.PrintTopic(START, name, bool(from_beginning), interval, count)

    def timeout(self, duration_ms: int) -> int:
        return duration_ms

    def assert_topic(
        self,
        absent: bool | None,
        topic: Name | LiteralValue,
        properties: tuple[Property, ...] | None,
        timeout_ms: int | None,
    ) -> Statement:
        return ast_statements.AssertTopic(
            START, _topic(topic), not absent, properties or (), timeout_ms
        )

    # ----------------------------------------------------------------------------------- SELECT

    def star(self, token: Token) -> ast.Star:
        return ast.Star(position(token))

    def source_star(self, source: Name, _star: Token) -> ast.Star:
        return ast.Star(source.at, source.text)

    def struct_star(self, base: Expression, _star: Token) -> ast.StructStar:
        return ast.StructStar(base.at, base)

    def select_item(self, expression: Expression, alias: Name | None) -> ast.SelectItem:
        return ast.SelectItem(expression.at, expression, alias and alias.text)

    def items(self, *items: ast.Star | ast.StructStar | ast.SelectItem) -> Clause:
        return Clause("items", items)

    def relation(self, name: Name, alias: Name | None) -> ast.Relation:
        return ast.Relation(name.at, name.text, alias and alias.text)

    def join_kind(self, word: Token, _outer: bool | None = None) -> str:
        return word.type

    def within(self, duration_ms: int, grace: Clause | None) -> ast.Within:
        return ast.Within(START, duration_ms, duration_ms, _ms(grace))

    def within_before_after(
        self, before_ms: int, after_ms: int, grace: Clause | None
    ) -> ast.Within:
        return ast.Within(START, before_ms, after_ms, _ms(grace))

    def join(
        self,
        kind: Literal["INNER", "LEFT", "RIGHT", "FULL"] | None,
        relation: ast.Relation,
        within: ast.Within | None,
        condition: Expression,
    ) -> ast.Join:
        return ast.Join(relation.at, kind or "INNER", relation, within, condition)

    def from_clause(self, relation: ast.Relation, *joins: ast.Join) -> tuple[object, object]:
        return relation, joins

    def unit(self, word: Token) -> int:
        return UNITS_MS[str(word).upper().removesuffix("S")]

    def duration(self, count: LiteralValue, unit_ms: int) -> int:
        return cast("int", count.value) * unit_ms

    def retention(self, duration_ms: int) -> Clause:
        return Clause("retention", duration_ms)

    def grace(self, duration_ms: int) -> Clause:
        return Clause("grace", duration_ms)

    def tumbling(
        self, size_ms: int, retention: Clause | None, grace: Clause | None
    ) -> ast.WindowClause:
        return ast.WindowClause(START, "TUMBLING", size_ms, size_ms, _ms(retention), _ms(grace))

    def hopping(
        self, size_ms: int, advance_ms: int, retention: Clause | None, grace: Clause | None
    ) -> ast.WindowClause:
        return ast.WindowClause(START, "HOPPING", size_ms, advance_ms, _ms(retention), _ms(grace))

    def session(
        self, gap_ms: int, retention: Clause | None, grace: Clause | None
    ) -> ast.WindowClause:
        return ast.WindowClause(START, "SESSION", gap_ms, 0, _ms(retention), _ms(grace))

    def window(self, word: Token, _name: Token | None, clause: ast.WindowClause) -> Clause:
        return Clause("window", replace(clause, at=position(word)))

    def where(self, condition: Expression) -> Clause:
        return Clause("where", condition)

    def group_by(self, *keys: Expression) -> Clause:
        return Clause("group_by", keys)

    def partition_by(self, *keys: Expression) -> Clause:
        return Clause("partition_by", keys)

    def having(self, condition: Expression) -> Clause:
        return Clause("having", condition)

    def emit(self, word: Token) -> Clause:
        return Clause("emit", word.type)

    def direction(self, word: Token) -> Token:
        return word

    def order_by(self, word: Token, *parts: Expression | Token | Clause | None) -> Clause:
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
        return Clause("after", values)

    def limit(self, count: LiteralValue) -> Clause:
        return Clause("limit", count)

    def query(
        self,
        word: Token,
        items: Clause,
        from_clause: tuple[ast.Relation, tuple[ast.Join, ...]],
        *clauses: Clause | None,
    ) -> Query:
        relation, joins = from_clause
        given: dict[str, object] = {clause.name: clause.value for clause in clauses if clause}
        chosen = cast("tuple[ast.SelectItem, ...]", items.value)
        return Query(position(word), chosen, relation, joins, **given)  # type: ignore[arg-type]


def _ms(clause: Clause | None) -> int | None:
    return None if clause is None else cast("int", clause.value)


def _topic(topic: Name | LiteralValue) -> str:
    return topic.text if isinstance(topic, Name) else str(topic.value)
