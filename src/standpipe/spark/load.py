"""The rows of a batch DataFrame in one commit: what `Standpipe.load` does under the table's lease.

A load is a batch of the commit protocol, with the same code (`pipeline/commit/batch.py`): it fences
older writers, writes its records, and one progress record makes all of them visible. It has no
checkpoint. Its commit has the number and the sources of the newest batch, as a repair has, so the
checkpoint of a program that serves the table is as good after it as before
(`data.commit.takeover.streamed`); that program does not write the batch again (`is_in_place`).

A load that fails leaves records that are not committed in front of committed ones, and compaction
would keep the wrong ones. So the janitor repairs them before the lease is given back. If the
process dies, the next one that writes the table does it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import structlog
from pyspark.sql import DataFrame

from standpipe.data.commit.takeover import has_counted
from standpipe.errors import KafkaUnavailable, StandpipeError
from standpipe.model import BatchId, LeaseEpoch, Progress
from standpipe.pipeline.commit.batch import BatchFailed, CommitBatch, TableCommit
from standpipe.pipeline.commit.checkpoint import BatchOffsets
from standpipe.pipeline.commit.topic_check import TopicCheck
from standpipe.pipeline.failures import Fenced
from standpipe.pipeline.io.bad_records import Offsets
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.pipeline.io.sink_writer import LeftOut
from standpipe.pipeline.run.start.query_run import PipelineContext, limits_of, take_over
from standpipe.pipeline.wanted import WantedQuery
from standpipe.spark.errors import ServeEnded, ServeRefused

#: how long the topic is swept before the lease is given back, and how fast a slow machine does it
SWEEP_S_MAX: Final = 60.0
RECORDS_PER_S_MIN: Final = 2_000
POLL_S: Final = 0.2

_logger = structlog.get_logger("standpipe.spark")


@dataclass(frozen=True, kw_only=True)
class LoadedBatch:
    """Which commit has the rows of a load. A `CommittedFrame` that has the same `lease_epoch` and
    `batch`, or was committed later, has them."""

    lease_epoch: LeaseEpoch
    batch: BatchId
    #: Unix ms
    committed_at_ms: int


@dataclass(frozen=True, kw_only=True)
class LoadCoverage:
    """What a load covers: the sources of the newest batch, and no more."""

    newest: Progress | None
    #: Unix ms
    began_ms: int

    @property
    def batch(self) -> BatchId:
        """The number of its batch."""
        return BatchId(0) if self.newest is None else self.newest.commit.batch

    def offsets(self, batch: int) -> BatchOffsets:
        """As of a checkpoint, whatever the batch."""
        newest = self.newest
        if newest is None:
            return BatchOffsets(ends={}, watermark_ms=0, started_ms=self.began_ms)
        ends = {topic: dict(offsets) for topic, offsets in newest.sources.items()}
        return BatchOffsets(
            ends=ends, watermark_ms=newest.watermark_ms, started_ms=newest.batch_started_ms
        )

    def put_back(self, batch: int) -> None:
        """It covers nothing else."""

    def source_instant(self, _ends: Offsets) -> int:
        """Up to when the newest batch has all source records (Unix ms); 0: unknown."""
        return 0 if self.newest is None else self.newest.source_instant_ms


def load_rows(plan: DataFrame, wanted: WantedQuery, around: PipelineContext) -> LoadedBatch:
    """Write and commit the records of `plan`. Raises NotYet, Fenced, QueryFailed, KafkaUnavailable,
    ServeRefused if a row is too large, and what Spark raises; then nothing is visible. Raises
    ServeEnded if Kafka has not said whether it has the progress record: nobody knows then."""
    topics = TopicCheck(wanted, around.log)
    seen = topics.need(around.service_id)
    taken = take_over(wanted, topics, seen, around)
    own = taken.commit(around, quiet_ms=0)
    covered = LoadCoverage(newest=taken.newest, began_ms=time.time_ns() // 1_000_000)
    commit = CommitBatch(
        name=wanted.query_id,
        tables=(own,),
        kafka=around.reads.kafka,
        checkpoint=covered,
        log=around.log,
        limits=limits_of([wanted], around, looks=True),
        source_instant=covered.source_instant,
        report_bad=lambda _starts, _ends, left_out: _last_checks(own, left_out),
        replicas=around.replicas,
        pressure=around.pressure(),
        is_load=True,
    )
    try:
        commit(plan, covered.batch)
    except BatchFailed as failed:
        failure = own.counts.failure or failed
        # of a Kafka that has not answered, nobody knows whether it has the progress record
        if isinstance(failure, KafkaUnavailable):
            raise _unknown(str(failure)) from None
        if taken.newest is not None and not isinstance(failure, Fenced):
            _repair(own, around.log)
        raise failure from None
    written = own.janitor.newest  # the janitor does not run yet: it is the load's own
    assert written is not None
    _check_counted(written, around.log)
    _sweep(own, written.sinks)
    return LoadedBatch(
        lease_epoch=written.commit.lease_epoch,
        batch=written.commit.batch,
        committed_at_ms=written.committed_at_ms,
    )


def _last_checks(own: TableCommit, left_out: LeftOut) -> int:
    """Called before the commit. A stream goes on without rows that are too large; a load need not.
    Nobody watches its lease while it writes. Raises Fenced, ServeRefused."""
    own.check_lease()
    if not left_out.count:
        return 0
    most = max((each["bytes"] for each in left_out.samples), default=0)
    raise ServeRefused(
        f"{left_out.count} rows are larger than their topic accepts, the largest has {most} bytes",
        next_step="leave them out, or raise standpipe.pipeline.record.bytes.max and the topic's"
        " max.message.bytes",
    )


def _unknown(why: str) -> ServeEnded:
    """The end of a load of which nobody knows whether it is committed."""
    return ServeEnded("FAILED", f"{why}: its rows may be visible, or not; load again")


def _check_counted(written: Progress, log: ProgressLog) -> None:
    """Raises Fenced if another writer had taken over before the rows were committed, and ServeEnded
    if that cannot be told: Kafka does not answer, or this program was paused for long."""
    try:
        counted = has_counted(log.records_until(log.end() - 1), written)
    except KafkaUnavailable as error:
        raise _unknown(str(error)) from error
    if counted is None:
        raise _unknown(f"{log.topic} no longer has this load's record")
    if not counted:
        raise Fenced(f"another program took {written.query_id} over: no reader sees these rows")


def _repair(own: TableCommit, log: ProgressLog) -> None:
    """After a failure: let committed rows be the last records of their keys again. Never raises."""
    try:
        ends = log.end_offsets(own.table.topic, own.table.partitions)
    except StandpipeError as error:
        _logger.warning("the next program that writes it repairs it", why=str(error))
        return
    _sweep(own, ends)


def _sweep(own: TableCommit, ends: Mapping[int, int]) -> None:
    """Run the janitor until all below these ends is declared clean: a topic that nobody sweeps for
    a week can no longer be trusted (`data/replica/gaps.py`, obstacle 3). Never raises."""
    janitor = own.janitor
    clean = {} if janitor.newest is None else janitor.newest.clean_through
    records = sum(end - clean.get(partition, 0) for partition, end in ends.items())
    deadline = time.monotonic() + SWEEP_S_MAX + records / RECORDS_PER_S_MIN
    janitor.start()
    try:
        while time.monotonic() < deadline and janitor.failure is None:
            clean = {} if janitor.newest is None else janitor.newest.clean_through
            if all(clean.get(partition, 0) >= end for partition, end in ends.items()):
                return
            own.check_lease()
            time.sleep(POLL_S)
        why = str(janitor.failure or "no time is left")
    except Fenced as fenced:
        why = str(fenced)
    finally:
        janitor.stop()
    _logger.warning("the next program declares the topic clean", topic=own.table.topic, why=why)
