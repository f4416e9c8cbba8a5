"""The routes to each partition, kept until something they came from has changed.

A decision costs about 20 us, too much for each read: so it is made when the map, the replica's
status, control's reports, a breaker or the bound has changed, and looked up otherwise (about 1 us).

Not here: the decision (`control.routing.route`), the reads (`node.worker.pull.slow_path`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from standpipe.config import keys, registry
from standpipe.control.liveness.lag import NO_END
from standpipe.control.routing.route import LAG_UNBOUNDED, Bounds, Verdict, lag_bound, route
from standpipe.model import NodeId, Offset, ReplicaId, ReplicaStatus, Source
from standpipe.node.liveness.peer_state import PeerState, PeerStateReader
from standpipe.node.worker.pull.forward import Forwarder
from standpipe.node.worker.request.cluster_view import OPEN_STORES_MAX, ClusterView

#: Bounds that requests asked for and that are remembered; clients could vary them.
BOUNDS_MAX = 256


@dataclass(slots=True)
class CachedRoute:
    """The routes to one partition, and all that they were decided from."""

    view: ClusterView
    status: ReplicaStatus | None
    bounds: Bounds
    suspects: frozenset[NodeId]
    state: PeerState
    verdicts: list[Verdict]
    #: the largest committed end that others reported
    reported_end: Offset
    #: freshness headers of this node's answer, valid for the millisecond and the end in `labelled`
    label: bytes = b""
    labelled: tuple[int, Offset] = (-1, NO_END)


@dataclass
class RouteCache:
    """The routes of one worker."""

    node_id: NodeId
    settings: registry.Config
    forwarder: Forwarder
    peers: PeerStateReader
    #: the newest decision on each partition that was asked for
    _known: dict[ReplicaId, CachedRoute] = field(default_factory=dict[ReplicaId, CachedRoute])
    #: (request's bound, table's bound) -> the effective bounds; the same object each time
    _bounds: dict[tuple[int | None, int | None], Bounds] = field(
        default_factory=dict[tuple[int | None, int | None], Bounds]
    )

    def __post_init__(self) -> None:
        self.policy = self.settings[keys.ROUTING_POLICY]
        self.limit = self.settings[keys.LAG_LIMIT]
        self.own = Bounds(
            lag_records_max=min(self.settings[keys.LAG_MAX], self.limit, LAG_UNBOUNDED),
            standby_reads=self.settings[keys.STANDBY_READS],
        )

    def bounds(self, request: int | None, source: Source) -> Bounds:
        """The bounds that apply to a read of a table."""
        table = source.offset_lag_max
        if request is None and table is None:
            return self.own
        found = self._bounds.get((request, table))
        if found is None:
            if len(self._bounds) >= BOUNDS_MAX:
                self._bounds.clear()
            lag = lag_bound(
                request=request, table=table, node=self.own.lag_records_max, limit=self.limit
            )
            found = self._bounds[request, table] = replace(self.own, lag_records_max=lag)
        return found

    def of(
        self, view: ClusterView, replica_id: ReplicaId, status: ReplicaStatus | None, bounds: Bounds
    ) -> CachedRoute:
        """The routes to one partition."""
        known = self._known.get(replica_id)
        suspects = self.forwarder.suspects(view.nodes)
        if (
            known is not None
            and known.status is status
            and known.view is view
            and known.bounds is bounds
            and known.state is self.peers.state
            and known.suspects == suspects
        ):
            return known
        if len(self._known) >= OPEN_STORES_MAX:
            self._known.clear()
        state = self.peers.state
        verdicts = self._routed(view, replica_id, status, bounds, suspects=suspects)
        end = self.reported_end(replica_id)
        decided = CachedRoute(view, status, bounds, suspects, state, verdicts, end)
        self._known[replica_id] = decided
        return decided

    def reported_end(self, replica_id: ReplicaId) -> Offset:
        """The furthest committed end of a partition that others reported; NO_END: none."""
        return self.peers.state.end_of(replica_id)

    def known_end(self, replica_id: ReplicaId, status: ReplicaStatus | None) -> Offset | None:
        """The furthest committed end that this node knows of a partition; None: none."""
        own = status.committed_end if status is not None else NO_END
        end = max(own, self.reported_end(replica_id))
        return end if end >= 0 else None

    def _routed(
        self,
        view: ClusterView,
        replica_id: ReplicaId,
        status: ReplicaStatus | None,
        bounds: Bounds,
        *,
        suspects: frozenset[NodeId],
    ) -> list[Verdict]:
        placement = view.placements.get(replica_id)
        if placement is None:
            return []
        return route(
            placement,
            view.nodes,
            local=self.node_id,
            local_status=status,
            suspects=suspects,
            heard=self.peers.state.of(replica_id),
            bounds=bounds,
            policy=self.policy,
        )


def newer_owners(
    view: ClusterView, owners: Sequence[NodeId], epoch: int, known: Sequence[Verdict]
) -> list[Verdict]:
    """Candidates that a host with a newer map names and that this node's map does not."""
    if epoch <= view.snapshot.assignment.epoch:
        return []
    seen = {verdict.node_id for verdict in known}
    return [
        Verdict(
            node_id=owner,
            role="ACTIVE" if place == 0 else "STANDBY",
            ok=True,
            why=f"Named by a host whose map is newer (assignment epoch {epoch}).",
            info=view.nodes[owner],
        )
        for place, owner in enumerate(owners)
        if owner in view.nodes and owner not in seen
    ]
