"""From plans to commands and ksqlDB's answers. Texts: ksqlDB's MetaStoreImpl and DdlCommandExec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import pytest

from standpipe.control.ddl import responses
from standpipe.control.ddl.propose import Request, judge, propose
from standpipe.control.ddl.responses import StatementReply, entities
from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import EMPTY, Catalog
from standpipe.control.metadata.commands import (
    CreateSource,
    CreateTableAs,
    DropSource,
    TerminateQuery,
)
from standpipe.control.metadata.requests import AppliedRequest
from standpipe.errors import KafkaUnavailable, StatementError
from standpipe.model import LogIndex, TopicSpec
from standpipe.sql.plans import CreateTableAsPlan, DropPlan, TerminatePlan

STREAM = "CREATE STREAM S (ID STRING KEY, V INTEGER) WITH (KAFKA_TOPIC='s', {}VALUE_FORMAT='JSON');"
MADE = STREAM.format("PARTITIONS=4, ")
TABLE = "CREATE TABLE T AS SELECT ID, COUNT(*) AS N FROM S GROUP BY ID EMIT CHANGES;"


def asked(sql: str) -> Request:
    return Request(ksql=sql, request_id="r1")


def after(*statements: str) -> Catalog:
    catalog = EMPTY
    for sql in statements:
        command = judge(asked(sql), catalog, {})
        assert not isinstance(command, StatementReply)
        command = msgspec.structs.replace(command, request_id="")
        catalog = apply(catalog, LogIndex(catalog.index + 1), command)
    return catalog


WITH_S = after(MADE)
WITH_T = after(MADE, TABLE)


class KafkaAway(Mapping[str, int]):
    """Topics while Kafka does not answer."""

    def __getitem__(self, name: str) -> int:
        raise KafkaUnavailable("no answer")

    def __iter__(self) -> Iterator[str]:
        raise KafkaUnavailable("no answer")

    def __len__(self) -> int:
        raise KafkaUnavailable("no answer")


def test_retention_of_a_new_topic_is_the_statements() -> None:
    command = judge(asked(STREAM.format("PARTITIONS=4, RETENTION_MS=-1, ")), EMPTY, {})
    assert isinstance(command, CreateSource)
    assert command.topic is not None
    assert command.topic.retention_ms == -1, "-1 is for ever, as Kafka spells it"


def test_create_stream_with_partitions_makes_its_topic() -> None:
    command = judge(asked(MADE), EMPTY, {})
    assert isinstance(command, CreateSource)
    assert command.topic == TopicSpec(name="s", partitions=4, kind="SOURCE")
    assert command.request_id == "r1"
    assert command.receipt is not None
    assert (command.receipt.command_id, command.receipt.message) == (
        "stream/S/create",
        "Stream created",
    )


def test_create_stream_over_a_topic_makes_none() -> None:
    command = judge(asked(STREAM.format("")), EMPTY, {"s": 6})
    assert isinstance(command, CreateSource)
    assert (command.topic, command.source.partitions) == (None, 6)


def test_create_table_as_names_query_topic_and_table_after_its_index() -> None:
    command = judge(asked(TABLE), WITH_S, {})
    assert isinstance(command, CreateTableAs)
    assert command.query.query_id == "CTAS_T_2"
    assert command.topic == TopicSpec(name="T", partitions=4, kind="TABLE")
    assert command.receipt is not None
    assert command.receipt.message == "Created query with ID CTAS_T_2"


@pytest.mark.parametrize(
    ("sql", "raises", "why"),
    [
        (MADE, None, "PARTITIONS says enough: its topic will follow"),
        (STREAM.format(""), KafkaUnavailable, "only Kafka knows the partitions"),
        ("CREATE STREAM S;", StatementError, "wrong with and without Kafka"),
    ],
)
def test_while_kafka_is_away(sql: str, raises: type[Exception] | None, why: str) -> None:
    if raises is None:
        assert isinstance(judge(asked(sql), EMPTY, KafkaAway()), CreateSource), why
    else:
        with pytest.raises(raises):
            judge(asked(sql), EMPTY, KafkaAway())


def test_one_statement_at_a_time() -> None:
    with pytest.raises(StatementError, match="Expected exactly one KSQL statement; found 2"):
        judge(asked(MADE + TABLE), EMPTY, {})


@pytest.mark.parametrize(
    ("sql", "catalog", "message"),
    [
        (MADE, WITH_S, "Cannot add stream 'S': A stream with the same name already exists"),
        (TABLE, WITH_T, "Cannot add table 'T': A table with the same name already exists"),
        (
            TABLE.replace("TABLE T", "TABLE S"),
            WITH_S,
            "Cannot add table 'S': A stream with the same name already exists",
        ),
        (
            "DROP STREAM S;",
            WITH_T,
            "The following streams and/or tables read from this source: [T].",
        ),
        ("DROP STREAM X;", WITH_T, "Stream X does not exist."),
        (
            "DROP STREAM T;",
            WITH_T,
            "Incompatible data source type is table, but statement was DROP stream",
        ),
        ("TERMINATE CTAS_X_9;", WITH_T, "Unknown queryId: CTAS_X_9"),
        ("SHOW STREAMS;", WITH_T, "so it is not logged"),
    ],
)
def test_refusals(sql: str, catalog: Catalog, message: str) -> None:
    with pytest.raises(StatementError) as refused:
        judge(asked(sql), catalog, {})
    assert message in refused.value.message


def test_a_table_topic_has_one_writer() -> None:
    table = judge(asked(TABLE.replace("TABLE T", "TABLE T2")), WITH_S, {})
    assert isinstance(table, CreateTableAs)
    plan = CreateTableAsPlan(
        source=msgspec.structs.replace(table.source, topic="T"), query=table.query
    )
    with pytest.raises(StatementError, match="Topic T is already written by query CTAS_T_2"):
        propose(plan, WITH_T)


def test_a_source_in_use_names_its_queries() -> None:
    with pytest.raises(StatementError) as refused:
        judge(asked("DROP STREAM S;"), WITH_T, {})
    assert refused.value.hint == "in use by query CTAS_T_2"


def test_a_terminated_query_holds_nothing() -> None:
    ended = after(MADE, TABLE, "TERMINATE CTAS_T_2;")
    assert isinstance(judge(asked("DROP STREAM S;"), ended, {}), DropSource)


@pytest.mark.parametrize(
    ("sql", "catalog", "message"),
    [
        (
            MADE.replace("STREAM S", "STREAM IF NOT EXISTS S"),
            WITH_S,
            "Cannot add stream `S`: A stream with the same name already exists.",
        ),
        ("DROP STREAM IF EXISTS X;", WITH_S, "Source `X` does not exist."),
        ("TERMINATE ALL;", WITH_S, "No query is running."),
    ],
)
def test_nothing_to_do_is_an_answer(sql: str, catalog: Catalog, message: str) -> None:
    answer = judge(asked(sql), catalog, {})
    assert isinstance(answer, StatementReply)
    assert answer.entities[0]["@type"] == "warning_entity"
    assert answer.entities[0]["message"] == message


def test_drop_ends_the_query_that_writes_the_table() -> None:
    command = judge(asked("DROP TABLE T DELETE TOPIC;"), WITH_T, {})
    assert isinstance(command, DropSource)
    assert command.delete_topic
    dropped = apply(WITH_T, LogIndex(3), command)
    assert (dropped.queries, dropped.doomed_topics) == ({}, ("T",))


def test_a_topic_that_others_read_is_not_deleted() -> None:
    both = after(MADE, MADE.replace("STREAM S", "STREAM S2"))
    with pytest.raises(StatementError, match=r"Found other data sources \(S2\) using topic s"):
        judge(asked("DROP STREAM S DELETE TOPIC;"), both, {})
    assert isinstance(judge(asked("DROP STREAM S;"), both, {}), DropSource)


def test_a_doomed_topic_is_not_read() -> None:
    doomed = after(MADE, "DROP STREAM S DELETE TOPIC;")
    with pytest.raises(StatementError, match="Topic s is being deleted"):
        judge(asked(STREAM.format("")), doomed, {"s": 4})
    assert isinstance(judge(asked(MADE), doomed, {}), CreateSource)


def test_terminate_all_names_the_queries_of_now() -> None:
    command = propose(TerminatePlan(query_id=None), WITH_T, statement="TERMINATE ALL;")
    assert isinstance(command, TerminateQuery)
    assert command.query_ids == ("CTAS_T_2",)
    assert command.receipt is not None
    assert command.receipt.command_id == "terminate/ALL/execute"


def test_propose_judges_by_the_catalog_not_by_the_plan() -> None:
    plan = DropPlan(name="X", kind="TABLE", exists=True)
    with pytest.raises(StatementError, match="Source `X` does not exist"):
        propose(plan, WITH_S)


def test_answer_has_the_shape_of_ksqldb() -> None:
    """Source: ksqlDB's REST API, POST /ksql."""
    command = judge(asked(TABLE), WITH_S, {})
    assert isinstance(command, CreateTableAs)
    applied = apply(WITH_S, LogIndex(2), command).applied_requests["r1"]
    assert entities(applied, (responses.TOPIC_WILL_FOLLOW,)) == [
        {
            "@type": "currentStatus",
            "statementText": TABLE,
            "commandId": "table/T/create",
            "commandStatus": {
                "status": "SUCCESS",
                "message": "Created query with ID CTAS_T_2",
                "queryId": "CTAS_T_2",
            },
            "commandSequenceNumber": 2,
            "warnings": [{"message": responses.TOPIC_WILL_FOLLOW}],
        }
    ]


def test_a_command_that_did_not_fit_is_an_error() -> None:
    with pytest.raises(StatementError, match="S exists"):
        entities(AppliedRequest(index=LogIndex(1), refusal="S exists"))
