"""`Standpipe`: the cluster, as a program with a DataFrame sees it.

`serve` declares the table if it is new, waits for its lease, and starts Spark's query with the
commit protocol of the pipelines (`pipeline/run/start/query_run.py`). One lease, one program: a
second one waits in `serve` and takes over.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from pyspark.sql import DataFrame, SparkSession

from standpipe.adapters.files.private import read_secret
from standpipe.adapters.kafka.connection import KafkaConnection, connect_by
from standpipe.config import registry
from standpipe.errors import ConfigError
from standpipe.model import QueryStatus, Source, Window
from standpipe.pipeline.commit.fence_watch import FenceWatch
from standpipe.pipeline.commit.replica_wait import ReplicaWait
from standpipe.pipeline.io.checkpoint_path import CheckpointPath
from standpipe.pipeline.io.kafka_options import KafkaReads
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.pipeline.run.control_client import Follower
from standpipe.pipeline.run.start.query_run import PipelineContext, Stream, resume, start_stream
from standpipe.pipeline.run.start.running_query import QueryRun
from standpipe.pipeline.run.watch.source_probe import SourceProbe
from standpipe.pipeline.wanted import WantedQuery
from standpipe.spark import session_checks
from standpipe.spark.changes import changed_rows
from standpipe.spark.cluster import ClusterNodes, addresses
from standpipe.spark.complete import Differences
from standpipe.spark.declare import all_declared, declared
from standpipe.spark.errors import ServeRefused
from standpipe.spark.load import LoadedBatch, load_rows
from standpipe.spark.many import ManyOrder, Table, parts_of, start_many
from standpipe.spark.query import ServedQuery, Serving
from standpipe.spark.read import CommittedFrame, committed_frame, newest_batch, readable
from standpipe.spark.rows import RowRules, one_of_each_key, records
from standpipe.spark.schema import ServedTable, capitals, served_table, window_of
from standpipe.spark.standby import BUSY_S_MAX, await_leases, once_topics_are_there


@dataclass(frozen=True, kw_only=True)
class _Order:
    """What `serve` was asked for."""

    frame: DataFrame
    rules: RowRules
    checkpoint: CheckpointPath
    output_mode: str
    trigger: Mapping[str, Any] | None


class Standpipe:
    """A cluster of Standpipe. `nodes`: public addresses of some of its nodes, `host:port,…` or a
    list; `secret_file`: the file of the secret that its nodes share.

    `config`: settings of Kafka's clients, as a pipeline has them (docs/operations/kafka.md).
    `bootstrap_servers`: where this program reaches Kafka; None: where the nodes do.
    """

    def __init__(
        self,
        nodes: str | Iterable[str],
        secret_file: str | Path,
        *,
        config: Mapping[str, str] | None = None,
        bootstrap_servers: str | None = None,
    ) -> None:
        """Raises ServeRefused for addresses that are none, and ConfigError for a secret that others
        can read, or a setting that is unknown."""
        _log_by_default()
        self._secret = read_secret(Path(secret_file))
        self._nodes = ClusterNodes(addresses(nodes), self._secret)
        self._config = registry.load(registry.environment_layer(os.environ), dict(config or {}))
        for setting in self._config.passed_on:
            raise ConfigError(
                f"{setting} cannot be set here: the Spark session is the program's own",
                next_step="set it where the session is built",
            )
        self._bootstrap_servers = bootstrap_servers

    def serve(
        self,
        frame: DataFrame,
        *,
        table: str,
        key: Sequence[str],
        checkpoint: str | Path,
        output_mode: str = "update",
        deleted: str | None = None,
        deleted_if_null: bool = False,
        timestamp: str | None = None,
        window_size: str | None = None,
        retention: str | None = None,
        partitions: int | None = None,
        trigger: Mapping[str, Any] | None = None,
    ) -> ServedQuery:
        """Start a streaming DataFrame as a served table. Returns once it runs here; waits as long
        as another program holds the lease. Columns that the table does not have are added to it.

        `key`: its key columns. `checkpoint`: a directory that every program for this table reaches.
        `output_mode`: update, append, or complete, which deletes rows that are not in the result.
        `deleted`: a Boolean column; true deletes the row of that key. `deleted_if_null`: so does a
        row whose columns are all null, except those of the key. `timestamp`: the column that is the
        ROWTIME of a row; default: the time of its batch.
        `window_size`: the rows are those of windows of this size ("1 hour"), in the column `window`
        of Spark's function. `retention`: a window is dropped once the watermark is so long after
        its start; default: never.
        `partitions`: of a new table; default: 4. `trigger`: as of `DataStreamWriter.trigger`.

        Raises ServeRefused if it cannot be served as asked, and ServeEnded if it cannot go on.
        """
        rules = RowRules(deleted=deleted, deleted_if_null=deleted_if_null, timestamp=timestamp)
        session_checks.check_stream(frame, output_mode, retention)
        window = window_of(frame.schema, window_size, retention, is_append=output_mode == "append")
        asked = _asked(frame, rules, table=table, key=key, partitions=partitions, window=window)
        order = _Order(
            frame=frame,
            rules=rules,
            checkpoint=session_checks.checkpoint_path(checkpoint, frame.sparkSession),
            output_mode=output_mode,
            trigger=trigger,
        )
        where = self._kafka()
        there, spark = declared(asked, self._nodes), frame.sparkSession
        serving, around = self._leases([there], spark, order.checkpoint, where)
        return _begun(serving, around, lambda: _started(serving.members[0], order, around))

    def serve_many(
        self,
        source: DataFrame,
        tables: Mapping[str, Table],
        *,
        checkpoint: str | Path,
        output_mode: str = "update",
        trigger: Mapping[str, Any] | None = None,
    ) -> ServedQuery:
        """Start a streaming DataFrame as several tables, which one query writes: each batch of
        `source` is computed once, and committed to all of them. Returns and waits as `serve` does.

        `tables`: {name: Table(rows, key=[…])}. `rows` gets the rows of a batch, as `foreachBatch`
        has them, so an aggregate over all batches belongs to `source`. In output mode complete,
        where a batch is the whole result, rows that a function no longer makes are deleted.
        `checkpoint`, `output_mode`, `trigger`: as of `serve`. A table that is added later begins
        with the next batch.

        Raises ServeRefused if they cannot be served as asked, and ServeEnded if they cannot go on.
        """
        session_checks.check_stream(source, output_mode)
        order = ManyOrder(
            source=source,
            parts=parts_of(source, tables, output_mode),
            output_mode=output_mode,
            trigger=trigger,
        )
        place = session_checks.checkpoint_path(checkpoint, source.sparkSession)
        where = self._kafka()
        there = all_declared([part.asked for part in order.parts.values()], self._nodes)
        serving, around = self._leases(there, source.sparkSession, place, where)

        def is_there(query_id: str) -> bool:
            return query_id in serving.leases[-1].follower.catalog.queries

        return _begun(serving, around, lambda: start_many(serving.members, order, around, is_there))

    def load(
        self,
        frame: DataFrame,
        *,
        table: str,
        key: Sequence[str],
        deleted: str | None = None,
        deleted_if_null: bool = False,
        timestamp: str | None = None,
        window_size: str | None = None,
        retention: str | None = None,
        partitions: int | None = None,
        wait: bool = False,
    ) -> LoadedBatch:
        """Write the rows of a batch DataFrame to a table, all in one commit: readers see none of
        them, or all. Rows of other keys stay. Returns once they are committed.

        `deleted`, `deleted_if_null`, `timestamp`, `window_size`, `retention`, `partitions`: as of
        `serve`. Of two rows of a key the one with the later `timestamp` counts. `wait`: for as long
        as another program writes the table; otherwise that is refused.

        Raises ServeRefused if it cannot be loaded as asked, and ServeEnded if it has failed: then
        nothing is visible, and it can be loaded again.
        """
        rules = RowRules(deleted=deleted, deleted_if_null=deleted_if_null, timestamp=timestamp)
        session_checks.check_batch(frame)
        window = window_of(frame.schema, window_size, retention)
        asked = _asked(frame, rules, table=table, key=key, partitions=partitions, window=window)
        where, there = self._kafka(), declared(asked, self._nodes)
        busy_s_max = None if wait else BUSY_S_MAX
        # no checkpoint: Spark runs no streaming query
        serving, around = self._leases([there], frame.sparkSession, Path(), where, busy_s_max)
        wanted = serving.members[0]
        with _giving_back(serving):
            plan = one_of_each_key(records(frame, there, rules))
            loaded = once_topics_are_there(wanted, around, lambda: load_rows(plan, wanted, around))
        serving.abandon()
        return loaded

    def read(self, table: str, spark: SparkSession | None = None) -> CommittedFrame:
        """The rows of a table's newest committed batch, as a batch DataFrame. `table`: of any
        query, not only of an application. `spark`: where it is used; None: the active session.

        An action on it may begin within 25 minutes; `persist` it to use it for longer.

        Raises ServeRefused if the table cannot be read, and KafkaUnavailable. An action fails once
        it is too late, and if the topic no longer tells a row.
        """
        session = session_checks.session_to_read(spark, session_checks.READ_INSTEAD)
        now_ms = time.time_ns() // 1_000_000
        source, log, reads = self._to_read(table)
        return committed_frame(session, newest_batch(source, log, now_ms), reads)

    def read_stream(
        self, table: str, spark: SparkSession | None = None, *, deleted: str = "_deleted"
    ) -> DataFrame:
        """The committed changes of a table as a streaming DataFrame, from the first one that its
        topic has: each record of each batch once. `table`, `spark`: as of `read`. `deleted`: the
        name of a Boolean column; where it is true, the row of that key was deleted, and all other
        columns are null.

        For one query: call it again for another, and to start one again.

        Raises ServeRefused if the table cannot be read, and KafkaUnavailable.
        """
        session = session_checks.session_to_read(spark)
        source, log, reads = self._to_read(table)
        return changed_rows(session, source, log, reads, deleted)

    def _to_read(self, table: str) -> tuple[Source, ProgressLog, KafkaReads]:
        """A table, and how its topics are read. Raises ServeRefused."""
        kafka, service_id = self._kafka()
        source = readable(self._nodes.catalog(), capitals(table))
        log = ProgressLog(kafka, service_id, self._secret)
        return source, log, KafkaReads(kafka=kafka, config=self._config)

    def _kafka(self) -> tuple[KafkaConnection, str]:
        """How to reach the cluster's Kafka, and its service id. Raises ServeRefused."""
        description = self._nodes.describe()
        if not description.service_id:
            raise ServeRefused(
                "the cluster runs a release without external tables",
                next_step="upgrade its nodes, then `standpipe quorum upgrade`",
            )
        servers = self._bootstrap_servers or description.bootstrap_servers
        return connect_by(self._config, servers, os.environ), description.service_id

    def _leases(
        self,
        tables: Sequence[Source],
        spark: SparkSession,
        checkpoint: CheckpointPath,
        where: tuple[KafkaConnection, str],
        busy_s_max: float | None = None,
    ) -> tuple[Serving, PipelineContext]:
        """Wait for the leases of these tables, for `busy_s_max` at most. Raises ServeRefused,
        ServeEnded. `where`: from `_kafka`."""
        kafka, service_id = where
        serving: Serving | None = None
        reads = KafkaReads(kafka=kafka, config=self._config)
        replicas = ReplicaWait(reads.lag_bound) if reads.lag_bound.is_set else None
        log = ProgressLog(kafka, service_id, self._secret)

        def statuses_of(query_id: str) -> list[QueryStatus]:
            return serving.statuses(query_id) if serving else []

        def follower_of(table: Source) -> Follower:
            return Follower(
                self._nodes.internal(),
                self._secret,
                partial(statuses_of, str(table.query_id)),
                str(table.query_id),
                is_external=True,
                replicas=replicas if table is tables[0] else None,
            )

        held = await_leases(tables, follower_of, busy_s_max)
        serving = Serving(held, FenceWatch(kafka, log))
        around = PipelineContext(
            spark=spark,
            reads=reads,
            replicas=replicas,
            log=log,
            probe=SourceProbe(log=log),  # it follows nothing: their source lag is not known
            service_id=service_id,
            checkpoints=checkpoint,
            check_lease=serving.check_lease,
        )
        return serving, around


def _asked(
    frame: DataFrame,
    rules: RowRules,
    *,
    table: str,
    key: Sequence[str],
    partitions: int | None,
    window: Window | None,
) -> ServedTable:
    """The table of a DataFrame. Raises ServeRefused."""
    rules.check(frame.schema)
    return served_table(
        frame.schema,
        table=table,
        key=key,
        left_out=[rules.deleted] if rules.deleted else [],
        partitions=partitions,
        window=window,
    )


@contextmanager
def _giving_back(serving: Serving) -> Generator[None]:
    """If what is done under the lease fails, give it back. Raises ServeRefused, ServeEnded."""
    try:
        yield
    except ServeRefused:
        serving.abandon()
        raise
    except Exception as error:
        raise serving.fail(error) from error
    except BaseException:  # Ctrl-C in a notebook: its process goes on
        serving.abandon()
        raise


def _begun(serving: Serving, around: PipelineContext, start: Callable[[], QueryRun]) -> ServedQuery:
    """Start the query, and watch it. Raises ServeRefused, ServeEnded."""
    with _giving_back(serving):
        run = once_topics_are_there(serving.members[0], around, start)
    serving.fences.start()
    serving.begin(run)
    return ServedQuery(run, serving)


def _started(wanted: WantedQuery, order: _Order, around: PipelineContext) -> QueryRun:
    """Take the query over, and start it. Raises NotYet."""
    taken, checkpoint = resume(wanted, around)
    plan = records(order.frame, wanted.table, order.rules)
    is_whole = order.output_mode == "complete"
    differences = Differences(table=wanted.table, log=around.log, reads=around.reads)
    stream = Stream(
        plan=plan,
        output_mode=order.output_mode,
        finish=differences if is_whole else None,
        trigger=order.trigger,
    )
    return start_stream(taken, checkpoint, stream, around)


def _log_by_default() -> None:
    """What happens goes to Python's `logging`, unless the program has set up structlog itself."""
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
