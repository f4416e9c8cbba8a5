"""Warms up an idle pipeline: it runs batches of other pipelines' queries, without output.

A JVM that has not run a query yet needs about ten times as long for the first batch as for the
hundredth: it loads classes, compiles plans and generated code. A pipeline should have done that
before it takes over. A rehearsal reads a few records of the same topics with the same plan, and
keeps its state in a temporary folder; nothing is written to Kafka.

Not here: the real run (`query_run.start_query`).
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog
from pyspark.sql import DataFrame

from standpipe.config.keys import BATCH_OFFSETS_MAX
from standpipe.pipeline.commit.batch_marks import LINGER_S
from standpipe.pipeline.commit.blame import Blame
from standpipe.pipeline.io.checkpoint_path import spark_path
from standpipe.pipeline.io.committed_source import ended_unless_started
from standpipe.pipeline.run.session import query_session
from standpipe.pipeline.run.start.query_run import PipelineContext, finisher, planned
from standpipe.pipeline.wanted import WantedQuery

RECORDS_MAX: Final = 500
#: How many different queries to rehearse: further ones profit from those before.
QUERIES_MAX: Final = 4
BATCHES: Final = 2
BATCH_S_MAX: Final = 60.0

_logger = structlog.get_logger("rehearsal")


class Rehearsals:
    """Rehearses each query that this pipeline may take over, once, while it is idle. New work ends
    a rehearsal."""

    def __init__(self, around: PipelineContext) -> None:
        self._around = around
        self._done: set[str] = set()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def stop(self) -> None:
        """End the rehearsal, because there is work."""
        self._over.set()

    def tend(self, others: Sequence[WantedQuery]) -> None:
        """The driver's loop calls this a few times a second while it is idle; never waits."""
        new = [
            wanted
            for wanted in others
            if wanted.query_id not in self._done
            and self._around.marks.blame(_mark(wanted), wanted.query.revision) is Blame.CLEAR
        ]
        if not new or len(self._done) >= QUERIES_MAX or (self._thread and self._thread.is_alive()):
            return
        self._done.add(new[0].query_id)
        self._over.clear()
        work = (new[0], self._around, self._over)
        self._thread = threading.Thread(target=rehearse, args=work, name="rehearse", daemon=True)
        self._thread.start()


def rehearse(wanted: WantedQuery, around: PipelineContext, is_over: threading.Event) -> None:
    """Run a batch or two of a query; ends early once `is_over` is set.

    A failed rehearsal does no harm: the reason is logged. One that ends this driver is not
    repeated, but is not held against the query, which may be running well elsewhere.
    """
    marks, mark = around.marks, _mark(wanted)
    if not marks.begin(mark, wanted.query.revision, is_over.is_set):
        return
    folder = Path(tempfile.mkdtemp(prefix="rehearsal-"))
    try:
        _run(wanted, _with_few_records(around), folder, is_over)
        _logger.info("rehearsed", query_id=wanted.query_id)
    except Exception as error:
        _logger.info("no rehearsal", query_id=wanted.query_id, why=str(error)[:500])
        is_over.wait(LINGER_S)
    finally:
        marks.end(mark)
        shutil.rmtree(folder, ignore_errors=True)


def _mark(wanted: WantedQuery) -> str:
    """What stands for a rehearsal of the query where batches are marked."""
    return f"rehearsal of {wanted.query_id}"


def _run(
    wanted: WantedQuery, around: PipelineContext, folder: Path, is_over: threading.Event
) -> None:
    batches = threading.Semaphore(0)
    finish = finisher(wanted)

    def to_nowhere(rows: DataFrame, _batch: int) -> None:
        (finish(rows, 0) if finish else rows).write.format("noop").mode("append").save()
        batches.release()

    around.spark.sparkContext.setLocalProperty("spark.scheduler.pool", "rehearsal")
    session = query_session(around.spark, wanted.query)
    with ended_unless_started() as feeds:
        running = (
            planned(session, wanted, around, folder, feeds)
            .writeStream.outputMode(wanted.query.plan.output_mode)
            .option("checkpointLocation", spark_path(folder))
            .foreachBatch(to_nowhere)
            .start()
        )
    try:
        for _ in range(BATCHES):
            waited_s = 0.0
            while not batches.acquire(timeout=0.2):
                waited_s += 0.2
                if is_over.is_set() or waited_s > BATCH_S_MAX or not running.isActive:
                    return
    finally:
        running.stop()


def _with_few_records(around: PipelineContext) -> PipelineContext:
    values = {**around.reads.config.values, BATCH_OFFSETS_MAX.name: RECORDS_MAX}
    config = dataclasses.replace(around.reads.config, values=values)
    return dataclasses.replace(around, reads=dataclasses.replace(around.reads, config=config))
