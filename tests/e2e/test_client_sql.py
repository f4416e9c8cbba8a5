"""The database API, SQLAlchemy and pandas against real workers. No Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
import sqlalchemy
from sqlalchemy import MetaData, Table, and_, exc, func, insert, inspect, select, text
from sqlalchemy.dialects import registry
from tests.e2e.test_client import TRICKY, make
from tests.e2e.test_serve import ROWS, Cluster

from standpipe.client import dbapi

# as the entry point of the installed package does
registry.register("standpipe", "standpipe.client.sqlalchemy_dialect", "StandpipeDialect")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = make(tmp_path_factory.mktemp("sql"))
    yield made
    made.stop()


@pytest.fixture
def cursor(cluster: Cluster) -> Iterator[dbapi.Cursor]:
    with dbapi.connect([node.config.public for node in cluster.nodes]) as connection:
        yield connection.cursor()


@pytest.fixture
def engine(cluster: Cluster) -> Iterator[sqlalchemy.Engine]:
    first, *others = (node.config.public for node in cluster.nodes)
    made = sqlalchemy.create_engine(f"standpipe://{first}?nodes={','.join(others)}&timeout_s=20")
    yield made
    made.dispose()


@pytest.fixture
def users(engine: sqlalchemy.Engine) -> Table:
    return Table("users", MetaData(), autoload_with=engine)


# ------------------------------------------------------------------------------- PEP 249


def test_execute_and_fetch(cursor: dbapi.Cursor) -> None:
    cursor.execute("SELECT * FROM USERS WHERE ID IN (?, ?, ?)", ("k1", "k2", "k3"))
    assert cursor.description is not None
    assert [each[:2] for each in cursor.description] == [
        ("ID", "STRING"),
        ("N", "BIGINT"),
        ("NAME", "STRING"),
    ]
    assert {len(each) for each in cursor.description} == {7}
    assert cursor.rowcount == 3
    first = cursor.fetchone()
    assert first is not None
    assert len(cursor.fetchmany(1)) == 1, "size wins over arraysize"
    assert len(cursor.fetchall()) == 1
    assert (cursor.fetchone(), cursor.fetchmany(), cursor.fetchall()) == (None, [], [])


def test_arraysize_and_iteration(cursor: dbapi.Cursor) -> None:
    cursor.execute("SELECT ID FROM USERS;")
    cursor.arraysize = 4
    assert len(cursor.fetchmany()) == 4
    assert len(list(cursor)) == len(ROWS) + len(TRICKY) - 4
    assert cursor.execute("SELECT ID FROM USERS WHERE ID = ?", ("nobody",)).fetchall() == []
    assert cursor.rowcount == 0


@pytest.mark.parametrize("key", TRICKY)
def test_parameters(cursor: dbapi.Cursor, key: str) -> None:
    assert cursor.execute("SELECT NAME FROM USERS WHERE ID=?", (key,)).fetchall() == [(key,)]


def test_a_statement_without_rows_and_one_with_entities(cursor: dbapi.Cursor) -> None:
    cursor.execute("SHOW TABLES;")
    (row,) = cursor.fetchall()
    assert (row[0], {each["name"] for each in row[1]["tables"]}) == ("tables", {"USERS", "DAYS"})
    cursor.executemany("SHOW TABLES;", [(), ()])
    assert cursor.description is None
    with pytest.raises(dbapi.ProgrammingError):
        cursor.executemany("SELECT * FROM USERS WHERE ID = ?", [("k1",)])


def test_a_wrong_statement(cursor: dbapi.Cursor) -> None:
    for statement in ("SELECT NOPE FROM USERS WHERE ID = 'x'", "SELEC", "SELECT * FROM USERS; ?"):
        with pytest.raises(dbapi.ProgrammingError):
            cursor.execute(statement)
    assert cursor.description is None


# ---------------------------------------------------------------------------- SQLAlchemy


def rows_of(engine: sqlalchemy.Engine, statement: Any) -> list[Any]:
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(statement)]


def test_reflection(engine: sqlalchemy.Engine, users: Table) -> None:
    found = inspect(engine)
    assert (found.get_table_names(), found.get_view_names()) == (["DAYS", "USERS"], ["EVENTS"])
    assert [column.name for column in users.primary_key] == ["ID"]
    assert isinstance(users.c.N.type, sqlalchemy.BigInteger)
    price = {each["name"]: each["type"] for each in found.get_columns("EVENTS")}["PRICE"]
    assert (price.precision, price.scale) == (6, 2)
    assert (found.has_table("users"), found.has_table("nobody")) == (True, False)
    with pytest.raises(exc.NoSuchTableError):
        found.get_columns("nobody")


def test_selects(engine: sqlalchemy.Engine, users: Table) -> None:
    id_, n, name = users.c.ID, users.c.N, users.c.NAME
    every = [(key, *columns) for key, columns in ROWS.items()]
    assert rows_of(engine, select(users).where(id_ == "k1")) == [("k1", 1, "näme 1")]
    assert rows_of(engine, select(users).where(id_ == "o'Hara"))[0][0] == "o'Hara"
    assert sorted(rows_of(engine, select(users).where(name.like("näme %")))) == sorted(every)
    assert rows_of(engine, select((n + 1).label("more")).where(id_.in_(["k1"]))) == [(2,)]
    assert rows_of(engine, select(func.count()).select_from(users)) == [(len(ROWS) + len(TRICKY),)]
    between = select(id_).where(and_(n.between(5, 6), name.is_not(None), name != id_))
    assert sorted(rows_of(engine, between)) == [("k5",), ("k6",)]
    assert len(rows_of(engine, select(users).limit(3))) == 3


def test_text_with_names(engine: sqlalchemy.Engine) -> None:
    statement = text("SELECT * FROM USERS WHERE ID = :key").bindparams(key="k7")
    with engine.connect() as connection:
        assert connection.execute(statement).mappings().one()["N"] == 7


def test_what_is_refused(engine: sqlalchemy.Engine, users: Table) -> None:
    other = users.alias("other")
    for statement in (
        insert(users).values(ID="x"),
        users.update().values(N=1),
        users.delete(),
        select(users).offset(3),
        select(users.join(other, users.c.ID == other.c.ID)),
    ):
        with pytest.raises(exc.CompileError):
            rows_of(engine, statement)
    with pytest.raises(exc.CompileError, match="read-only"):
        Table("new", MetaData(), sqlalchemy.Column("a", sqlalchemy.Integer)).create(engine)
    with pytest.raises(exc.ProgrammingError, match="NOPE"):
        rows_of(engine, text("SELECT NOPE FROM USERS WHERE ID = 'k1'"))
    with pytest.raises(exc.ArgumentError, match="unknown option nope; it may have nodes"):
        sqlalchemy.create_engine("standpipe://h:1?nope=1").connect()


# -------------------------------------------------------------------------------- pandas


def test_pandas(engine: sqlalchemy.Engine) -> None:
    one = pd.read_sql("SELECT * FROM USERS WHERE ID = ?", engine, params=("k1",))
    assert one.to_dict("records") == [{"ID": "k1", "N": 1, "NAME": "näme 1"}]
    every = pd.read_sql_table("USERS", engine, index_col="ID")
    assert every.loc["k9", "N"] == 9
    assert len(every) == len(ROWS) + len(TRICKY)


def test_frames_of_an_answer(cluster: Cluster) -> None:
    import standpipe

    with standpipe.connect(cluster.nodes[0].config.public) as client:
        rows = client.query("SELECT * FROM USERS WHERE ID IN ('k1', 'k2');")
        none = client.query("SELECT * FROM USERS WHERE ID = 'nobody';")
    assert sorted(rows.to_pandas()["N"]) == [1, 2]
    assert [str(field.type) for field in rows.to_arrow().schema] == ["string", "int64", "string"]
    assert none.to_arrow().schema == rows.to_arrow().schema, "types do not depend on rows"
    assert none.to_pandas().shape == (0, 3)
