"""Lookups of one key that another node answers, without a task: the fast path of a forward.

    FastForwards.begin     a read whose first replica is another node: sent over a channel to it
    FastForwards.way       the same for all reads of a partition, until a cause changes
    FastForward            one answer, for which the client's connection waits
    FastForwards.wait_for  until it has come, is late, or is withdrawn

Most lookups of a cluster are forwarded, as a client may ask any node. On the slow path each costs a
parse, a task for the request, one for the try, and a race of tries. Here those that wait at once go
to a peer in one write, and come back in one. A known frame (`known/frames.py`) has its partition
and its way, and asks the peer for the client's own layout, so that the rows pass as they are. Its
lookups go to a peer in one message, too (`known/packed_forwards.py`).

Only the usual read is sent so: one key, level `eventual`, no bound on its age. Whatever else
happens is left to the slow path, which starts from the client's request: no connection is kept, the
path fails, the target refuses, the answer is large, or late. Late is LATE_WAITS times the wait
after which the slow path hedges. The answer is then still waited for as long as the slow path
would: its time counts, and the channel can be kept.

Not here: which replica is first (`node.worker.pull.route_cache`), channels
(`adapters.http.peer_channel`), how a client's connection waits (`adapters.http.pipelining`).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from standpipe.adapters.http.peer_channel import PeerChannel
from standpipe.adapters.http.peer_client import head_of, message_of
from standpipe.adapters.metrics import Metrics
from standpipe.control.routing.bounds import Bounds
from standpipe.data.query.lookup_pack import PACK_BYTES_MAX
from standpipe.data.query.order import merged
from standpipe.data.query.pull import partition_of_key
from standpipe.model import NodeInfo, ReplicaId, Source
from standpipe.node.worker.pull.forward import Forwarder
from standpipe.node.worker.pull.forward_checks import table_name
from standpipe.node.worker.pull.forward_headers import (
    PARTITION_HEADER,
    ForwardedRead,
    RequestFormat,
)
from standpipe.node.worker.pull.hedging import HedgedReads, is_costly
from standpipe.node.worker.pull.route_cache import CachedRoute, RouteCache
from standpipe.node.worker.request.answer import PeerLabels, render_rows
from standpipe.node.worker.request.body import Lookup
from standpipe.node.worker.request.cluster_view import ClusterView, Replicas
from standpipe.node.worker.request.head import PACK_PATH, Form
from standpipe.sql.plans import PullPlan

#: p95s of forwards, after which the slow path goes on
LATE_WAITS: Final = 2
#: how often it is looked for those that are late
LATE_LOOK_S: Final = 0.002
#: A longer answer is the slow path's, which charges what it collects.
ANSWER_BYTES_MAX: Final = 64 * 1024
#: Ways that are kept; when there are more, all are dropped. So of what is shunned.
WAYS_MAX: Final = 1_024
#: So long a partition that a target has refused is left to the slow path, which would ask it again.
REFUSED_S: Final = 2.0
_OK: Final = b"HTTP/1.1 200 "
_LENGTH: Final = b"content-length: "
#: layouts that a target may answer a forward in, which asks for them on the path `/query`
PASSED_FORMS: Final = frozenset({Form.ARRAY, Form.LINES})


_Key = TypeVar("_Key")


@dataclass(slots=True)
class Shunned(Generic[_Key]):
    """What is left to other ways for a time."""

    #: on the loop's clock
    _until_s: dict[_Key, float] = field(default_factory=dict[_Key, float])

    def add(self, key: _Key, now_s: float, for_s: float) -> None:
        """From now on."""
        if len(self._until_s) >= WAYS_MAX:
            self._until_s.clear()
        self._until_s[key] = now_s + for_s

    def has(self, key: _Key) -> bool:
        """Whether its time is not over."""
        if not self._until_s:
            return False
        until_s = self._until_s.get(key)
        if until_s is None or asyncio.get_running_loop().time() < until_s:
            return until_s is not None
        del self._until_s[key]
        return False


@dataclass(slots=True)
class Way:
    """To whom the reads of one partition go, in one layout, and what that was decided from."""

    peer: NodeInfo
    replica_id: ReplicaId
    #: of a request, but for the length of its body
    head: bytes
    #: of a pack (`known/packed_forwards.py`); the same for all partitions of a table
    pack_head: bytes
    route: CachedRoute
    labels: PeerLabels = field(default_factory=PeerLabels)


class Begun(Protocol):
    """What was sent to a peer, and may be answered late."""

    has_ended: bool
    #: both on the loop's clock
    began_s: float
    late_s: float
    channel: PeerChannel

    @property
    def peer(self) -> NodeInfo:
        """Whom it was sent to."""
        ...

    def give(self, answer: bytes | None) -> None:
        """To who takes it, if anybody still does; None: the slow path answers."""
        ...


class FastForward:
    """One of them: `adapters.http.fast_path.Awaited`, and `adapters.http.peer_channel.Asker`."""

    __slots__ = (
        "_plan",
        "_shared",
        "_take",
        "_token",
        "began_s",
        "channel",
        "has_ended",
        "late_s",
        "way",
    )

    #: both on the loop's clock
    began_s: float
    late_s: float

    def __init__(
        self,
        shared: FastForwards,
        way: Way,
        token: RequestFormat,
        plan: PullPlan | None,
        channel: PeerChannel,
    ) -> None:
        self._shared, self.way, self._token, self._plan = shared, way, token, plan
        self.channel = channel
        self.has_ended = False
        self._take: Callable[[bytes | None], None] | None = None

    @property
    def peer(self) -> NodeInfo:
        """As `Begun.peer`."""
        return self.way.peer

    def then(self, take: Callable[[bytes | None], None]) -> None:
        """As `Awaited.then`."""
        self._take = take

    def leave(self) -> None:
        """As `Awaited.leave`."""
        self._take = None

    def give(self, answer: bytes | None) -> None:
        """As `Begun.give`."""
        take, self._take = self._take, None
        if take is not None:
            take(answer)

    def unanswered(self) -> None:
        """As `Asker.unanswered`."""
        self.has_ended = True
        self.give(None)

    def answered(self, head: bytes, body: bytes) -> None:
        """As `Asker.answered`."""
        self.has_ended = True
        shared, (now_s, took_s) = self._shared, self._shared.took(self)
        answer: bytes | None = None
        try:
            if not head.startswith(_OK):
                shared.refused.add(self.way.replica_id, now_s, REFUSED_S)
            elif self._take is not None and len(body) <= ANSWER_BYTES_MAX:
                answer = self._answer(head, body)
        finally:  # else nothing would answer the client
            if answer is not None:
                shared.metrics.count("standpipe_pull_forwards", "answered")
                shared.metrics.answered("remote", took_s)
            self.give(answer)

    def _answer(self, head: bytes, body: bytes) -> bytes | None:
        """The client's answer: the peer's rows, and what this node knows of their age; None: the
        peer chose another layout."""
        token, plan, way = self._token, self._plan, self.way
        at = len(token.head)
        if head.startswith(_LENGTH, at) and head.startswith(token.head):
            said = head[head.index(b"\n", at) + 1 :]
        elif plan is not None or b"\r\ncontent-type: %b\r\n" % token.form.value in head:
            said = head
        else:
            return None
        label = way.labels.of(said, self._shared.routes.reported_end(way.replica_id))
        if plan is not None:
            rows = merged(plan, body.split(b"\n")[1:-1], is_final=True)
            body = render_rows(token.form, plan, rows, int(time.time() * 1000))
        return b"%bcontent-length: %d\r\n%b\r\n%b" % (token.head, len(body), label, body)


@dataclass
class FastForwards:
    """Those of one worker. `timeout_ms`: of a try, as on the slow path."""

    forwarder: Forwarder
    hedged_reads: HedgedReads
    routes: RouteCache
    replicas: Replicas
    metrics: Metrics
    timeout_ms: int
    #: of the newest map, by replica and by the layout that the peer answers in
    _ways: dict[tuple[ReplicaId, Form], Way] = field(
        default_factory=dict[tuple[ReplicaId, Form], Way]
    )
    _view: ClusterView | None = None
    #: partitions that a target did not answer for lately
    refused: Shunned[ReplicaId] = field(default_factory=Shunned[ReplicaId])
    #: in the order in which they began, which is nearly that in which they are late; among them
    #: are some that have ended
    _waiting: deque[Begun] = field(default_factory=deque[Begun])
    #: of them, those that the slow path answers now
    _late: deque[Begun] = field(default_factory=deque[Begun])
    _look: asyncio.TimerHandle | None = None

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
        way = self.way(source, partition, Form.LINES, view, bounds)
        return None if way is None else self.send(way, token, body, plan)

    def way(
        self, source: Source, partition: int, form: Form, view: ClusterView, bounds: Bounds
    ) -> Way | None:
        """Where reads of a partition go that bound nothing, to be answered in a layout; None: the
        other paths answer them. It holds while its route is the same (`is_current`)."""
        if view is not self._view:  # each way keeps the map that it was decided from
            self._ways.clear()
            self._view = view
        replica_id = source.replica_id(partition)
        known = self._ways.get((replica_id, form))
        is_elsewhere = self.is_elsewhere(view, replica_id)
        if known is not None and is_elsewhere and self.is_current(known, view):
            return known
        status = None if is_elsewhere else self.replicas.get(replica_id).status()
        route = self.routes.of(view, replica_id, status, bounds)
        verdicts = route.verdicts
        if not verdicts or verdicts[0].is_local or not verdicts[0].ok:
            return None
        peer = verdicts[0].info
        if peer is None or peer.peer in self.forwarder.open_paths:
            return None
        read = ForwardedRead(
            body=b"",
            partition=partition,
            table=table_name(source),
            timeout_ms=self.timeout_ms,
            assignment_epoch=view.snapshot.assignment.epoch,
        )
        headers = {**read.headers(), "accept": form.value.decode()}
        if len(self._ways) >= WAYS_MAX:
            self._ways.clear()
        head = head_of("POST /query", peer.peer, headers)
        del headers[PARTITION_HEADER]
        pack_head = head_of(f"POST {PACK_PATH}", peer.peer, headers)
        way = Way(peer, replica_id, head, pack_head, route)
        self._ways[replica_id, form] = way
        return way

    def is_current(self, way: Way, view: ClusterView) -> bool:
        """Whether nothing has changed that a way was decided from, of a partition that this node
        has no replica of."""
        return self.routes.is_same(way.route, view)

    def send(
        self, way: Way, token: RequestFormat, body: bytes, plan: PullPlan | None
    ) -> FastForward | None:
        """Ask the peer; None: it was refused lately, or no channel to it is free. `plan`: of the
        rows of an answer in LINES; None: the peer's layout is the client's."""
        if self.refused.has(way.replica_id):
            return None
        channel = self.channel(way.peer)
        if channel is None:
            return None
        begun = FastForward(self, way, token, plan, channel)
        self.wait_for(begun)
        self.count_reads(1, begun.began_s)
        channel.send(message_of(way.head, body), begun)
        return begun

    def channel(self, peer: NodeInfo) -> PeerChannel | None:
        """One that is free; None: no connection to the peer is."""
        return self.forwarder.client.channel((peer.peer, peer.node_id), PACK_BYTES_MAX)

    def wait_for(self, begun: Begun) -> None:
        """It is sent now: see that it ends."""
        begun.began_s = now_s = asyncio.get_running_loop().time()
        late_ms = min(LATE_WAITS * self.hedged_reads.latency.slow_ms, self.timeout_ms)
        begun.late_s = now_s + late_ms / 1000
        self._waiting.append(begun)
        if self._look is None:
            self._look_later()

    def count_reads(self, count: int, now_s: float) -> None:
        """They add to the budgets."""
        self.hedged_reads.hedges.read(now_s, count)
        self.hedged_reads.retries.read(now_s, count)

    def took(self, begun: Begun) -> tuple[float, float]:
        """It is answered now, whatever the peer said: the loop's clock, and how long it took."""
        now_s = asyncio.get_running_loop().time()
        took_s = now_s - begun.began_s
        self.forwarder.answered(begun.peer.peer, took_s * 1000)
        return now_s, took_s

    def is_elsewhere(self, view: ClusterView, replica_id: ReplicaId) -> bool:
        """Whether other nodes have the replicas, and this one has none."""
        placement = view.placements.get(replica_id)
        return placement is not None and self.routes.node_id not in placement.replicas

    def _look_later(self) -> None:
        self._look = asyncio.get_running_loop().call_later(LATE_LOOK_S, self._look_for_late)

    def _look_for_late(self) -> None:
        """Leave those that are late to the slow path, and withdraw those that are never answered:
        one timer for all, as each would cost as much as half a lookup."""
        now_s, waiting, late = asyncio.get_running_loop().time(), self._waiting, self._late
        while waiting and (waiting[0].has_ended or waiting[0].late_s <= now_s):
            one = waiting.popleft()
            if not one.has_ended:
                late.append(one)
                self.hedged_reads.silent(one.peer)
                one.give(None)
        timeout_s = self.timeout_ms / 1000
        while late and (late[0].has_ended or late[0].began_s + timeout_s <= now_s):
            one = late.popleft()
            if not one.has_ended:
                one.channel.end()
        if waiting or late:
            self._look_later()
        else:
            self._look = None
