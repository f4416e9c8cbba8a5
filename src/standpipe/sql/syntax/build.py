"""Grammar callbacks for statements. Not here: SELECT and expressions (`build_queries.py`,
`build_expressions.py`)."""

from __future__ import annotations

from typing import NamedTuple, cast

from lark import Token

from standpipe.sql.syntax import ast_statements
from standpipe.sql.syntax.ast import START, Expression, LiteralValue, Query, Statement
from standpipe.sql.syntax.ast_statements import ColumnDefinition, Creation, Kind, Property
from standpipe.sql.syntax.build_expressions import Name, text_of
from standpipe.sql.syntax.build_queries import Clause, QueryBuilder
from standpipe.sql.types.types import SqlType


class Ended(NamedTuple):
    """A statement and the offset after its semicolon."""

    statement: Statement
    end: int


class StatementBuilder(QueryBuilder):
    """The whole grammar. `start` returns Ended statements; parser.py cuts out their texts."""

    def start(self, *parts: Ended | Statement | None) -> tuple[Ended, ...]:
        """All statements of a text."""
        whole = [part if isinstance(part, Ended) else Ended(part, -1) for part in parts if part]
        return tuple(whole)

    def ended(self, statement: Statement, semicolon: Token) -> Ended:
        """A statement and its semicolon."""
        return Ended(statement, (semicolon.start_pos or 0) + 1)

    # ------------------------------------------------------------------------- sources and rows

    def kind(self, token: Token) -> Kind:
        """STREAM or TABLE."""
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
        """CREATE [OR REPLACE] [SOURCE] kind [IF NOT EXISTS] name."""
        flags = (bool(or_replace), bool(if_not_exists), bool(source_word))
        return Creation(name.at, kind, name.text, *flags)

    def key_mark(self) -> tuple[str, None]:
        """… KEY after a column."""
        return ("KEY", None)

    def primary_key_mark(self) -> tuple[str, None]:
        """… PRIMARY KEY after a column."""
        return ("PRIMARY KEY", None)

    def headers_mark(self) -> tuple[str, None]:
        """… HEADERS after a column."""
        return ("HEADERS", None)

    def header_mark(self, key: Token) -> tuple[str, str]:
        """… HEADER('key') after a column."""
        return ("HEADER", text_of(key))

    def column_definition(
        self, name: Name, of: SqlType, mark: tuple[str, str | None] | None
    ) -> ColumnDefinition:
        """name type [mark]."""
        word, key = mark or ("", None)
        return ColumnDefinition(name.at, name.text, of, word, key)  # pyright: ignore[reportArgumentType]

    def columns(self, *definitions: ColumnDefinition) -> tuple[ColumnDefinition, ...]:
        """(column, …)."""
        return definitions

    def property(self, name: Name | LiteralValue, value: LiteralValue) -> Property:
        """KEY = literal; the key may be quoted text."""
        key = name.text if isinstance(name, Name) else str(name.value)
        return Property(name.at, key.upper(), value)

    def with_clause(self, *properties: Property) -> tuple[Property, ...]:
        """WITH (property, …)."""
        return properties

    def create_source(
        self,
        creation: Creation,
        columns: tuple[ColumnDefinition, ...] | None,
        properties: tuple[Property, ...] | None,
    ) -> Statement:
        """CREATE … (columns) WITH (…)."""
        return ast_statements.CreateSource(START, creation, columns or (), properties or ())

    def create_as(
        self, creation: Creation, properties: tuple[Property, ...] | None, query: Query
    ) -> Statement:
        """CREATE … AS SELECT …."""
        return ast_statements.CreateAs(START, creation, properties or (), query)

    def insert_select(
        self, target: Name, properties: tuple[Property, ...] | None, query: Query
    ) -> Statement:
        """INSERT INTO target SELECT …."""
        return ast_statements.InsertSelect(START, target.text, target.at, properties or (), query)

    def names(self, *names: Name) -> tuple[str, ...]:
        """(name, …) of an INSERT."""
        return tuple(name.text for name in names)

    def insert_values(
        self, target: Name, columns: tuple[str, ...] | None, *values: Expression
    ) -> Statement:
        """INSERT INTO target (columns) VALUES (…)."""
        return ast_statements.InsertValues(START, target.text, columns or (), values)

    def drop_source(
        self, kind: Kind, if_exists: bool | None, name: Name, delete_topic: bool | None
    ) -> Statement:
        """DROP kind … [DELETE TOPIC]."""
        return ast_statements.DropSource(
            START, kind, name.text, bool(if_exists), bool(delete_topic)
        )

    def create_type(self, if_not_exists: bool | None, name: Name, of: SqlType) -> Statement:
        """CREATE TYPE name AS type."""
        return ast_statements.CreateType(START, name.text, of, bool(if_not_exists))

    def drop_type(self, if_exists: bool | None, name: Name) -> Statement:
        """DROP TYPE name."""
        return ast_statements.DropType(START, name.text, bool(if_exists))

    def addition(self, name: Name, of: SqlType) -> ColumnDefinition:
        """ADD COLUMN name type."""
        return ColumnDefinition(name.at, name.text, of)

    def alter_source(self, kind: Kind, name: Name, *additions: ColumnDefinition) -> Statement:
        """ALTER kind name ADD COLUMN …."""
        return ast_statements.AlterSource(START, kind, name.text, additions)

    def alter_system(self, name: Token, value: Token) -> Statement:
        """ALTER SYSTEM 'key' = 'value'."""
        return ast_statements.AlterSystem(START, text_of(name), text_of(value))

    # --------------------------------------------------------------------------- administration

    def terminate(self, which: Name | bool) -> Statement:
        """TERMINATE id or ALL."""
        query_id = which.text if isinstance(which, Name) else None
        return ast_statements.ControlQuery(START, "TERMINATE", query_id)

    def pause(self, which: Name | bool) -> Statement:
        """PAUSE id or ALL."""
        query_id = which.text if isinstance(which, Name) else None
        return ast_statements.ControlQuery(START, "PAUSE", query_id)

    def resume(self, which: Name | bool) -> Statement:
        """RESUME id or ALL."""
        query_id = which.text if isinstance(which, Name) else None
        return ast_statements.ControlQuery(START, "RESUME", query_id)

    def showable(self, *words: Token) -> str:
        """The words after SHOW, upper-cased."""
        return " ".join(str(word).upper() for word in words)

    describable = showable

    def show(self, what: str, extended: bool | None) -> Statement:
        """SHOW what [EXTENDED]."""
        return ast_statements.Show(START, what, bool(extended))

    def show_lag(self, name: Name | None) -> Statement:
        """SHOW LAG [table]."""
        return ast_statements.ShowLag(START, None if name is None else name.text)

    def describe(self, name: Name, extended: bool | None) -> Statement:
        """DESCRIBE name [EXTENDED]. A source may have the name TABLES, in quotes here."""
        if name.text == "TABLES" and not name.is_quoted:
            return ast_statements.DescribeAll(START, "TABLES", bool(extended))
        return ast_statements.Describe(START, name.text, bool(extended))

    def describe_all(self, what: str, extended: bool | None) -> Statement:
        """DESCRIBE STREAMS [EXTENDED]."""
        return ast_statements.DescribeAll(START, what, bool(extended))

    def describe_function(self, name: Name) -> Statement:
        """DESCRIBE FUNCTION name."""
        return ast_statements.DescribeFunction(START, name.text)

    def explain_query(self, statement: Statement) -> Statement:
        """EXPLAIN statement."""
        return ast_statements.Explain(START, statement)

    def explain_route(self, query: Query) -> Statement:
        """EXPLAIN ROUTE SELECT …."""
        return ast_statements.ExplainRoute(START, query)

    def explain_id(self, name: Name) -> Statement:
        """EXPLAIN id, or EXPLAIN ASSIGNMENT."""
        if name.text == "ASSIGNMENT":  # no query id; not a keyword, so columns may use it
            return ast_statements.ExplainAssignment(START)
        return ast_statements.Explain(START, name.text)

    def set_property(self, name: Token, value: Token) -> Statement:
        """SET 'key' = 'value'."""
        return ast_statements.SetProperty(START, text_of(name), text_of(value))

    def unset_property(self, name: Token) -> Statement:
        """UNSET 'key'."""
        return ast_statements.SetProperty(START, text_of(name), None)

    def define(self, name: Name, value: Token) -> Statement:
        """DEFINE name = 'value'."""
        return ast_statements.Define(START, name.text, text_of(value))

    def undefine(self, name: Name) -> Statement:
        """UNDEFINE name."""
        return ast_statements.Define(START, name.text, None)

    def interval(self, count: Token) -> int:
        """INTERVAL n of PRINT."""
        return int(str(count))

    def print_topic(
        self,
        topic: Name | LiteralValue,
        from_beginning: bool | None,
        interval: int | None,
        limit: Clause | None,
    ) -> Statement:
        """PRINT topic …."""
        count = None if limit is None else cast("LiteralValue", limit.value)
        # in ksqlDB the name here is taken as written, quoted or not
        name = topic.written if isinstance(topic, Name) else str(topic.value)
        return ast_statements.PrintTopic(START, name, bool(from_beginning), interval, count)

    def create_connector(self, *_parts: object) -> Statement:
        """CREATE [SOURCE | SINK] CONNECTOR …."""
        return ast_statements.Elsewhere(START, "CREATE CONNECTOR")

    def drop_connector(self, *_parts: object) -> Statement:
        """DROP CONNECTOR [IF EXISTS] name."""
        return ast_statements.Elsewhere(START, "DROP CONNECTOR")

    def describe_connector(self, _name: Name) -> Statement:
        """DESCRIBE CONNECTOR name."""
        return ast_statements.Elsewhere(START, "DESCRIBE CONNECTOR")

    def schema_part(self, *_parts: object) -> None:
        """SUBJECT or ID of ASSERT SCHEMA."""

    def assert_schema(self, *_parts: object) -> Statement:
        """ASSERT [NOT EXISTS] SCHEMA …."""
        return ast_statements.Elsewhere(START, "ASSERT SCHEMA")

    def timeout(self, duration_ms: int) -> int:
        """TIMEOUT of ASSERT, in ms."""
        return duration_ms

    def assert_topic(
        self,
        absent: bool | None,
        topic: Name | LiteralValue,
        properties: tuple[Property, ...] | None,
        timeout_ms: int | None,
    ) -> Statement:
        """ASSERT [NOT EXISTS] TOPIC …."""
        return ast_statements.AssertTopic(
            START, _topic(topic), not absent, properties or (), timeout_ms
        )


def _topic(topic: Name | LiteralValue) -> str:
    return topic.text if isinstance(topic, Name) else str(topic.value)
