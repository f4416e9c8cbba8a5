"""Which statements may read a direct table; what its own cannot have is in tests/sql."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from standpipe.errors import StatementError
from standpipe.sql.plans import Plan, PullPlan

TABLE = (
    "CREATE SOURCE TABLE D (TAIL STRING PRIMARY KEY, V INT)"
    " WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON', APPLY='DIRECT');"
)


def test_a_pull_query_reads_it(plan: Callable[..., Plan]) -> None:
    found = plan(TABLE + "SELECT * FROM D WHERE TAIL = 'a';")
    assert isinstance(found, PullPlan)
    assert found.source.is_direct
    assert found.keys == (("a",),)


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("SELECT * FROM D EMIT CHANGES;", "EMIT CHANGES"),
        ("SELECT V, COUNT(*) FROM D GROUP BY V EMIT CHANGES;", "A query in Spark"),
        ("CREATE TABLE T AS SELECT * FROM D;", "A query in Spark"),
        ("CREATE TABLE T AS SELECT V, COUNT(*) FROM D GROUP BY V;", "A query in Spark"),
        (
            "CREATE STREAM T AS SELECT F.TAIL, V FROM FLIGHTS F JOIN D ON F.TAIL = D.TAIL;",
            "A query in Spark",
        ),
        (
            "CREATE TABLE T AS SELECT D.TAIL, V FROM D JOIN FLEET ON D.TAIL = FLEET.TAIL;",
            "A query in Spark",
        ),
    ],
)
def test_what_reads_committed_batches_does_not(
    plan: Callable[..., Plan], sql: str, what: str
) -> None:
    with pytest.raises(StatementError) as refused:
        plan(TABLE + sql)
    assert refused.value.message.startswith(f"{what} cannot read D:")
    assert "Declare its topic 'here' once more" in refused.value.message


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE D ADD COLUMN W INT;",
        "INSERT INTO D (TAIL, V) VALUES ('a', 1);",
        "DROP TABLE D DELETE TOPIC;",
        "CREATE OR REPLACE TABLE D AS SELECT * FROM FLEET;",
    ],
)
def test_it_is_read_only(plan: Callable[..., Plan], sql: str) -> None:
    with pytest.raises(StatementError, match=r"read-only|source tables"):
        plan(TABLE + sql)
