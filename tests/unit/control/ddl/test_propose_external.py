"""CREATE TABLE … WITH (WRITER='EXTERNAL'), from the text to the command."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.control.ddl.test_propose import after, asked

from standpipe.control.ddl.propose import judge
from standpipe.control.metadata.commands import CreateSource, CreateTableAs, DropSource
from standpipe.errors import StatementError
from standpipe.model import Source, TopicSpec
from standpipe.sql.declarations.added_columns import (
    ADDED_MAX,
    added_columns,
    count_added,
    count_first,
)

WITH = "WITH (KAFKA_TOPIC='X', VALUE_FORMAT='JSON', PARTITIONS=2, WRITER='EXTERNAL'{})"
EXTERNAL = f"CREATE TABLE X (ID STRING PRIMARY KEY, V INT) {WITH.format('')};"
DECLARED = after(EXTERNAL)


def test_a_table_that_an_application_writes() -> None:
    command = judge(asked(EXTERNAL), after(), {})
    assert isinstance(command, CreateTableAs)
    source, query = command.source, command.query
    assert query.is_external
    assert (query.query_id, query.sink, query.sources, query.plan.inputs) == (
        *("EXTERNAL_X_1", "X", (), ()),
    )
    assert (source.query_id, source.table_id, source.is_materialized) == (
        *("EXTERNAL_X_1", "X_1", True),
    )
    assert command.topic == TopicSpec(name="X", partitions=2, kind="TABLE")
    assert query.statement == source.statement == EXTERNAL
    assert DECLARED.queries["EXTERNAL_X_1"] == query
    assert DECLARED.isolated == {"EXTERNAL_X_1": ()}


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        (EXTERNAL.replace("'EXTERNAL'", "'SPARK'"), "WRITER must be 'EXTERNAL', got 'SPARK'"),
        (EXTERNAL.replace("TABLE X", "SOURCE TABLE X"), "is for CREATE TABLE only"),
        (EXTERNAL.replace("CREATE", "CREATE OR REPLACE"), "CREATE OR REPLACE of a table with"),
        (
            f"CREATE STREAM X (ID STRING KEY, V INT) {WITH.format('')};",
            "is for CREATE TABLE only",
        ),
        (
            EXTERNAL.replace("'EXTERNAL'", "'EXTERNAL', WINDOW_TYPE='SESSION'"),
            "A table of session windows with WRITER='EXTERNAL' is not supported yet",
        ),
        (
            EXTERNAL.replace("V INT", "V BIGINT").replace(
                "'EXTERNAL'", "'EXTERNAL', TIMESTAMP='V'"
            ),
            "its writer sets the time of each row",
        ),
    ],
)
def test_what_an_application_cannot_write(sql: str, words: str) -> None:
    with pytest.raises(StatementError) as refused:
        judge(asked(sql), after(), {})
    assert words in refused.value.message


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        (EXTERNAL, "A table with the same name already exists"),
        (
            EXTERNAL.replace("TABLE X", "TABLE Z"),
            "Topic 'X' already belongs to TABLE X.",
        ),
        (
            "CREATE OR REPLACE TABLE X AS SELECT ID, COUNT(*) AS N FROM S GROUP BY ID;",
            "a Spark application writes it",
        ),
        (f"CREATE TABLE Y {WITH.format('')} AS SELECT ID, V FROM X;", "the WITH clause: WRITER"),
        ("INSERT INTO X (ID, V) VALUES ('a', 1);", "EXTERNAL_X_1"),
    ],
)
def test_nothing_else_writes_it(sql: str, words: str) -> None:
    stream = (
        "CREATE STREAM S (ID STRING KEY, V INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON',"
        " PARTITIONS=1);"
    )
    with pytest.raises(StatementError) as refused:
        judge(asked(sql), after(EXTERNAL, stream), {})
    assert words in refused.value.message


def test_a_table_over_it_is_an_ordinary_one() -> None:
    over = "CREATE TABLE O AS SELECT V, COUNT(*) AS N FROM X GROUP BY V;"
    command = judge(asked(over), DECLARED, {})
    assert isinstance(command, CreateTableAs)
    assert not command.query.is_external
    assert command.query.sources == ("X",)


def test_it_is_dropped_with_its_query() -> None:
    dropped = judge(asked("DROP TABLE X;"), DECLARED, {})
    assert isinstance(dropped, DropSource)
    catalog = after(EXTERNAL, "DROP TABLE X;")
    assert (catalog.sources, catalog.queries, catalog.isolated) == ({}, {}, {})


def test_older_queries_have_the_bytes_that_they_had() -> None:
    """A field that is set only in external queries: digests of plans and records stay the same."""
    query = DECLARED.queries["EXTERNAL_X_1"]
    own = msgspec.structs.replace(query, is_external=msgspec.UNSET)
    assert "is_external" not in msgspec.to_builtins(own)


def altered(*additions: str, sql: str = EXTERNAL) -> Source:
    adds = ", ".join(f"ADD COLUMN {each}" for each in additions)
    command = judge(asked(f"ALTER TABLE X {adds};"), after(sql), {})
    assert isinstance(command, CreateSource)
    assert command.replace
    return command.source


def test_it_gets_columns_in_place() -> None:
    """It stays the same table, with the same rows, and notes how many columns it began with."""
    before = DECLARED.sources["X"]
    source = altered("W STRING", "Z ARRAY<INT>")
    assert source.columns[: len(before.columns)] == before.columns
    assert [(each.name, each.type) for each in added_columns(source)] == [
        *(("W", "STRING"), ("Z", "ARRAY<INTEGER>")),
    ]
    assert (source.columns_first, count_first(source), count_added(source)) == (1, 1, 2)
    assert (count_first(before), added_columns(before)) == (1, ())
    assert msgspec.structs.replace(source, columns=before.columns) == msgspec.structs.replace(
        before, columns_first=1
    )
    catalog = after(EXTERNAL, "ALTER TABLE X ADD COLUMN W INT;", "ALTER TABLE X ADD COLUMN Z INT;")
    twice = catalog.sources["X"]
    assert (twice.columns_first, count_added(twice)) == (1, 2)
    assert catalog.queries == DECLARED.queries


@pytest.mark.parametrize("count", [ADDED_MAX, ADDED_MAX + 1])
def test_it_gets_so_many_columns_and_no_more(count: int) -> None:
    additions = [f"A{number} INT" for number in range(count)]
    if count == ADDED_MAX:
        assert count_added(altered(*additions)) == count
        return
    with pytest.raises(StatementError, match=r"at most 127 columns can be added .*, and 0 were"):
        altered(*additions)


@pytest.mark.parametrize(
    "sql",
    [
        EXTERNAL.replace("'JSON'", "'DELIMITED'"),
        EXTERNAL.replace("'EXTERNAL'", "'EXTERNAL', WRAP_SINGLE_VALUE=false"),
        EXTERNAL.replace(", V INT", ""),
    ],
)
def test_a_row_must_say_which_columns_it_has(sql: str) -> None:
    with pytest.raises(StatementError, match="ALTER command is not supported"):
        altered("W INT", sql=sql)


def test_a_column_that_is_there_is_not_added() -> None:
    with pytest.raises(StatementError, match="same name already exists"):
        altered("V BIGINT")
