"""Names of types: from statement to catalog, and what they mean in later statements."""

from __future__ import annotations

import pytest

from standpipe.control.ddl.propose import Request, judge
from standpipe.control.ddl.responses import StatementReply
from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import EMPTY, Catalog
from standpipe.errors import StatementError
from standpipe.model import LogIndex

ADDRESS = "CREATE TYPE address AS STRUCT<street STRING, number INT>;"
PERSON = "CREATE TYPE person AS STRUCT<name STRING, at ARRAY<address>>;"
STREAM = (
    "CREATE STREAM s (k STRING KEY, p person) WITH (KAFKA_TOPIC='s', PARTITIONS=1, FORMAT='JSON');"
)


def judged(sql: str, catalog: Catalog) -> object:
    return judge(Request(ksql=sql, request_id="r"), catalog, {})


def after(*statements: str) -> Catalog:
    catalog = EMPTY
    for number, sql in enumerate(statements):
        request = Request(ksql=sql, request_id=str(number))
        command = judge(request, catalog, {})
        assert not isinstance(command, StatementReply), sql
        catalog = apply(catalog, LogIndex(catalog.index + 1), command)
    return catalog


def test_a_type_may_hold_another() -> None:
    made = after(ADDRESS, PERSON, STREAM)
    assert made.sources["S"].columns[1].type == (
        "STRUCT<`NAME` STRING, `AT` ARRAY<STRUCT<`STREET` STRING, `NUMBER` INTEGER>>>"
    )
    left = after(ADDRESS, PERSON, STREAM, "DROP TYPE address;", "DROP TYPE person;")
    assert (left.types, left.sources) == ({}, made.sources), "a column keeps its type"


def test_a_cast_may_name_a_type() -> None:
    made = after(
        "CREATE TYPE money AS DECIMAL(6, 2);",
        STREAM.replace("p person", "v INT"),
        "CREATE STREAM t AS SELECT k, CAST(v AS money) AS m FROM s;",
    )
    assert made.sources["T"].columns[1].type == "DECIMAL(6, 2)"


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            ADDRESS,
            "Cannot register custom type 'ADDRESS' since it is already registered with type: ",
        ),
        ("DROP TYPE nothing;", "Type NOTHING does not exist."),
    ],
)
def test_refusals(sql: str, message: str) -> None:
    with pytest.raises(StatementError, match=message):
        judged(sql, after(ADDRESS))


@pytest.mark.parametrize(
    "sql", [ADDRESS.replace("TYPE", "TYPE IF NOT EXISTS"), "DROP TYPE IF EXISTS nothing;"]
)
def test_nothing_to_do(sql: str) -> None:
    answer = judged(sql, after(ADDRESS))
    assert isinstance(answer, StatementReply)
    assert answer.entities[0]["@type"] == "warning_entity"


def test_columns_are_added() -> None:
    made = after(ADDRESS, PERSON, STREAM, "ALTER STREAM s ADD COLUMN more address, ADD n INT;")
    assert [column.name for column in made.sources["S"].columns] == ["K", "P", "MORE", "N"]
