"""Lookups of one key that another node answers, without a task: the fast path of a forward.

    FastForwards.begin     a read whose first replica is another node: sent over a connection that
                           is kept to it, if there is one
    FastForward            its answer, for which the client's connection waits

Most lookups of a cluster are forwarded, as a client may ask any node. On the slow path each costs a
parse, a task for the request, one for the try, and a race of tries. Here it costs the request, the
answer and a timer. Only the usual read is sent so: one key, level `eventual`, no bound on its age.
Whatever else happens is left to the slow path, which starts from the client's request: no
connection is kept, the path fails, the target refuses, the answer is large, or late. Late is
LATE_WAITS times the wait after which the slow path hedges. The answer is then still waited for as
long as the slow path would: its time counts, and the connection can be kept.

Not here: which replica is first (`node.worker.pull.route_cache`), connections
(`adapters.http.peer_client`), how a client's connection waits (`adapters.http.pipelining`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from standpipe.adapters.http.peer_client import Response, head_of, message_of
from standpipe.adapters.metrics import Metrics
from standpipe.control.routing.bounds import Bounds
from standpipe.data.query.order import merged
from standpipe.data.query.pull import partition_of_key
from standpipe.freshness import parse_headers
from standpipe.model import NodeInfo, ReplicaId
from standpipe.node.worker.pull.forward import Forwarder
from standpipe.node.worker.pull.forward_checks import table_name
from standpipe.node.worker.pull.forward_headers import ForwardedRead, RequestFormat
from standpipe.node.worker.pull.hedging import HedgedReads, is_costly
from standpipe.node.worker.pull.route_cache import RouteCache
from standpipe.node.worker.request.answer import against, header_lines, render_rows
from standpipe.node.worker.request.body import Lookup
from standpipe.node.worker.request.cluster_view import ClusterView, Replicas
from standpipe.sql.plans import PullPlan

#: p95s of forwards, after which the slow path goes on
LATE_WAITS: Final = 2
#: A longer answer is the slow path's, which charges what it collects.
ANSWER_BYTES_MAX: Final = 64 * 1024
#: Heads of requests that are kept; when there are more, all are dropped. So of refused partitions.
HEADS_MAX: Final = 1_024
#: So long a partition that a target has refused is left to the slow path, which would ask it again.
REFUSED_S: Final = 2.0

#: to whom, of which table and partition, by which map
_Place = tuple[str, str, int, int]


@dataclass
class FastForwards:
    """Those of one worker. `timeout_ms`: of a try, as on the slow path."""

    forwarder: Forwarder
    hedged_reads: HedgedReads
    routes: RouteCache
    replicas: Replicas
    metrics: Metrics
    timeout_ms: int
    _heads: dict[_Place, bytes] = field(default_factory=dict[_Place, bytes])
    #: until when, on the loop's clock, in s
    _refused: dict[ReplicaId, float] = field(default_factory=dict[ReplicaId, float])

    def begin(
        self, token: RequestFormat, body: bytes, query: Lookup, view: ClusterView, plan: PullPlan
    ) -> FastForward | None:
        """Send a read of one key, which this node does not answer, to the replica that is first;
        None: the slow path answers."""
        source = plan.source
        bounds = self.routes.bounds(query.bounds, source)
        is_usual = query.session is None and not query.is_snapshot and not bounds.is_bounded
        if not is_usual or is_costly(query.text, plan):
            return None
        partition = partition_of_key(source, plan.keys[0])
        if partition < 0:
            return None
        replica_id = source.replica_id(partition)
        if self._refused and self._is_refused(replica_id):
            return None
        peer = self._first(view, replica_id, bounds)
        if peer is None:
            return None
        begun = FastForward(self, token, plan, peer, replica_id)
        head = self._head(peer, table_name(source), partition, view)
        return begun if begun.send(message_of(head, body)) else None

    def refused(self, replica_id: ReplicaId, now_s: float) -> None:
        """A target did not answer for a partition."""
        if len(self._refused) >= HEADS_MAX:
            self._refused.clear()
        self._refused[replica_id] = now_s + REFUSED_S

    def _is_refused(self, replica_id: ReplicaId) -> bool:
        until_s = self._refused.get(replica_id)
        if until_s is None or asyncio.get_running_loop().time() < until_s:
            return until_s is not None
        del self._refused[replica_id]
        return False

    def is_elsewhere(self, view: ClusterView, replica_id: ReplicaId) -> bool:
        """Whether other nodes have the replicas, and this one has none."""
        placement = view.placements.get(replica_id)
        return placement is not None and self.routes.node_id not in placement.replicas

    def _first(self, view: ClusterView, replica_id: ReplicaId, bounds: Bounds) -> NodeInfo | None:
        """The node of the first replica; None: it is this one, or the path to it has failed, or no
        replica answers."""
        is_elsewhere = self.is_elsewhere(view, replica_id)
        status = None if is_elsewhere else self.replicas.get(replica_id).status()
        verdicts = self.routes.of(view, replica_id, status, bounds).verdicts
        if not verdicts or verdicts[0].is_local or not verdicts[0].ok:
            return None
        peer = verdicts[0].info
        is_suspect = peer is not None and peer.peer in self.forwarder.open_paths
        return None if is_suspect else peer

    def _head(self, peer: NodeInfo, table: str, partition: int, view: ClusterView) -> bytes:
        epoch = view.snapshot.assignment.epoch
        place = peer.peer, table, partition, epoch
        found = self._heads.get(place)
        if found is None:
            read = ForwardedRead(
                body=b"",
                partition=partition,
                table=table,
                timeout_ms=self.timeout_ms,
                assignment_epoch=epoch,
            )
            if len(self._heads) >= HEADS_MAX:
                self._heads.clear()
            found = self._heads[place] = head_of("POST /query", peer.peer, read.headers())
        return found


class FastForward:
    """One of them: `adapters.http.fast_path.Awaited`."""

    def __init__(
        self,
        shared: FastForwards,
        token: RequestFormat,
        plan: PullPlan,
        peer: NodeInfo,
        replica_id: ReplicaId,
    ) -> None:
        self._shared, self._token, self._plan = shared, token, plan
        self._peer, self._replica_id = peer, replica_id
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()
        self._take: Callable[[bytes | None], None] | None = None
        self._withdraw: Callable[[], None] = _nothing
        #: until it is late, and then until it is withdrawn
        self._timer: asyncio.TimerHandle | None = None

    def send(self, message: bytes) -> bool:
        """False: no connection to the peer is kept."""
        sent = self._shared.forwarder.client.send_kept(
            (self._peer.peer, self._peer.node_id),
            message,
            self._ended,
            bytes_max=ANSWER_BYTES_MAX,
        )
        if sent is None:
            return False
        self._withdraw, reads = sent, self._shared.hedged_reads
        reads.hedges.read(self._began_s)
        reads.retries.read(self._began_s)
        late_s = min(LATE_WAITS * reads.latency.slow_ms, self._shared.timeout_ms) / 1000
        self._timer = self._loop.call_at(self._began_s + late_s, self._late)
        return True

    def then(self, take: Callable[[bytes | None], None]) -> None:
        """As `Awaited.then`."""
        self._take = take

    def leave(self) -> None:
        """As `Awaited.leave`."""
        self._take = None

    def _late(self) -> None:
        until_s = self._began_s + self._shared.timeout_ms / 1000
        self._timer = self._loop.call_at(until_s, self._withdraw)
        self._shared.hedged_reads.silent(self._peer)
        self._give(None)

    def _give(self, answer: bytes | None) -> None:
        take, self._take = self._take, None
        if take is not None:
            take(answer)

    def _ended(self, response: Response | None) -> None:
        """The peer has answered, or the path has failed."""
        if self._timer is not None:
            self._timer.cancel()
        if response is None:
            self._give(None)
            return
        shared, took_s = self._shared, self._loop.time() - self._began_s
        shared.forwarder.answered(self._peer.peer, took_s * 1000)
        answer: bytes | None = None
        if response.status != HTTPStatus.OK:
            shared.refused(self._replica_id, self._loop.time())
        elif self._take is not None:
            answer = self._answer(response)
            shared.metrics.count("standpipe_pull_forwards", "answered")
            shared.metrics.answered("remote", took_s)
        self._give(answer)

    def _answer(self, response: Response) -> bytes:
        """The client's answer: the peer's rows, and what this node knows of their age."""
        routes, replica_id = self._shared.routes, self._replica_id
        end = routes.reported_end(replica_id)
        fresh = against(parse_headers(response.headers), end if end >= 0 else None)
        rows = merged(self._plan, response.body.split(b"\n")[1:-1], is_final=True)
        token = self._token
        body = render_rows(token.form, self._plan, rows, int(time.time() * 1000))
        label = header_lines(fresh)
        return b"%bcontent-length: %d\r\n%b\r\n%b" % (token.head, len(body), label, body)


def _nothing() -> None:
    pass
