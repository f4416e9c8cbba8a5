"""CREATE over a topic: what depends on the session and on Kafka. The rest: tests/sql."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from standpipe.errors import StatementError
from standpipe.sql.plans import CreateSourcePlan, Plan

Planner = Callable[..., Plan]


@pytest.mark.parametrize(
    ("topics", "given", "partitions", "made"),
    [
        ({"t": 3}, "", 3, False),
        ({"t": 3}, ", PARTITIONS=3", 3, False),
        ({}, ", PARTITIONS=5", 5, True),
    ],
)
def test_partitions(
    plan: Planner, topics: dict[str, int], given: str, partitions: int, made: bool
) -> None:
    text = f"CREATE STREAM s (a INT) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='JSON'{given});"
    found = plan(text, topics=topics)
    assert isinstance(found, CreateSourcePlan)
    assert (found.source.partitions, found.create_topic) == (partitions, made)


def test_formats_of_the_session(plan: Planner) -> None:
    properties = {
        "ksql.persistence.default.format.key": "json",
        "ksql.persistence.default.format.value": "delimited",
    }
    text = "CREATE STREAM s (a INT KEY, b INT) WITH (KAFKA_TOPIC='here', VALUE_DELIMITER='TAB');"
    found = plan(text, properties=properties)
    assert isinstance(found, CreateSourcePlan)
    source = found.source
    assert (source.key_format, source.value_format) == ("JSON", "DELIMITED")
    assert source.value_delimiter == "\t"


@pytest.mark.parametrize(
    ("name", "is_fine"),
    [("a.b_c-D9", True), ("x" * 249, True), ("x" * 250, False), ("..", False), ("a b", False),
     ("../etc", False), ("", False)],
)  # fmt: skip
def test_topic_names(plan: Planner, name: str, is_fine: bool) -> None:
    text = f"CREATE STREAM s (a INT) WITH (KAFKA_TOPIC='{name}', FORMAT='JSON', PARTITIONS=1);"
    if is_fine:
        plan(text)
        return
    with pytest.raises(StatementError, match="Invalid topic name"):
        plan(text)


def test_flags_travel_with_the_plan(plan: Planner) -> None:
    text = (
        "CREATE OR REPLACE STREAM IF NOT EXISTS s (a INT) WITH (KAFKA_TOPIC='here', FORMAT='JSON');"
    )
    found = plan(text)
    assert isinstance(found, CreateSourcePlan)
    assert (found.or_replace, found.if_not_exists) == (True, True)
    assert found.source.statement == text
