"""Heartbeats and lag reports of a node: sent, received, judged, and published to its workers.

    status pages ─► Reporter ─┬─► heartbeat to every member, each SEND ─► its /heartbeat ─┐
    pid files ────────────────┘   all lags, each LAG SEND ──────────────► its /lag ───────┤
                                                                                          ▼
    run/liveness ◄── Verdicts ◄──── check, each CHECK ◄── heartbeats received ◄ this node's routes
    run/lags     ◄── Ledger ◄──────────────────────────── lags received ◄┘

Part of the control process; all decisions are in `control.liveness.failure_detector` and
`control.liveness.lag`. Heartbeats and lag reports are independent: each can be off (KLIP-12,
tradeoff 1), and its routes then do not exist (404, as in ksqlDB). Heartbeats carry changed lags.

In a large cluster heartbeats go to a few nodes and carry rumours, and only reports carry lags, to
the nodes that need them (`node.liveness.lag_reports`).

Not here: how readers use it (`node.liveness.peer_state`, by `node.liveness.publish`), who is a
member (the metadata log).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Final, NoReturn

import msgspec
import structlog
from msgspec.structs import replace

from standpipe.adapters.clock import Clock, steadily
from standpipe.adapters.files.start_number import next_number
from standpipe.adapters.http.internal import Call, Handler, Reply, json_reply
from standpipe.adapters.http.peer_client import PathFailed, PeerClient
from standpipe.config import liveness as settings
from standpipe.config.registry import Config
from standpipe.control.assignment.from_catalog import ClusterObservation
from standpipe.control.assignment.model import TablePartition
from standpipe.control.liveness.failure_detector import Verdicts
from standpipe.control.liveness.gossip import SPREAD, Rumour
from standpipe.control.liveness.heartbeats import CheckVoid, HeartbeatSettings, Order
from standpipe.control.liveness.report_age import Belief
from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.feature_levels import GOSSIP
from standpipe.model import Health, NodeId, NodeInfo
from standpipe.model_liveness import LagDelta
from standpipe.node.configuration import NodeConfig
from standpipe.node.leaving import Leaving
from standpipe.node.liveness.end_watch import ENDS_LOOK_MS, EndWatch
from standpipe.node.liveness.lag_reports import LagReports
from standpipe.node.liveness.local_state import LocalReplicas
from standpipe.node.liveness.publish import LivenessPages
from standpipe.node.liveness.wire import (
    Beat,
    BeatAnswer,
    BeatExtra,
    LagReport,
    delta_of,
    node_named,
)

#: A heartbeat that is not answered by then is lost; the next ones are on their way.
BEAT_WAIT_S: Final = 1.0
REPORT_WAIT_S: Final = 2.0
#: How often to look for news.
NEWS_LOOK_MS: Final = 100
#: the shortest time between writes of `run/lags`, however fast lags change
LAGS_PUBLISH_MS: Final = 100

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()
_answer_decoder = msgspec.json.Decoder(BeatAnswer)


class LivenessLoop:
    """One node's liveness: `routes()` for the internal listener, `run()` for the loop."""

    def __init__(
        self,
        config: NodeConfig,
        incarnation: str,
        catalog: Callable[[], Catalog],
        clock: Clock | None = None,
        leader: Callable[[], NodeId] = lambda: NodeId(""),
        *,
        serves: Callable[[], bool] = lambda: True,
    ) -> None:
        self._config, self._incarnation = config, incarnation
        self._values: Config = config.settings()
        self._catalog, self._leader = catalog, leader
        self._clock = clock or Clock()
        self._host = config.public_advertised or config.public
        self._own = LocalReplicas(config.node_id, config.paths, serves)
        self._leaving = Leaving(config.paths.leaving)
        self._client = PeerClient(identity=config.identity())
        self._verdicts = Verdicts(config.node_id, HeartbeatSettings.of(self._values))
        self._ends = EndWatch(config.kafka(), catalog, self._clock)
        self._ledger = self._ends.ledger
        self._belief = Belief(self._reports_age_ms_max, settings.reports_settle_ms(self._values))
        session = next_number(config.paths.session, self._clock.wall_ms())
        self._lag_reports = LagReports(config.node_id, incarnation, self._host, session)
        self._reporter = self._lag_reports.reporter
        #: node -> version of this node's lags that it acknowledged
        self._acknowledged: dict[NodeId, int] = {}
        #: node -> its newest heartbeat
        self._said: dict[NodeId, BeatExtra] = {}
        self._peers: dict[NodeId, NodeInfo] = {}
        self._seen: Catalog | None = None
        self._sends: set[asyncio.Task[None]] = set()
        self._pages = LivenessPages(
            config.paths, self._clock, self._verdicts, self._ledger, self._said, beats=self.beats
        )

    @property
    def beats(self) -> bool:
        """Whether heartbeats are on."""
        return self._values[settings.HEARTBEAT]

    @property
    def reports(self) -> bool:
        """Whether lag reports are on."""
        return self._values[settings.LAG_REPORTS]

    @property
    def _by_reports(self) -> bool:
        """Whether reports alone carry lags, seconds apart."""
        return not (self.beats and self._verdicts.is_mesh)

    @property
    def _reports_age_ms_max(self) -> int:
        return settings.reports_age_ms_max(self._values)

    def routes(self) -> dict[tuple[str, str], Handler]:
        """The routes of what is on; anything else is 404."""
        routes: dict[tuple[str, str], Handler] = {}
        if self.beats:
            routes[("POST", "/heartbeat")] = self.heartbeat
        if self.reports:
            routes[("POST", "/lag")] = routes[("POST", "/reportlag")] = self.lag
        return routes

    async def run(self) -> NoReturn:
        """Send, check and publish. Ends by cancellation."""
        interval = self._values
        works: list[tuple[int, Callable[[], None]]] = [(LAGS_PUBLISH_MS, self.publish)]
        if self.beats:
            works.append((interval[settings.BEAT_SEND], self.send_beats))
            works.append((interval[settings.BEAT_CHECK], self.check))
        if self.reports:
            works.append((interval[settings.LAG_SEND], self.send_reports))
            works += [(NEWS_LOOK_MS, self.send_news), (ENDS_LOOK_MS, self._ends.look)]
        try:
            async with asyncio.TaskGroup() as group:
                for every_ms, work in works:
                    group.create_task(steadily(every_ms, work, "liveness"))
        finally:
            self._client.close()
        raise AssertionError("loops end by cancellation only")

    def told(self) -> ClusterObservation:
        """Which nodes are away and how far copies are, this node's own included
        (`control.assignment.from_catalog`)."""
        self._refresh_members()
        self._observe()
        self._belief.look(self._clock.boot_ms(), by_reports=self._by_reports)
        reports = self._ledger.whole(self._belief.since_ms)
        reports[self._config.node_id] = {lag.replica_id: lag for lag in self._reporter.lags}
        current = self._ledger.current(self._belief.since_ms) if self._by_reports else {}
        return ClusterObservation(
            away_ms=self.away_ms(),
            reports={
                node: {TablePartition(*replica): lag for replica, lag in lags.items()}
                for node, lags in reports.items()
            },
            current={
                node: {TablePartition(*replica) for replica in replicas}
                for node, replicas in current.items()
            },
            ends={TablePartition(*replica): end for replica, end in self._ledger.ends().items()},
        )

    def away_ms(self) -> dict[NodeId, int]:
        """Nodes that are found down -> ms since their last heartbeat."""
        if not self.beats:
            return {}
        now_ms = self._clock.boot_ms()
        return {
            node: max(0, now_ms - int(self._verdicts.silent_since_ms(node)))
            for node, health in self._verdicts.health.items()
            if health is Health.DOWN
        }

    @property
    def changes(self) -> object:
        """Changes whenever what `told` returns would change, except for ages."""
        return (self._ledger.changes, self._reporter.version, tuple(sorted(self.away_ms())))

    # ------------------------------------------------------------------- received

    async def heartbeat(self, call: Call) -> Reply:
        """`POST /heartbeat`."""
        beat = call.json(Beat)
        self._refresh_members()
        extra = beat.standpipe
        if extra is None:
            named = node_named(beat.hostInfo, self._peers.values())
            sender, incarnation = (named.node_id, named.incarnation) if named else ("", "")
        else:
            sender, incarnation = extra.node_id, extra.incarnation
        if sender:
            call.must_come_from(NodeId(sender))
        peer = self._peers.get(NodeId(sender))
        if peer is None or peer.incarnation != incarnation:
            return json_reply(BeatAnswer())  # no member, or an earlier incarnation of one
        now_ms = self._clock.boot_ms()
        self._verdicts.heard(peer.node_id, now_ms, is_beat=extra is None or extra.is_beat)
        if extra is None:
            return json_reply(BeatAnswer())
        self._take_note(extra)
        self._do(self._verdicts.hear(extra.rumours, now_ms))
        if any(rumour.is_note for rumour in extra.rumours):
            self._pages.publish_verdicts()
        lacking = tuple(self._verdicts.lacking(extra.digest))
        return json_reply(
            BeatAnswer(
                lag_version=self._take(peer, extra.lags),
                digest=self._verdicts.digest if lacking else None,
                rumours=lacking,
            )
        )

    async def lag(self, call: Call) -> Reply:
        """`POST /lag` and KLIP-12's `/reportlag`."""
        report = call.json(LagReport)
        self._refresh_members()
        extra = report.standpipe
        if extra is None:
            peer = node_named(report.ksqlHost, self._peers.values())
            if peer is not None:
                call.must_come_from(peer.node_id)
            delta = delta_of(report, self._catalog().generations)
        else:
            peer, delta = self._peers.get(extra.node_id), extra.lags
            call.must_come_from(extra.node_id)
            if peer is not None and peer.incarnation != extra.incarnation:
                peer = None
        version = self._take(peer, delta) if peer else None
        return json_reply(BeatAnswer(lag_version=version))

    def _take(self, peer: NodeInfo, delta: LagDelta | None) -> int | None:
        if delta is None or not self.reports:
            return None
        before = self._ledger.session_of(peer.node_id)
        version = self._ledger.take(peer.node_id, peer.incarnation, delta, self._clock.boot_ms())
        if self._ledger.session_of(peer.node_id) != before:
            self._lag_reports.forget_news()  # it restarted and has no reports of this node
        return version

    def _take_note(self, said: BeatExtra) -> None:
        before = self._said.get(said.node_id)
        self._said[said.node_id] = said
        if before is None or before.note != said.note:
            self._pages.publish_verdicts()

    # ----------------------------------------------------------------------- sent

    def send_beats(self) -> None:
        """Send to all, or to watchers and a few random nodes. Each separately: a hanging peer
        delays no other."""
        self._refresh_members()
        if self.reports:
            self._observe()
        mine = self._beat()
        self._verdicts.noted(mine.note)
        receivers = self._verdicts.receivers(self._clock.boot_ms())
        others = self._verdicts.gossip_targets([random.getrandbits(32) for _ in range(SPREAD)])
        mine = replace(mine, digest=self._verdicts.digest, rumours=tuple(self._verdicts.round()))
        for node in receivers:
            lags = None
            if self.reports and self._verdicts.is_mesh:
                lags = self._reporter.delta(self._acknowledged.get(node, 0))
            self._send_beat(self._peers[node], replace(mine, lags=lags))
        for node in set(others).difference(receivers):
            self._send_beat(self._peers[node], replace(mine, is_beat=False))

    def _beat(self, rumours: Iterable[Rumour] = ()) -> BeatExtra:
        return BeatExtra(
            node_id=self._config.node_id,
            incarnation=self._incarnation,
            workers_ok=self._own.workers_ok,
            tailer_ok=self._own.tailer_ok,
            is_leaving=self._leaving.is_set,
            digest=self._verdicts.digest,
            rumours=tuple(rumours),
        )

    def _send_beat(self, peer: NodeInfo, extra: BeatExtra) -> None:
        beat = Beat(hostInfo=self._host, timestamp=self._clock.wall_ms(), standpipe=extra)
        self._send(peer, "/heartbeat", beat, BEAT_WAIT_S)

    def send_news(self) -> None:
        """Where heartbeats carry no lags: send at once what must not wait."""
        self._refresh_members()
        self._belief.look(self._clock.boot_ms(), by_reports=self._by_reports)
        if not self._by_reports:
            self._lag_reports.forget_news()  # news counts once heartbeats carry no lags
            return
        self._observe()
        if self._lag_reports.take_news(self._leader(), self._clock.boot_ms()):
            self.send_reports()

    def send_reports(self) -> None:
        """Send all lags of this node to every member, in a large cluster to those that need
        them."""
        self._refresh_members()
        self._observe()
        hearers = self._peers.keys()
        if not self._verdicts.is_mesh:
            hearers &= self._lag_reports.hearers(self._leader())
        report = self._lag_reports.full(self._catalog(), self._clock.wall_ms())
        for node in hearers:
            self._send(self._peers[node], "/lag", report, REPORT_WAIT_S)

    def _observe(self) -> None:
        self._reporter.observe(self._own.lags(self._catalog(), self._clock.boot_ms()))

    def _send(self, peer: NodeInfo, path: str, body: msgspec.Struct, wait_s: float) -> None:
        task = asyncio.create_task(self._deliver(peer, path, msgspec.json.encode(body), wait_s))
        self._sends.add(task)
        task.add_done_callback(self._sends.discard)

    async def _deliver(self, peer: NodeInfo, path: str, body: bytes, wait_s: float) -> None:
        """An unreachable peer is detected by its missing heartbeats, not here."""
        try:
            response = await self._client.request(
                peer.internal, path, to=peer.node_id, body=body, timeout_s=wait_s
            )
            answer = _answer_decoder.decode(response.body) if response.status == 200 else None
        except (PathFailed, msgspec.MsgspecError):
            return
        if answer is None or peer.node_id not in self._peers:
            return
        if answer.lag_version is not None:
            self._acknowledged[peer.node_id] = answer.lag_version
        if answer.rumours:
            self._do(self._verdicts.hear(answer.rumours, self._clock.boot_ms()))
            if lacking := self._verdicts.lacking(answer.digest, is_asked=True):
                self._send_beat(peer, replace(self._beat(lacking), is_beat=False))

    # --------------------------------------------------------------------- judged

    def check(self) -> None:
        """KLIP-12's `decide-status`."""
        self._refresh_members()
        self._do(self._verdicts.check(self._clock.boot_ms()))

    def _refresh_members(self) -> None:
        catalog = self._catalog()
        if catalog is self._seen:
            return
        self._follow_drain(catalog)
        self._seen = catalog
        self._peers = {n: info for n, info in catalog.nodes.items() if n != self._config.node_id}
        may_gossip = self.beats and catalog.feature_level >= GOSSIP
        peers = frozenset(self._peers)
        self._do(self._verdicts.members(peers, self._clock.boot_ms(), may_gossip=may_gossip))
        if self._by_reports:
            self._lag_reports.follow(catalog)
        self._ledger.members({n: peer.incarnation for n, peer in self._peers.items()})
        for gone in self._said.keys() - self._peers.keys():
            del self._said[gone]
        for gone in self._acknowledged.keys() - self._peers.keys():
            del self._acknowledged[gone]

    def _follow_drain(self, catalog: Catalog) -> None:
        """Hand over reads while the log says that this node drains, also after a restart."""
        was = self._seen is not None and self._config.node_id in self._seen.draining
        drains = self._config.node_id in catalog.draining
        if drains and not was:
            self._leaving.begin()
        elif was and not drains:
            self._leaving.end()

    def _do(self, orders: list[Order]) -> None:
        for order in orders:
            _tell(order)
        if orders:
            self._pages.publish_verdicts()

    def publish(self) -> None:
        """Publish to the workers what changed."""
        self._pages.publish(age_ms_max=self._reports_age_ms_max if self._by_reports else 0)


def _tell(order: Order) -> None:
    """Changes are logged, heartbeats are not (ksql#8224)."""
    if isinstance(order, CheckVoid):
        _log.warning("this node was not listening: no peer is judged", late_ms=int(order.late_ms))
        return
    silent_ms = None if order.silent_ms is None else int(order.silent_ms)
    _log.info(f"peer is {order.health.name.lower()}", peer=order.node, silent_ms=silent_ms)
