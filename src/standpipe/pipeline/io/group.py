"""The rows of a group of tables, as Spark computes them in one aggregation."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession

from standpipe.sql.spark.group_sql import DUE, EACH_VIEW, GroupPlan

#: the metadata by which Spark finds the column with the watermark, and the watermark's delay in ms
_WATERMARK_DELAY = "spark.watermarkDelayMs"


def group_rows(session: SparkSession, plan: GroupPlan, numbers: Collection[int]) -> DataFrame:
    """The result of `plan.sql` for the tables with these numbers. The view of `plan.input` is open
    in this session."""
    spark: Any = session
    each = cast(DataFrame, spark.sql(plan.each_sql(numbers)))
    if plan.has_windows:
        # the generator that makes a row for each table has lost what `withWatermark` marked
        each = each.withMetadata(DUE, {_WATERMARK_DELAY: 0})
    each.createOrReplaceTempView(EACH_VIEW)
    return cast(DataFrame, spark.sql(plan.sql))
