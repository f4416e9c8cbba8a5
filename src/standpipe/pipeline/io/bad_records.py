"""Records that cannot be read: counted for the status, and sampled for operators.

`source.parse` marks a bad record, the plan counts the marks (`source.open_view`), and
`BadRecords.report` reads that count. A batch without bad records costs nothing more. Otherwise its
offsets are read again, with the same parser, until enough samples are found. They are written
to the processing log before the batch is committed.
"""

from __future__ import annotations

import base64
import json
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from standpipe.config.keys import BAD_RECORDS_SAMPLED, RECORD_BYTES_MAX
from standpipe.model import SparkInput
from standpipe.pipeline.io.avro.avro_source import decoded, latest_programs
from standpipe.pipeline.io.avro.writer_schemas import parts_of
from standpipe.pipeline.io.kafka_options import KafkaReads, needs_headers
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.pipeline.io.sink_writer import LeftOut
from standpipe.pipeline.io.source import RAW_BYTES_MAX, metrics_name, parse

Offsets = Mapping[str, Mapping[int, int]]  # topic -> partition -> offset


class BadRecords:
    """Counts a batch's bad records, from the metrics that its plan observed, and samples them."""

    def __init__(
        self,
        session: SparkSession,
        query_ids: tuple[str, ...],
        inputs: tuple[SparkInput, ...],
        reads: KafkaReads,
        log: ProgressLog,
    ) -> None:
        self._session = session
        self._query_ids = query_ids
        self._inputs = inputs
        self._reads = reads
        self._log = log
        #: Weak: the query's sink, in the JVM, has a callback that leads here, and no collector of
        #: garbage sees a cycle through both. A query that has ended would stay, with its plans.
        self._query: Callable[[], StreamingQuery | None] = lambda: None
        self._id = ""
        self._query_known = threading.Event()

    def set_query(self, query: StreamingQuery) -> None:
        """Set the query. Called after `start`, which may return after the first batch begins."""
        self._query, self._id = weakref.ref(query), query.id
        self._query_known.set()

    def report(self, starts: Offsets, ends: Offsets, left_out: LeftOut) -> int:
        """Write samples to the processing log. Returns how many bad records there were."""
        self._query_known.wait()
        total = left_out.count
        self._report(left_out.samples)
        for source in self._inputs:
            count = self._observed(source)
            if count:
                samples = sample(self._session, source, self._reads, starts=starts, ends=ends)
                self._report(samples)
            total += count
        return total

    def _report(self, samples: Sequence[Mapping[str, Any]]) -> None:
        """Each query of a group has read the record, and names it."""
        for query_id in self._query_ids:
            self._log.report(to_log_records(query_id, samples))

    def _observed(self, source: SparkInput) -> int:
        """Spark reports observed metrics with the batch's progress, after the commit; the execution
        has them as soon as the sink has run."""
        query = self._query() or self._session.streams.get(self._id)
        if query is None:
            raise RuntimeError("the query has ended")
        execution = cast(Any, query)._jsq.streamingQuery().lastExecution()
        row = execution.observedMetrics().get(metrics_name(source))
        return int(row.get().getLong(0)) if row.isDefined() else 0


def sample(
    spark: SparkSession,
    source: SparkInput,
    reads: KafkaReads,
    *,
    starts: Offsets,
    ends: Offsets,
) -> list[dict[str, Any]]:
    """At most `BAD_RECORDS_SAMPLED` bad records of one input between `starts` and `ends`, the
    newest batch. Those in AVRO are read as the batch read them: no registry is asked."""
    topic = source.topic
    records = (
        spark.read.format("kafka")
        .options(**reads.options(topic, headers=needs_headers(source)))
        .option("startingOffsets", _offsets_option(topic, starts, ends))
        .option("endingOffsets", json.dumps({topic: ends.get(topic, {})}))
        .load()
    )
    bytes_max = reads.config[RECORD_BYTES_MAX]
    if parts_of(source):
        programs = latest_programs(spark).get(source.view)
        if programs is None:  # no batch has run
            return []
        records = decoded(records, source, programs, bytes_max=bytes_max)
    parsed = parse(records, source, bytes_max=bytes_max)
    bad = parsed.filter("__bad IS NOT NULL")
    rows = bad.select("partition", "offset", "key", "value", "__bad")
    return [
        {
            "topic": topic,
            "partition": row["partition"],
            "offset": row["offset"],
            "reason": row["__bad"],
            "key_base64": _head(row["key"]),
            "value_base64": _head(row["value"]),
        }
        for row in rows.limit(reads.config[BAD_RECORDS_SAMPLED]).collect()
    ]


def to_log_records(query_id: str, samples: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """Values for the processing log: one JSON object per sample."""
    now_ms = time.time_ns() // 1_000_000
    return [json.dumps({"query_id": query_id, "at_ms": now_ms, **one}).encode() for one in samples]


def _offsets_option(topic: str, starts: Offsets, ends: Offsets) -> str:
    """Spark requires every existing partition; -2 means the earliest offset of a new one."""
    known = starts.get(topic, {})
    return json.dumps({topic: {p: known.get(p, -2) for p in ends.get(topic, {})}})


def _head(raw: bytes | bytearray | None) -> str | None:
    return None if raw is None else base64.b64encode(bytes(raw[:RAW_BYTES_MAX])).decode()
