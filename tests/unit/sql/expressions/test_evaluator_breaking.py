"""What a value out of a column breaks makes NULL: no query fails for one record."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.e2e.both_breaking import BREAKING, by_evaluator, query_for_spark


@pytest.mark.parametrize(("text", "values"), BREAKING, ids=str)
def test_a_value_that_breaks_an_expression_makes_null(
    text: str, values: Mapping[str, object]
) -> None:
    assert by_evaluator(text, values) is None
    assert query_for_spark(text, values), "Spark's is tried by tests/e2e/test_functions_on_spark.py"


def test_there_are_many() -> None:
    """Of all subjects: numbers, dates, texts, patterns, bytes, lists, JSON."""
    assert len(BREAKING) >= 60
