"""A function means the same in Spark and in a pull query: a sample of `make functions`."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from tests.e2e.both_breaking import not_null_in
from tests.e2e.both_ways import Both, report, trials, unexplained

from standpipe.pipeline.run.start import session_functions

pytestmark = pytest.mark.e2e

#: every third, over columns and over one row of literals: some 20 seconds
EVERY = 3
#: functions that only persistent queries have, and why
ONLY_IN_SPARK = {
    **dict.fromkeys(("UNIX_DATE", "UNIX_TIMESTAMP"), "without arguments they ask the clock"),
}  # fmt: skip


def test_spark_and_the_evaluator_agree(spark: SparkSession) -> None:
    result = Both(spark).run(trials(literals=1)[::EVERY])
    assert unexplained(result) == {}, report(result)
    assert result.missing <= set(ONLY_IN_SPARK)
    assert result.pairs > 10_000, "they are found"


def test_a_value_that_breaks_an_expression_makes_null_in_spark(spark: SparkSession) -> None:
    """Spark would fail the batch, again and again. The same list without Spark:
    tests/unit/sql/expressions/test_evaluator_breaking.py."""
    session_functions.register(spark)
    assert not_null_in(spark) == []
