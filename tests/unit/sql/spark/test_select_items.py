"""A SELECT list without the key, or with the key twice: PlanNode.throwKeysNotIncludedError,
FinalProjectNode, LogicalPlanner.buildAggregateSchema."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from standpipe.errors import StatementError
from standpipe.sql.plans import CreateTableAsPlan, Plan

WITH = "WITH (KAFKA_TOPIC='here', FORMAT='JSON');"
SETUP = "".join(
    (
        f"CREATE STREAM A (K STRING KEY, V INT, W STRING) {WITH}",
        f"CREATE STREAM B (K STRING KEY, V INT, W STRING) {WITH}",
        f"CREATE STREAM D (K STRING KEY, L INT KEY, V INT) {WITH}",
        f"CREATE TABLE T (K STRING PRIMARY KEY, L INT PRIMARY KEY, V INT) {WITH}",
    )
)


def refused(plan: Callable[..., Plan], statement: str) -> str:
    with pytest.raises(StatementError) as refusal:
        plan(f"{SETUP}CREATE {statement};")
    return refusal.value.message


@pytest.mark.parametrize(
    ("statement", "first", "must"),
    [
        ("TABLE X AS SELECT K, V FROM T", "Keys missing", "key columns K and L"),
        ("STREAM X AS SELECT K, V FROM D", "Keys missing", "key columns K and L"),
        (
            "TABLE X AS SELECT W, COUNT(*) FROM A GROUP BY V, W",
            "Key missing",
            "grouping expression V in its projection (eg, SELECT V...)",
        ),
        (
            "TABLE X AS SELECT COUNT(*) FROM A GROUP BY V, W, V + 1",
            "Keys missing",
            "grouping expressions V, W and (V + 1) in its projection (eg, SELECT V, W, (V + 1)...)",
        ),
        (
            "STREAM X AS SELECT K FROM A PARTITION BY V",
            "Key missing",
            "partitioning expression A.V in its projection (eg, SELECT A.V...)",
        ),
        (
            "STREAM X AS SELECT A.V FROM A JOIN B WITHIN 1 HOUR ON A.K = B.K",
            "Key missing",
            "join expressions A.K or B.K in its projection (eg, SELECT A.K...)",
        ),
    ],
)
def test_a_list_without_the_key(
    plan: Callable[..., Plan], statement: str, first: str, must: str
) -> None:
    """Only those that are missing are named of a GROUP BY; all of the others."""
    message = refused(plan, statement)
    assert message.startswith(f"{first} from projection (ie, SELECT).\nThe query used to build `X`")
    assert f"must include the {must}" in message


@pytest.mark.parametrize(
    "join", ["FULL JOIN B WITHIN 1 HOUR ON A.K = B.K", "JOIN B WITHIN 1 HOUR ON A.V+1 = B.V+1"]
)
def test_a_key_that_no_source_has_is_explained(plan: Callable[..., Plan], join: str) -> None:
    message = refused(plan, f"STREAM X AS SELECT A.K, B.V FROM A {join}")
    assert message.startswith("Key missing from projection (ie, SELECT). See https://cnfl.io/2LV")
    assert "ROWKEY was added as a synthetic key column because the join criteria did not" in message


@pytest.mark.parametrize(
    ("statement", "twice"),
    [
        (
            "TABLE X AS SELECT V AS Z, V AS Y, COUNT(*) FROM A GROUP BY V",
            "a key column more than once: `Z` and `Y`.",
        ),
        (
            "TABLE X AS SELECT V AS Z, V AS Y, V, COUNT(*) FROM A GROUP BY V",
            "a key column more than once: `Z`, `Y` and `V`.",
        ),
        (
            "STREAM X AS SELECT K AS Z, K AS Y, V FROM A",
            "a key column (`K`) more than once, aliased as: Y and Z.",
        ),
    ],
)
def test_a_list_with_the_key_twice(plan: Callable[..., Plan], statement: str, twice: str) -> None:
    message = refused(plan, statement)
    assert f"The projection contains {twice}\nEach key column must only be in the" in message
    assert "consider using the AS_VALUE function" in message


def test_the_fields_of_what_a_table_function_makes(plan: Callable[..., Plan]) -> None:
    made = plan(
        "CREATE STREAM L (K INT KEY, A ARRAY<STRUCT<X INT, Y STRING>>)"
        " WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');"
        "CREATE STREAM X AS SELECT K, EXPLODE(A)->* FROM L;"
    )
    assert isinstance(made, CreateTableAsPlan)
    assert [column.name for column in made.source.columns] == ["K", "X", "Y"]
