"""The listeners of a worker: what is bound, and which application answers there.

    worker        peer port, public port [, TLS port]   all workers of the node share them
    heavy worker  a Unix socket in `run/`               for the other workers of the node

Not here: the routes (`node.worker.routes`), everything else of a worker (`node.worker.wiring`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from standpipe.adapters.http.connections import PortLimits
from standpipe.adapters.http.fast_path import NoFastPath
from standpipe.adapters.http.http2_server import ConnectionLimits, offer_http2
from standpipe.adapters.http.internal import sealed
from standpipe.adapters.http.server import Listener
from standpipe.adapters.http.tls import certificate_of
from standpipe.adapters.http.unix_exchange import SocketFolder
from standpipe.adapters.sealed.handshake import PEER
from standpipe.config.keys import BODY_MAX, HTTP2_STREAMS_MAX, TLS_LISTENER
from standpipe.node.addresses import bind_address, dialled, watched
from standpipe.node.room import NodeRoom
from standpipe.node.worker.heavy_workers import HeavyApplication, socket_name
from standpipe.node.worker.inserts_stream import InsertsRoute
from standpipe.node.worker.inspect.cluster_status import ClusterStatus
from standpipe.node.worker.inspect.gauges import States
from standpipe.node.worker.inspect.info import StatusRoutes
from standpipe.node.worker.long_lines import LongLines
from standpipe.node.worker.pack_endpoint import PackEndpoint
from standpipe.node.worker.pull.fast_path import LookupFastPath
from standpipe.node.worker.query_batch.endpoint import BatchEndpoint
from standpipe.node.worker.query_endpoint import QueryEndpoint
from standpipe.node.worker.routes import PeerApplication, PublicApplication, Rest
from standpipe.node.worker.statements.execute import Statements
from standpipe.node.worker.wiring import Worker
from standpipe.node.worker_report import WorkersReportReader


def listeners_of(worker: Worker) -> list[Listener]:
    """The peer listener and the public ones, bound. Raises PortInUse and ConfigError."""
    node, settings, metrics = worker.node, worker.settings, worker.metrics
    limits = PortLimits.of(settings)
    peer = QueryEndpoint(
        worker.slow_path, settings[BODY_MAX], True, worker.peer_answers, heavy=worker.heavy
    )
    fast_path = _fast_path(worker, is_peer=True)
    # bound first: once the public port takes connections, peers may be sent to this one
    for_peers = Listener(
        socket=bind_address(node.peer),
        application=PeerApplication(peer, PackEndpoint(fast_path)),
        fast_path=fast_path,
        seal=sealed(node.identity(PEER)),
        # `adapters.http.peer_client` closes a connection when its time is over
        abandoned=lambda: metrics.count("standpipe_pull_forwarded_in", "abandoned"),
        limits=limits,
        ended=metrics.connection_ended,
    )
    for_clients = Listener(
        socket=watched(bind_address(node.public)),
        application=_public(worker, lambda: for_clients.is_leaving or worker.stop.is_set()),
        fast_path=_fast_path(worker, is_peer=False),
        limits=limits,
        ended=metrics.connection_ended,
    )
    if streams_max := settings[HTTP2_STREAMS_MAX]:
        offer_http2(for_clients, ConnectionLimits(streams_max=streams_max))
    if not settings[TLS_LISTENER]:
        return [for_peers, for_clients]
    over_tls = replace(
        for_clients,
        socket=watched(bind_address(settings[TLS_LISTENER])),
        certificate=certificate_of(settings),
        heads={},
    )
    return [for_peers, for_clients, over_tls]


def heavy_listener(worker: Worker, sockets: SocketFolder) -> Listener:
    """That of a heavy worker. Raises OSError."""
    limits = PortLimits.of(worker.settings)
    listener = Listener(
        socket=sockets.bind(socket_name(worker.number)),
        application=HeavyApplication(
            clients=_public(worker, lambda: listener.is_leaving or worker.stop.is_set()),
            peers=QueryEndpoint(
                worker.slow_path, worker.settings[BODY_MAX], True, worker.peer_answers
            ),
        ),
        fast_path=NoFastPath(),
        # its clients are the node's own workers, which have applied theirs
        limits=replace(limits, per_address_max=limits.connections_max),
    )
    return listener


def _public(worker: Worker, is_leaving: Callable[[], bool]) -> PublicApplication:
    reads, body_max = worker.slow_path, worker.settings[BODY_MAX]
    return PublicApplication(
        queries=QueryEndpoint(
            reads, body_max, False, worker.answers, worker.pushes, heavy=worker.heavy
        ),
        batches=BatchEndpoint(reads, body_max, worker.answers),
        inserts=_inserts(worker, is_leaving),
        rest=_rest(worker).application(),
        pages=worker.pages,
    )


def _fast_path(worker: Worker, *, is_peer: bool) -> LookupFastPath:
    return LookupFastPath(
        node_id=worker.node.node_id,
        map=worker.map,
        replicas=worker.replicas,
        routes=worker.route_cache,
        metrics=worker.metrics,
        body_bytes_max=worker.settings[BODY_MAX],
        is_peer=is_peer,
        pages=None if is_peer else worker.pages,
        in_hand=worker.in_hand,
        forwards=None if is_peer else worker.forwards,
    )


def _inserts(worker: Worker, is_leaving: Callable[[], bool]) -> InsertsRoute:
    return InsertsRoute(
        map=worker.map,
        producer=worker.producer,
        metrics=worker.metrics,
        row_bytes_max=worker.settings[BODY_MAX],
        is_leaving=is_leaving,
        rules=worker.rules,
        schemas=worker.schemas,
        long_lines=LongLines(worker.row_thread, worker.in_hand),
    )


def _rest(worker: Worker) -> Rest:
    statements = Statements(
        map=worker.map,
        replicas=worker.replicas,
        control=worker.control,
        internal_address=dialled(worker.node.internal),
        producer=worker.producer,
        settings=worker.settings,
        metrics=worker.metrics,
        kafka=worker.kafka,
        schemas=worker.schemas,
        routes=worker.routes,
        in_hand=worker.in_hand,
        lanes=worker.lanes,
    )
    me, paths = worker.node.node_id, worker.node.paths
    reports = WorkersReportReader(paths.workers)
    room = NodeRoom(paths, parent_pid=os.getppid())
    states = States(
        me, worker.map, worker.replicas, worker.peers, worker.clock, reports, paths.run, room
    )
    status = StatusRoutes(me, worker.map, worker.replicas, worker.leaving, reports, room)
    cluster = ClusterStatus(
        me,
        worker.map,
        worker.replicas,
        worker.forwarder,
        worker.peers,
        worker.clock,
        paths.restores,
    )
    return Rest(
        status=status,
        cluster=cluster,
        routes=worker.routes,
        statements=statements,
        pushes=worker.pushes,
        exposition=lambda: worker.metrics.exposition(states.read()),
        body_bytes_max=worker.settings[BODY_MAX],
        heavy=worker.heavy,
    )
