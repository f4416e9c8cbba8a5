"""Looking into and changing typed expressions."""

from __future__ import annotations

from standpipe.sql.types.typed_expression import (
    Aggregate,
    Operation,
    TypedColumn,
    aggregates_in,
    rewrite,
)
from standpipe.sql.types.types import BIGINT, INTEGER

A, B = TypedColumn(INTEGER, "A"), TypedColumn(INTEGER, "B")
SUM = Operation(INTEGER, "({0} + {1})", (A, B))
COUNT = Aggregate(BIGINT, "count({0})", (SUM,))


def test_rewrite_replaces_the_topmost() -> None:
    changed = rewrite(COUNT, lambda node: B if node in (SUM, A) else None)
    assert changed == Aggregate(BIGINT, "count({0})", (B,)), "and keeps the kind of the rest"


def test_aggregates_in() -> None:
    assert aggregates_in(Operation(BIGINT, "(- {0})", (COUNT,)))
    assert not aggregates_in(SUM)
