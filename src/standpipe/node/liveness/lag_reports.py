"""What a node reports about its own replicas besides heartbeats: the body of `/lag`, to whom, and
when.

A full report is sent each LAG SEND. Where heartbeats carry no lags, because they are off or the
cluster is large, *news* does not wait for the interval: another leader, another co-holder, a
replica that changed state, a peer that restarted and needs everything again.

In a large cluster lags go to the nodes that hold copies of the same partitions, which compute their
own lags from the reported ends, and to the leader, which assigns. Any other entry node lacks them:
the target of its forward judges by itself.

Not here: who is a member, the sending (`node.liveness.loop`); versions and deltas
(`control.liveness.lag`).
"""

from __future__ import annotations

from typing import Final

from standpipe.control.liveness.lag import Reporter, audience
from standpipe.control.metadata.catalog import Catalog
from standpipe.model import NodeId
from standpipe.node.liveness.wire import HostStoreLags, LagExtra, LagReport, store_lags

#: The shortest time between news of one node: a flapping replica must not flood the others.
NEWS_MS: Final = 1000


class LagReports:
    """One node's reports. Instants are of its boot clock, in ms."""

    def __init__(self, me: NodeId, incarnation: str, host: str, session: int) -> None:
        self._me, self._incarnation, self._host = me, incarnation, host
        self.reporter = Reporter(session)
        #: nodes that hold copies of what this one holds
        self._audience: frozenset[NodeId] = frozenset()
        #: leader, co-holders and states as they were sent last
        self._news: object = None
        self._news_ms = -NEWS_MS

    def follow(self, catalog: Catalog) -> None:
        """Adopt a newer catalog: other nodes may share this one's partitions."""
        self._audience = audience(catalog.assignment.placements, self._me)

    def hearers(self, leader: NodeId) -> frozenset[NodeId]:
        """The nodes that need this node's lags in a large cluster."""
        return self._audience | {leader}

    def take_news(self, leader: NodeId, now_ms: int) -> bool:
        """Whether there is news to send now; if so, it counts as sent."""
        if now_ms - self._news_ms < NEWS_MS:
            return False
        states = frozenset((lag.replica_id, lag.state) for lag in self.reporter.lags)
        if self._news == (news := (leader, self._audience, states)):
            return False
        self._news, self._news_ms = news, now_ms
        return True

    def forget_news(self) -> None:
        """Receivers have forgotten what was sent, or believe it for a shorter time."""
        self._news = None

    def full(self, catalog: Catalog, wall_ms: int) -> LagReport:
        """All lags of this node."""
        tables = {(s.table_id or "", s.generation): s for s in catalog.generations}
        return LagReport(
            ksqlHost=self._host,
            hostStoreLags=HostStoreLags(
                stateStoreLags=store_lags(self.reporter.lags, tables), updateTimeMs=wall_ms
            ),
            standpipe=LagExtra(
                node_id=self._me, incarnation=self._incarnation, lags=self.reporter.full()
            ),
        )
