"""One run of one persistent query: from the catalog's record to a running Spark query.

`start_query` is written as a takeover: claim the checkpoint, fence, roll back what readers cannot
see, and continue from there. The same steps serve the first start, a restart and a failover.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import structlog
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from standpipe.adapters.files.named_paths import folder_below
from standpipe.config.keys import BAD_RECORDS_SAMPLED, RECORD_BYTES_MAX
from standpipe.data.commit.committed import Committed
from standpipe.data.commit.takeover import standing
from standpipe.model import LeaseEpoch, PersistentQuery, Progress
from standpipe.pipeline.commit.batch import BatchCounts, CommitBatch
from standpipe.pipeline.commit.batch_marks import BatchMarks
from standpipe.pipeline.commit.checkpoint import Checkpoint, Identity
from standpipe.pipeline.commit.janitor import Janitor, SweptTopic
from standpipe.pipeline.commit.topic_check import TopicCheck
from standpipe.pipeline.failures import Fenced, QueryFailed
from standpipe.pipeline.io.bad_records import BadRecords, to_log_records
from standpipe.pipeline.io.committed_source import Upstream
from standpipe.pipeline.io.kafka_options import KafkaReads
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.pipeline.io.sink import records_of
from standpipe.pipeline.io.sink_writer import WriteLimits, row_bytes_max
from standpipe.pipeline.io.source import open_view
from standpipe.pipeline.io.stateful import add_step
from standpipe.pipeline.run import session_functions
from standpipe.pipeline.run.backlog import Backlog, Unread
from standpipe.pipeline.run.late_records import LateRecords
from standpipe.pipeline.run.public_topic import publish_rows
from standpipe.pipeline.run.source_probe import SourceProbe
from standpipe.pipeline.run.stall import Signs
from standpipe.pipeline.run.task_progress import work_of
from standpipe.pipeline.wanted import WantedQuery, plan_digest

_logger = structlog.get_logger("query")


@dataclass(frozen=True, kw_only=True)
class PipelineContext:
    """What all queries of a pipeline share."""

    spark: SparkSession
    reads: KafkaReads
    log: ProgressLog
    service_id: str
    checkpoints: Path
    #: raises Fenced unless this pipeline still holds the query's lease under that epoch
    check_lease: Callable[[str, LeaseEpoch], None]
    #: where the topics of all queries end
    probe: SourceProbe
    #: which queries are in a batch
    marks: BatchMarks = field(default_factory=BatchMarks)
    #: each query ends when it has read what its topics held at its start
    stops_when_drained: bool = False


@dataclass(kw_only=True)
class QueryRun:
    """A query that Spark runs, or ran."""

    streaming_query: StreamingQuery
    counts: BatchCounts
    janitor: Janitor
    topics: TopicCheck
    unread: Unread
    late: LateRecords
    spark: SparkSession
    #: tells the probe that the query has ended
    leave_probe: Callable[[], None] = field(default=lambda: None)
    #: set if the table is built beside the one that serves reads
    backlog: Backlog | None = None

    @property
    def is_active(self) -> bool:
        """Whether Spark is running it."""
        return bool(self.streaming_query.isActive)

    def failure(self) -> Exception | None:
        """What ended the query or must end it; None while it runs normally."""
        if self.is_active:
            return self.topics.failure or self.janitor.failure
        self.janitor.stop()
        self.leave_probe()
        ended = self.counts.failure or self.streaming_query.exception()
        return ended or RuntimeError("Spark ended the query without an error")

    @property
    def notice(self) -> str:
        """What to report about its topics although it continues."""
        return self.topics.notice

    def look(self) -> bool:
        """Check its topics while no batch runs. False: Kafka does not answer. Never raises."""
        return self.topics.look()

    def named(self, error: Exception) -> Exception:
        """The named topic failure that explains `error`, or `error` itself."""
        self.topics.look()
        return self.topics.failure or error

    def signs(self, *, with_work: bool) -> Signs:
        """Signs of progress: what was committed, and whether there is anything to do."""
        said = self.streaming_query.status
        return Signs(
            mark=(self.counts.batch, self.counts.input_records),
            has_data=bool(said["isDataAvailable"]),
            work=work_of(self.spark, str(self.streaming_query.name)) if with_work else None,
            doing=str(said["message"]),
        )

    @property
    def repaired_rows(self) -> int:
        """Shadowed rows that were rewritten since the query started."""
        return self.janitor.repaired

    def stop(self) -> None:
        """Abort the current batch; it is replayed at the next start."""
        self.janitor.stop()
        self.leave_probe()
        self.streaming_query.stop()

    def count_late(self) -> int:
        """Records behind the watermark so far. Spark drops them; we count them, and log in the
        processing log which batches had them."""
        # an array in the JVM: only those of its elements that are looked at come over
        recent = cast(Any, self.streaming_query)._jsq.recentProgress()
        self.janitor.swept.log.tell(self.late.take(recent))
        return self.late.count


def start_query(wanted: WantedQuery, around: PipelineContext) -> QueryRun:
    """Take the query over and start it. Raises NotYet, QueryFailed or KafkaUnavailable."""
    query, table, lease_epoch = wanted.query, wanted.table, wanted.lease_epoch
    check_lease = functools.partial(around.check_lease, query.query_id, lease_epoch)
    topics = TopicCheck(wanted, around.log)
    seen = topics.need(around.service_id)
    checkpoint = _claimed(wanted, around)
    fence = around.log.fence(query.query_id, lease_epoch)
    records = list(around.log.records_until(fence))
    stand = standing(records, query.query_id, lease_epoch)
    if stand.fenced_by is not None:
        raise Fenced(f"query {query.query_id} was taken over under lease epoch {stand.fenced_by}")
    topics.begin(stand.newest, seen)
    checkpoint.inherit(stand.newest)
    rolled_back = checkpoint.roll_back(stand.valid)
    if rolled_back.commits or rolled_back.offsets:
        _logger.warning("batches rolled back", query_id=query.query_id, commits=rolled_back.commits)
    session = session_of(query, around)
    # a separate pool: with FIFO one query's large batch would hold up all others
    around.spark.sparkContext.setLocalProperty("spark.scheduler.pool", query.query_id)
    _publish(wanted, session, around, checkpoint, records)
    janitor = Janitor(
        SweptTopic(
            query_id=query.query_id,
            table=table,
            lease_epoch=lease_epoch,
            kafka=around.reads.kafka,
            log=around.log,
            check_lease=check_lease,
            ask_topics=topics.ask,
        ),
        records,
    )
    _follow_sources(query, stand.newest, around)
    counted = BadRecords(session, query.query_id, query.plan.inputs, around.reads, around.log)
    commit = CommitBatch(
        query_id=query.query_id,
        table=table,
        lease_epoch=lease_epoch,
        kafka=around.reads.kafka,
        checkpoint=checkpoint,
        published_topic=wanted.published_topic,
        log=around.log,
        janitor=janitor,
        topics=topics,
        check_lease=check_lease,
        limits=_limits(wanted, around, looks=wanted.measures_rows),
        source_instant=functools.partial(around.probe.covered, query.query_id),
        report_bad=counted.report,
        finish=finisher(wanted),
        revision=query.revision,
        marks=around.marks,
        counts=_counts_of(stand.newest),
    )
    starts = _starts(wanted, around.log) if wanted.is_successor else {}
    plan = planned(session, wanted, around, checkpoint.directory)
    running = _started(plan, query.plan.output_mode, commit, around)
    counted.set_query(running)
    janitor.start()
    return QueryRun(
        streaming_query=running,
        counts=commit.counts,
        janitor=janitor,
        topics=topics,
        unread=_unread(wanted, around.log, commit.counts),
        late=LateRecords(query.query_id),
        spark=around.spark,
        leave_probe=functools.partial(around.probe.leave, query.query_id),
        backlog=Backlog(running, commit.counts, starts) if wanted.is_successor else None,
    )


def _follow_sources(
    query: PersistentQuery, newest: Progress | None, around: PipelineContext
) -> None:
    topics = {source.topic for source in query.plan.inputs}
    around.probe.follow(query.query_id, topics, 0 if newest is None else newest.source_instant_ms)


def _started(
    plan: DataFrame, output_mode: str, commit: CommitBatch, around: PipelineContext
) -> StreamingQuery:
    writer = (
        plan.writeStream.outputMode(output_mode)
        .queryName(commit.query_id)
        .option("checkpointLocation", str(commit.checkpoint.directory))
        .foreachBatch(commit)
    )
    return (writer.trigger(availableNow=True) if around.stops_when_drained else writer).start()


def _claimed(wanted: WantedQuery, around: PipelineContext) -> Checkpoint:
    query, table = wanted.query, wanted.table
    root = folder_below(around.checkpoints, f"{query.query_id}-{table.generation}")
    checkpoint = Checkpoint(root, wanted.lease_epoch)
    checkpoint.claim(
        Identity(
            service_id=around.service_id,
            query_id=query.query_id,
            table_id=table.table_id or "",
            generation=table.generation,
            plan_sha256=plan_digest(query.plan),
            revision=query.revision,
        )
    )
    return checkpoint


def _unread(wanted: WantedQuery, log: ProgressLog, counts: BatchCounts) -> Unread:
    topics = {each.topic for each in wanted.query.plan.inputs} - wanted.writers.keys()
    return Unread(log=log, counts=counts, topics=frozenset(topics))


def _limits(wanted: WantedQuery, around: PipelineContext, *, looks: bool) -> WriteLimits:
    """Read at each start: if a topic's limit is lowered later, one batch fails."""
    config = around.reads.config
    topics = [each for each in (wanted.table.topic, wanted.published_topic) if each]
    known = [around.log.message_bytes_max(topic) for topic in topics]
    return WriteLimits(
        bytes_max=row_bytes_max(config[RECORD_BYTES_MAX], known),
        samples_max=config[BAD_RECORDS_SAMPLED],
        looks=looks,
    )


def _counts_of(newest: Progress | None) -> BatchCounts:
    if newest is None:
        return BatchCounts()
    return BatchCounts(batch=newest.commit.batch, covered=newest.sources)


def _starts(wanted: WantedQuery, log: ProgressLog) -> dict[str, dict[int, int]]:
    topics = {source.topic for source in wanted.query.plan.inputs}
    return {topic: log.start_offsets(topic, log.partition_count(topic)) for topic in topics}


def _publish(
    wanted: WantedQuery,
    session: SparkSession,
    around: PipelineContext,
    checkpoint: Checkpoint,
    records: Iterable[Progress],
) -> None:
    topic = wanted.published_topic
    if topic is None or checkpoint.is_published(topic):
        return
    committed = Committed(wanted.query_id)
    for record in records:
        committed.take(record)
    _logger.info("publishing", query_id=wanted.query_id, topic=topic)
    found = publish_rows(
        session,
        wanted.table,
        topic,
        committed,
        reads=around.reads,
        limits=_limits(wanted, around, looks=True),
    )
    around.log.report(to_log_records(wanted.query_id, found.samples))
    around.check_lease(wanted.query_id, wanted.lease_epoch)
    checkpoint.mark_published(topic)


def session_of(query: PersistentQuery, around: PipelineContext) -> SparkSession:
    """A separate session, because views and settings belong to one query."""
    session = around.spark.newSession()
    # In update mode an empty batch only drops expired state, which the next batch does as well;
    # running one after each batch would hold up the events behind it.
    session.conf.set(
        "spark.sql.streaming.noDataMicroBatches.enabled", query.plan.output_mode == "append"
    )
    if query.plan.version > 1:
        # Spark rejects several stateful operators in update mode because a watermark could make
        # one of them drop what another still emits; ours emit nothing late.
        session.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
    # of two equal keys in a map ksqlDB keeps the later one; by default Spark would end the query
    session.conf.set("spark.sql.mapKeyDedupPolicy", "LAST_WIN")
    return session


def finisher(wanted: WantedQuery) -> Callable[[DataFrame], DataFrame] | None:
    """Turns a batch's rows into records; None: they already are records."""
    batch_sql = wanted.query.plan.batch_sql
    if batch_sql is None:
        return None

    def finish(rows: DataFrame) -> DataFrame:
        own: Any = rows.sparkSession  # the batch's session is a clone of the query's
        rows.createOrReplaceTempView("__BATCH")
        return _records(cast(DataFrame, own.sql(batch_sql)), wanted)

    return finish


def _records(result: DataFrame, wanted: WantedQuery) -> DataFrame:
    has_own_key = bool(wanted.query.plan.has_own_key)
    return records_of(result, wanted.table, has_own_key=has_own_key)


def planned(
    session: SparkSession, wanted: WantedQuery, around: PipelineContext, directory: Path
) -> DataFrame:
    """The streaming plan of the table's records, or of the rows that `finisher` turns into them.

    Raises QueryFailed.
    """
    plan = wanted.query.plan
    try:
        if session_functions.is_needed(
            plan.sql, plan.batch_sql, *(step.sql for step in plan.steps)
        ):
            session_functions.register(session)
        for source in plan.inputs:
            writer = wanted.writers.get(source.topic)
            upstream = writer and Upstream(query_id=writer, log=around.log, directory=directory)
            open_view(session, source, around.reads, upstream or None)
        for step in plan.steps:
            add_step(session, step)
        result = cast(DataFrame, cast(Any, session).sql(plan.sql))
        return result if plan.batch_sql is not None else _records(result, wanted)
    except (AnalysisException, ParseException, ValueError) as error:
        raise QueryFailed("PLAN_UNREADABLE", f"Spark cannot run the plan: {error}") from error
