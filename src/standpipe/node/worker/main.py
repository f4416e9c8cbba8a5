"""An HTTP worker: `python -m standpipe.node.worker.main --node-file DATA/node.json --worker K`.

    public listener ─┬─► LookupFastPath ─► StoreReader
    peer listener  ──┴─► SlowPath ─┬─► StoreReader
                                   └─► Forwarder ─► peers
    public listener ───► Statements ─► own controller
    snapshot, every 20 ms ─► Map ─► all of them

All workers of a node listen on the same ports (SO_REUSEPORT), share nothing and lock nothing; a
read from this node's own store asks no other process. SIGTERM: no new connections, requests in
flight are finished within 2 s, exit status 0.

Not here: decisions; this file only wires.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import uvloop

from standpipe.adapters import crash_only, process
from standpipe.adapters.clock import Clock, steadily
from standpipe.adapters.files import published
from standpipe.adapters.files.turn_page import TurnWriter, page_of
from standpipe.adapters.http.connections import PortLimits
from standpipe.adapters.http.http2_server import ConnectionLimits, offer_http2
from standpipe.adapters.http.internal import sealed
from standpipe.adapters.http.peer_client import PeerClient
from standpipe.adapters.http.server import Listener, serve
from standpipe.adapters.http.tls import certificate_of
from standpipe.adapters.kafka.producer import RowProducer
from standpipe.adapters.metrics import Metrics
from standpipe.adapters.sealed.handshake import PEER
from standpipe.config.keys import (
    BODY_MAX,
    BREAKER_OPEN,
    FORWARD_TIMEOUT,
    HEDGE_LOAD,
    HTTP2_STREAMS_MAX,
    PUSH_QUERIES_MAX,
    RETRY_LOAD,
    ROUTING_TIMEOUT,
    SCAN_TIMEOUT,
    TLS_LISTENER,
)
from standpipe.config.registry import Config
from standpipe.config.workers import MEMORY_MAX
from standpipe.control.ddl.limits import StatementLimits
from standpipe.control.routing.hedge_budget import Budget, ForwardLatency
from standpipe.data.commit.seal import ProgressSeal
from standpipe.errors import SetupError
from standpipe.node import configuration
from standpipe.node.addresses import bind_address, dialled, watched
from standpipe.node.configuration import NodeConfig
from standpipe.node.leaving import Leaving
from standpipe.node.liveness.peer_state import PeerStateReader
from standpipe.node.push_registry import PushRegistry
from standpipe.node.room import NodeRoom
from standpipe.node.worker.inserts_stream import InsertsRoute
from standpipe.node.worker.inspect.cluster_status import ClusterStatus
from standpipe.node.worker.inspect.gauges import States
from standpipe.node.worker.inspect.info import StatusRoutes
from standpipe.node.worker.inspect.route import Routes
from standpipe.node.worker.pull.fast_path import LookupFastPath
from standpipe.node.worker.pull.forward import Forwarder
from standpipe.node.worker.pull.hedging import HedgedReads
from standpipe.node.worker.pull.large_texts import LargeTexts
from standpipe.node.worker.pull.linearizable import Barriers
from standpipe.node.worker.pull.route_cache import RouteCache
from standpipe.node.worker.pull.scans import Scans
from standpipe.node.worker.pull.slow_path import SlowPath
from standpipe.node.worker.pull.stream_pull import StreamPulls
from standpipe.node.worker.push.endpoint import Pushes
from standpipe.node.worker.push.stream_loop import LiveAnswers
from standpipe.node.worker.push.transients import TransientQueries
from standpipe.node.worker.query_batch.endpoint import BatchEndpoint
from standpipe.node.worker.query_endpoint import QueryEndpoint
from standpipe.node.worker.request.answer_budget import AnswerBudget
from standpipe.node.worker.request.cluster_view import Map, Replicas
from standpipe.node.worker.request.in_hand import TURN_MS, TextsInHand
from standpipe.node.worker.request.own_memory import WEIGH_MS, OwnMemory
from standpipe.node.worker.request.page_guard import PageGuard
from standpipe.node.worker.request.row_thread import RowThread
from standpipe.node.worker.responses import as_standpipe_error
from standpipe.node.worker.routes import PeerApplication, PublicApplication, Rest
from standpipe.node.worker.statements.execute import Statements
from standpipe.node.worker.statements.lanes import StatementLanes
from standpipe.node.worker.statements.read_index import read_index
from standpipe.node.worker_report import WorkersReportReader
from standpipe.sql.syntax import parser
from standpipe.topics import progress_topic

REFRESH_MS = 20
SAVE_METRICS_MS = 1000
RENEW_MS = 1000
#: The parent kills what has not ended 2 s after SIGTERM.
GRACE_S = 1.6
#: How long a thread (a large text, statements) may hold the interpreter while the loop wants it;
#: several take turns, and Python's 5 ms each would be felt by every lookup.
SWITCH_S = 0.000_5

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


@dataclass
class Worker:
    """One worker, wired."""

    node: NodeConfig
    settings: Config
    number: int

    def __post_init__(self) -> None:
        paths = self.node.paths
        self.stop = asyncio.Event()
        timeout_ms = self.settings[FORWARD_TIMEOUT]
        self.replicas = Replicas(paths.state, paths.status)
        self.map = Map(paths.snapshot, self.replicas)
        self.metrics = Metrics(self.number, paths.run)
        self.client = PeerClient(identity=self.node.identity(PEER))
        self.control = PeerClient(identity=self.node.identity(), to=self.node.node_id)
        self.clock = Clock()
        self.in_hand = TextsInHand(
            _turn_page(page_of(paths.run, self.number)), WorkersReportReader(paths.workers)
        )
        self.memory = OwnMemory(self.settings[MEMORY_MAX])
        self.leaving = Leaving(paths.leaving)
        self.peers = PeerStateReader(paths.liveness, paths.lags, self.settings)
        self.hedged_reads = HedgedReads(
            Budget(self.settings[HEDGE_LOAD] / 100),
            Budget(self.settings[RETRY_LOAD] / 100),
            ForwardLatency(),
        )
        self.forwarder = Forwarder(
            self.client, self.settings[BREAKER_OPEN], timeout_ms, self.hedged_reads.latency.took
        )
        self.hedged_reads.silent = self.forwarder.silent
        self.route_cache = RouteCache(self.node.node_id, self.settings, self.forwarder, self.peers)
        self.routes = Routes(self.map, self.replicas, self.route_cache, self.clock)
        own = (self.node.public, self.node.public_advertised, self.settings[TLS_LISTENER])
        self.pages = PageGuard.of(self.settings, [*own, socket.gethostname()])
        self.kafka = self.node.kafka()
        self.producer = RowProducer(self.kafka)
        progress = progress_topic(self.node.service_id)
        seal = ProgressSeal(self.node.secret(), progress)
        index = partial(read_index, self.control, dialled(self.node.internal))
        answered = self.metrics.answered_count
        self.row_thread = RowThread(answered)
        self.slow_path = SlowPath(
            node_id=self.node.node_id,
            map=self.map,
            replicas=self.replicas,
            forwarder=self.forwarder,
            metrics=self.metrics,
            routes=self.route_cache,
            hedged_reads=self.hedged_reads,
            forward_timeout_ms=timeout_ms,
            routing_timeout_ms=self.settings[ROUTING_TIMEOUT],
            scan_timeout_ms=self.settings[SCAN_TIMEOUT],
            in_hand=self.in_hand,
            scans=Scans(answered, self.memory.check, self.in_hand, self.row_thread),
            large_texts=LargeTexts(self.in_hand),
            stream_pulls=StreamPulls(self.kafka, self.memory.check, self.in_hand, seal=seal),
            barriers=Barriers.in_topic(self.producer, progress, index, self.metrics),
        )
        #: of clients, and of peers: neither can take all that there is for answers
        self.answers = AnswerBudget(self.settings[MEMORY_MAX] // 8)
        self.peer_answers = AnswerBudget(self.settings[MEMORY_MAX] // 16)
        self.lanes = StatementLanes()
        board = PushRegistry(paths.push, self.number, self.settings[PUSH_QUERIES_MAX])
        self.live = LiveAnswers(board, self.metrics, as_standpipe_error, beside=self.row_thread)
        self.rules = StatementLimits.of(self.settings, self.node.service_id).rules
        self.pushes = Pushes(
            self.map,
            self.live,
            self.kafka,
            TransientQueries(self.map, self.control, dialled(self.node.internal), self.kafka, seal),
            rules=self.rules,
            seal=seal,
            may_begin=self.memory.check,
            in_hand=self.in_hand,
        )

    def listeners(self) -> list[Listener]:
        """The peer listener and the public ones, bound. Raises PortInUse and ConfigError."""
        reads, body_max = self.slow_path, self.settings[BODY_MAX]
        limits = PortLimits.of(self.settings)
        public = QueryEndpoint(reads, body_max, False, self.answers, self.pushes)
        peer = QueryEndpoint(reads, body_max, True, self.peer_answers)
        for_clients = Listener(
            socket=watched(bind_address(self.node.public)),
            application=PublicApplication(
                queries=public,
                batches=BatchEndpoint(reads, body_max, self.answers),
                inserts=self._inserts(lambda: for_clients.is_leaving or self.stop.is_set()),
                rest=self._rest().application(),
                pages=self.pages,
            ),
            fast_path=self._fast_path(is_peer=False),
            limits=limits,
            ended=self.metrics.connection_ended,
        )
        if streams_max := self.settings[HTTP2_STREAMS_MAX]:
            offer_http2(for_clients, ConnectionLimits(streams_max=streams_max))
        for_peers = Listener(
            socket=bind_address(self.node.peer),
            application=PeerApplication(peer),
            fast_path=self._fast_path(is_peer=True),
            seal=sealed(self.node.identity(PEER)),
            # `adapters.http.peer_client` closes a connection when its time is over
            abandoned=lambda: self.metrics.count("standpipe_pull_forwarded_in", "abandoned"),
            limits=limits,
            ended=self.metrics.connection_ended,
        )
        if not self.settings[TLS_LISTENER]:
            return [for_peers, for_clients]
        over_tls = replace(
            for_clients,
            socket=watched(bind_address(self.settings[TLS_LISTENER])),
            certificate=certificate_of(self.settings),
            heads={},
        )
        return [for_peers, for_clients, over_tls]

    def _fast_path(self, *, is_peer: bool) -> LookupFastPath:
        return LookupFastPath(
            node_id=self.node.node_id,
            map=self.map,
            replicas=self.replicas,
            routes=self.route_cache,
            metrics=self.metrics,
            body_bytes_max=self.settings[BODY_MAX],
            is_peer=is_peer,
            pages=None if is_peer else self.pages,
            in_hand=self.in_hand,
        )

    def _inserts(self, is_leaving: Callable[[], bool]) -> InsertsRoute:
        return InsertsRoute(
            map=self.map,
            producer=self.producer,
            metrics=self.metrics,
            row_bytes_max=self.settings[BODY_MAX],
            is_leaving=is_leaving,
            rules=self.rules,
        )

    def _rest(self) -> Rest:
        statements = Statements(
            map=self.map,
            replicas=self.replicas,
            control=self.control,
            internal_address=dialled(self.node.internal),
            producer=self.producer,
            settings=self.settings,
            metrics=self.metrics,
            kafka=self.kafka,
            routes=self.routes,
            in_hand=self.in_hand,
            lanes=self.lanes,
        )
        me, paths = self.node.node_id, self.node.paths
        reports = WorkersReportReader(paths.workers)
        room = NodeRoom(paths, parent_pid=os.getppid())
        states = States(
            me, self.map, self.replicas, self.peers, self.clock, reports, paths.run, room
        )
        status = StatusRoutes(me, self.map, self.replicas, self.leaving, reports, room)
        cluster = ClusterStatus(
            me, self.map, self.replicas, self.forwarder, self.peers, self.clock, paths.restores
        )
        return Rest(
            status=status,
            cluster=cluster,
            routes=self.routes,
            statements=statements,
            pushes=self.pushes,
            exposition=lambda: self.metrics.exposition(states.read()),
            body_bytes_max=self.settings[BODY_MAX],
        )

    def reload_if_changed(self, publics: Sequence[Listener]) -> None:
        """Tell listeners whether clients should leave. Peers learn it from control, and stay."""
        for public in publics:
            public.is_leaving = self.leaving.is_set
        if self.leaving.is_set:
            self.live.leave()
        self.live.reload_if_changed()

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop.set)
        listeners = self.listeners()
        async with asyncio.TaskGroup() as group:  # what ends one of them ends the process
            chores: list[asyncio.Task[Any]] = [
                group.create_task(steadily(every_ms, work, what))
                for every_ms, work, what in self._background_work(listeners)
            ]
            chores.append(group.create_task(self._leave()))
            chores.append(group.create_task(self.pushes.transients.keep_renewed()))
            _log.info("worker serves", worker=self.number, public=self.node.public)
            await serve(listeners, self.stop, GRACE_S)
            for chore in chores:
                chore.cancel()
        await self.pushes.transients.close()
        self.live.close()
        self.hedged_reads.close()
        self.slow_path.large_texts.close()
        self.row_thread.close()
        self.slow_path.stream_pulls.close()
        self.lanes.close()
        await self.forwarder.close()
        self.control.close()
        await asyncio.to_thread(self.producer.close)
        self.replicas.close()

    def _background_work(
        self, listeners: Sequence[Listener]
    ) -> Iterator[tuple[int, Callable[[], object], str]]:
        """(period in ms, work, its name in the log)"""
        yield REFRESH_MS, self.map.refresh, "cluster map"
        yield REFRESH_MS, self.peers.refresh, "state of the peers"
        yield REFRESH_MS, lambda: self.reload_if_changed(listeners[1:]), "leaving"
        yield TURN_MS, self.in_hand.turn, "turns"
        yield WEIGH_MS, self.memory.weigh, "memory"
        yield SAVE_METRICS_MS, self.metrics.save, "metrics"
        for listener in listeners:
            if listener.certificate:
                yield RENEW_MS, listener.certificate.reload_if_changed, "certificate"

    async def _leave(self) -> None:
        """End endless answers together with the listeners, within their grace period."""
        await self.stop.wait()
        self.live.leave()


def _turn_page(path: Path) -> TurnWriter | None:
    """None on a full disk: the worker serves, and is not watched until its next start."""
    try:
        return TurnWriter(path)
    except OSError as error:
        _log.warning("no page of turns: this worker is not watched", error=str(error))
        return None


def warm_up(node: NodeConfig) -> None:
    """Load what takes long and is the same in all workers: the grammar's tables."""
    path = node.paths.data / "grammar.json"
    saved = path.read_bytes() if path.exists() else b""
    tables = parser.warm_up(saved)
    if tables != saved:
        with contextlib.suppress(OSError):  # a full disk: the next start builds them again
            published.replace(path, tables)


def main(arguments: list[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--node-file", type=Path, required=True)
    options.add_argument("--worker", type=int, required=True)
    given = options.parse_args(arguments)
    process.die_with_parent()
    configuration.log_json(f"worker-{given.worker}")
    crash_only.end_with_threads()
    try:
        node = configuration.load(given.node_file)
        worker = Worker(node, node.settings(), given.worker)
        process.write_pid(node.paths.run / f"worker-{given.worker}.pid")
        process.raise_file_limit()
        process.keep_little_freed_memory()
        sys.setswitchinterval(SWITCH_S)
        gc.disable()
        warm_up(node)
        gc.freeze()  # existing objects stay: collections need not scan them again
        gc.enable()
        crash_only.run_to_the_end(worker.run(), uvloop.new_event_loop)
    except SetupError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
