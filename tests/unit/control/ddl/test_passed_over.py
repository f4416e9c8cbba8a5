"""control/ddl/passed_over.py: who is warned that a batch shows one change of a key."""

from __future__ import annotations

import pytest
from tests.unit.control.ddl.test_propose import asked
from tests.unit.control.ddl.test_source_topics import after

from standpipe.control.ddl.passed_over import warnings_of
from standpipe.control.ddl.propose import judge
from standpipe.control.ddl.responses import StatementReply

EVENTS = (
    "CREATE STREAM E (ID STRING KEY, V INT) WITH (KAFKA_TOPIC='e', PARTITIONS=2, FORMAT='JSON');"
)
TABLE = "CREATE TABLE T AS SELECT ID, COUNT(*) AS N FROM E {}GROUP BY ID {};"
WINDOW = "WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 1 MINUTE) "
OVER = "CREATE {} D (ID STRING {}KEY, N INT) WITH (KAFKA_TOPIC='{}', FORMAT='JSON', PARTITIONS=2);"


def said(sql: str, *before: str) -> tuple[str, ...]:
    catalog = after(EVENTS, *before)
    command = judge(asked(sql), catalog, {})
    assert not isinstance(command, StatementReply)
    return warnings_of(command, catalog)


@pytest.mark.parametrize(
    ("having", "is_warned", "why"),
    [
        ("HAVING COUNT(*) = 1", True, "a batch may bring two"),
        ("HAVING 1 = COUNT(V)", True, ""),
        ("HAVING SUM(V) > 3 AND COUNT(*) = 2", True, "a part of it"),
        ("HAVING COUNT(*) > 1", False, "what holds once may hold on"),
        ("HAVING ID = 'a'", False, "no aggregate"),
        ("", False, ""),
    ],
)
def test_having_with_one_value_of_an_aggregate(having: str, is_warned: bool, why: str) -> None:
    found = said(TABLE.format("", having))
    assert bool(found) is is_warned, why
    assert all("is not in T." in each and "EMIT FINAL" in each for each in found)


def test_a_window_that_is_put_out_once_passes_nothing_over() -> None:
    assert said(TABLE.format(WINDOW, "HAVING COUNT(*) = 1 EMIT FINAL")) == ()
    assert said(TABLE.format(WINDOW, "HAVING COUNT(*) = 1")) != ()


@pytest.mark.parametrize(
    ("over", "table", "is_warned", "why"),
    [
        (OVER.format("STREAM", "", "T"), TABLE.format("", ""), True, ""),
        (OVER.format("STREAM", "", "T"), TABLE.format(WINDOW, ""), True, ""),
        (OVER.format("STREAM", "", "T"), TABLE.format(WINDOW, "EMIT FINAL"), False, "each once"),
        (OVER.format("TABLE", "PRIMARY ", "T"), TABLE.format("", ""), False, "a table's last row"),
        (OVER.format("STREAM", "", "e"), TABLE.format("", ""), False, "events"),
        (
            OVER.format("STREAM", "", "T"),
            "CREATE STREAM T AS SELECT ID, V AS N FROM E;",
            False,
            "a record for each event",
        ),
    ],
)
def test_a_stream_over_the_topic_of_an_aggregate(
    over: str, table: str, is_warned: bool, why: str
) -> None:
    found = said(over, table)
    assert bool(found) is is_warned, why
    assert all("The topic of T" in each for each in found)
