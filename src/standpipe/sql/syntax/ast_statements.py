"""The statements other than SELECT (which is `ast.Query`), as they were written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from standpipe.sql.syntax.ast import (
    Expression,
    LiteralValue,
    Position,
    Query,
    Statement,
    SyntaxNode,
)
from standpipe.sql.types.types import SqlType

Kind = Literal["STREAM", "TABLE"]


@dataclass(frozen=True, slots=True)
class ColumnDefinition(SyntaxNode):
    """name type [mark]. `mark` "": a value column. `header_key`: the key of HEADER('key')."""

    name: str
    type: SqlType
    mark: Literal["", "KEY", "PRIMARY KEY", "HEADERS", "HEADER"] = ""
    header_key: str | None = None


@dataclass(frozen=True, slots=True)
class Property(SyntaxNode):
    """KEY = literal of a WITH clause; the key is upper-cased."""

    name: str
    value: LiteralValue


@dataclass(frozen=True, slots=True)
class Creation(SyntaxNode):
    """The beginning of every CREATE STREAM or TABLE. `is_source`: CREATE SOURCE …"""

    kind: Kind
    name: str
    or_replace: bool
    if_not_exists: bool
    is_source: bool


@dataclass(frozen=True, slots=True)
class CreateSource(Statement):
    """CREATE [SOURCE] STREAM or TABLE name (column type, …) WITH (…)."""

    creation: Creation
    columns: tuple[ColumnDefinition, ...]
    properties: tuple[Property, ...]


@dataclass(frozen=True, slots=True)
class CreateAs(Statement):
    """CREATE STREAM or TABLE name [WITH (…)] AS SELECT …."""

    creation: Creation
    properties: tuple[Property, ...]
    query: Query


@dataclass(frozen=True, slots=True)
class InsertSelect(Statement):
    """INSERT INTO target [WITH (…)] SELECT …. `target_at`: the position of its name."""

    target: str
    target_at: Position
    properties: tuple[Property, ...]
    query: Query


@dataclass(frozen=True, slots=True)
class InsertValues(Statement):
    """INSERT INTO … VALUES. `columns` empty: all columns in the order of the schema."""

    target: str
    columns: tuple[str, ...]
    values: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class DropSource(Statement):
    """DROP STREAM or TABLE [IF EXISTS] name [DELETE TOPIC]."""

    kind: Kind
    name: str
    if_exists: bool
    delete_topic: bool


@dataclass(frozen=True, slots=True)
class CreateType(Statement):
    """CREATE TYPE [IF NOT EXISTS] name AS type."""

    name: str
    type: SqlType
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class DropType(Statement):
    """DROP TYPE [IF EXISTS] name."""

    name: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class AlterSource(Statement):
    """ALTER STREAM or TABLE name ADD COLUMN a INT, …."""

    kind: Kind
    name: str
    additions: tuple[ColumnDefinition, ...]


@dataclass(frozen=True, slots=True)
class AlterSystem(Statement):
    """ALTER SYSTEM 'key' = 'value'. Parsed only to be refused by name."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class ControlQuery(Statement):
    """TERMINATE, PAUSE or RESUME; `query_id` None: ALL."""

    action: Literal["TERMINATE", "PAUSE", "RESUME"]
    query_id: str | None


@dataclass(frozen=True, slots=True)
class Show(Statement):
    """SHOW or LIST of what the catalog, Kafka or the registries contain."""

    what: str  # "STREAMS", "ALL TOPICS", …
    extended: bool


@dataclass(frozen=True, slots=True)
class ShowLag(Statement):
    """How far tables are behind their sources, and replicas behind what is committed; `name` None:
    of all tables."""

    name: str | None


@dataclass(frozen=True, slots=True)
class Describe(Statement):
    """DESCRIBE name [EXTENDED]."""

    name: str
    extended: bool


@dataclass(frozen=True, slots=True)
class DescribeAll(Statement):
    """DESCRIBE STREAMS or TABLES"""

    what: str
    extended: bool


@dataclass(frozen=True, slots=True)
class DescribeFunction(Statement):
    """DESCRIBE FUNCTION name. The name is upper-cased unless it was quoted."""

    name: str


@dataclass(frozen=True, slots=True)
class ExplainRoute(Statement):
    """Which replicas would answer a pull query, in which order, and why."""

    query: Query


@dataclass(frozen=True, slots=True)
class ExplainAssignment(Statement):
    """Which node holds which table partition, why, and what would move."""


@dataclass(frozen=True, slots=True)
class Explain(Statement):
    """EXPLAIN of a running query by its id, or of a statement that is not executed."""

    subject: str | Statement  # id of a query, or a statement


@dataclass(frozen=True, slots=True)
class SetProperty(Statement):
    """SET; UNSET if `value` is None."""

    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class Define(Statement):
    """DEFINE; UNDEFINE if `value` is None."""

    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class PrintTopic(Statement):
    """PRINT 'topic' [FROM BEGINNING] [INTERVAL n] [LIMIT n]. The topic's name is as written."""

    topic: str
    from_beginning: bool
    interval: int | None
    limit: LiteralValue | None


@dataclass(frozen=True, slots=True)
class Elsewhere(Statement):
    """A statement about what Standpipe does not have: connectors, a schema registry."""

    what: str


@dataclass(frozen=True, slots=True)
class AssertTopic(Statement):
    """ASSERT [NOT EXISTS] TOPIC name [WITH (…)] [TIMEOUT 10 SECONDS]."""

    topic: str
    exists: bool
    properties: tuple[Property, ...]
    timeout_ms: int | None
