"""A source of Spark's first API (`Source.getBatch`) in Python: the JVM calls it by way of Py4J.

What all of our sources have in common is here: each stands around Spark's Kafka source, whose
offsets are also its own, and chooses what a batch has of the records between two of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from pyspark import java_gateway
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from standpipe.model import Offset
from standpipe.pipeline.io.checkpoint_path import CheckpointPath, spark_path


class SourceV1:
    """A Spark `Source` with admission control, without what tells one from another: `schema`,
    `getBatch`, `latestOffset`, … Names are Spark's."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._jvm: Any = cast(Any, spark)._jvm

    def deserializeOffset(self, text: str) -> Any:  # noqa: N802
        """Offsets from their JSON in the offset log."""
        runtime = self._jvm.org.apache.spark.sql.execution.streaming.runtime
        kafka = self._jvm.org.apache.spark.sql.kafka010
        return kafka.KafkaSourceOffset.apply(runtime.SerializedOffset(text))

    def getOffset(self) -> Any:  # noqa: N802
        """Never called: Spark asks for `latestOffset`."""
        raise NotImplementedError("Spark asks for `latestOffset`")

    def initialOffset(self) -> Any:  # noqa: N802
        """Never called for a source of this kind."""
        raise NotImplementedError("Spark's v1 sources have no initial offset")

    def hashCode(self) -> int:  # noqa: N802
        """Identity, as Java requires it."""
        return id(self) & 0x7FFF_FFFF

    def equals(self, other: object) -> bool:
        """Identity, as Java requires it."""
        return other is self

    class JavaInterfaces:
        """The interfaces that the JVM sees."""

        implements: Final = [
            "org.apache.spark.sql.execution.streaming.Source",
            "org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow",
        ]

    #: the name under which Py4J looks for them
    Java = JavaInterfaces


def kafka_source(spark: SparkSession, options: Mapping[str, str], place: CheckpointPath) -> Any:
    """Spark's Kafka source, of its first source API. `place`: for its initial offsets."""
    jvm = cast(Any, spark)._jvm
    return jvm.org.apache.spark.sql.kafka010.KafkaSourceProvider().createSource(
        cast(Any, spark)._jsparkSession.sqlContext(),
        spark_path(place),
        jvm.scala.Option.empty(),
        "kafka",
        jvm.PythonUtils.toScalaMap(dict(options)),
    )


def stream_of(spark: SparkSession, source: SourceV1) -> DataFrame:
    """The records of a source, as a streaming DataFrame."""
    gateway = cast(Any, spark.sparkContext)._gateway
    cast(Any, java_gateway).ensure_callback_server_started(gateway)
    jvm, session = cast(Any, spark)._jvm, cast(Any, spark)._jsparkSession
    runtime = jvm.org.apache.spark.sql.execution.streaming.runtime
    relation = companion(runtime, "StreamingExecutionRelation").apply(source, session)
    rows = companion(jvm.org.apache.spark.sql.classic, "Dataset").ofRows(session, relation)
    return ClassicDataFrame(rows, spark)


def companion(package: Any, name: str) -> Any:
    """The companion object of a Scala class."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def offsets_of(offset: Any) -> dict[str, dict[int, int]]:
    """{topic: {partition: offset}} of an offset of Spark's Kafka source or of its offset log."""
    found = cast("dict[str, dict[str, int]]", json.loads(offset.json()))
    return {
        topic: {int(partition): Offset(at) for partition, at in places.items()}
        for topic, places in found.items()
    }
