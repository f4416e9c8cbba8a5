"""What Spark says of the tasks of a batch that runs (`pipeline/run/watch/task_progress.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from standpipe.pipeline.run.watch.task_progress import work_of

from .test_pipeline import eventually

pytestmark = pytest.mark.e2e

TASKS = 2000
SLOW = "reflect('java.lang.Thread', 'sleep', 20L)"


def test_a_long_batch_is_seen_to_work(spark: SparkSession, tmp_path: Path) -> None:
    """Also what foreachBatch runs from Python counts as its query's."""

    def run_slowly(rows: DataFrame, _batch: int) -> None:
        slow = rows.sparkSession.range(0, TASKS, 1, TASKS).selectExpr("id", f"{SLOW} AS slept")
        slow.write.format("noop").mode("append").save()

    spark.sparkContext.setLocalProperty("spark.scheduler.pool", "Q")
    query = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 1)
        .load()
        .writeStream.option("checkpointLocation", str(tmp_path))
        .foreachBatch(run_slowly)
        .start()
    )
    try:
        first = eventually("tasks run", lambda: work_of(spark, "Q"))
        eventually("they get somewhere", lambda: work_of(spark, "Q") not in ((), first))
        assert work_of(spark, "R") == (), "another query's are not counted"
    finally:
        query.stop()
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", "default")
