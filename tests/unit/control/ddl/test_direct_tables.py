"""Direct tables against a catalog, from the text to the command."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.control.ddl.test_propose import after, asked

from standpipe.control.assignment.from_catalog import ClusterObservation, problem
from standpipe.control.ddl import direct_tables
from standpipe.control.ddl.propose import judge
from standpipe.control.ddl.responses import StatementReply
from standpipe.control.metadata import feature_levels
from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import Catalog, from_bytes, to_bytes
from standpipe.control.metadata.commands import (
    Command,
    CreateSource,
    DropSource,
    SetFeatureLevel,
)
from standpipe.errors import StatementError
from standpipe.model import LogIndex

DIRECT = (
    "CREATE SOURCE TABLE {} (ID STRING PRIMARY KEY, V INT)"
    " WITH (KAFKA_TOPIC='{}', VALUE_FORMAT='JSON', APPLY='DIRECT');"
)
TOPICS = {"here": 2, "other": 1, "BY_ID": 4}
WRITTEN = after(
    "CREATE STREAM S (ID STRING KEY, V INT)"
    " WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=4);",
    "CREATE TABLE BY_ID AS SELECT ID, COUNT(*) AS N FROM S GROUP BY ID;",
)


def at_level(level: int, catalog: Catalog) -> Catalog:
    return apply(catalog, LogIndex(catalog.index + 1), SetFeatureLevel(level=level))


def made(catalog: Catalog, sql: str) -> Command:
    command = judge(asked(sql), catalog, TOPICS)
    assert not isinstance(command, StatementReply)
    return msgspec.structs.replace(command, request_id="")


HERE = at_level(feature_levels.DIRECT, WRITTEN)
FOLLOWED = apply(HERE, LogIndex(HERE.index + 1), made(HERE, DIRECT.format("D", "here")))


def test_a_table_without_a_query() -> None:
    command = made(HERE, DIRECT.format("D", "here"))
    assert isinstance(command, CreateSource)
    source = command.source
    assert (source.is_direct, source.is_materialized, source.query_id, source.partitions) == (
        *(True, True, None, 2),
    )
    assert (source.table_id, command.topic) == (f"D_{HERE.index + 1}", None)
    assert FOLLOWED.sources["D"] == source
    assert FOLLOWED.queries == HERE.queries
    assert from_bytes(to_bytes(FOLLOWED)) == FOLLOWED


def test_its_replicas_are_placed() -> None:
    wanted = problem(FOLLOWED, ClusterObservation()).cluster.partitions
    assert {each.partition for each in wanted if each.table_id == source_id()} == {0, 1}


def source_id() -> str | None:
    return FOLLOWED.sources["D"].table_id


def test_it_is_dropped_with_its_stores_and_the_topic_stays() -> None:
    command = made(FOLLOWED, "DROP TABLE D;")
    assert isinstance(command, DropSource)
    left = apply(FOLLOWED, LogIndex(FOLLOWED.index + 1), command)
    assert ("D" in left.sources, left.doomed_topics, left.queries) == (False, (), HERE.queries)


INTO = "CREATE TABLE T WITH (KAFKA_TOPIC='here', PARTITIONS=2) AS SELECT ID, COUNT(*) AS N FROM S"
OUTSIDE = "KAFKA_TOPIC='here', VALUE_FORMAT='JSON', PARTITIONS=2, WRITER='EXTERNAL'"


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        (DIRECT.format("E", "BY_ID"), "would show what is not committed. Read BY_ID instead."),
        (DIRECT.format("E", "here"), "is followed by table D already"),
        (DIRECT.format("D", "other"), "A table with the same name already exists"),
        (f"{INTO} GROUP BY ID;", "Topic 'here' already belongs to TABLE D."),
        (
            f"CREATE TABLE T (ID STRING PRIMARY KEY, V INT) WITH ({OUTSIDE});",
            "Topic 'here' already belongs to TABLE D.",
        ),
    ],
)
def test_what_the_catalog_forbids(sql: str, words: str) -> None:
    with pytest.raises(StatementError) as refused:
        judge(asked(sql), FOLLOWED, TOPICS)
    assert words in refused.value.message


def test_a_table_is_of_one_topic() -> None:
    command = made(HERE, DIRECT.format("D", "here"))
    named = direct_tables.of_one_topic(command, {"here": "id-1"}.__getitem__)
    assert isinstance(named, CreateSource)
    assert apply(HERE, LogIndex(HERE.index + 1), named).sources["D"].topic_id == "id-1"
    assert direct_tables.of_one_topic(command, lambda _: "") == command, "brokers without ids"


def test_a_table_that_a_query_fills_names_no_topic() -> None:
    copied = DIRECT.replace(", APPLY='DIRECT'", "").format("T", "here")
    for sql in (copied, STREAM):
        command = made(HERE, sql)
        assert direct_tables.of_one_topic(command, {}.__getitem__) is command, "Kafka is not asked"


def test_older_nodes_would_not_serve_it() -> None:
    older = at_level(feature_levels.DIRECT - 1, WRITTEN)
    with pytest.raises(StatementError, match="needs feature level 14, this cluster is at 13"):
        judge(asked(DIRECT.format("D", "here")), older, TOPICS)


def test_other_streams_may_be_declared_over_its_topic() -> None:
    stream = (
        "CREATE STREAM W (ID STRING KEY, V INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');"
    )
    assert isinstance(made(FOLLOWED, stream), CreateSource)


STREAM = "CREATE STREAM W (ID STRING KEY, V INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');"
INSERT = "INSERT INTO W SELECT ID, V FROM S;"


def logged(catalog: Catalog, sql: str) -> Catalog:
    return apply(catalog, LogIndex(catalog.index + 1), made(catalog, sql))


def test_no_insert_into_writes_its_topic() -> None:
    """The table would show what the query has written and not committed."""
    with pytest.raises(StatementError, match="is followed by table D"):
        judge(asked(INSERT), logged(FOLLOWED, STREAM), TOPICS)
    written = logged(logged(HERE, STREAM), INSERT)
    with pytest.raises(StatementError, match="is written by INSERT INTO W"):
        judge(asked(DIRECT.format("E", "here")), written, TOPICS)
