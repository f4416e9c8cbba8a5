"""What the tasks of a query have done, as Spark counts it, to distinguish a long batch from a hung
one.

A task's counts arrive with its executor's heartbeats, every 10 s, and when it ends.
"""

from __future__ import annotations

from typing import Any, cast

from pyspark.sql import SparkSession

from standpipe.pipeline.run.watch.stall import Work


def work_of(spark: SparkSession, pool: str) -> Work:
    """For each stage now running in a scheduler pool: identity, tasks done, records moved.

    A stage that has ended is missing, which also counts as a difference.
    """
    stages = cast(Any, spark.sparkContext)._jsc.sc().statusStore().activeStages()
    found = [stages.apply(place) for place in range(stages.size())]
    return tuple(
        (
            stage.stageId(),
            stage.attemptId(),
            stage.numCompleteTasks(),
            stage.inputRecords(),
            stage.shuffleReadRecords(),
            stage.shuffleWriteRecords(),
            stage.outputRecords(),
        )
        for stage in found
        if stage.schedulingPool() == pool
    )
