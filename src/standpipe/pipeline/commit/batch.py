"""One batch of a persistent query: the commit protocol, step by step.

`CommitBatch` is Spark's foreachBatch function, and `_commit` follows the protocol step by step: no
reader sees what is written before `ProgressLog.append`, and afterwards every reader sees all of it.
After a crash at any point, the same events are replayed under another attempt.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from pyspark import SparkContext
from pyspark.sql import DataFrame

from standpipe.adapters.kafka.connection import Kafka
from standpipe.data.encoding.store_keys import HEADER_COMMIT, HEADER_ROWTIME, commit_header
from standpipe.model import NO_BATCH, BatchId, Commit, LeaseEpoch, Progress, Source
from standpipe.pipeline.commit import failpoint
from standpipe.pipeline.commit.batch_marks import BatchMarks
from standpipe.pipeline.commit.checkpoint import BatchOffsets, Checkpoint, records_between
from standpipe.pipeline.commit.janitor import Janitor
from standpipe.pipeline.commit.topic_check import TopicCheck
from standpipe.pipeline.io.bad_records import Offsets
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.pipeline.io.sink_writer import TooLarge, WriteLimits, write_fitting


@dataclass
class BatchCounts:
    """What a query has done since it started; read by the reporter, written by its batches."""

    batch: BatchId = NO_BATCH
    input_records: int = 0
    bad_records: int = 0
    #: {topic: {partition: offset}} up to which its batches have read, exclusive
    covered: Mapping[str, Mapping[int, int]] = field(default_factory=dict[str, dict[int, int]])
    #: what ended the query, if one of its batches did
    failure: Exception | None = None


class BatchFailed(Exception):
    """Tells Spark briefly that a batch failed; the full error is in `BatchCounts`.

    Spark searches the traceback of foreachBatch for signs of an interruption, with a regular
    expression that recurses for each character. A Java stack trace in it overflows the stack, and
    the query dies silently.
    """


@dataclass(frozen=True, kw_only=True)
class CommitBatch:
    """Writes and commits the batches of one query. `check_lease` raises Fenced."""

    query_id: str
    table: Source
    lease_epoch: LeaseEpoch
    kafka: Kafka
    checkpoint: Checkpoint
    #: the topic to which rows are also written for other programs; not part of the commit
    published_topic: str | None = None
    log: ProgressLog
    janitor: Janitor
    #: checks the ids of the query's topics
    topics: TopicCheck
    check_lease: Callable[[], None]
    limits: WriteLimits
    #: up to which instant (Unix ms) all source records are below these ends; 0: unknown
    source_instant: Callable[[Offsets], int]
    #: starts, ends: counts the bad records between them, and logs samples of these and of the
    #: rows that were too large
    report_bad: Callable[[Offsets, Offsets, TooLarge], int]
    #: turns a batch's rows into records (`SparkPlan.batch_sql`); None: they already are records
    finish: Callable[[DataFrame], DataFrame] | None = None
    #: the revision of the query, and its marks while a batch runs
    revision: int = 1
    marks: BatchMarks = field(default_factory=BatchMarks)
    counts: BatchCounts = field(default_factory=BatchCounts)

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Write `rows` (from `sink.records_of`) and commit them. Raises BatchFailed."""
        try:
            # after a failure the mark stays for a while (`BatchMarks`)
            if not self.marks.begin(self.query_id, self.revision, self.janitor.is_stopped):
                raise RuntimeError("the query was stopped while it waited for its turn")
            failpoint.reach("in-batch", self.table.name, _jvm_pid)
            with self.janitor.lock:  # free unless a repair is in progress
                self._commit(rows, batch)
            self.marks.finished(self.query_id)
        except Exception as error:
            self.counts.failure = error
            raise BatchFailed(f"{type(error).__name__}: {str(error)[:200]}") from None

    def _commit(self, rows: DataFrame, batch: int) -> None:
        # 1. check that the query is still ours; choose an attempt; read what the batch covers
        self.check_lease()
        check_topics = self.topics.ask()
        if self._is_already_committed(batch):
            _update_state_only(rows)
            return
        attempt = secrets.randbits(64)
        commit = Commit(lease_epoch=self.lease_epoch, batch=BatchId(batch), attempt=attempt)
        offsets = self.checkpoint.offsets(batch)
        check_topics()  # before anything is written to a topic that may not be ours
        # 2. write the records, each with the commit in its header
        failpoint.reach("before-sink", batch)
        too_large = self._write_once(rows, commit)
        # 3. read where they end; check that no topic was recreated meanwhile (ids are unique)
        check_topics = self.topics.ask()
        sinks = self.log.end_offsets(self.table.topic, self.table.partitions)
        check_topics()
        self.janitor.refuse(sinks)
        # bad records are logged before the batch is committed
        before = self._offsets_before(batch)
        bad_records = self.report_bad(before.ends, offsets.ends, too_large)
        # 4. commit
        failpoint.reach("before-progress", batch)
        progress = Progress(
            query_id=self.query_id,
            commit=commit,
            sources=offsets.ends,
            sinks=sinks,
            starts=self.janitor.starts(),
            since_ms=self.janitor.since_ms(),
            clean_through=self.janitor.clean_through(),
            watermark_ms=self.janitor.watermark_ms(offsets.watermark_ms),
            batch_started_ms=offsets.started_ms,
            source_instant_ms=self.source_instant(offsets.ends),
            committed_at_ms=time.time_ns() // 1_000_000,
            topic_id=self.topics.topic_id,
            source_topic_ids=self.topics.source_topic_ids,
        )
        self.log.append(progress)
        self.janitor.committed(progress)
        failpoint.reach("after-progress", batch)
        self.counts.batch, self.counts.covered = commit.batch, offsets.ends
        self.counts.bad_records += bad_records
        self.counts.input_records += records_between(before.ends, offsets.ends)

    def _is_already_committed(self, batch: int) -> bool:
        """Whether this replays a stream's batch that was committed before Spark could record it.
        Rows of a table replace each other; rows of a stream would be duplicated."""
        newest = self.janitor.newest
        is_stream = self.table.kind == "STREAM"
        return is_stream and newest is not None and batch <= newest.commit.batch

    def _write_once(self, rows: DataFrame, commit: Commit) -> TooLarge:
        """Caches rows that are read more than once, or their stateful operators would run twice."""
        if self.finish is None:
            return self._write(rows, commit)
        rows.persist()
        try:
            return self._write(self.finish(rows), commit)
        finally:
            rows.unpersist()

    def _write(self, rows: DataFrame, commit: Commit) -> TooLarge:
        # one expression each: every call of PySpark's functions is several calls into the JVM
        headers = (
            f"array(struct('{HEADER_COMMIT}' AS key, X'{commit_header(commit).hex()}' AS value), "
            f"struct('{HEADER_ROWTIME}' AS key, rowtime AS value)) AS headers"
        )
        partition = ["partition"] if self.table.window else []
        topics = [topic for topic in (self.table.topic, self.published_topic) if topic]
        names = ", ".join(f"'{topic}'" for topic in topics)  # of a topic: [a-zA-Z0-9._-]
        to_topics = f"explode(array({names})) AS topic" if len(topics) > 1 else f"{names} AS topic"
        return write_fitting(
            rows.selectExpr("key", "value", *partition, headers, to_topics),
            kafka=self.kafka,
            limits=self.limits,
            is_table=self.table.kind == "TABLE",
        )

    def _offsets_before(self, batch: int) -> BatchOffsets:
        if batch == 0:
            return BatchOffsets(ends={}, watermark_ms=0, started_ms=0)
        return self.checkpoint.offsets(batch - 1)


def _jvm_pid() -> int:
    gateway: Any = cast(Any, SparkContext)._gateway
    return int(gateway.proc.pid)


def _update_state_only(rows: DataFrame) -> None:
    """Compute the rows only to update the state, which the next batch begins with."""
    rows.write.format("noop").mode("overwrite").save()
