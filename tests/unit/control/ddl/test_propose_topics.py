"""Which topics results may have: a topic has one query that writes it, but for INSERT INTO."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.unit.control.ddl.test_propose import asked
from tests.unit.control.ddl.test_source_topics import after

from standpipe.control.ddl.propose import judge
from standpipe.control.metadata.commands import CreateTableAs, InsertInto
from standpipe.errors import StatementError

EVENTS = (
    "CREATE STREAM E (ID STRING KEY, V INT) WITH (KAFKA_TOPIC='e', PARTITIONS=2, FORMAT='JSON');"
)
STREAM = "CREATE STREAM {}{} AS SELECT ID, V FROM E;"
TABLE = "CREATE TABLE {}{} AS SELECT ID, COUNT(*) AS N FROM E GROUP BY ID;"
OVER_X = (
    "CREATE STREAM D (ID STRING KEY, V INT) WITH (KAFKA_TOPIC='x', PARTITIONS=2, FORMAT='JSON');"
)
WRITER = (
    "CREATE TABLE W (ID STRING PRIMARY KEY, V INT) WITH (KAFKA_TOPIC='x', PARTITIONS=2,"
    " FORMAT='JSON', WRITER='EXTERNAL');"
)
INSERT = "INSERT INTO {} SELECT ID, V FROM E;"


def to(topic: str) -> str:
    return f" WITH (KAFKA_TOPIC='{topic}')" if topic else ""


def refusal(sql: str, *before: str, topics: Mapping[str, int] | None = None) -> StatementError:
    with pytest.raises(StatementError) as refused:
        judge(asked(sql), after(EVENTS, *before), topics or {})
    return refused.value


@pytest.mark.parametrize("first", [STREAM, TABLE], ids=["stream", "table"])
@pytest.mark.parametrize("second", [STREAM, TABLE], ids=["stream", "table"])
@pytest.mark.parametrize(
    ("topics", "shared"), [(("x", "x"), "x"), (("", "A"), "A"), (("B", ""), "B")]
)
def test_two_results_have_two_topics(
    first: str, second: str, topics: tuple[str, str], shared: str
) -> None:
    """Also if one of them has its topic by its name alone, in either order."""
    one, other = first.format("A", to(topics[0])), second.format("B", to(topics[1]))
    refused = refusal(other, one)
    kind = "STREAM" if first is STREAM else "TABLE"
    assert refused.message == f"Topic '{shared}' already belongs to {kind} A."
    is_insert = first is second is STREAM
    assert ("INSERT INTO A SELECT" in refused.hint) is is_insert
    assert ("Name another KAFKA_TOPIC" in refused.hint) is not is_insert


def test_a_result_that_ended_keeps_its_topic_until_it_is_dropped() -> None:
    one, other = STREAM.format("A", to("x")), STREAM.format("B", to("x"))
    assert "belongs to STREAM A" in refusal(other, one, "TERMINATE ALL;").message
    dropped = after(EVENTS, one, "DROP STREAM A;")
    assert isinstance(judge(asked(other), dropped, {}), CreateTableAs)


@pytest.mark.parametrize("target", ["A", "D"])
def test_an_insert_adds_a_writer(target: str) -> None:
    """By any name of the topic."""
    catalog = after(EVENTS, STREAM.format("A", to("x")), OVER_X)
    assert isinstance(judge(asked(INSERT.format(target)), catalog, {}), InsertInto)


def test_a_table_of_an_application_shares_its_topic_with_no_insert() -> None:
    """Compaction would keep the record of the INSERT, which no replica shows, in place of the row
    that was committed before it."""
    for before in ((OVER_X,), (OVER_X, INSERT.format("D"))):
        assert refusal(WRITER, *before).message == "Topic 'x' already belongs to STREAM D."
    assert "which query EXTERNAL_W_2 writes" in refusal(INSERT.format("D"), WRITER, OVER_X).message


def test_nobody_is_sent_to_insert_into_a_source_stream() -> None:
    source = OVER_X.replace("STREAM", "SOURCE STREAM")
    assert refusal(STREAM.format("B", to("x")), source).hint == "Name another KAFKA_TOPIC."
