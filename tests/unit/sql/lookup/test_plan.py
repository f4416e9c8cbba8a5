"""Pull queries as records: what data.pull is given. Statements and errors: tests/sql/pull.sql."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from standpipe.errors import StatementError
from standpipe.sql.lookup.plan import ENABLE
from standpipe.sql.plans import Plan, PullPlan


def pulled(plan: Callable[..., Plan], text: str) -> PullPlan:
    found = plan(text)
    assert isinstance(found, PullPlan)
    return found


def test_the_full_row_needs_no_projection(plan: Callable[..., Plan]) -> None:
    found = pulled(plan, "SELECT * FROM by_day WHERE carrier = 'UA';")
    assert found.projection is None
    assert found.column_names == ("CARRIER", "WINDOWSTART", "WINDOWEND", "N")
    assert found.column_types == ("STRING", "BIGINT", "BIGINT", "BIGINT")
    assert found.full_row_width == 4


@pytest.mark.parametrize(
    ("items", "projection", "why"),
    [
        ("carrier, windowstart, windowend, n", None, "the full row, spelled out"),
        ("n, carrier", (3, 0), "indices into the full row"),
        ("rowtime", (4,), "ROWTIME stands behind it"),
        ("carrier AS c, windowstart, windowend, n", (0, 1, 2, 3), "another name"),
        ("by_day.*", None, ""),
    ],
)
def test_projection(
    plan: Callable[..., Plan], items: str, projection: tuple[int, ...] | None, why: str
) -> None:
    found = pulled(plan, f"SELECT {items} FROM by_day WHERE carrier = 'UA';")
    assert found.projection == projection, why
    if projection == (4,):
        assert found.rowtime_index == 4


def test_pull_queries_can_be_switched_off(plan: Callable[..., Plan]) -> None:
    with pytest.raises(StatementError, match="Pull queries are disabled"):
        plan("SELECT * FROM by_tail WHERE tail = 'a';", properties={ENABLE: "false"})


def test_a_scan_with_a_regular_expression_has_costly_rows(plan: Callable[..., Plan]) -> None:
    """48,000 matches of each of 32 rows kept a worker from its loop until it was killed."""
    found = pulled(plan, "SELECT * FROM by_tail WHERE REGEXP_EXTRACT('a+', tail) = 'a';")
    assert found.has_costly_rows
    assert pulled(plan, "SELECT * FROM by_tail WHERE UCASE(tail) = 'A';").expression_count < 10


@pytest.mark.parametrize(
    "where",
    [
        "tail = NULL OR tail = 'a'",
        "tail = CAST(NULL AS STRING)",
        "tail = CAST(NULL AS STRING) AND n > 1",
        "tail = 'a' OR tail = CAST(NULL AS STRING)",
        "tail IN ('a', CAST(NULL AS STRING))",
        "tail IN (CAST(NULL AS STRING), 'a') AND n > 1",
    ],
)
def test_no_key_is_null(plan: Callable[..., Plan], where: str) -> None:
    """Such a key was looked up. A literal NULL is refused as a comparison or as a key."""
    with pytest.raises(StatementError) as refused:
        plan(f"SELECT * FROM BY_TAIL WHERE {where};")
    texts = ("Primary key columns can not be NULL: (", "Comparison with NULL not supported")
    assert any(text in refused.value.message for text in texts)


def test_no_bound_of_a_window_is_null(plan: Callable[..., Plan]) -> None:
    """It was a TypeError: 500 instead of 400."""
    where = "carrier = 'UA' AND WINDOWSTART > CAST(NULL AS BIGINT)"
    with pytest.raises(StatementError, match=r"can not be NULL: \(WINDOWSTART = CAST\(null AS"):
        plan(f"SELECT * FROM BY_DAY WHERE {where};")


def test_a_null_beside_other_rows_is_a_filter(plan: Callable[..., Plan]) -> None:
    found = plan("SELECT * FROM BY_TAIL WHERE tail = CAST(NULL AS STRING) OR n > 1;")
    assert isinstance(found, PullPlan)
    assert found.is_scan


@pytest.mark.parametrize("item", ["SUM(n)", "COUNT(n)", "tail, MAX(n)", "1 + COUNT(*)"])
def test_an_aggregate_is_a_group_by(plan: Callable[..., Plan], item: str) -> None:
    with pytest.raises(StatementError, match=r"^Pull queries don't support GROUP BY clauses\."):
        plan(f"SELECT {item} FROM BY_TAIL WHERE tail = 'a';")
