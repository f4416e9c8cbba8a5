"""How the pipeline reads Kafka topics: the options of Spark's Kafka source, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession

from standpipe.adapters.kafka.connection import Kafka, connection_of
from standpipe.config.keys import (
    BATCH_OFFSETS_MAX,
    KAFKA_FETCH_WAIT,
)
from standpipe.config.lags import (
    REPLICATION_LAG_MAX,
    REPLICATION_LAG_MS_MAX,
    REPLICATION_WAIT_MAX,
)
from standpipe.config.registry import Config
from standpipe.data.commit.back_pressure import LagBound
from standpipe.model import SparkInput
from standpipe.sql.schemas.registry import Schemas

#: partition -> offset at which a query begins; None: at the beginning of the topic
Starts = Mapping[int, int] | None


@dataclass(frozen=True, kw_only=True)
class KafkaReads:
    """How topics are read; the same for all queries of a pipeline."""

    kafka: Kafka
    config: Config
    #: the schema registry, which the driver asks; None: none is configured
    schemas: Schemas | None = None

    def options(self, topic: str, *, headers: bool = False) -> dict[str, str]:
        """Options that streams and batches share."""
        return {
            **connection_of(self.kafka).spark(),
            "subscribe": topic,
            # Kafka's default of 500 adds half a second to every batch
            "kafka.fetch.max.wait.ms": str(self.config[KAFKA_FETCH_WAIT]),
            "includeHeaders": str(headers).lower(),
            # records deleted before they were read are a named failure, never a silent gap
            "failOnDataLoss": "true",
        }

    @property
    def lag_bound(self) -> LagBound:
        """How far the replicas of a table may fall behind."""
        return LagBound(
            records=self.config[REPLICATION_LAG_MAX],
            ms=self.config[REPLICATION_LAG_MS_MAX],
            wait_s_max=self.config[REPLICATION_WAIT_MAX] / 1000,
        )

    @property
    def batch_records_max(self) -> int:
        """Source records of one batch at most."""
        return self.lag_bound.batch_records_max(self.config[BATCH_OFFSETS_MAX])

    def stream(
        self, spark: SparkSession, topic: str, *, headers: bool = False, starts: Starts = None
    ) -> DataFrame:
        """The records of a topic from `starts`, in batches of bounded size."""
        return (
            spark.readStream.format("kafka")
            .options(**self.options(topic, headers=headers))
            .option("startingOffsets", starting_offsets(topic, starts))
            .option("maxOffsetsPerTrigger", str(self.batch_records_max))
            .load()
        )


def needs_headers(source: SparkInput) -> bool:
    """Whether to read the records' headers: only where they are used, because they cost time."""
    return bool(source.is_ours) or any(column.header is not None for column in source.columns)


def starting_offsets(topic: str, starts: Starts) -> str:
    """Spark's option `startingOffsets`. It applies to a query without a checkpoint."""
    if starts is None:
        return "earliest"
    return json.dumps({topic: {str(partition): at for partition, at in starts.items()}})


def one_task_per_core(records: DataFrame) -> DataFrame:
    """Coalesce to one task per core, not one per Kafka partition: a task costs about 15 ms before
    it reads its first record, which is most of the time of a small batch."""
    context = records.sparkSession.sparkContext
    if not cast(Any, context)._jsc.isLocal():
        return records  # executors may join later: their number is not known yet
    return records.coalesce(context.defaultParallelism)
