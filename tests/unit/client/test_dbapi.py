"""PEP 249 point by point: what it asks of a module, a connection and a cursor that ask no node.

What needs answers is in tests/e2e/test_client_sql.py. (The public compliance test, dbapi20, is in
no package registry, and it creates and changes tables, which this module does not.)
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest

from standpipe.client import NodesUnreachable, RowSet, ServerRefused, UnfitParameter, dbapi
from standpipe.client.core.literals import bound
from standpipe.client.core.rows import Columns, LazyFreshness
from standpipe.errors import ServerError, StatementError

ERRORS = {
    "Warning": Exception,
    "Error": Exception,
    "InterfaceError": dbapi.Error,
    "DatabaseError": dbapi.Error,
    "DataError": dbapi.DatabaseError,
    "OperationalError": dbapi.DatabaseError,
    "IntegrityError": dbapi.DatabaseError,
    "InternalError": dbapi.DatabaseError,
    "ProgrammingError": dbapi.DatabaseError,
    "NotSupportedError": dbapi.DatabaseError,
}


def test_globals() -> None:
    assert (dbapi.apilevel, dbapi.threadsafety, dbapi.paramstyle) == ("2.0", 2, "qmark")
    assert callable(dbapi.connect)


@pytest.mark.parametrize("name", ERRORS)
def test_the_tree_of_errors(name: str) -> None:
    error = getattr(dbapi, name)
    assert error.__bases__ == (ERRORS[name],)
    assert getattr(dbapi.Connection, name) is error, "PEP 249's optional extension"


def test_constructors_and_type_objects() -> None:
    assert dbapi.Date(2020, 1, 2) == dt.date(2020, 1, 2)
    assert dbapi.Time(1, 2, 3) == dt.time(1, 2, 3)
    assert dbapi.Timestamp(2020, 1, 2, 3, 4, 5) == dt.datetime(2020, 1, 2, 3, 4, 5)  # noqa: DTZ001
    assert dbapi.DateFromTicks(86_400) == dt.date(1970, 1, 2)
    assert dbapi.TimeFromTicks(61) == dt.time(0, 1, 1)
    assert dbapi.TimestampFromTicks(0) == dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert dbapi.Binary(b"x") == b"x"


@pytest.mark.parametrize(
    ("type_", "group"),
    [
        ("STRING", dbapi.STRING),
        ("BYTES", dbapi.BINARY),
        ("DECIMAL(4, 2)", dbapi.NUMBER),
        ("BIGINT", dbapi.NUMBER),
        ("TIMESTAMP", dbapi.DATETIME),
        ("ARRAY<STRING>", None),
    ],
)
def test_a_description_compares_with_type_objects(type_: str, group: object) -> None:
    groups = [dbapi.STRING, dbapi.BINARY, dbapi.NUMBER, dbapi.DATETIME, dbapi.ROWID]
    assert [each for each in groups if each == type_] == ([group] if group else [])


def test_a_connection_that_is_closed() -> None:
    connection = dbapi.connect("host:1")
    cursor = connection.cursor()
    connection.commit()
    with pytest.raises(dbapi.NotSupportedError):
        connection.rollback()
    connection.close()
    for call in (connection.commit, connection.rollback, connection.cursor):
        with pytest.raises(dbapi.InterfaceError):
            call()
    with pytest.raises(dbapi.InterfaceError):
        cursor.execute("SELECT 1")


def test_closing_again_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    with closing(dbapi.connect("host:1")) as connection, connection:
        monkeypatch.setattr(connection.client, "close", lambda: closed.append("closed"))
        connection.close()
    connection.close()
    assert closed == ["closed"]


@pytest.mark.parametrize("sql", ["SELECT * FROM T", "SHOW TABLES;"])
def test_no_parameters_may_be_none(sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def query(statement: str, parameters: Sequence[object]) -> RowSet:
        asked.append(bound(statement, parameters))
        return RowSet(Columns(("A",), ("STRING",)), [], LazyFreshness({}))

    def execute(statement: str, parameters: Sequence[object]) -> list[Any]:
        asked.append(bound(statement, parameters))
        return []

    with dbapi.connect("host:1") as connection:
        monkeypatch.setattr(connection.client, "query", query)
        monkeypatch.setattr(connection.client, "execute", execute)
        connection.cursor().execute(sql, None)
    assert asked == [sql]


def test_a_cursor_before_a_query_and_after_its_end() -> None:
    with dbapi.connect("host:1") as connection:
        cursor = connection.cursor()
        assert (cursor.description, cursor.rowcount, cursor.arraysize) == (None, -1, 1)
        for fetch in (cursor.fetchone, cursor.fetchall, cursor.fetchmany):
            with pytest.raises(dbapi.ProgrammingError):
                fetch()
        cursor.setinputsizes([1])
        cursor.setoutputsize(1)
        cursor.setoutputsize(1, 2)
        cursor.close()
        with pytest.raises(dbapi.InterfaceError):
            cursor.fetchall()


def test_an_address_that_is_none() -> None:
    with pytest.raises(dbapi.InterfaceError, match="host:port"):
        dbapi.connect("nowhere")


def busy(status: int) -> ServerRefused:
    error = ServerRefused("no")
    error.http_status = status
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (StatementError("no"), dbapi.ProgrammingError),
        (UnfitParameter("no"), dbapi.ProgrammingError),
        (NodesUnreachable("no"), dbapi.OperationalError),
        (busy(503), dbapi.OperationalError),
        (busy(404), dbapi.DatabaseError),
        (ServerError("no"), dbapi.InternalError),
    ],
)
def test_which_error_it_is(
    error: Exception, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    with dbapi.connect("host:1") as connection:

        def refuse(*_: object) -> None:
            raise error

        monkeypatch.setattr(connection.client, "query", refuse)
        with pytest.raises(dbapi.Error) as raised:
            connection.cursor().execute("SELECT 1")
    assert type(raised.value) is kind
    assert raised.value.__cause__ is error
