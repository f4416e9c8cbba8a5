"""CASE … END: the type of its results."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from standpipe.errors import StatementError
from standpipe.sql.plans import Plan, PullPlan


@pytest.mark.parametrize(
    ("text", "of"),
    [
        ("CASE WHEN n = 1 THEN NULL WHEN n = 2 THEN n ELSE NULL END", "BIGINT"),
        ("CASE n WHEN 1 THEN 1.5 ELSE 2.5 END", "DECIMAL(2, 1)"),
        ("CASE WHEN n = 1 THEN NULL ELSE 'a' END", "STRING"),
        ("CASE WHEN n = 1 THEN worst END", "DOUBLE"),
    ],
)
def test_types(plan: Callable[..., Plan], text: str, of: str) -> None:
    made = plan(f"SELECT {text} AS x FROM by_tail WHERE tail = 'a';")
    assert isinstance(made, PullPlan)
    assert made.column_types == (of,)


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        (
            "CASE WHEN n = 1 THEN 'a' WHEN n = 2 THEN 2 END",
            "\nTHEN expression 'WHEN (N = 2) THEN 2' has type: INTEGER.\nPrevious THEN",
            49,
        ),
        (
            "CASE WHEN n = 1 THEN 'a' ELSE 2 END",
            "same as for 'THEN' clauses.\nTHEN type: STRING.\nDEFAULT type: INTEGER.",
            38,
        ),
        (
            "CASE WHEN n = 1 THEN n ELSE 0 END",
            "\nTHEN type: BIGINT.\nDEFAULT type: INTEGER.",
            36,
        ),
        (
            "CASE WHEN n = 1 THEN NULL WHEN n = 2 THEN 1.5 WHEN n = 3 THEN 10.5 END",
            "has type: DECIMAL(3, 1).\nPrevious THEN expression(s) type: DECIMAL(2, 1).",
            70,
        ),
        ("CASE WHEN n = 1 THEN NULL ELSE NULL END", "All case branches have NULL type", 8),
        ("CASE WHEN n THEN 1 END", "should be boolean.\nType for 'N' is BIGINT", 18),
        ("CASE n WHEN 'a' THEN 1 END", "Cannot compare N (BIGINT) to 'a' (STRING) with EQUAL", 20),
    ],
)
def test_refusals(plan: Callable[..., Plan], text: str, message: str, column: int) -> None:
    with pytest.raises(StatementError) as refused:
        plan(f"SELECT {text} AS x FROM by_tail WHERE tail = 'a';")
    assert message in refused.value.message
    assert (refused.value.line, refused.value.column) == (1, column)


def test_numbers_of_one_type_can_be_had_by_a_cast(plan: Callable[..., Plan]) -> None:
    text = "CASE WHEN n = 1 THEN n ELSE 0 END"
    with pytest.raises(StatementError) as refused:
        plan(f"SELECT {text} AS x FROM by_tail WHERE tail = 'a';")
    assert refused.value.hint == "Convert the other results: CAST(… AS BIGINT)."
    made = plan("SELECT CASE WHEN n = 1 THEN n ELSE CAST(0 AS BIGINT) END AS x FROM by_tail;")
    assert isinstance(made, PullPlan)
    assert made.column_types == ("BIGINT",)
