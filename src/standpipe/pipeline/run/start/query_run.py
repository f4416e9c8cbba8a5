"""One run of one persistent query: from the catalog's record to a running Spark query.

`start_query` is written as a takeover: claim the checkpoint, fence, roll back what readers cannot
see, and continue from there. The same steps serve the first start, a restart and a failover.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import structlog
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from standpipe.config.keys import BAD_RECORDS_SAMPLED, RECORD_BYTES_MAX
from standpipe.data.commit.back_pressure import Pressure
from standpipe.data.commit.committed import Committed
from standpipe.data.commit.takeover import furthest_behind, standing, streamed
from standpipe.data.commit.topic_identity import TopicSeen
from standpipe.model import LeaseEpoch, Progress, SparkInput
from standpipe.pipeline.commit.batch import BatchCounts, CommitBatch, TableCommit
from standpipe.pipeline.commit.batch_marks import BatchMarks
from standpipe.pipeline.commit.checkpoint import Checkpoint
from standpipe.pipeline.commit.janitor import Janitor
from standpipe.pipeline.commit.replica_wait import ReplicaWait
from standpipe.pipeline.commit.swept_topic import QUIET_MS, SweptTopic
from standpipe.pipeline.commit.topic_check import TopicCheck
from standpipe.pipeline.failures import Fenced, QueryFailed
from standpipe.pipeline.io.bad_records import BadRecords, to_log_records
from standpipe.pipeline.io.checkpoint_path import CheckpointPath, spark_path
from standpipe.pipeline.io.committed_source import CommittedFeed, Upstream, ended_unless_started
from standpipe.pipeline.io.kafka_options import KafkaReads
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.pipeline.io.sink import records_of
from standpipe.pipeline.io.sink_writer import WriteLimits, may_repeat_tasks, row_bytes_max
from standpipe.pipeline.io.source import open_view
from standpipe.pipeline.io.stateful import add_step
from standpipe.pipeline.run.group.groups import Groups
from standpipe.pipeline.run.session import query_session
from standpipe.pipeline.run.start import session_functions
from standpipe.pipeline.run.start.checkpoints import claimed
from standpipe.pipeline.run.start.public_topic import publish_rows
from standpipe.pipeline.run.start.running_query import QueryRun, TableRun
from standpipe.pipeline.run.watch.backlog import Backlog, Unread
from standpipe.pipeline.run.watch.late_records import LateRecords
from standpipe.pipeline.run.watch.source_probe import SourceProbe
from standpipe.pipeline.run.watch.trigger_clocks import TriggerClocks
from standpipe.pipeline.wanted import WantedQuery

_logger = structlog.get_logger("query")


@dataclass(frozen=True, kw_only=True)
class PipelineContext:
    """What all queries of a pipeline share."""

    spark: SparkSession
    reads: KafkaReads
    log: ProgressLog
    service_id: str
    checkpoints: CheckpointPath
    #: raises Fenced unless this pipeline still holds the query's lease under that epoch
    check_lease: Callable[[str, LeaseEpoch], None]
    #: where the topics of all queries end
    probe: SourceProbe
    #: which replicas batches wait for; None: no lag is bounded
    replicas: ReplicaWait | None = None
    #: which queries are in a batch
    marks: BatchMarks = field(default_factory=BatchMarks)
    #: None: no query is in a group
    groups: Groups | None = None
    #: lets idle queries sleep until they are woken; None: they ask Kafka regularly
    clocks: TriggerClocks | None = None
    #: each query ends when it has read what its topics held at its start
    stops_when_drained: bool = False

    def pressure(self) -> Pressure | None:
        """For the batches of one streaming query."""
        return Pressure(self.replicas.bound) if self.replicas else None


def run_of(
    running: StreamingQuery,
    commits: Sequence[TableCommit],
    members: Sequence[WantedQuery],
    around: PipelineContext,
    *,
    run_id: str,
    starts: Mapping[str, Mapping[int, int]] | None = None,
) -> QueryRun:
    """The run of a streaming query that has just started: the janitors of its tables begin.
    `run_id`: its name where its sources are probed; `starts`: of the topics that a successor
    reads."""
    tables: dict[str, TableRun] = {}
    for own in commits:
        own.janitor.start()
        tables[own.query_id] = TableRun(
            query_id=own.query_id,
            counts=own.counts,
            janitor=own.janitor,
            topics=own.topics,
            late=LateRecords(own.query_id),
            backlog=None if starts is None else Backlog(running, own.counts, starts),
        )
    return QueryRun(
        streaming_query=running,
        tables=tables,
        unread=_unread(members[0], around, commits[0].counts),
        spark=around.spark,
        leave_probe=functools.partial(around.probe.leave, run_id),
    )


def start_query(wanted: WantedQuery, around: PipelineContext) -> QueryRun:
    """Take the query over and start it. Raises NotYet, QueryFailed or KafkaUnavailable."""
    query = wanted.query
    taken, checkpoint = resume(wanted, around)
    session = query_session(around.spark, query)
    # a separate pool: with FIFO one query's large batch would hold up all others
    around.spark.sparkContext.setLocalProperty("spark.scheduler.pool", query.query_id)
    _publish(taken, session, around, checkpoint)
    follow_sources(query.query_id, query.plan.inputs, [taken.newest], around)
    with ended_unless_started() as feeds:
        plan = planned(session, wanted, around, checkpoint.directory, feeds)
        stream = Stream(plan=plan, output_mode=query.plan.output_mode, finish=finisher(wanted))
        return start_stream(taken, checkpoint, stream, around)


def resume(wanted: WantedQuery, around: PipelineContext) -> tuple[TakenOver, Checkpoint]:
    """Take a query over: its checkpoint then continues after the newest batch that readers see.

    Raises NotYet, Fenced, QueryFailed or KafkaUnavailable."""
    topics = TopicCheck(wanted, around.log)
    seen = topics.need(around.service_id)
    checkpoint = claimed(wanted, around.checkpoints, around.service_id)
    taken = take_over(wanted, topics, seen, around)
    newest = streamed(taken.newest)
    checkpoint.inherit(newest)
    gone = checkpoint.roll_back(furthest_behind([newest]))
    if gone.commits or gone.offsets:
        _logger.warning("batches rolled back", query_id=wanted.query_id, commits=gone.commits)
    return taken, checkpoint


@dataclass(frozen=True, kw_only=True)
class Stream:
    """What Spark is to run for a query."""

    #: the records of the table (`io/sink.py`), or rows that `finish` turns into them
    plan: DataFrame
    output_mode: str
    finish: Callable[[DataFrame, int], DataFrame] | None = None
    #: as of `DataStreamWriter.trigger`; None: the next batch as soon as the one before has ended
    trigger: Mapping[str, Any] | None = None


def start_stream(
    taken: TakenOver, checkpoint: Checkpoint, stream: Stream, around: PipelineContext
) -> QueryRun:
    """Start the streaming query, whose batches are committed to the table of `taken`."""
    wanted, query, own = taken.wanted, taken.wanted.query, taken.commit(around)
    session = stream.plan.sparkSession
    counted = BadRecords(session, (query.query_id,), query.plan.inputs, around.reads, around.log)
    commit = CommitBatch(
        name=query.query_id,
        tables=(own,),
        kafka=around.reads.kafka,
        checkpoint=checkpoint,
        published_topic=wanted.published_topic,
        log=around.log,
        limits=limits_of([wanted], around, looks=wanted.measures_rows),
        source_instant=functools.partial(around.probe.covered, query.query_id),
        report_bad=counted.report,
        finish=stream.finish,
        revision=query.revision,
        marks=around.marks,
        replicas=around.replicas,
        pressure=around.pressure(),
    )
    starts = _starts(wanted, around.log) if wanted.is_successor else None
    running = started(stream, commit, checkpoint, around)
    counted.set_query(running)
    return run_of(running, [own], [wanted], around, run_id=query.query_id, starts=starts)


@dataclass(frozen=True, kw_only=True)
class TakenOver:
    """A query whose writers of older lease epochs are fenced."""

    wanted: WantedQuery
    topics: TopicCheck
    check_lease: Callable[[], None]
    #: the progress topic up to our fence
    records: list[Progress]
    #: the newest batch that readers may see; None: none was ever committed
    newest: Progress | None

    def commit(
        self, around: PipelineContext, *, watermark_delay_ms: int = 0, quiet_ms: int = QUIET_MS
    ) -> TableCommit:
        """What commits the query's table, with a janitor that has not been started."""
        wanted = self.wanted
        swept = SweptTopic(
            query_id=wanted.query_id,
            table=wanted.table,
            lease_epoch=wanted.lease_epoch,
            kafka=around.reads.kafka,
            log=around.log,
            check_lease=self.check_lease,
            ask_topics=self.topics.ask,
            quiet_ms=quiet_ms,
        )
        return TableCommit(
            query_id=wanted.query_id,
            table=wanted.table,
            lease_epoch=wanted.lease_epoch,
            janitor=Janitor(swept, self.records),
            topics=self.topics,
            check_lease=self.check_lease,
            watermark_delay_ms=watermark_delay_ms,
            counts=_counts_of(self.newest),
        )


def take_over(
    wanted: WantedQuery, topics: TopicCheck, seen: Mapping[str, TopicSeen], around: PipelineContext
) -> TakenOver:
    """Fence the query's older writers, and find what they have committed. `seen`: its topics, from
    `TopicCheck.need`. Raises Fenced, QueryFailed or KafkaUnavailable."""
    query_id, lease_epoch = wanted.query_id, wanted.lease_epoch
    fence = around.log.fence(query_id, lease_epoch)
    records = list(around.log.records_until(fence))
    stand = standing(records, query_id, lease_epoch)
    if stand.fenced_by is not None:
        raise Fenced(f"query {query_id} was taken over under lease epoch {stand.fenced_by}")
    topics.begin(stand.newest, seen)
    return TakenOver(
        wanted=wanted,
        topics=topics,
        check_lease=functools.partial(around.check_lease, query_id, lease_epoch),
        records=records,
        newest=stand.newest,
    )


def follow_sources(
    run_id: str,
    inputs: Iterable[SparkInput],
    newest: Iterable[Progress | None],
    around: PipelineContext,
) -> None:
    """Probe where the topics of a run end, from what is known of its newest batch on."""
    known_ms = [0 if each is None else each.source_instant_ms for each in newest]
    around.probe.follow(run_id, {source.topic for source in inputs}, min(known_ms))


def started(
    stream: Stream, commit: CommitBatch, checkpoint: Checkpoint, around: PipelineContext
) -> StreamingQuery:
    """Start the streaming query of a plan. Raises QueryFailed: some of what Spark cannot stream, it
    refuses only here."""
    plan, mode, directory = stream.plan, stream.output_mode, checkpoint.directory
    when = {"availableNow": True} if around.stops_when_drained else stream.trigger
    try:
        if around.clocks is not None and when is None:
            return around.clocks.start(
                plan, mode, name=commit.name, checkpoint=directory, batches=commit
            )
        writer = (
            plan.writeStream.outputMode(mode)
            .queryName(commit.name)
            .option("checkpointLocation", spark_path(directory))
            .foreachBatch(commit)
        )
        return (writer.trigger(**when) if when else writer).start()
    except AnalysisException as error:
        raise plan_unreadable(error) from error


def _unread(wanted: WantedQuery, around: PipelineContext, counts: BatchCounts) -> Unread:
    topics = {each.topic for each in wanted.query.plan.inputs} - wanted.writers.keys()
    return Unread(log=around.log, counts=counts, topics=frozenset(topics), ends=around.probe.ends)


def limits_of(
    members: Sequence[WantedQuery], around: PipelineContext, *, looks: bool
) -> WriteLimits:
    """Limits for rows of all these queries. Read at each start: if a topic's limit is lowered
    later, one batch fails."""
    config = around.reads.config
    topics = [topic for each in members for topic in (each.table.topic, each.published_topic)]
    known = [around.log.message_bytes_max(topic) for topic in topics if topic]
    return WriteLimits(
        bytes_max=row_bytes_max(config[RECORD_BYTES_MAX], known),
        samples_max=config[BAD_RECORDS_SAMPLED],
        looks=looks,
        counts=may_repeat_tasks(around.spark),
    )


def _counts_of(newest: Progress | None) -> BatchCounts:
    if newest is None:
        return BatchCounts()
    return BatchCounts(batch=newest.commit.batch, covered=newest.sources)


def _starts(wanted: WantedQuery, log: ProgressLog) -> dict[str, dict[int, int]]:
    topics = {source.topic for source in wanted.query.plan.inputs}
    return {topic: log.start_offsets(topic, log.partition_count(topic)) for topic in topics}


def _publish(
    taken: TakenOver, session: SparkSession, around: PipelineContext, checkpoint: Checkpoint
) -> None:
    wanted, topic, topic_id = taken.wanted, taken.wanted.published_topic, taken.topics.public_id
    if topic is None:
        return
    if checkpoint.is_published(topic, topic_id):
        checkpoint.mark_published(topic, topic_id)  # an older release recorded no id
        return
    committed = Committed(wanted.query_id)
    for record in taken.records:
        committed.take(record)
    _logger.info("publishing", query_id=wanted.query_id, topic=topic)
    found = publish_rows(
        session,
        wanted,
        topic,
        committed,
        reads=around.reads,
        limits=limits_of([wanted], around, looks=True),
    )
    around.log.report(to_log_records(wanted.query_id, found.samples))
    around.check_lease(wanted.query_id, wanted.lease_epoch)
    checkpoint.mark_published(topic, topic_id)


def finisher(wanted: WantedQuery) -> Callable[[DataFrame, int], DataFrame] | None:
    """Turns a batch's rows into records; None: they already are records."""
    batch_sql = wanted.query.plan.batch_sql
    if batch_sql is None:
        return None

    def finish(rows: DataFrame, _started_ms: int) -> DataFrame:
        own: Any = rows.sparkSession  # the batch's session is a clone of the query's
        rows.createOrReplaceTempView("__BATCH")
        return _records(cast(DataFrame, own.sql(batch_sql)), wanted)

    return finish


def _records(result: DataFrame, wanted: WantedQuery) -> DataFrame:
    plan = wanted.query.plan
    return records_of(
        result, wanted.table, has_own_key=bool(plan.has_own_key), schemas=plan.schemas
    )


def planned(
    session: SparkSession,
    wanted: WantedQuery,
    around: PipelineContext,
    directory: CheckpointPath,
    feeds: list[CommittedFeed],
) -> DataFrame:
    """The streaming plan of the table's records, or of the rows that `finisher` turns into them.
    `feeds`: of `ended_unless_started`. Raises QueryFailed.
    """
    plan = wanted.query.plan
    try:
        session_functions.register_needed(session, wanted.table, plan)
        for source in plan.inputs:
            writer = wanted.writers.get(source.topic)
            upstream = writer and Upstream(
                query_id=writer,
                log=around.log,
                directory=directory,
                has_news=functools.partial(around.probe.wake, [wanted.query_id]),
                feeds=feeds,
            )
            open_view(session, source, around.reads, upstream or None, directory)
        for step in plan.steps:
            add_step(session, step)
        result = cast(DataFrame, cast(Any, session).sql(plan.sql))
        return result if plan.batch_sql is not None else _records(result, wanted)
    except (AnalysisException, ParseException, ValueError) as error:
        raise plan_unreadable(error) from error


def plan_unreadable(error: Exception) -> QueryFailed:
    """The failure of a query whose plan Spark refuses."""
    return QueryFailed("PLAN_UNREADABLE", f"Spark cannot run the plan: {error}")
