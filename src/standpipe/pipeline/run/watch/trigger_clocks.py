"""Lets an idle query sleep until it is woken, instead of asking Kafka for news again and again.

Spark has no trigger for that, but waits between two triggers by a clock that its caller may choose:
`TriggerClocks.java` has one for each query. A query sleeps only after a trigger that ran no batch.
What has no data but needs a batch, such as a watermark that has moved, follows a batch, and so is
never slept over (`Batches` there).

Not here: who wakes queries, and when (`source_probe.py`, `io/committed_source.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final, cast

from pyspark import java_gateway
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.utils import ForeachBatchFunction

from standpipe.pipeline.io.checkpoint_path import CheckpointPath, spark_path

#: how late a query is at most whose waking was lost
SLEEP_S_MAX: Final = 10.0
_SOURCE: Final = Path(__file__).with_name("TriggerClocks.java")


class TriggerClocks:
    """The clocks of the queries of one Spark session. For several threads."""

    def __init__(self, spark: SparkSession, sleep_s_max: float = SLEEP_S_MAX) -> None:
        jvm = cast(Any, spark)._jvm
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(_SOURCE.read_text())
        made = compiler.getClassLoader().loadClass(f"standpipe.{_SOURCE.stem}")
        (constructor,) = made.getConstructors()
        arguments = jvm.java.util.ArrayList()
        arguments.add(round(sleep_s_max * 1000))
        self._clocks: Any = constructor.newInstance(arguments.toArray())
        self._spark = spark

    def start(
        self,
        plan: DataFrame,
        output_mode: str,
        *,
        name: str,
        checkpoint: CheckpointPath,
        batches: Callable[[DataFrame, int], None],
    ) -> StreamingQuery:
        """Start a streaming query that sleeps when it has nothing to do. `batches`: as of
        `DataStreamWriter.foreachBatch`. Raises as `DataStreamWriter.start`."""
        gateway = cast(Any, self._spark.sparkContext)._gateway
        cast(Any, java_gateway).ensure_callback_server_started(gateway)
        call = ForeachBatchFunction(plan.sparkSession, batches)
        jdf = cast(Any, plan)._jdf
        place = spark_path(checkpoint)
        return StreamingQuery(self._clocks.start(name, jdf, output_mode, place, call))

    def wake(self, names: Collection[str]) -> None:
        """Let these queries look for data, now or after the trigger that they are in."""
        if names:
            self._clocks.wake("\n".join(names))

    def asleep(self) -> frozenset[str]:
        """The queries that have nothing to do, as of now."""
        return frozenset(str(self._clocks.asleep()).split())
