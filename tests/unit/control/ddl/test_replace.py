"""CREATE OR REPLACE … AS, from the statement to the command or the refusal."""

from __future__ import annotations

import pytest
from tests.unit.control.ddl.test_propose import MADE, TABLE, after, asked

from standpipe.control.ddl.propose import judge
from standpipe.control.ddl.responses import StatementReply, entities
from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.commands import ReplaceStreamAs, ReplaceTableAs, SwitchTable
from standpipe.errors import StatementError
from standpipe.model import LogIndex

WITH_T = after(MADE, TABLE)
SECOND = "CREATE OR REPLACE TABLE T AS SELECT ID, COUNT(*) AS N, SUM(V) AS V FROM S GROUP BY ID;"
COPY = "CREATE STREAM C AS SELECT ID, V FROM S;"


INSERT = "INSERT INTO C SELECT ID, V FROM S;"
OVER_C = "STREAM C (ID STRING KEY, V INT{}) WITH (KAFKA_TOPIC='c', VALUE_FORMAT='JSON'{});"
DECLARED = "CREATE " + OVER_C.format("", ", PARTITIONS=4")


def replaced(sql: str, catalog: Catalog) -> ReplaceStreamAs | ReplaceTableAs:
    command = judge(asked(sql), catalog, {})
    assert isinstance(command, ReplaceStreamAs | ReplaceTableAs)
    return command


def test_a_table_gets_a_generation_beside_it() -> None:
    command = replaced(SECOND, WITH_T)
    assert isinstance(command, ReplaceTableAs)
    before, source = WITH_T.sources["T"], command.source
    assert (source.table_id, source.generation) == (before.table_id, 2)
    assert source.topic == f"{command.query.query_id}-changelog"
    assert (source.public_topic, source.partitions) == ("T", 4)
    assert command.topic.name == source.topic
    assert command.query.query_id != before.query_id


def test_generations_count_on() -> None:
    built = apply(WITH_T, LogIndex(9), replaced(SECOND, WITH_T))
    third = replaced(SECOND, built)
    assert third.source.generation == 3, "also over one that is being built"
    switched = apply(built, LogIndex(10), SwitchTable(name="T", generation=2))
    third = replaced(SECOND, switched)
    assert (third.source.generation, third.source.public_topic) == (3, "T")


def test_the_answer_names_the_query() -> None:
    command = replaced(SECOND, WITH_T)
    (entity,) = entities(apply(WITH_T, LogIndex(9), command).applied_requests["r1"], ())
    assert command.query.query_id in str(entity)


def test_a_stream_goes_on_where_it_is() -> None:
    catalog = after(MADE, COPY)
    command = replaced("CREATE OR REPLACE STREAM C AS SELECT ID, V, V + 1 AS W FROM S;", catalog)
    assert isinstance(command, ReplaceStreamAs)
    before = catalog.sources["C"]
    assert (command.source.query_id, command.source.topic) == (before.query_id, before.topic)
    assert (command.query.query_id, command.query.revision) == (before.query_id, 2)


@pytest.mark.parametrize(
    ("statements", "sql", "why"),
    [
        ((), "CREATE OR REPLACE TABLE S AS SELECT ID, COUNT(*) AS N FROM S GROUP BY ID;", "stream"),
        (
            (),
            ("CREATE OR REPLACE TABLE T AS SELECT ID, CAST(COUNT(*) AS INTEGER) AS N FROM S"
            " GROUP BY ID;"),
            "would not fit their existing values: .*`N` BIGINT",
        ),
        (
            (),
            "CREATE OR REPLACE TABLE T AS SELECT V, COUNT(*) AS N FROM S GROUP BY V;",
            "Key columns must be identical. .*`ID` STRING KEY",
        ),
        (
            (),
            ("CREATE OR REPLACE TABLE T WITH (PARTITIONS=8) AS"
            " SELECT ID, COUNT(*) AS N FROM S GROUP BY ID;"),
            "has topic = T .4 partitions, .* which is not upgradeable to T .8 partitions",
        ),
        (
            (),
            ("CREATE OR REPLACE TABLE T AS SELECT ID, COUNT(*) AS N FROM S"
            " WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY ID;"),
            "has windowed keys = False which is not upgradeable to True",
        ),
        (
            ("CREATE TABLE OVER_T AS SELECT ID, N FROM T;",),
            SECOND,
            r"\[CTAS_OVER_T_\d+\] read it, and would see its changes twice",
        ),
        (
            (
                ("CREATE STREAM ALIAS (ID STRING KEY, N BIGINT) WITH (KAFKA_TOPIC='T',"
                " PARTITIONS=4, VALUE_FORMAT='JSON');"),
                "CREATE STREAM OUT AS SELECT * FROM ALIAS;",
            ),
            SECOND,
            r"\[CSAS_OUT_\d+\] read it",
        ),
        (
            (COPY,),
            "CREATE OR REPLACE STREAM C AS SELECT ID, V + 1 AS W FROM S;",
            "The following columns are changed, missing or reordered: .`V` INTEGER",
        ),
        (
            (COPY,),
            "CREATE OR REPLACE STREAM C AS SELECT ID, V FROM C;",
            "Cannot replace stream 'C': the new query reads it.",
        ),
        (
            (),
            "CREATE OR REPLACE STREAM S AS SELECT ID, V FROM S;",
            "Cannot replace stream 'S': no query writes it.",
        ),
        (
            (COPY, (MADE.replace("STREAM S", "STREAM D").replace("'s'", "'d'"))),
            "CREATE OR REPLACE STREAM C AS SELECT ID, V FROM D;",
            "its query reads topic s, the new one d",
        ),
        (
            (COPY,),
            ("CREATE OR REPLACE STREAM C AS SELECT S.ID AS ID, S.V AS V FROM S"
            " JOIN T ON S.ID = T.ID;"),
            "a query that joins keeps a state",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_replaced(statements: tuple[str, ...], sql: str, why: str) -> None:
    catalog = after(MADE, TABLE, *statements)
    with pytest.raises(StatementError, match=why):
        judge(asked(sql), catalog, {})


@pytest.mark.parametrize(
    ("made", "sql"),
    [
        (DECLARED, "CREATE OR REPLACE " + OVER_C.format(", W INT", "")),
        (DECLARED, "ALTER STREAM C ADD COLUMN W INT;"),
        (COPY, "CREATE OR REPLACE STREAM C AS SELECT ID, V, V + 1 AS W FROM S;"),
    ],
)
def test_a_stream_keeps_the_columns_that_insert_into_writes(made: str, sql: str) -> None:
    """The query would fail at its next start, and nothing would say so before."""
    with pytest.raises(StatementError, match=r"\[INSERTQUERY_\d+\] write those that it has now"):
        judge(asked(sql), after(MADE, made, INSERT), {"c": 4})
    assert not isinstance(judge(asked(sql), after(MADE, made), {"c": 4}), StatementReply)


@pytest.mark.parametrize(
    ("made", "sql"),
    [
        (DECLARED, "CREATE OR REPLACE " + OVER_C.format("", "")),
        (COPY, "CREATE OR REPLACE STREAM C AS SELECT ID, V + 1 AS V FROM S;"),
    ],
)
def test_a_stream_that_insert_into_writes_may_be_declared_again(made: str, sql: str) -> None:
    verdict = judge(asked(sql), after(MADE, made, INSERT), {"c": 4})
    assert not isinstance(verdict, StatementReply)


def test_the_only_value_stays_as_insert_into_writes_it() -> None:
    """Bare, or in an object."""
    sql = "CREATE OR REPLACE " + OVER_C.format("", ", WRAP_SINGLE_VALUE=false")
    with pytest.raises(StatementError, match="write those that it has now"):
        judge(asked(sql), after(MADE, DECLARED, INSERT), {"c": 4})


@pytest.mark.parametrize(
    "columns",
    [
        "ID, COUNT(*) AS N, MAX(V) AS HIGHEST",
        "ID, MAX(V) AS HIGHEST, COUNT(*) AS N",
        "ID, MAX(V) AS HIGHEST",
        "ID, CAST(COUNT(*) AS DOUBLE) AS N",
    ],
    ids=["added", "moved", "dropped", "widened"],
)
def test_value_columns_of_a_table_may_change(columns: str) -> None:
    sql = f"CREATE OR REPLACE TABLE T AS SELECT {columns} FROM S GROUP BY ID;"
    assert replaced(sql, WITH_T).source.generation == 2


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE U AS SELECT * FROM T;",
        "CREATE STREAM U AS SELECT S.ID, S.V AS V, T.N AS N FROM S JOIN T ON S.ID = T.ID;",
    ],
)
def test_nobody_begins_to_read_what_is_being_replaced(sql: str) -> None:
    """It would follow the generation before, which ends in silence."""
    built = apply(WITH_T, LogIndex(9), replaced(SECOND, WITH_T))
    with pytest.raises(StatementError, match=r"Table T is being replaced by generation 2\."):
        judge(asked(sql), built, {})
    switched = apply(built, LogIndex(10), SwitchTable(name="T", generation=2))
    assert not isinstance(judge(asked(sql), switched, {}), StatementReply)
