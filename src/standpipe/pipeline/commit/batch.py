"""One batch of a streaming query: the commit protocol, step by step.

`CommitBatch` is Spark's foreachBatch function, and `_commit` follows the protocol step by step: no
reader sees what is written before `ProgressLog.append`, and afterwards every reader sees all of it.
After a crash at any point, the same events are replayed under another attempt.
"""

from __future__ import annotations

import dataclasses
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, cast

import structlog
from msgspec import structs
from pyspark import SparkContext
from pyspark.sql import DataFrame

from standpipe.adapters.kafka.connection import Kafka
from standpipe.data.commit.back_pressure import Pressure
from standpipe.data.commit.takeover import (
    is_in_place,
    is_planned_otherwise,
    streamed,
    takes_part,
)
from standpipe.data.encoding.store_keys import HEADER_COMMIT, HEADER_ROWTIME, commit_header
from standpipe.model import NO_BATCH, BatchId, Commit, LeaseEpoch, Progress, Source
from standpipe.pipeline.commit import failpoint
from standpipe.pipeline.commit.batch_marks import BatchMarks
from standpipe.pipeline.commit.checkpoint import BatchOffsets, records_between
from standpipe.pipeline.commit.janitor import Janitor
from standpipe.pipeline.commit.replica_wait import ReplicaWait
from standpipe.pipeline.commit.topic_check import TopicCheck
from standpipe.pipeline.commit.written_once import Grown, NotWrittenOnce, check_once
from standpipe.pipeline.io.bad_records import Offsets
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.pipeline.io.sink import addressed
from standpipe.pipeline.io.sink_writer import LeftOut, WriteLimits, Written, write_fitting

_logger = structlog.get_logger()
#: how often a batch on a cluster is written: each time an executor may be lost
ATTEMPTS_MAX: Final = 5


@dataclass
class BatchCounts:
    """What a query has done since it started; read by the reporter, written by its batches."""

    batch: BatchId = NO_BATCH
    input_records: int = 0
    bad_records: int = 0
    #: {topic: {partition: offset}} up to which its batches have read, exclusive
    covered: Mapping[str, Mapping[int, int]] = field(default_factory=dict[str, dict[int, int]])
    #: which replica a batch waited for last, and when (monotonic clock)
    waited_for: str = ""
    waited_s: float = -math.inf
    #: what ended the query, if one of its batches did
    failure: Exception | None = None


class BatchFailed(Exception):
    """Tells Spark briefly that a batch failed; the full error is in `BatchCounts`.

    Spark searches the traceback of foreachBatch for signs of an interruption, with a regular
    expression that recurses for each character. A Java stack trace in it overflows the stack, and
    the query dies silently.
    """


@dataclass(frozen=True, kw_only=True)
class TableCommit:
    """One table that a batch commits, and what its query is. `check_lease` raises Fenced."""

    query_id: str
    table: Source
    lease_epoch: LeaseEpoch
    janitor: Janitor
    #: checks the ids of the query's topics
    topics: TopicCheck
    check_lease: Callable[[], None]
    #: of the table's windows, behind the watermark of its group; alone, Spark's is delayed already
    watermark_delay_ms: int = 0
    counts: BatchCounts = field(default_factory=BatchCounts)

    def commit_of(self, batch: int, attempt: int) -> Commit:
        """What the headers of its records say."""
        return Commit(lease_epoch=self.lease_epoch, batch=BatchId(batch), attempt=attempt)


class _Attempt(NamedTuple):
    """What a batch has written: under which commit, and where the topic ends, for each table."""

    commits: Sequence[Commit]
    ends: Sequence[dict[int, int]]
    left_out: LeftOut


class PlannedOtherwise(Exception):
    """A batch that readers have seen would cover other offsets now. Its query is started again, and
    replays it as it was."""


class Coverage(Protocol):
    """What batches cover: a checkpoint, or what a load says."""

    def offsets(self, batch: int) -> BatchOffsets:
        """What batch `batch` covers. Raises QueryFailed."""
        ...

    def put_back(self, batch: int) -> None:
        """Let it cover what it did when it was committed before."""
        ...


@dataclass(frozen=True, kw_only=True)
class CommitBatch:
    """Writes and commits the batches of one streaming query, which keeps one table up to date, or
    those of a group: then `rows` say in `__TABLE` which of `tables` they are of."""

    name: str
    tables: tuple[TableCommit, ...]
    #: what `__TABLE` is for each of the tables; a table alone has no such column
    numbers: tuple[int, ...] = (0,)
    kafka: Kafka
    checkpoint: Coverage
    #: the topic to which rows are also written for other programs; not part of the commit
    published_topic: str | None = None
    log: ProgressLog
    limits: WriteLimits
    #: up to which instant (Unix ms) all source records are below these ends; 0: unknown
    source_instant: Callable[[Offsets], int]
    #: starts, ends: counts the bad records between them, and logs samples of these and of the
    #: rows that were too large
    report_bad: Callable[[Offsets, Offsets, LeftOut], int]
    #: turns a batch's rows into the records to write (`SparkPlan.batch_sql`, output mode complete,
    #: several tables of an application); given when Spark planned the batch, too (Unix ms), which a
    #: replay does not change; None: they are these records
    finish: Callable[[DataFrame, int], DataFrame] | None = None
    #: members of the group are left out, so the records have some that are not written
    is_part: bool = False
    #: the revision of the query, and its marks while a batch runs
    revision: int = 1
    marks: BatchMarks = field(default_factory=BatchMarks)
    #: what its batches wait for before they begin; None: nothing
    replicas: ReplicaWait | None = None
    pressure: Pressure | None = None
    #: the rows are a load's: they are added to the newest batch, which was committed before
    is_load: bool = False

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Write `rows` (from `io/sink.py`) and commit them. Raises BatchFailed."""
        try:
            self._wait_for_replicas()
            # after a failure the mark stays for a while (`BatchMarks`)
            if not self.marks.begin(self.name, self.revision, self._is_stopped):
                raise RuntimeError("the query was stopped while it waited for its turn")
            with ExitStack() as locks:
                for each in self.tables:
                    failpoint.reach("in-batch", each.table.name, _jvm_pid)
                    locks.enter_context(each.janitor.lock)  # free unless a repair is in progress
                if self._is_stopped():  # the query's next run does not wait for this batch
                    raise RuntimeError("the query was stopped before its batch began")
                self._only(lambda each: takes_part(each.janitor.newest, batch))._commit(rows, batch)
            self.marks.finished(self.name)
        except Exception as error:
            for each in self.tables:
                each.counts.failure = error
            raise BatchFailed(f"{type(error).__name__}: {str(error)[:200]}") from None

    def _wait_for_replicas(self) -> None:
        if self.replicas is None or self.pressure is None:
            return

        def told(waited_for: str) -> None:
            for counts in (each.counts for each in self.tables):
                counts.waited_for, counts.waited_s = waited_for, time.monotonic()

        newest = [(each.table, each.janitor.newest) for each in self.tables]
        ends = [(table, {} if known is None else known.sinks) for table, known in newest]
        self.replicas.before_batch(self.pressure, ends, told=told, is_stopped=self._is_stopped)

    def _only(self, is_in: Callable[[TableCommit], bool]) -> CommitBatch:
        """The same for these members of a group only."""
        pairs = zip(self.numbers, self.tables, strict=True)
        left = [(n, each) for n, each in pairs if is_in(each)]
        if len(left) == len(self.tables):
            return self
        numbers, tables = tuple(n for n, _ in left), tuple(each for _, each in left)
        return dataclasses.replace(self, numbers=numbers, tables=tables, is_part=True)

    def _own(self, records: DataFrame) -> DataFrame:
        if not self.is_part:
            return records
        return records.where(f"__TABLE IN ({', '.join(map(str, self.numbers))})")

    def _is_stopped(self) -> bool:
        return any(each.janitor.is_stopped() for each in self.tables)

    def _commit(self, rows: DataFrame, batch: int) -> None:
        # 1. check that the query is still ours; read what the batch covers
        for each in self.tables:
            each.check_lease()
        check_topics = self._ask_topics()
        offsets = self.checkpoint.offsets(batch)
        check_topics()  # before anything is written to a topic that may not be ours
        self._check_plan(batch, offsets)
        left = self._only(lambda each: not self._is_already_committed(each, batch))
        if not left.tables:
            _update_state_only(rows)
            return
        left._write_and_commit(rows, batch, offsets)

    def _write_and_commit(self, rows: DataFrame, batch: int, offsets: BatchOffsets) -> None:
        # 2. and 3. write the records, and read where they end
        done = self._written_once(rows, batch, offsets.started_ms)
        # bad records are logged before the batch is committed
        start = self._offsets_before(batch)
        bad_records = self.report_bad(start.ends, offsets.ends, done.left_out)
        # 4. commit
        failpoint.reach("before-progress", batch)
        instant_ms = self.source_instant(offsets.ends)
        for each, commit, sinks in zip(self.tables, done.commits, done.ends, strict=True):
            progress = _progress(each, commit, offsets, sinks, instant_ms)
            if self.is_load:
                is_first = streamed(each.janitor.newest) is None
                progress = structs.replace(progress, is_load=True, is_first=is_first)
            self._append(progress)
            each.janitor.committed(progress)
            failpoint.reach("after-a-progress", each.table.name)
        failpoint.reach("after-progress", batch)
        for counts in (each.counts for each in self.tables):
            counts.batch, counts.covered = BatchId(batch), offsets.ends
            counts.bad_records += bad_records
            counts.input_records += records_between(start.ends, offsets.ends)

    def _append(self, progress: Progress) -> None:
        try:
            self.log.append(progress)
        except BaseException:
            # It may be in the topic, or come to it. Only the query's next run knows, behind its
            # fence; a repair would take the batch back.
            for each in self.tables:
                each.janitor.stop()
            raise

    def _check_plan(self, batch: int, offsets: BatchOffsets) -> None:
        """Raises PlannedOtherwise. Called before anything of the batch is computed, as that would
        change Spark's state, too. Asked of all: also whose rows are in place would miss events."""
        newest = [each.janitor.newest for each in self.tables]
        if any(is_planned_otherwise(each, batch, offsets.ends) for each in newest):
            self.checkpoint.put_back(batch)
            raise PlannedOtherwise(
                f"batch {batch} was committed before, and would cover other offsets now"
            )

    def _ask_topics(self) -> Callable[[], None]:
        """Ask for the ids of all topics; the returned function checks the answers."""
        checks = [each.topics.ask() for each in self.tables]

        def check() -> None:
            for one in checks:
                one()

        return check

    def _is_already_committed(self, each: TableCommit, batch: int) -> bool:
        """Whether this replays a batch that was committed before Spark could record it, and whose
        rows must stay as they are."""
        newest, is_stream = each.janitor.newest, each.table.kind == "STREAM"
        return not self.is_load and is_in_place(newest, batch, is_stream=is_stream)

    def _ends(self) -> list[dict[int, int]]:
        """Where the topic of each table ends."""
        return [
            self.log.end_offsets(each.table.topic, each.table.partitions) for each in self.tables
        ]

    def _written_once(self, rows: DataFrame, batch: int, started_ms: int) -> _Attempt:
        """Caches rows that may be read more than once, or stateful operators would run twice."""
        if self.finish is None and not self.limits.counts:
            return self._attempt(self._own(rows), batch)
        rows.persist()
        try:
            found = self._own(rows if self.finish is None else self.finish(rows, started_ms))
            for _ in range(ATTEMPTS_MAX - 1):
                try:
                    return self._attempt(found, batch)
                except NotWrittenOnce as error:
                    _logger.warning("written again", query_id=self.name, why=str(error))
                    for each in self.tables:
                        each.check_lease()
            return self._attempt(found, batch)
        finally:
            rows.unpersist()

    def _attempt(self, rows: DataFrame, batch: int) -> _Attempt:
        """Raises NotWrittenOnce, and KafkaUnavailable."""
        attempt = secrets.randbits(64)
        commits = [each.commit_of(batch, attempt) for each in self.tables]
        # 2. write the records, each with the commit in its header
        failpoint.reach("before-sink", batch)
        before = self._ends() if self.limits.counts else None
        written = self._write(rows, commits)
        # 3. read where they end; check that no topic was recreated meanwhile (ids are unique), and
        # that no record was written twice
        check_topics = self._ask_topics()
        ends = self._ends()
        check_topics()
        for each, sinks in zip(self.tables, ends, strict=True):
            each.janitor.refuse(sinks)
        if before is not None:
            topics = [each.table.topic for each in self.tables]
            for grown, commit, counted in zip(
                map(Grown, topics, before, ends), commits, written.records, strict=True
            ):
                check_once(self.kafka, grown, commit, counted)
        return _Attempt(commits, ends, written.left_out)

    def _write(self, rows: DataFrame, commits: Sequence[Commit]) -> Written:
        # one expression each: every call of PySpark's functions is several calls into the JVM
        commit = self._of_each([f"X'{commit_header(each).hex()}'" for each in commits])
        headers = (
            f"array(struct('{HEADER_COMMIT}' AS key, {commit} AS value), "
            f"struct('{HEADER_ROWTIME}' AS key, rowtime AS value)) AS headers"
        )
        table = self.tables[0].table
        # of a topic: [a-zA-Z0-9._-]
        topic = self._of_each([f"'{each.table.topic}'" for each in self.tables])
        records = addressed(
            rows, table, headers=headers, topic=topic, published_topic=self.published_topic
        )
        return write_fitting(
            records,
            kafka=self.kafka,
            limits=self.limits,
            is_table=table.kind == "TABLE",
            counted=[each.table.topic for each in self.tables] if self.limits.counts else (),
        )

    def _of_each(self, values: Sequence[str]) -> str:
        """SQL of what belongs to the table of a row."""
        if len(values) == 1:
            return values[0]
        pairs = zip(self.numbers, values, strict=True)
        return f"CASE __TABLE {' '.join(f'WHEN {n} THEN {value}' for n, value in pairs)} END"

    def _offsets_before(self, batch: int) -> BatchOffsets:
        if batch == 0:
            return BatchOffsets(ends={}, watermark_ms=0, started_ms=0)
        return self.checkpoint.offsets(batch - 1)


def _progress(
    each: TableCommit,
    commit: Commit,
    offsets: BatchOffsets,
    sinks: dict[int, int],
    source_instant_ms: int,
) -> Progress:
    watermark_ms = max(0, offsets.watermark_ms - each.watermark_delay_ms)
    return Progress(
        query_id=each.query_id,
        commit=commit,
        sources=offsets.ends,
        sinks=sinks,
        starts=each.janitor.starts(),
        since_ms=each.janitor.since_ms(),
        clean_through=each.janitor.clean_through(),
        watermark_ms=each.janitor.watermark_ms(watermark_ms),
        batch_started_ms=offsets.started_ms,
        source_instant_ms=source_instant_ms,
        committed_at_ms=time.time_ns() // 1_000_000,
        topic_id=each.topics.topic_id,
        source_topic_ids=each.topics.source_topic_ids,
    )


def _jvm_pid() -> int:
    gateway: Any = cast(Any, SparkContext)._gateway
    return int(gateway.proc.pid)


def _update_state_only(rows: DataFrame) -> None:
    """Compute the rows only to update the state, which the next batch begins with."""
    rows.write.format("noop").mode("overwrite").save()
