"""Does Spark still take every plan that was ever stored? Analysed over empty streams, not run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.sql.test_stored_plans import FILES

from standpipe.model import SparkInput, SparkPlan
from standpipe.pipeline.io import stateful
from standpipe.pipeline.run.start import session_functions
from standpipe.sql.spark.expression_sql import spark_type

pytestmark = pytest.mark.e2e


def _open(session: SparkSession, source: SparkInput) -> None:
    """A stream with the columns of `pipeline.io.source.open_view`."""
    columns = [f"CAST(NULL AS {spark_type(c.type)}) AS `{c.name}`" for c in source.columns]
    if source.window is not None:
        columns += ["0L AS WINDOWSTART", "0L AS WINDOWEND"]
    if source.keeps_nulls:
        columns.append("true AS `__PRESENT`")
    columns += ["value AS ROWTIME", "0 AS ROWPARTITION", "value AS ROWOFFSET"]
    columns += ["timestamp AS `__TS`", "value AS `__ORDER`"]
    rows = session.readStream.format("rate").load().selectExpr(*columns)
    if source.watermark_delay_ms is not None:
        rows = rows.withWatermark("__TS", f"{source.watermark_delay_ms} milliseconds")
    rows.createOrReplaceTempView(source.view)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_spark_takes_a_stored_plan(spark: SparkSession, path: Path) -> None:
    plan = msgspec.json.decode(path.read_bytes(), type=SparkPlan)
    session = spark.newSession()
    session_functions.register(session)
    for source in plan.inputs:
        _open(session, source)
    for step in plan.steps:
        stateful.add_step(session, step)
    result = cast(DataFrame, cast(Any, session).sql(plan.sql))
    if plan.batch_sql is not None:
        session.createDataFrame([], result.schema).createOrReplaceTempView("__BATCH")
        result = cast(DataFrame, cast(Any, session).sql(plan.batch_sql))
    assert result.columns[-2:] == ["__ROWTIME", "__LIVE"]
