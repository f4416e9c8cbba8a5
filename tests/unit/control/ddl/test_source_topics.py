"""CREATE SOURCE TABLE … PARTITIONS: the topic that it reads is made, as for any declared source."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.control.ddl.test_propose import KafkaAway, asked

from standpipe.control.ddl.propose import judge
from standpipe.control.ddl.responses import StatementReply
from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import EMPTY, Catalog
from standpipe.control.metadata.commands import (
    CreateTableAs,
    DropSource,
    RecordTopics,
    WithdrawStatement,
)
from standpipe.control.metadata.feature_levels import NEWEST, SOURCE_TOPICS
from standpipe.control.metadata.topic_reconciler import CreateTopic, RecordTopic, topic_orders
from standpipe.errors import StatementError
from standpipe.model import LogIndex, TopicSpec

OVER = (
    "CREATE SOURCE TABLE T (ID STRING PRIMARY KEY, V INT) WITH (KAFKA_TOPIC='t', {}FORMAT='JSON');"
)
MADE = OVER.format("PARTITIONS=2, ")
STREAM = "CREATE STREAM S (ID STRING KEY) WITH (KAFKA_TOPIC='t', PARTITIONS=2, FORMAT='JSON');"
START = msgspec.structs.replace(EMPTY, feature_level=NEWEST)


def after(*statements: str, start: Catalog = START) -> Catalog:
    catalog = start
    for sql in statements:
        command = judge(asked(sql), catalog, {})
        assert not isinstance(command, StatementReply)
        command = msgspec.structs.replace(command, request_id="")
        catalog = apply(catalog, LogIndex(catalog.index + 1), command)
    return catalog


def next_(catalog: Catalog, command: RecordTopics | WithdrawStatement) -> Catalog:
    return apply(catalog, LogIndex(catalog.index + 1), command)


def withdrawn(catalog: Catalog) -> Catalog:
    table_id = catalog.sources["T"].table_id or ""
    command = WithdrawStatement(
        of_request="r", name="T", table_id=table_id, generation=1, reason="too late"
    )
    return next_(catalog, command)


def test_both_topics_are_made_the_one_that_is_read_first() -> None:
    command = judge(asked(MADE), START, {})
    assert isinstance(command, CreateTableAs)
    assert command.source_topic == TopicSpec(name="t", partitions=2, kind="TABLE")
    assert command.topic == TopicSpec(name="CST_T_1-changelog", partitions=2, kind="TABLE")
    catalog = after(MADE)
    assert list(catalog.topics) == ["t", "CST_T_1-changelog"]
    orders = [order.name for order in topic_orders(catalog, {}, "s") if is_new(order)]
    assert orders[-2:] == ["t", "CST_T_1-changelog"]


def is_new(order: object) -> bool:
    return isinstance(order, RecordTopic | CreateTopic)


@pytest.mark.parametrize(
    ("sql", "kind", "why"),
    [
        (MADE, "TABLE", "its rows stay"),
        (MADE.replace("SOURCE ", ""), "TABLE", "its rows stay"),
        (STREAM, "SOURCE", "events"),
    ],
)
def test_the_topic_of_a_declared_table_is_compacted(sql: str, kind: str, why: str) -> None:
    """Kafka deleted rows of such a table a week after they were written."""
    assert after(sql).topics["t"].kind == kind, why


def test_a_topic_that_is_there_is_not_made() -> None:
    for sql in (MADE, OVER.format("")):
        command = judge(asked(sql), START, {"t": 2})
        assert isinstance(command, CreateTableAs)
        assert command.source_topic is msgspec.UNSET


def test_while_kafka_is_away_partitions_say_enough() -> None:
    command = judge(asked(MADE), START, KafkaAway())
    assert isinstance(command, CreateTableAs)
    assert command.source_topic


def test_a_cluster_with_older_nodes_says_what_to_do() -> None:
    older = msgspec.structs.replace(EMPTY, feature_level=SOURCE_TOPICS - 1)
    with pytest.raises(StatementError, match=r"level 16 on, .* is at 15: create topic t first"):
        judge(asked(MADE), older, {})
    assert isinstance(judge(asked(OVER.format("")), older, {"t": 2}), CreateTableAs)


def test_a_topic_that_is_being_deleted_is_not_read() -> None:
    doomed = after(STREAM, "DROP STREAM S DELETE TOPIC;")
    assert doomed.doomed_topics == ("t",)
    with pytest.raises(StatementError, match="Topic t is being deleted"):
        judge(asked(OVER.format("")), doomed, {"t": 2})
    assert isinstance(judge(asked(MADE), doomed, {}), CreateTableAs)


def test_a_dropped_source_table_leaves_its_topic() -> None:
    made = next_(after(MADE), RecordTopics(ids={"t": "A", "CST_T_1-changelog": "B"}))
    assert isinstance(judge(asked("DROP TABLE T;"), made, {}), DropSource)
    left = after("DROP TABLE T;", start=made)
    assert (left.topics, left.doomed_topics) == ({}, ("CST_T_1-changelog",))


@pytest.mark.parametrize(
    ("statements", "level", "gone", "why"),
    [
        ((MADE,), NEWEST, True, "the statement made it"),
        ((STREAM, "DROP STREAM S;", OVER.format("")), NEWEST, False, "records may be in it"),
        ((STREAM, OVER.format("")), NEWEST, False, "S reads it"),
        ((STREAM, "DROP STREAM S;", OVER.format("")), SOURCE_TOPICS - 1, True, "as older nodes do"),
    ],
)
def test_what_is_taken_back_takes_only_what_it_made(
    statements: tuple[str, ...], level: int, gone: bool, why: str
) -> None:
    catalog = msgspec.structs.replace(START, feature_level=level)
    for sql in statements:
        known = {"t": 2} if "t" in catalog.made_topics else {}
        command = judge(asked(sql), catalog, known)
        assert not isinstance(command, StatementReply)
        command = msgspec.structs.replace(command, request_id="")
        catalog = apply(catalog, LogIndex(catalog.index + 1), command)
        catalog = next_(catalog, RecordTopics(ids={"t": "A"}))
    assert ("t" in withdrawn(catalog).doomed_topics) is gone, why
