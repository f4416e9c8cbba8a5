"""The controller process: the node's replica of the metadata quorum, and what runs beside it.

    POST /execute ─► Writer ─► the leader: judge ─► propose ─► applied
                                                                  │
    peers ─ wire ─► Quorum ─ apply ─► CatalogReplica ─┬─► run/snapshot ─► workers, tailer
                                                      └─► GET /log ─► pipelines

Startup order: the data directory's identity, how its replica begins (`node.controller.bootstrap`),
the replica (`node.controller.raft_driver`), its catalog (`node.controller.catalog_replica`), the
writes (`node.controller.leader_proxy`, `node.controller.leader`), the routes that read.

A `ControllerTask` is anything else in this process that has its own routes and task and reads the
catalog, such as heartbeats and lags (`node.liveness.loop`).

Not here: decisions. They are pure: `control.raft.core`, `control.ddl.propose`,
`control.metadata.apply`, `control.metadata.topic_reconciler`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol

import msgspec
import structlog

from standpipe.adapters import crash_only
from standpipe.adapters.clock import Clock, steadily
from standpipe.adapters.http import internal
from standpipe.adapters.http.connections import PortLimits
from standpipe.adapters.http.internal import (
    Call,
    Handler,
    HttpClient,
    InternalApp,
    Reply,
    json_reply,
)
from standpipe.adapters.http.protocol_switch import Proving, RejectedPeer
from standpipe.adapters.kafka.admin import TopicKeeper, TopicPolicy
from standpipe.adapters.metrics import Metrics
from standpipe.adapters.process import die_with_parent, raise_file_limit
from standpipe.adapters.raft import wire as quorum_wire
from standpipe.adapters.raft.disk import QuorumDisk
from standpipe.adapters.raft.wire import QuorumWire
from standpipe.adapters.schema_registry import SchemaRegistry
from standpipe.config import keys
from standpipe.config.liveness import reports_settle_ms
from standpipe.config.statements import PLACEMENT_TIMEOUT
from standpipe.control.ddl.limits import StatementLimits
from standpipe.control.raft.majority import Incarnation, ReplicaKey
from standpipe.control.raft.timeouts import RaftSettings
from standpipe.errors import LogUnavailable, StandpipeError
from standpipe.model import NodeId
from standpipe.node import configuration
from standpipe.node.configuration import NodeConfig
from standpipe.node.controller import assignment_routes, bootstrap, log_routes, quorum_routes
from standpipe.node.controller.catalog_replica import CatalogReplica
from standpipe.node.controller.digest_check import Verification
from standpipe.node.controller.feature_probe import FeatureProbe
from standpipe.node.controller.fsync_watch import SyncWatch
from standpipe.node.controller.leader import Leading
from standpipe.node.controller.leader_proxy import FORWARD_MS, Writer
from standpipe.node.controller.leader_reads import LeaderReads
from standpipe.node.controller.leases import Leasing
from standpipe.node.controller.member_checks import NodeRegistration
from standpipe.node.controller.planner import Placing, limits_of
from standpipe.node.controller.raft_driver import ProposalRefused, Quorum
from standpipe.node.controller.voters import VoterName
from standpipe.node.liveness import replica_routes
from standpipe.node.liveness.first_answer import FirstAnswer
from standpipe.node.liveness.loop import LivenessLoop
from standpipe.node.store_transfer.donor import StoreCopies

RETRY_S: Final = 0.2
#: An assignment is one entry, 80 bytes a partition: 100,000 of them. Below FRAME_BYTES_MAX.
ENTRY_BYTES_MAX: Final = 8 << 20
GRACE_S: Final = 0.7  # for requests in flight at the end
HAND_OVER_S: Final = 0.7  # for another leader, if this node led
SAVE_METRICS_MS: Final = 1000

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

Routes = Mapping[tuple[str, str], Handler]


@dataclass(frozen=True)
class ControllerBase:
    """What the tasks of the controller share."""

    config: NodeConfig
    copy: CatalogReplica
    quorum: Quorum
    client: HttpClient


class ControllerTask(Protocol):
    """Something that runs in the controller beside the log."""

    def routes(self) -> Routes:
        """Its routes on the internal listener."""
        ...

    async def run(self) -> NoReturn:
        """Its work, until it is cancelled. An error ends the process."""
        ...


def copies_of(base: ControllerBase) -> ControllerTask:
    """Gives copies of stores to peers."""
    return StoreCopies(base.config.paths)


def verification_of(base: ControllerBase) -> ControllerTask:
    """Compares the digests of replicas."""
    every_ms = base.config.settings()[keys.DIGEST_INTERVAL]
    return Verification(base.config, base.copy, base.client, every_ms=every_ms)


#: Beside heartbeats and lags. Each is made once per process, after the replica has been opened.
TASKS: Final[Sequence[Callable[[ControllerBase], ControllerTask]]] = (copies_of, verification_of)


class InternalRoutes:
    """The internal listener's routes and its second protocol; they grow while a node starts."""

    def __init__(self) -> None:
        self.routes: dict[tuple[str, str], Handler] = {}
        self.wire: QuorumWire | None = None  # set once all routes are there

    def accept(self) -> Proving:
        """The protocol of a peer's connection; one before the replica runs is rejected."""
        return self.wire.accept() if self.wire else RejectedPeer()

    async def fallback(self, call: Call) -> Reply:
        """Answers a request without a route. Until the node has started, that is 503, not 404: any
        route may exist in a moment. Raises LogUnavailable."""
        if self.wire is not None:
            return await internal.no_route(call)
        raise LogUnavailable("this node has not opened its log yet: it waits for the other voters")


# ------------------------------------------------------------------------------ background tasks


async def show_when_whole(base: ControllerBase) -> None:
    """Publish run/snapshot once this replica has every acknowledged command."""
    base.copy.show(is_whole=False)
    while True:
        try:
            await base.quorum.read()
        except ProposalRefused:
            await asyncio.sleep(RETRY_S)
            continue
        base.copy.show(is_whole=True)
        return


async def register(base: ControllerBase, writer: Writer) -> None:
    """Make this node a member under its current addresses, then a voter if node.json says so.

    Retries until the leader has accepted it.
    """
    node = configuration.member(base.config, base.copy.identity)
    rules = configuration.placement_rules(base.config.settings())
    body = msgspec.json.encode(NodeRegistration.of(node, rules))
    await writer.until_accepted(Call("/register", {}, body, peer=node.node_id))
    if base.config.node_id not in base.config.founders:
        return
    if base.quorum.me not in base.quorum.voters and not base.copy.identity.has_voted:
        me = VoterName(base.quorum.me.node, base.quorum.me.incarnation)
        body = msgspec.json.encode(me)
        await writer.until_accepted(Call("/quorum/add-voter", {}, body, peer=me.node_id))
    base.copy.identity = configuration.note_vote(base.config, base.copy.identity)


# --------------------------------------------------------------------------------- the process


async def run(
    config: NodeConfig, tasks: Sequence[Callable[[ControllerBase], ControllerTask]] = TASKS
) -> None:
    """Serve until SIGTERM. Raises StandpipeError if the process must not continue."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    crash_only.end_with_tasks(loop)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    values, identity, internal_routes = config.settings(), config.identity(), InternalRoutes()
    client = HttpClient(identity, timeout_ms=FORWARD_MS)
    body_max, fallback = values[keys.BODY_MAX], internal_routes.fallback
    app = InternalApp(internal_routes.routes, body_bytes_max=body_max, otherwise=fallback)
    bound = internal.bind_alone(config.internal)
    metrics = Metrics("control", config.paths.run)
    quorum_protocol = (quorum_wire.MAGIC, internal_routes.accept)
    try:
        async with asyncio.TaskGroup() as group:
            living = group.create_task(live(config, internal_routes, client, tasks))
            saving = group.create_task(steadily(SAVE_METRICS_MS, metrics.save, "metrics"))
            await internal.serve(
                bound,
                app,
                stop,
                GRACE_S,
                identity=identity,
                other=quorum_protocol,
                limits=PortLimits.of(values),
                ended=metrics.connection_ended,
            )
            living.cancel()
            saving.cancel()
    except BaseExceptionGroup as failed:
        raise named(failed) from None
    finally:
        await client.close()


def named(failed: BaseExceptionGroup[BaseException]) -> BaseException:
    """The StandpipeError of a group of tasks, which its process reports; the group if there are
    others. With `except*`, Python 3.11.2 (Debian 12) wraps what is raised in another group."""
    ours, others = failed.split(StandpipeError)
    if ours is None or others is not None:
        return failed
    first: BaseException = ours
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


async def live(
    config: NodeConfig,
    internal_routes: InternalRoutes,
    client: HttpClient,
    tasks: Sequence[Callable[[ControllerBase], ControllerTask]],
) -> None:
    """Open the replica, add its routes, run the background tasks; hand over and close at the end.

    Ends by cancellation. Raises StandpipeError if the process must not continue.
    """
    base, wire = await open_replica(config, internal_routes, client)
    configuration.check_tags(config)
    incarnation = base.copy.identity.incarnation
    first_answer = FirstAnswer(config)
    liveness = LivenessLoop(
        config,
        incarnation,
        lambda: base.copy.catalog,
        leader=lambda: base.copy.leader,
        serves=lambda: first_answer.has_come,
    )
    values = config.settings()
    settle_s = reports_settle_ms(values) / 1000
    placing = Placing(liveness, limits_of(values), time.monotonic, settle_s)
    rules = configuration.placement_rules(values)
    addresses = addresses_by(base.copy)
    probe = FeatureProbe(base.copy, client, addresses)
    leading = Leading(
        base.copy,
        base.quorum,
        lambda: topics_of(config),
        placing,
        rules,
        probe=probe,
        leasing=Leasing(values[keys.LEASE_TIMEOUT]),
        limits=StatementLimits.of(values, config.service_id),
        placement_s=values[PLACEMENT_TIMEOUT] / 1000,
        schemas=_schemas_of(config),
    )
    writer = Writer(base.copy, base.quorum, leading, client, addresses)
    leader_reads = LeaderReads(base.quorum, client, addresses)
    made: list[ControllerTask] = [liveness, *(make(base) for make in tasks)]
    try:
        base.quorum.start()
        for routes in (
            writer.routes(),
            log_routes.routes_of(base.copy),
            replica_routes.routes_of(config, lambda: base.copy.catalog),
            quorum_routes.routes_of(base.copy, base.quorum, leader_reads, probe),
            assignment_routes.routes_of(base.copy, base.quorum, placing, leader_reads),
            *(task.routes() for task in made),
        ):
            internal_routes.routes.update(routes)
        internal_routes.wire = wire
        _log.info("control serves", log_index=base.copy.catalog.index)
        async with asyncio.TaskGroup() as group:
            background: list[Coroutine[Any, Any, None]] = [
                base.quorum.run(),
                base.copy.keep_published(),
                leading.run(),
                show_when_whole(base),
                register(base, writer),
                first_answer.run(),
                *(task.run() for task in made),
            ]
            for task in background:
                group.create_task(task)
    except BaseExceptionGroup as failed:
        raise named(failed) from None
    finally:
        await base.quorum.stop(HAND_OVER_S)


async def open_replica(
    config: NodeConfig, internal_routes: InternalRoutes, client: HttpClient
) -> tuple[ControllerBase, QuorumWire]:
    """The node's replica, its catalog and its connections; nothing runs yet."""
    identity = configuration.claim(config)
    running: list[Quorum] = []

    async def knowledge(_: Call) -> Reply:
        has_quorum = any(quorum.end > 0 for quorum in running)
        return json_reply(bootstrap.knowledge_of(config, identity, has_quorum=has_quorum))

    internal_routes.routes["GET", bootstrap.PATH] = knowledge
    identity = await bootstrap.begin(config, identity, client)
    opened = QuorumDisk.open(config.paths.log)
    if opened.cut_bytes:
        _log.warning("a torn write was cut away", torn_bytes_cut=opened.cut_bytes)
    fetch_ms = config.settings()[keys.FETCH_TIMEOUT]
    syncs = SyncWatch(fetch_ms, Clock().boot_ms)
    copy = CatalogReplica(config, identity, syncs)
    me = ReplicaKey(config.node_id, Incarnation(identity.incarnation))
    wire = QuorumWire(me, config.secret(), addresses_by(copy))
    wire.cluster = identity.cluster_id
    limits = RaftSettings.in_proportion(fetch_ms, entry_bytes_max=ENTRY_BYTES_MAX)
    quorum = Quorum(opened, wire, copy, syncs, bootstrap=tuple(config.nodes), settings=limits)
    running.append(quorum)
    return ControllerBase(config, copy, quorum, client), wire


def addresses_by(copy: CatalogReplica) -> Callable[[NodeId], Sequence[str]]:
    """Addresses at which to dial a node, by the newest catalog."""

    def addresses(node_id: NodeId) -> Sequence[str]:
        node = copy.catalog.nodes.get(node_id)
        by_log = {node_id: node.internal} if node else {}
        return bootstrap.addresses_of(node_id, by_log=by_log, by_file=copy.config.nodes)

    return addresses


def topics_of(config: NodeConfig) -> TopicKeeper:
    """What keeps Kafka's topics as the catalog wants them, for the leader."""
    return TopicKeeper(config.kafka(), config.service_id, TopicPolicy.of(config.settings()))


def _schemas_of(config: NodeConfig) -> SchemaRegistry | None:
    connection = config.schema_registry()
    # a statement is judged while the leader writes nothing else
    return None if connection is None else SchemaRegistry(connection, silence_s=2.0)


def main(arguments: list[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--node-file", type=Path, required=True)
    given = options.parse_args(arguments)
    die_with_parent()
    configuration.log_json("control")
    raise_file_limit()
    crash_only.end_with_threads()
    try:
        crash_only.run_to_the_end(run(configuration.load(given.node_file)), asyncio.new_event_loop)
    except StandpipeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    os._exit(main())  # a thread that waits for Kafka must not delay the exit
