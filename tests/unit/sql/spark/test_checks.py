"""Windows and ids of CREATE TABLE … AS SELECT. Statements and their Spark SQL: tests/sql."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from standpipe.errors import StatementError
from standpipe.sql.context import sanitised
from standpipe.sql.plans import CreateTableAsPlan, Plan
from standpipe.sql.spark.checks import DAY_MS, window_of
from standpipe.sql.syntax.ast import START, WindowClause


@pytest.mark.parametrize(
    ("size_ms", "retention_ms", "grace_ms", "expected", "why"),
    [
        (1000, None, None, (DAY_MS - 1000, DAY_MS), "24 hours, less the size"),
        (DAY_MS, None, None, (0, DAY_MS), "nothing is left of them"),
        (2 * DAY_MS, None, None, (0, 2 * DAY_MS), "never below 0"),
        (1000, None, 500, (500, 1500), "retention: size + grace"),
        (1000, 1500, 500, (500, 1500), "exactly enough"),
        (1000, 1499, 500, None, "one ms too few"),
        (0, None, None, None, "no size"),
    ],
)
def test_defaults(
    size_ms: int,
    retention_ms: int | None,
    grace_ms: int | None,
    expected: tuple[int, int] | None,
    why: str,
) -> None:
    clause = WindowClause(START, "TUMBLING", size_ms, size_ms, retention_ms, grace_ms)
    if expected is None:
        with pytest.raises(StatementError):
            window_of(clause)
        return
    window = window_of(clause)
    assert (window.grace_ms, window.retention_ms) == expected, why


@pytest.mark.parametrize(
    ("size", "advance", "is_refused"),
    [
        ("1 DAY", "1 MINUTE", False),
        ("2500 SECONDS", "1 SECOND", False),
        ("2501 SECONDS", "1 SECOND", True),
        ("250001 MILLISECONDS", "100 MILLISECONDS", True),  # a part of a window is one
        ("1 DAY", "1 SECOND", True),
        ("365 DAYS", "1 MILLISECOND", True),
    ],
)
def test_windows_of_one_event(
    plan: Callable[..., Plan], size: str, advance: str, is_refused: bool
) -> None:
    """Spark's driver makes them before the first batch, so no batch would be blamed for its end."""
    window = f"WINDOW HOPPING (SIZE {size}, ADVANCE BY {advance})"
    table = f"CREATE TABLE t AS SELECT tail, COUNT(*) AS n FROM flights {window} GROUP BY tail;"
    push = f"SELECT tail, COUNT(*) AS n FROM flights {window} GROUP BY tail EMIT CHANGES;"
    for statement in (table, f"EXPLAIN {table}", push):
        if is_refused:
            with pytest.raises(StatementError, match="2500 are allowed"):
                plan(statement)
        else:
            plan(statement)


def test_ids(plan: Callable[..., Plan]) -> None:
    head = "CREATE TABLE `a/b é` WITH (KAFKA_TOPIC='t') AS"
    found = plan(f"{head} SELECT tail, COUNT(*) FROM flights GROUP BY tail;", next_index=42)
    assert isinstance(found, CreateTableAsPlan)
    assert (found.source.name, found.source.table_id) == ("a/b é", "A_B___42")
    assert found.source.query_id == found.query.query_id == "CTAS_A_B___42"
    assert found.query.plan.inputs[0].view == "A_B___42__IN0"
    assert sanitised("x-1") == "X_1"


def test_what_the_table_takes_from_its_source(plan: Callable[..., Plan]) -> None:
    found = plan("CREATE TABLE t AS SELECT seats, COUNT(*) AS n FROM flights GROUP BY seats;")
    assert isinstance(found, CreateTableAsPlan)
    table = found.source
    assert (table.partitions, table.key_format, table.value_format) == (4, "KAFKA", "JSON")
    assert table.is_materialized
    assert found.query.sources == ("FLIGHTS",)
    assert not found.query.plan.is_windowed
