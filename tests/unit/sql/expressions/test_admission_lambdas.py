"""What may stand in a lambda, and in a query that groups."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from standpipe.errors import StatementError
from standpipe.sql.plans import CreateTableAsPlan, Plan

SETUP = (
    "CREATE STREAM S (K STRING KEY, V INT, A ARRAY<INT>, M MAP<STRING, INT>)"
    " WITH (KAFKA_TOPIC='here', FORMAT='JSON');"
)
ROWS = "CREATE STREAM X AS SELECT K, {} AS U FROM S;"
GROUPS = "CREATE TABLE X AS SELECT K, {} AS U FROM S GROUP BY K;"
STRAY = "outside of aggregate functions not part of GROUP BY: V"


def refused(plan: Callable[..., Plan], sql: str) -> str:
    with pytest.raises(StatementError) as refusal:
        plan(f"{SETUP}{sql}")
    return refusal.value.message


@pytest.mark.parametrize(
    ("sql", "item", "message"),
    [
        (ROWS, "TRANSFORM(A, X => EXPLODE(ARRAY[X]))", "Table functions cannot be used in a la"),
        (ROWS, "FILTER(A, X => EXPLODE(A) = X)", "Table functions cannot be used in a lambda: "),
        (
            ROWS,
            "TRANSFORM(A, X => TRANSFORM(A, Y => EXPLODE(ARRAY[X])))",
            "Table functions cannot be used in a lambda: Y => EXPLODE(ARRAY[X])",
        ),
        (
            GROUPS,
            "TRANSFORM(COLLECT_LIST(V), X => SUM(X))",
            "Aggregate functions cannot be used on the parameters of a lambda: X => SUM(X)",
        ),
        (
            GROUPS,
            "TRANSFORM(COLLECT_LIST(V), X => TRANSFORM(COLLECT_LIST(V), Y => MAX(X + V)))",
            "Aggregate functions cannot be used on the parameters of a lambda: Y => MAX((X + V))",
        ),
        (ROWS, "FILTER(M, (K, K) => K = 1)", "Lambda arguments have duplicates: [K, K]"),
        (GROUPS, "TRANSFORM(COLLECT_LIST(V), X => X + V)", STRAY),
        (GROUPS, "REDUCE(COLLECT_LIST(V), 0, (S, X) => S + X + V)", STRAY),
        (GROUPS, "TRANSFORM(COLLECT_LIST(V), X => TRANSFORM(COLLECT_LIST(V), Y => V))", STRAY),
    ],
)
def test_what_a_lambda_cannot_have(
    plan: Callable[..., Plan], sql: str, item: str, message: str
) -> None:
    """Spark fails on each of them, at every batch."""
    assert message in refused(plan, sql.format(item))


@pytest.mark.parametrize(
    ("sql", "item"),
    [
        (ROWS, "EXPLODE(TRANSFORM(A, X => X + V))"),
        (GROUPS, "COLLECT_LIST(TRANSFORM(A, X => X + V))"),
        (GROUPS, "SUM(REDUCE(A, 0, (S, X) => S + X))"),
        (GROUPS, "TRANSFORM(COLLECT_LIST(V), X => X + LEN(K))"),
    ],
)
def test_what_a_lambda_can_have(plan: Callable[..., Plan], sql: str, item: str) -> None:
    assert isinstance(plan(f"{SETUP}{sql.format(item)}"), CreateTableAsPlan)


def test_a_lambda_in_having_reads_groups_as_well(plan: Callable[..., Plan]) -> None:
    sql = "CREATE TABLE X AS SELECT K, COUNT(*) FROM S GROUP BY K HAVING ARRAY_LENGTH({}) > 1;"
    text = "Non-aggregate HAVING expression not part of GROUP BY"
    assert text in refused(plan, sql.format("FILTER(COLLECT_LIST(V), X => X > V)"))
    assert plan(f"{SETUP}{sql.format('FILTER(COLLECT_LIST(V), X => X > LEN(K))')}")


@pytest.mark.parametrize("call", ["TOPK(V, {})", "TOPKDISTINCT(V, {})", "TOPK(V, K, {})"])
def test_how_many_are_the_largest(plan: Callable[..., Plan], call: str) -> None:
    """A length below 0 fails in Spark at every batch."""
    for count in (0, -1):
        assert refused(plan, GROUPS.format(call.format(count))) == "k must be 1 or greater"
    assert plan(f"{SETUP}{GROUPS.format(call.format(1))}")
