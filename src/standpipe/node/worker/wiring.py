"""What a worker consists of, wired once per process.

Not here: its listeners (`node.worker.listeners`), its life (`node.worker.main`); decisions.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from standpipe.adapters.clock import Clock
from standpipe.adapters.files.turn_page import TurnWriter, page_of
from standpipe.adapters.http.peer_client import PeerClient
from standpipe.adapters.http.unix_exchange import SocketFolder
from standpipe.adapters.kafka.producer import RowProducer
from standpipe.adapters.metrics import Metrics
from standpipe.adapters.schema_registry import SchemaRegistry
from standpipe.adapters.sealed.handshake import PEER
from standpipe.config.keys import (
    BREAKER_OPEN,
    FORWARD_TIMEOUT,
    HEDGE_LOAD,
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
from standpipe.node.addresses import dialled
from standpipe.node.configuration import NodeConfig
from standpipe.node.leaving import Leaving
from standpipe.node.liveness.peer_state import PeerStateReader
from standpipe.node.push_registry import PushRegistry
from standpipe.node.worker.heavy_workers import HeavyWorkers
from standpipe.node.worker.inspect.route import Routes
from standpipe.node.worker.pull.fast_forward import FastForwards
from standpipe.node.worker.pull.forward import Forwarder
from standpipe.node.worker.pull.hedging import HedgedReads
from standpipe.node.worker.pull.linearizable import Barriers
from standpipe.node.worker.pull.route_cache import RouteCache
from standpipe.node.worker.pull.scans import Scans
from standpipe.node.worker.pull.slow_path import SlowPath
from standpipe.node.worker.pull.stream_pull import StreamPulls
from standpipe.node.worker.push.endpoint import Pushes
from standpipe.node.worker.push.stream_loop import LiveAnswers
from standpipe.node.worker.push.transients import TransientQueries
from standpipe.node.worker.request.answer_budget import AnswerBudget
from standpipe.node.worker.request.cluster_view import Map, Replicas
from standpipe.node.worker.request.computing_turn import FREE, ComputingTurn
from standpipe.node.worker.request.in_hand import TextsInHand
from standpipe.node.worker.request.large_texts import LargeTexts
from standpipe.node.worker.request.own_memory import OwnMemory
from standpipe.node.worker.request.page_guard import PageGuard
from standpipe.node.worker.request.row_thread import RowThread
from standpipe.node.worker.request.schemas import SchemaFetcher
from standpipe.node.worker.responses import as_standpipe_error
from standpipe.node.worker.statements.lanes import StatementLanes
from standpipe.node.worker.statements.read_index import read_index
from standpipe.node.worker_report import WorkersReportReader
from standpipe.topics import progress_topic

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


@dataclass
class Worker:
    """One worker, wired. `is_heavy`: it has no ports (`node.worker.heavy_workers`)."""

    node: NodeConfig
    settings: Config
    number: int
    is_heavy: bool = False

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
            _turn_page(page_of(paths.run, self.number)),
            WorkersReportReader(paths.workers),
            computing=ComputingTurn() if self.is_heavy else FREE,
        )
        self.memory = OwnMemory(self.settings[MEMORY_MAX])
        self.sockets = SocketFolder(paths.run)
        heavy = HeavyWorkers(self.sockets, self.node.heavy_numbers(), self.in_hand, self.metrics)
        #: None: this worker is one of them
        self.heavy = None if self.is_heavy else heavy
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
        self.forwards = FastForwards(
            self.forwarder,
            self.hedged_reads,
            self.route_cache,
            self.replicas,
            self.metrics,
            timeout_ms,
        )
        self.routes = Routes(self.map, self.replicas, self.route_cache, self.clock)
        own = (self.node.public, self.node.public_advertised, self.settings[TLS_LISTENER])
        self.pages = PageGuard.of(self.settings, [*own, socket.gethostname()])
        self.kafka = self.node.kafka()
        registry = self.node.schema_registry()
        self.schemas = None if registry is None else SchemaFetcher(SchemaRegistry(registry))
        self.producer = RowProducer(self.kafka)
        progress = progress_topic(self.node.service_id)
        self.seal = ProgressSeal(self.node.secret(), progress)
        answered = self.metrics.answered_count
        #: a heavy worker has no lookups that it should make room for
        self.lookups = (lambda: 0) if self.is_heavy else answered
        self.row_thread = RowThread(self.lookups)
        self.large_texts = LargeTexts(self.in_hand)
        self.slow_path = self._slow_path(progress)
        #: of clients, and of peers: neither can take all that there is for answers
        self.answers = AnswerBudget(self.settings[MEMORY_MAX] // 8)
        self.peer_answers = AnswerBudget(self.settings[MEMORY_MAX] // 16)
        self.lanes = StatementLanes()
        self.rules = StatementLimits.of(self.settings, self.node.service_id).rules
        board = PushRegistry(paths.push, self.number, self.settings[PUSH_QUERIES_MAX])
        self.live = LiveAnswers(board, self.metrics, as_standpipe_error, beside=self.row_thread)
        self.pushes = self._pushes()

    def _slow_path(self, progress: str) -> SlowPath:
        index = partial(read_index, self.control, dialled(self.node.internal))
        may_begin, in_hand = self.memory.check, self.in_hand
        return SlowPath(
            node_id=self.node.node_id,
            map=self.map,
            replicas=self.replicas,
            forwarder=self.forwarder,
            metrics=self.metrics,
            routes=self.route_cache,
            hedged_reads=self.hedged_reads,
            forward_timeout_ms=self.settings[FORWARD_TIMEOUT],
            routing_timeout_ms=self.settings[ROUTING_TIMEOUT],
            scan_timeout_ms=self.settings[SCAN_TIMEOUT],
            in_hand=in_hand,
            scans=Scans(self.lookups, may_begin, in_hand, self.row_thread),
            large_texts=self.large_texts,
            stream_pulls=self._stream_pulls(may_begin, in_hand),
            barriers=Barriers.in_topic(self.producer, progress, index, self.metrics),
            may_begin=may_begin,
        )

    def _stream_pulls(self, may_begin: Callable[[], None], in_hand: TextsInHand) -> StreamPulls:
        schemas = None if self.schemas is None else self.schemas.registry
        return StreamPulls(self.kafka, may_begin, in_hand, seal=self.seal, schemas=schemas)

    def _pushes(self) -> Pushes:
        internal = dialled(self.node.internal)
        return Pushes(
            self.map,
            self.live,
            self.kafka,
            TransientQueries(self.map, self.control, internal, self.kafka, self.seal),
            rules=self.rules,
            seal=self.seal,
            may_begin=self.memory.check,
            in_hand=self.in_hand,
            schemas=self.schemas,
            texts=self.large_texts,
        )


def _turn_page(path: Path) -> TurnWriter | None:
    """None on a full disk: the worker serves, and is not watched until its next start."""
    try:
        return TurnWriter(path)
    except OSError as error:
        _log.warning("no page of turns: this worker is not watched", error=str(error))
        return None
