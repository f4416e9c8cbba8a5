"""The pipeline process: runs the catalog's persistent queries as Spark streaming queries.

    python -m standpipe.pipeline.run.driver --nodes HOST:PORT[,…] --bootstrap-servers …
        --checkpoints DIR --secret-file F [--notes DIR] [--master local[*]] [--isolate NAME]
        [--config k=v …]

Start: Spark → registration → queries. Then, a few times a second, it checks that the JVM is alive
and that it runs the queries that the catalog assigns to it. Several pipelines share the queries and
take over from each other; their checkpoints must be on storage that all can reach. Ends on SIGTERM
or Ctrl-C (status 0, within 10 s; 3 if a query has a foreign fence), when the queries that it
isolates are given back to the shared pipelines (0), on failures (1), and, in a cluster below the
feature level of leases, when a newer pipeline has started (3).
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import structlog

from standpipe.adapters.files.private import keep_private, read_secret
from standpipe.adapters.kafka.connection import KafkaConnection, connect_by
from standpipe.adapters.schema_registry import RegistryConnection, SchemaRegistry, registry_by
from standpipe.config import keys, registry
from standpipe.control.metadata import feature_levels
from standpipe.errors import StandpipeError
from standpipe.model import LeaseEpoch, QueryStatus
from standpipe.pipeline.commit.batch_marks import BatchMarks
from standpipe.pipeline.commit.checkpoint_cleanup import CheckpointCleanup
from standpipe.pipeline.commit.fence_watch import FenceWatch, foreign_fence, is_foreign
from standpipe.pipeline.commit.replica_wait import ReplicaWait
from standpipe.pipeline.commit.transient_cleanup import TransientCleanup
from standpipe.pipeline.failures import Fenced
from standpipe.pipeline.io.arrivals import Arrivals
from standpipe.pipeline.io.checkpoint_path import check_place, open_checkpoints, scheme_of
from standpipe.pipeline.io.kafka_options import KafkaReads
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.pipeline.run import session
from standpipe.pipeline.run.control_client import Follower
from standpipe.pipeline.run.group.groups import Groups
from standpipe.pipeline.run.reconcile import (
    PipelineRegistration,
    StartRun,
    diff,
    every_query,
    lease_epoch_of,
    wanted_queries,
)
from standpipe.pipeline.run.scheduler import Queries
from standpipe.pipeline.run.scratch import scratch_folder
from standpipe.pipeline.run.start.query_run import PipelineContext
from standpipe.pipeline.run.stopping import EXIT_FAILED, stop_limit, stop_on_signals
from standpipe.pipeline.run.warm_standby import Rehearsals
from standpipe.pipeline.run.watch.source_probe import SourceProbe
from standpipe.pipeline.run.watch.trigger_clocks import TriggerClocks

TICK_S = 0.1
#: for how long a driver that fails waits whether its JVM has died, which would be why
JVM_END_S_MAX = 2.0

EXIT_OK, EXIT_FENCED = 0, 3

_log = structlog.get_logger("pipeline")


@dataclass(frozen=True, kw_only=True)
class PipelineOptions:
    """The options of a pipeline. `local/cluster/jvm.py` finds the last three."""

    nodes: tuple[str, ...]  # internal addresses
    kafka: KafkaConnection
    #: a directory, or a path in one of Hadoop's file systems (`io/checkpoint_path.py`)
    checkpoints: str
    secret_file: Path
    #: where drivers note what outlives them; None: beside checkpoints in a file system of this host
    notes: Path | None = None
    master: str = "local[*]"
    #: the isolated name whose queries it runs; empty: all queries that are not isolated
    isolate: str = ""
    config: registry.Config = field(default_factory=registry.Config)
    #: None: there is none
    schema_registry: RegistryConnection | None = None
    jars: tuple[Path, ...] = ()
    java_home: Path | None = None
    java_options: tuple[str, ...] = ()

    def reads(self) -> KafkaReads:
        """How topics are read. Each batch asks for an unknown schema: it may be there by then."""
        schemas = SchemaRegistry(at, unknown_s=0.0) if (at := self.schema_registry) else None
        return KafkaReads(kafka=self.kafka, config=self.config, schemas=schemas)


@dataclass(frozen=True)
class Control:
    """What tells the pipeline which queries are its own."""

    follower: Follower
    me: PipelineRegistration
    fences: FenceWatch


def run(options: PipelineOptions) -> int:
    """Run until a signal, a fence or a failure; returns the exit status. For the main thread.

    Raises SetupError when it cannot start.
    """
    keep_private()
    check_place(options.checkpoints)
    asked_to_stop = stop_on_signals()
    secret = read_secret(options.secret_file)
    with scratch_folder() as scratch:
        tempfile.tempdir = str(scratch)  # for rehearsals, and files that PySpark passes to its JVM
        return _run(options, secret, asked_to_stop, scratch)


def _run(
    options: PipelineOptions, secret: str, asked_to_stop: threading.Event, scratch: Path
) -> int:
    queries: Queries | None = None
    pipeline_id = _pipeline_id()
    marks = BatchMarks()

    def statuses() -> list[QueryStatus]:
        said = queries.statuses() if queries is not None else []
        return [msgspec.structs.replace(one, pipeline_id=pipeline_id) for one in said]

    reads = options.reads()
    replicas = ReplicaWait(reads.lag_bound) if reads.lag_bound.is_set else None
    follower = Follower(options.nodes, secret, statuses, options.isolate, replicas=replicas)
    follower.start()
    spark = session.open_session(
        options.config,
        master=options.master,
        jars=options.jars,
        java_home=options.java_home,
        java_options=options.java_options,
        scratch=scratch,
        is_local=not scheme_of(options.checkpoints),
    )
    try:
        checkpoints = open_checkpoints(options.checkpoints, spark)
        if (me := follower.register(pipeline_id, is_over=asked_to_stop.is_set)) is None:
            return EXIT_OK
        _log.info("registered", pipeline_id=me.pipeline_id, log_index=me.log_index)
        service_id = options.config[keys.SERVICE_ID]
        marks.start(options.notes or checkpoints, service_id, pipeline_id)
        log = ProgressLog(options.kafka, service_id, secret)
        fences, clocks = FenceWatch(options.kafka, log), TriggerClocks(spark)
        probe = SourceProbe(log=log, arrivals=Arrivals(options.kafka), wake=clocks.wake)
        queries = Queries(
            marks=marks,
            asleep=clocks.asleep,
            around=PipelineContext(
                spark=spark,
                reads=reads,
                log=log,
                probe=probe,
                clocks=clocks,
                service_id=service_id,
                checkpoints=checkpoints,
                replicas=replicas,
                marks=marks,
                groups=Groups(
                    checkpoints,
                    service_id,
                    forms=options.config[keys.QUERY_GROUPS],
                    lease_timeout_s=options.config[keys.LEASE_TIMEOUT] / 1000,
                ),
                check_lease=functools.partial(_check_lease, follower, me),
            ),
        )
        crashed = _listen_for_crashes()
        fences.start()
        status = _keep_equal(queries, Control(follower, me, fences), asked_to_stop, crashed)
        fences.stop()
        probe.stop()
        return status
    finally:
        # calls into a JVM fail before it has quite ended
        if asked_to_stop.is_set() or not session.jvm_ends_within(JVM_END_S_MAX):
            marks.close()
        else:
            marks.lost_jvm()
        _end(queries, follower)


def _keep_equal(
    queries: Queries, control: Control, asked_to_stop: threading.Event, crashed: threading.Event
) -> int:
    """Keep the queries equal to the catalog's until the process must end; returns its status."""
    follower, me = control.follower, control.me
    rehearsals = Rehearsals(queries.around)
    around, context = queries.around, session.java_context(queries.around.spark)
    cleanup = CheckpointCleanup(around.checkpoints, around.service_id)
    transients = TransientCleanup(around.checkpoints, around.service_id, around.log)
    while not asked_to_stop.wait(TICK_S):
        follower.beat()
        if not session.jvm_is_alive():
            _log.error("Spark's JVM has exited; exiting too")
            return EXIT_FAILED
        if session.is_stopped(context):
            _log.error("Spark has stopped; exiting, to be restarted")
            return EXIT_FAILED
        if crashed.is_set():
            _log.error("exiting, to be restarted", why="a thread has failed")
            return EXIT_FAILED
        catalog = follower.catalog
        if (
            catalog.feature_level < feature_levels.LEASES
            and catalog.pipeline_epoch > me.lease_epoch
        ):
            _log.error("fenced", ours=me.lease_epoch, of_a_newer_pipeline=catalog.pipeline_epoch)
            return EXIT_FENCED
        if catalog.index >= me.log_index:  # an older one does not include our registration
            if me.is_over(catalog):
                _log.info("exiting: the shared pipelines run its queries", isolated=me.isolates)
                return EXIT_OK
            wanted = wanted_queries(catalog, me)
            queries.try_again(follower.take_ended(), catalog.index)
            groups = queries.around.groups
            assert groups is not None
            may_form = catalog.feature_level >= feature_levels.GROUPS
            runs = groups.arrange(wanted, catalog.sources, time.monotonic(), may_form=may_form)
            orders = diff(runs, queries.known_runs())
            if any(isinstance(order, StartRun) for order in orders):
                queries.marks.count_deaths()  # the query may be that of a driver that died
            for order in orders:
                queries.carry_out(order)
            if wanted:
                rehearsals.stop()
            else:
                lasting = [q for q in every_query(catalog, me.isolates) if not q.query.served_by]
                rehearsals.tend(lasting)
            if groups.is_known:  # else those of groups would count as nobody's
                cleanup.tend(catalog.queries.keys() | groups.group_ids(catalog.queries))
            transients.tend(catalog, queries.run_ids())
            _notice_foreign_fences(queries, control)
        queries.tend()
        if queries.wedged:
            _log.error("exiting, to be restarted", why=queries.wedged)
            return EXIT_FAILED
    return EXIT_FENCED if "FOREIGN_FENCE" in queries.failures().values() else EXIT_OK


def _notice_foreign_fences(queries: Queries, control: Control) -> None:
    follower, me, failed = control.follower, control.me, queries.failures()
    for query_id, wanted in queries.known().items():
        seen, ours = control.fences.newest(query_id), wanted.lease_epoch
        confirmed = follower.confirmed  # before the catalog: it must include what was confirmed
        catalog = follower.catalog
        granted = lease_epoch_of(query_id, catalog, me)
        if query_id not in failed and is_foreign(
            seen, ours, granted, confirmed=confirmed, catalog_index=catalog.index
        ):
            assert seen is not None
            how = wanted.resolution("FOREIGN_FENCE")
            queries.fail(query_id, foreign_fence(seen, ours, resolution=how))


def _check_lease(
    follower: Follower, me: PipelineRegistration, query_id: str, lease_epoch: LeaseEpoch
) -> None:
    """Raises Fenced if the log has granted the query's lease again, to any pipeline."""
    newest = lease_epoch_of(query_id, follower.catalog, me)
    if newest != lease_epoch:
        now = "another pipeline's" if newest is None else f"ours under lease epoch {newest}"
        raise Fenced(f"{query_id} is {now}, no longer ours under lease epoch {lease_epoch}")


def _end(queries: Queries | None, follower: Follower) -> None:
    """Stop the queries, tell the nodes, end the JVM. Never takes longer than STOP_S_MAX."""
    limit = stop_limit()
    if queries is not None and session.jvm_is_alive():
        # batches are aborted now; their stack traces are only noise
        queries.around.spark.sparkContext.setLogLevel("OFF")
        queries.stop_all()
    follower.close()
    session.kill_jvm()
    limit.cancel()


def _listen_for_crashes() -> threading.Event:
    """Set once an exception has ended a thread. By default, Python would only print it, and what
    the thread did would never be done again."""
    crashed = threading.Event()

    def note(failed: threading.ExceptHookArgs) -> None:
        name = failed.thread.name if failed.thread else ""
        _log.error("a thread has failed", thread=name, exc_info=failed.exc_value)
        crashed.set()

    threading.excepthook = note
    return crashed


def _pipeline_id() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


# --------------------------------------------------------- python -m standpipe.pipeline.run.driver


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and run. Setup errors are printed without a traceback."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        return run(_parse(arguments))
    except StandpipeError as error:
        print(error, file=sys.stderr, flush=True)
        return EXIT_FAILED


def _parse(arguments: Sequence[str] | None) -> PipelineOptions:
    parser = argparse.ArgumentParser(prog="python -m standpipe.pipeline.run.driver")
    parser.add_argument("--nodes", required=True, help="internal addresses, comma-separated")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--checkpoints", required=True)
    parser.add_argument("--notes", type=Path)
    parser.add_argument("--secret-file", required=True, type=Path)
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--isolate", default="", metavar="NAME", help="an isolated name")
    parser.add_argument("--config", action="append", default=[], metavar="KEY=VALUE")
    told = parser.parse_args(arguments)
    given: dict[str, str] = dict(pair.split("=", 1) for pair in told.config)
    config = registry.load(registry.environment_layer(os.environ), given)
    kafka = connect_by(config, told.bootstrap_servers, os.environ)
    schema_registry = registry_by(config, os.environ)
    for variable in registry.secret_variables():  # no child needs them
        os.environ.pop(variable, None)
    found = _find_jvm()
    return PipelineOptions(
        nodes=tuple(told.nodes.split(",")),
        kafka=kafka,
        checkpoints=told.checkpoints,
        notes=told.notes,
        secret_file=told.secret_file,
        master=told.master,
        isolate=told.isolate,
        config=config,
        schema_registry=schema_registry,
        jars=tuple(map(Path, found["jars"])),
        java_home=Path(found["java_home"]),
        java_options=tuple(found["java_options"]),
    )


def _find_jvm() -> Mapping[str, Any]:
    """Run `local/cluster/jvm.py` as a process: `local` is a layer above, so we cannot import it."""
    command = [sys.executable, "-m", "standpipe.local.cluster.jvm"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if ran.returncode != 0:
        raise SystemExit(ran.returncode)  # it has printed why on stderr
    found: Mapping[str, Any] = json.loads(ran.stdout)
    return found


if __name__ == "__main__":
    raise SystemExit(main())
