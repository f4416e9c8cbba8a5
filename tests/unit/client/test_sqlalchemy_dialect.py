"""SQLAlchemy's dialect without nodes: its URL, and what it makes of their answers.

With real nodes: tests/e2e/test_client_sql.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from sqlalchemy import (
    Boolean,
    Engine,
    MetaData,
    Table,
    column,
    create_engine,
    exc,
    inspect,
    select,
    text,
)
from sqlalchemy.dialects import registry
from sqlalchemy.engine import make_url
from sqlalchemy.orm import DeclarativeBase, Session
from tests.samples import COLUMNS, sample_table

from standpipe.client import AnswerLost, Client, NodesUnreachable, dbapi
from standpipe.client.core.rows import Columns
from standpipe.client.sqlalchemy_dialect import StandpipeDialect
from standpipe.model import Column
from standpipe.sql.expressions.evaluator import Evaluator
from standpipe.sql.lookup.columns import PullNames
from standpipe.sql.syntax import parser
from standpipe.sql.syntax.ast import Query

OK = column("OK", Boolean)

# as the entry point of the installed package does
registry.register("standpipe", "standpipe.client.sqlalchemy_dialect", "StandpipeDialect")


def field(name: str, of: str, *, is_key: bool = False) -> dict[str, Any]:
    shown = {"name": name, "schema": {"type": of, "fields": None, "memberSchema": None}}
    return {**shown, "type": "KEY"} if is_key else shown


def entity(kind: str, window: str | None) -> dict[str, Any]:
    """The description of a source with the key USER_ID."""
    bounds = [field(name, "BIGINT", is_key=True) for name in ("WINDOWSTART", "WINDOWEND")]
    key = [field("USER_ID", "STRING", is_key=True), *(bounds if window else ())]
    return {
        "name": "T",
        "type": kind,
        "windowType": window,
        "keyFormat": "KAFKA",
        "fields": [*key, field("N", "BIGINT")],
    }


class FoundRows:
    """Rows of an answer."""

    def __init__(self, description: dict[str, Any], rows: list[tuple[Any, ...]]) -> None:
        fields = description["fields"]
        names = tuple(each["name"] for each in fields)
        self.columns = Columns(names, tuple(each["schema"]["type"] for each in fields))
        self.tuples = rows


class OneSource:
    """A client of a cluster that has one source, T, with these rows."""

    def __init__(self, description: dict[str, Any], *rows: tuple[Any, ...]) -> None:
        self.description, self.rows = description, [*rows]
        #: what it raises instead of answers
        self.failure: Exception | None = None
        self.closed = 0

    def execute(self, sql: str, _params: Sequence[object] = ()) -> list[dict[str, Any]]:
        if self.failure is not None:
            raise self.failure
        if sql.startswith("DESCRIBE"):
            return [{"@type": "sourceDescription", "sourceDescription": self.description}]
        what = sql.removeprefix("SHOW ").removesuffix(";")
        is_there = what == f"{self.description['type']}S"
        return [{"@type": what.lower(), what.lower(): [{"name": "T"}] if is_there else []}]

    def query(self, _sql: str, _params: Sequence[object] = ()) -> FoundRows:
        if self.failure is not None:
            raise self.failure
        return FoundRows(self.description, self.rows)

    def close(self) -> None:
        self.closed += 1


def engine_of(client: object, **options: Any) -> Engine:
    def connection() -> dbapi.Connection:
        return dbapi.Connection(cast("Client", client))

    return create_engine("standpipe://x:1", creator=connection, **options)


@pytest.mark.parametrize(
    ("kind", "window", "names"),
    [
        ("TABLE", None, ["USER_ID"]),
        ("TABLE", "TUMBLING", ["USER_ID", "WINDOWSTART"]),
        ("TABLE", "HOPPING", ["USER_ID", "WINDOWSTART"]),
        ("TABLE", "SESSION", ["USER_ID", "WINDOWSTART", "WINDOWEND"]),
        ("STREAM", None, []),
        ("STREAM", "TUMBLING", []),
    ],
)
def test_the_primary_key(kind: str, window: str | None, names: list[str]) -> None:
    found = inspect(engine_of(OneSource(entity(kind, window))))
    assert found.get_pk_constraint("T")["constrained_columns"] == names
    assert [each["name"] for each in found.get_columns("T") if not each["nullable"]] == names


def test_the_orm_has_each_window_of_a_key() -> None:
    """It makes one object for each primary key: one without WINDOWSTART would show the first
    window's values for all of them."""
    rows = [("ada", start_ms, start_ms + 1000, cents) for start_ms, cents in ((0, 5), (1000, 7))]
    engine = engine_of(OneSource(entity("TABLE", "TUMBLING"), *rows))

    class Base(DeclarativeBase):
        pass

    Base.metadata.reflect(engine)
    mapped: Any = type("Hourly", (Base,), {"__table__": Base.metadata.tables["T"]})
    with Session(engine) as session:
        found = [(each.WINDOWSTART, each.N) for each in session.scalars(select(mapped))]
    assert found == [(0, 5), (1000, 7)]


def test_the_orm_refuses_a_stream_without_a_key_of_the_users_own() -> None:
    metadata = MetaData()
    metadata.reflect(engine_of(OneSource(entity("STREAM", None))), views=True)

    class Base(DeclarativeBase):
        pass

    with pytest.raises(exc.ArgumentError, match="primary key"):
        type("Click", (Base,), {"__table__": metadata.tables["T"]})


@pytest.mark.parametrize(
    "ask",
    [
        lambda engine: inspect(engine).get_table_names(),
        lambda engine: inspect(engine).has_table("T"),
        lambda engine: inspect(engine).get_columns("T"),
        lambda engine: Table("T", MetaData(), autoload_with=engine),
        lambda engine: MetaData().reflect(engine),
    ],
    ids=["names", "has_table", "columns", "autoload", "reflect"],
)
def test_reflection_raises_sqlalchemys_errors(ask: Callable[[Engine], object]) -> None:
    client = OneSource(entity("TABLE", None))
    client.failure = NodesUnreachable("no node answered in time")
    with pytest.raises(exc.OperationalError, match="no node answered"):
        ask(engine_of(client))


def test_a_ping_that_no_node_answers() -> None:
    client = OneSource(entity("TABLE", None), ("ada", 5))
    engine = engine_of(client, pool_pre_ping=True)
    engine.connect().close()
    client.failure = NodesUnreachable("no node answered in time")
    with pytest.raises(exc.OperationalError, match="no node answered"):
        engine.connect()
    client.failure = None
    with engine.connect() as connection:
        assert connection.execute(text("SELECT * FROM T")).all() == [("ada", 5)]


def test_a_ping_that_a_node_did_not_live_to_answer_is_sent_over_a_new_connection() -> None:
    client = OneSource(entity("TABLE", None), ("ada", 5))
    engine = engine_of(client, pool_pre_ping=True)
    engine.connect().close()
    client.failure = AnswerLost("a:1 took the request and gave no answer")
    with engine.connect() as connection:
        client.failure = None
        assert connection.execute(text("SELECT * FROM T")).all() == [("ada", 5)]
    assert client.closed == 1


def test_a_query_that_no_node_answered_leaves_the_connection_as_it_is() -> None:
    client = OneSource(entity("TABLE", None), ("ada", 5))
    with engine_of(client).connect() as connection:
        client.failure = NodesUnreachable("no node answered in time")
        with pytest.raises(exc.OperationalError) as raised:
            connection.execute(text("SELECT * FROM T"))
        client.failure = None
        assert connection.execute(text("SELECT * FROM T")).all() == [("ada", 5)]
    assert (raised.value.connection_invalidated, client.closed) == (False, 0)


def test_a_description_that_cannot_be_read() -> None:
    described = entity("TABLE", None) | {"fields": [field("USER_ID", "NOBODY", is_key=True)]}
    with pytest.raises(exc.UnreflectableTableError, match="cannot be read"):
        inspect(engine_of(OneSource(described))).get_columns("T")


@pytest.mark.parametrize(
    ("term", "sql", "rows"),
    [
        (OK.is_(True), "OK IS NOT DISTINCT FROM TRUE", [True]),
        (OK.is_(False), "OK IS NOT DISTINCT FROM FALSE", [False]),
        (~OK.is_(True), "OK IS DISTINCT FROM TRUE", [False, None]),
        (OK.is_not(False), "OK IS DISTINCT FROM FALSE", [True, None]),
        (OK.is_(None), "OK IS NULL", [None]),
        (OK.is_not(None), "OK IS NOT NULL", [True, False]),
    ],
)
def test_is_true(term: Any, sql: str, rows: list[bool | None]) -> None:
    assert str(term.compile(dialect=StandpipeDialect())) == sql
    (query,) = parser.parse(f"SELECT K FROM T WHERE {sql};")
    assert isinstance(query, Query)
    assert query.where is not None
    table = sample_table(columns=(*COLUMNS, Column(name="OK", type="BOOLEAN")))
    evaluator = Evaluator(PullNames.of(table, None), "SELECT")
    evaluator.type(query.where)
    is_found = evaluator.compile(query.where)
    assert [each for each in (True, False, None) if is_found(["ada", 5, each, 0])] == rows


@pytest.mark.parametrize(
    ("url", "nodes", "options"),
    [
        ("standpipe://n1", ["n1:8088"], {}),
        ("standpipe://n1:1?nodes=n2:2,n3:3", ["n1:1", "n2:2", "n3:3"], {}),
        ("standpipe://n1:1?nodes=n2:2&nodes=n3:3,n4:4", ["n1:1", "n2:2", "n3:3", "n4:4"], {}),
        (
            "standpipe://n1:1?timeout_s=2&patience_s=0.1",
            ["n1:1"],
            {"timeout_s": 2, "patience_s": 0.1},
        ),
        ("standpipe://n1:1?lag_records_max=0", ["n1:1"], {"lag_records_max": 0}),
        ("standpipe://n1:1?finds_members=false", ["n1:1"], {"finds_members": False}),
        ("standpipe://n1:1?consistency=snapshot", ["n1:1"], {"consistency": "snapshot"}),
        ("standpipe://n1:1?session=true", ["n1:1"], {"session": True}),
        (
            "standpipe://n1:1?nodes=n2:2&ca=/etc/ca.pem",
            ["https://n1:1", "https://n2:2"],
            {"ca": "/etc/ca.pem"},
        ),
    ],
)
def test_what_a_url_says(url: str, nodes: list[str], options: dict[str, Any]) -> None:
    assert StandpipeDialect().create_connect_args(make_url(url)) == ([nodes], options)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("timeout=5", "unknown option timeout; it may have nodes, timeout_s, "),
        ("timeout_s=soon", "timeout_s=soon in the URL cannot be read"),
        ("finds_members=perhaps", "finds_members=perhaps in the URL cannot be read"),
        ("timeout_s=1&timeout_s=2", "in the URL cannot be read"),
    ],
)
def test_what_it_cannot_say(query: str, words: str) -> None:
    with pytest.raises(exc.ArgumentError, match=words):
        StandpipeDialect().create_connect_args(make_url(f"standpipe://n1?{query}"))
