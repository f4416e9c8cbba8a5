"""Joins that are refused because of the partitions of their sources. Other joins: tests/sql."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from standpipe.errors import StatementError
from standpipe.sql.plans import CreateTableAsPlan, Plan

#: beside FLIGHTS, DEPARTURES (streams), PLANES and FLEET (tables), which have 4 partitions
ODD = """
CREATE STREAM s3 (tail STRING KEY, delay DOUBLE)
    WITH (KAFKA_TOPIC='s3', VALUE_FORMAT='JSON', PARTITIONS=3);
CREATE TABLE t3 (tail STRING PRIMARY KEY, maker STRING)
    WITH (KAFKA_TOPIC='t3', VALUE_FORMAT='JSON', PARTITIONS=3);
"""


@pytest.mark.parametrize(
    ("joined", "one", "two", "why"),
    [
        ("flights a JOIN s3 b WITHIN 1 MINUTE ON a.tail = b.tail", "A", "B", "streams"),
        ("flights a LEFT JOIN t3 b ON a.tail = b.tail", "A", "B", "a stream and a table"),
        ("flights JOIN t3 ON flights.carrier = t3.tail", "FLIGHTS", "T3", "repartitioned before"),
        ("planes a JOIN t3 b ON a.tail = b.tail", "A", "B", "tables on their keys"),
        (
            "flights a JOIN planes p ON a.tail = p.tail JOIN t3 b ON a.tail = b.tail",
            "A",
            "B",
            "the result of a join has the name of its first source",
        ),
    ],
)
def test_unequal_partitions(
    plan: Callable[..., Plan], joined: str, one: str, two: str, why: str
) -> None:
    kind = "TABLE" if joined.startswith("planes") else "STREAM"
    key = joined.partition(" ON ")[2].partition(" = ")[0]
    with pytest.raises(StatementError) as refused:
        plan(f"{ODD} CREATE {kind} j AS SELECT {key}, 1 AS x FROM {joined};")
    assert refused.value.message == (
        f"Can't join `{one}` with `{two}` since the number of partitions don't match. `{one}`"
        f" partitions = 4; `{two}` partitions = 3. Please repartition either one so that the"
        " number of partitions match."
    ), why
    assert "WITH (PARTITIONS=4)" in refused.value.hint


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "TABLE j AS SELECT a.tail, b.maker FROM planes a JOIN t3 b ON a.maker = b.tail",
            "foreign",
        ),
        ("STREAM j AS SELECT a.tail, delay FROM s3 a JOIN t3 b ON a.tail = b.tail", "equal"),
    ],
)
def test_others_are_joined(plan: Callable[..., Plan], text: str, why: str) -> None:
    assert isinstance(plan(f"{ODD} CREATE {text};"), CreateTableAsPlan), why


def test_a_copy_with_as_many_partitions_can_be_joined(plan: Callable[..., Plan]) -> None:
    made = plan(
        f"{ODD} CREATE TABLE t4 WITH (PARTITIONS=4) AS SELECT * FROM t3;"
        " CREATE STREAM j AS SELECT a.tail, b.maker FROM flights a JOIN t4 b ON a.tail = b.tail;"
    )
    assert isinstance(made, CreateTableAsPlan)
