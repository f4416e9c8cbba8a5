"""One run of a group of queries: one streaming query of Spark that fills several tables.

`start_group` takes over each member as `query_run.start_query` does, and continues from the batch
that all of them have committed. A driver may die between two members' progress records: then the
batch is replayed with the same offsets, and committed for all of them under another attempt.
"""

from __future__ import annotations

import functools

import structlog
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from standpipe.data.commit.takeover import furthest_behind
from standpipe.pipeline.commit.batch import CommitBatch
from standpipe.pipeline.commit.query_group import QueryGroup
from standpipe.pipeline.commit.topic_check import TopicCheck
from standpipe.pipeline.io.bad_records import BadRecords
from standpipe.pipeline.io.checkpoint_path import CheckpointPath
from standpipe.pipeline.io.committed_source import CommittedFeed, Upstream, ended_unless_started
from standpipe.pipeline.io.group import group_rows
from standpipe.pipeline.io.sink import group_records_of
from standpipe.pipeline.io.source import open_view
from standpipe.pipeline.run.group.wanted_run import WantedRun
from standpipe.pipeline.run.session import query_session
from standpipe.pipeline.run.start import session_functions
from standpipe.pipeline.run.start.checkpoints import (
    checkpoint_of,
    claimed,
    let_apart_leave,
    let_leave,
)
from standpipe.pipeline.run.start.query_run import (
    PipelineContext,
    Stream,
    follow_sources,
    limits_of,
    plan_unreadable,
    run_of,
    start_query,
    started,
    take_over,
)
from standpipe.pipeline.run.start.running_query import QueryRun
from standpipe.pipeline.wanted import WantedQuery
from standpipe.sql.spark.group_sql import GroupPlan

_logger = structlog.get_logger("group_run")


def start_run(run: WantedRun, around: PipelineContext) -> QueryRun:
    """Start what a pipeline wants to run. Raises as `start_query` does."""
    return start_query(run.members[0], around) if run.group is None else start_group(run, around)


def start_group(run: WantedRun, around: PipelineContext) -> QueryRun:
    """Take the queries over and start them together, or one that has left its group alone. Raises
    NotYet, QueryFailed or KafkaUnavailable."""
    group = run.group
    assert group is not None
    checks = [TopicCheck(each, around.log) for each in run.members]
    seen = [each.need(around.service_id) for each in checks]
    own = [claimed(each, around.checkpoints, around.service_id) for each in run.members]
    checkpoint = checkpoint_of(run, own, around.checkpoints)
    taken = [
        take_over(wanted, topics, there, around)
        for wanted, topics, there in zip(run.members, checks, seen, strict=True)
    ]
    assert around.groups is not None
    let_leave(run, own, around.groups, around.checkpoints, around.log.records)
    newest = [each.newest for each in taken]
    checkpoint.inherit(*newest)
    let_apart_leave(run, own, newest, checkpoint, around.groups)
    rolled_back = checkpoint.roll_back(furthest_behind(newest))
    if rolled_back.commits or rolled_back.offsets:
        _logger.warning("batches rolled back", run_id=run.run_id, commits=rolled_back.commits)
    session = query_session(around.spark, taken[0].wanted.query)
    around.spark.sparkContext.setLocalProperty("spark.scheduler.pool", run.run_id)
    tables = tuple(each.commit(around, watermark_delay_ms=_grace_ms(each.wanted)) for each in taken)
    query_ids = tuple(each.query_id for each in run.members)
    counted = BadRecords(session, query_ids, (group.plan.input,), around.reads, around.log)
    looks = any(each.measures_rows for each in run.members)
    commit = CommitBatch(
        name=run.run_id,
        tables=tables,
        numbers=tuple(_number(each, group) for each in run.members),
        kafka=around.reads.kafka,
        checkpoint=checkpoint,
        log=around.log,
        limits=limits_of(run.members, around, looks=looks),
        source_instant=functools.partial(around.probe.covered, run.run_id),
        report_bad=counted.report,
        revision=run.revision,
        marks=around.marks,
        replicas=around.replicas,
        pressure=around.pressure(),
    )
    follow_sources(run.run_id, (group.plan.input,), newest, around)
    with ended_unless_started() as feeds:
        plan = _planned(session, run, around, checkpoint.directory, feeds)
        running = started(Stream(plan=plan, output_mode="update"), commit, checkpoint, around)
    counted.set_query(running)
    return run_of(running, tables, run.members, around, run_id=run.run_id)


def _number(wanted: WantedQuery, group: QueryGroup) -> int:
    number = group.number_of(wanted)
    assert number is not None, wanted.query_id
    return number


def _grace_ms(wanted: WantedQuery) -> int:
    """By how much the watermark of the table is behind that of the group."""
    window = wanted.table.window
    return 0 if window is None else window.grace_ms


def _texts(plan: GroupPlan) -> list[str | None]:
    """The parts of a plan that may call a function."""
    return [
        plan.timed or None,
        plan.sql,
        *(each.row for each in plan.rows),
        *(each.condition for each in plan.rows),
    ]


def _planned(
    session: SparkSession,
    run: WantedRun,
    around: PipelineContext,
    directory: CheckpointPath,
    feeds: list[CommittedFeed],
) -> DataFrame:
    """The streaming plan of the records of all tables of the run, which is that of a group.
    `feeds`: of `ended_unless_started`. Raises QueryFailed."""
    group = run.group
    assert group is not None
    tables = {_number(each, group): each.table for each in run.members}
    stream = group.plan.input
    try:
        if session_functions.is_needed((stream,), *_texts(group.plan)):
            session_functions.register(session)
        writer = run.members[0].writers.get(stream.topic)
        upstream = writer and Upstream(
            query_id=writer,
            log=around.log,
            directory=directory,
            has_news=functools.partial(around.probe.wake, [run.run_id]),
            feeds=feeds,
        )
        open_view(session, stream, around.reads, upstream or None, directory)
        return group_records_of(group_rows(session, group.plan, tables.keys()), tables)
    except (AnalysisException, ParseException, ValueError) as error:
        raise plan_unreadable(error) from error
