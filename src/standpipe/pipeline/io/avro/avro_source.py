"""A topic with keys or values in AVRO, as a query reads it: with the parts as columns of structs.

    offsets of a batch ─► which schemas do its records name? (a small job) ─► WriterSchemas
                                                              programs ─► the plan of the batch

`AvroSource` is a source of Spark's first API, because only there each batch has a plan of its own.
It stands around Spark's Kafka source, or around `CommittedSource` if one of our queries writes the
topic. The job reads the records once more; it counts, so that a batch without a new schema moves
nothing but a number.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from standpipe.config.keys import RECORD_BYTES_MAX
from standpipe.data.encoding.framed_values import FRAME_BYTES, schema_id_of
from standpipe.model import SparkInput
from standpipe.pipeline.io import type_mapping
from standpipe.pipeline.io.avro import java_rows
from standpipe.pipeline.io.avro.kept_answers import KeptAnswers
from standpipe.pipeline.io.avro.writer_schemas import (
    ASKED_MAX,
    AvroPart,
    Programs,
    WriterSchemas,
    parts_of,
)
from standpipe.pipeline.io.checkpoint_path import CheckpointPath
from standpipe.pipeline.io.committed_source import CommittedSource, Upstream
from standpipe.pipeline.io.kafka_options import (
    KafkaReads,
    needs_headers,
    one_task_per_core,
    starting_offsets,
)
from standpipe.pipeline.io.source_v1 import SourceV1, kafka_source, offsets_of, stream_of
from standpipe.pipeline.io.windowed_keys import raw_key
from standpipe.sql.schemas.registry import SchemaRegistryUnavailable, Schemas

#: each query has a session of its own
_LATEST: Final = WeakKeyDictionary[SparkSession, dict[str, Programs]]()


def decoded(
    rows: DataFrame,
    source: SparkInput,
    programs: Programs,
    *,
    bytes_max: int,
    is_complete: bool = True,
) -> DataFrame:
    """Kafka records with a column for each part in AVRO (`AvroPart.column`). One of more than
    `bytes_max` bytes is not read. `is_complete`: as of `java_rows.rows_of`."""
    spark = rows.sparkSession
    columns: list[SparkColumn] = []
    for part, of_part in zip(parts_of(source), programs, strict=True):
        of = java_rows.row_type(part.columns, type_mapping.CORRUPT)
        made = java_rows.rows_of(spark, _raw(part, source), of, of_part, is_complete=is_complete)
        columns.append(f.when(_fits(bytes_max), made).alias(part.column))
    return rows.select("*", *columns)


def latest_programs(spark: SparkSession) -> dict[str, Programs]:
    """The programs of the newest batch of the query that has this session, by the input's view. So
    its records can be read again as they were, whatever the registry says by then."""
    return _LATEST.setdefault(spark, {})


def unseen(
    rows: DataFrame, source: SparkInput, known: Collection[int], *, bytes_max: int
) -> list[int]:
    """The ids of schemas, beside those that are known, that these records name: those of most
    records first, and one more than are asked for at most."""
    parts = parts_of(source)
    heads = [
        f.when(_fits(bytes_max), f.substring(_raw(part, source), 1, FRAME_BYTES)).alias(part.name)
        for part in parts
    ]
    named = one_task_per_core(rows).select(*heads)
    given = ", ".join(f"X'00{each & 0xFFFF_FFFF:08x}'" for each in sorted(known))
    is_known = f"OR `{{0}}` IN ({given})" if given else ""
    new = [
        f.expr(
            f"CASE WHEN octet_length(`{part.name}`) < {FRAME_BYTES}"
            f" OR substring(`{part.name}`, 1, 1) <> X'00' {is_known.format(part.name)}"
            f" THEN NULL ELSE `{part.name}` END"
        ).alias(part.name)
        for part in parts
    ]
    found = named.select(*new).where(" OR ".join(f"`{part.name}` IS NOT NULL" for part in parts))
    if not found.count():
        return []
    each = found.select(f.explode(f.array(*(part.name for part in parts))).alias("head"))
    counted = each.where("head IS NOT NULL").groupBy("head").count()
    first = counted.orderBy(f.desc("count"), "head").limit(ASKED_MAX + 1).collect()
    ids = [schema_id_of(bytes(row["head"])) for row in first]
    return [each for each in ids if each is not None]


def _raw(part: AvroPart, source: SparkInput) -> SparkColumn:
    return raw_key(source) if part.name == "key" else f.col(part.name)


def _fits(bytes_max: int) -> SparkColumn:
    sizes = [f.coalesce(f.octet_length(name), f.lit(0)).cast("bigint") for name in ("key", "value")]
    return sizes[0] + sizes[1] <= bytes_max


class AvroSource(SourceV1):
    """Around another source."""

    def __init__(
        self,
        spark: SparkSession,
        source: SparkInput,
        inner: Any,
        schemas: WriterSchemas,
        *,
        bytes_max: int,
        is_resumed: bool,
    ) -> None:
        """`inner`: a `CommittedSource`, or Spark's Kafka source. `is_resumed`: the checkpoint ends
        with a batch that was committed; Spark first calls `getBatch` for it, and runs nothing."""
        super().__init__(spark)
        self._source, self._inner, self._schemas = source, inner, schemas
        self._bytes_max, self._is_over = bytes_max, is_resumed
        self._committed = inner if isinstance(inner, CommittedSource) else None
        self._kafka: Any = inner.kafka if self._committed else inner

    def getBatch(self, start: Any, end: Any) -> Any:  # noqa: N802
        """The records between two offsets, read under the schemas that they name."""
        rows = ClassicDataFrame(self._kafka.getBatch(start, end), self._spark)
        if self._is_over:
            # its records may have expired: nothing is looked up, and nothing can be read
            self._is_over = False
            none: Programs = tuple({} for _ in parts_of(self._source))
            return self._as_java(self._decoded(rows, none, is_complete=False))
        topic = self._source.topic
        starts = offsets_of(start.get())[topic] if start.isDefined() else {}

        def new(known: Collection[int]) -> Sequence[int]:
            seen = self._shown(self._still(rows), start, end)
            return unseen(seen, self._source, known, bytes_max=self._bytes_max)

        programs = self._schemas.of_batch(starts, offsets_of(end)[topic], new)
        latest_programs(self._spark)[self._source.view] = programs
        return self._as_java(self._decoded(self._shown(rows, start, end), programs))

    def _decoded(
        self, rows: DataFrame, programs: Programs, *, is_complete: bool = True
    ) -> DataFrame:
        return decoded(
            rows, self._source, programs, bytes_max=self._bytes_max, is_complete=is_complete
        )

    def _shown(self, rows: DataFrame, start: Any, end: Any) -> DataFrame:
        return self._committed.shown(rows, start, end) if self._committed else rows

    def _still(self, rows: DataFrame) -> DataFrame:
        """The records of a stream's batch as those of a batch, which a job of its own may read."""
        java, session = cast(Any, rows)._jdf, cast(Any, self._spark)._jsparkSession
        records = java.logicalPlan().rdd()
        made = session.internalCreateDataFrame(records, self._kafka.schema(), False)
        return ClassicDataFrame(made, self._spark)

    @staticmethod
    def _as_java(rows: DataFrame) -> Any:
        return cast(Any, rows)._jdf

    def schema(self) -> Any:
        """The columns of Spark's Kafka source, and those of the parts."""
        types = self._jvm.org.apache.spark.sql.types.DataType
        made = self._kafka.schema()
        for part in parts_of(self._source):
            of = java_rows.row_type(part.columns, type_mapping.CORRUPT)
            made = made.add(part.column, types.fromJson(of.json()))
        return made

    # ------------------------------------------------------------------ what the inner source does

    def latestOffset(self, start: Any, limit: Any) -> Any:  # noqa: N802
        """Where the next batch ends."""
        return self._inner.latestOffset(start, limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read no further than what is there now."""
        self._inner.prepareForTriggerAvailableNow()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """How much a batch may have."""
        return self._inner.getDefaultReadLimit()

    def reportLatestOffset(self) -> Any:  # noqa: N802
        """The newest offsets, for Spark's progress reports."""
        return self._inner.reportLatestOffset()

    def commit(self, end: Any) -> None:
        """No later batch begins below `end`."""
        self._inner.commit(end)

    def stop(self) -> None:
        """End the inner source."""
        self._inner.stop()

    def toString(self) -> str:  # noqa: N802
        """The name of the source in Spark's progress reports."""
        return f"records in AVRO of {self._source.topic}"


def avro_stream(
    spark: SparkSession,
    source: SparkInput,
    reads: KafkaReads,
    upstream: Upstream | None,
    directory: CheckpointPath,
) -> DataFrame:
    """The records of a topic, in the form of `KafkaReads.stream`, with the parts as columns.
    `directory`: the checkpoint. Raises SchemaRegistryUnavailable, also if none is configured."""
    schemas = required(source, reads)
    java_rows.prepare(spark)
    if upstream is None:
        starts = source.starts or None
        options = {
            **reads.options(source.topic, headers=needs_headers(source)),
            "startingOffsets": starting_offsets(source.topic, starts),
            "maxOffsetsPerTrigger": str(reads.batch_records_max),
        }
        inner: Any = kafka_source(spark, options, directory / "read" / source.view)
    else:
        inner = CommittedSource(spark, reads, source, upstream)
    kept = KeptAnswers(directory, source.view)
    made = AvroSource(
        spark,
        source,
        inner,
        WriterSchemas(parts_of(source), schemas, kept),
        bytes_max=reads.config[RECORD_BYTES_MAX],
        is_resumed=_ends_with_a_commit(directory),
    )
    return stream_of(spark, made)


def required(source: SparkInput, reads: KafkaReads) -> Schemas:
    """The registry. Raises SchemaRegistryUnavailable if none is configured."""
    if reads.schemas is None:
        raise SchemaRegistryUnavailable(
            f"Schema registry: {source.source} is in AVRO, and this pipeline has none: set"
            " ksql.schema.registry.url on it"
        )
    return reads.schemas


def _ends_with_a_commit(directory: CheckpointPath) -> bool:
    """Whether Spark's newest batch of a checkpoint was committed."""
    newest = [_newest(directory / log) for log in ("offsets", "commits")]
    return newest[0] is not None and newest[0] == newest[1]


def _newest(log: CheckpointPath) -> int | None:
    try:
        return max(
            (int(each.name) for each in log.iterdir() if each.name.isdecimal()), default=None
        )
    except FileNotFoundError:
        return None
