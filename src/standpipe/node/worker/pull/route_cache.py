"""The routes to each partition, kept until something they came from has changed.

A decision costs about 20 us, too much for each read: so it is made when the map, the replica's
status, control's reports, a breaker or the bound has changed, and looked up otherwise (about 1 us).

Not here: the decision (`control.routing.route`), the reads (`node.worker.pull.slow_path`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from standpipe.adapters.clock import Clock
from standpipe.config import keys, lags, registry
from standpipe.control.liveness.lag import NO_END
from standpipe.control.routing.bounds import (
    LAG_UNBOUNDED,
    NOTHING_ASKED,
    AskedBounds,
    Bounds,
    bounds_in_force,
    of_table,
)
from standpipe.control.routing.route import Verdict, route
from standpipe.data.replica.positions import StoreMeta, end_age_ms, tailer_silent_ms
from standpipe.model import NodeId, Offset, ReplicaId, ReplicaStatus, Source
from standpipe.node.liveness.peer_state import PeerState, PeerStateReader
from standpipe.node.worker.pull.forward import Forwarder
from standpipe.node.worker.request.cluster_view import OPEN_STORES_MAX, ClusterView

#: Bounds that requests asked for and that are remembered; clients could vary them.
BOUNDS_MAX = 256
#: A tailer writes its pages every 50 ms. One that is silent for so long is dead, or has not read
#: Kafka for so long: a bounded read takes another replica. A large transaction takes up to 1 s.
TAILER_SILENT_MS_MAX: Final = 3000
TAILER_SILENT: Final = "Lag is not known: this host's tailer has been silent for {age_ms} ms."
KAFKA_SILENT: Final = "Lag is not known: Kafka last answered here {age_ms} ms ago."


@dataclass(slots=True)
class CachedRoute:
    """The routes to one partition, and all that they were decided from."""

    view: ClusterView
    status: ReplicaStatus | None
    bounds: Bounds
    #: of the forwarder
    open_paths: frozenset[str]
    state: PeerState
    verdicts: list[Verdict]
    #: the largest committed end that others reported
    reported_end: Offset
    #: of bounded reads: boot ms at which the replica's lag becomes unknown; None: it is already
    due_boot_ms: int | None = None
    #: freshness headers of this node's answer, valid for the millisecond, the end and the meta of
    #: the rows in `labelled`
    label: bytes = b""
    labelled: tuple[int, Offset, StoreMeta | None] = (-1, NO_END, None)

    def is_over(self, boot_ms: int) -> bool:
        """Whether the time has ended that it was decided for."""
        return self.due_boot_ms is not None and boot_ms >= self.due_boot_ms

    def first_here(self, *, is_forward: bool) -> Verdict | None:
        """The verdict by which this node answers now; None: another is first, or it may not.

        A forward is answered by any replica that may.
        """
        verdicts = self.verdicts
        if is_forward:
            return next((each for each in verdicts if each.is_local and each.ok), None)
        if verdicts and (first := verdicts[0]).is_local and first.ok:
            return first
        return None


@dataclass
class RouteCache:
    """The routes of one worker."""

    node_id: NodeId
    settings: registry.Config
    forwarder: Forwarder
    peers: PeerStateReader
    clock: Clock = field(default_factory=Clock)
    #: the newest decision on each partition that was asked for
    _known: dict[ReplicaId, CachedRoute] = field(default_factory=dict[ReplicaId, CachedRoute])
    #: the map that they are of: an older one is large, and none of its decisions holds
    _view: ClusterView | None = None
    #: (request's bounds, table's) -> the bounds in force; the same object each time
    _bounds: dict[tuple[AskedBounds, AskedBounds], Bounds] = field(
        default_factory=dict[tuple[AskedBounds, AskedBounds], Bounds]
    )

    def __post_init__(self) -> None:
        self.policy = self.settings[keys.ROUTING_POLICY]
        self.end_age_ms_max = self.settings[lags.LAG_END_AGE]
        self.limit = self.settings[lags.LAG_LIMIT]
        self.own = Bounds(
            lag_records_max=min(self.settings[lags.LAG_MAX], self.limit, LAG_UNBOUNDED),
            replica_lag_ms_max=self.settings[lags.REPLICA_LAG_MAX],
            source_lag_ms_max=self.settings[lags.SOURCE_LAG_MAX],
            standby_reads=self.settings[keys.STANDBY_READS],
        )

    def bounds(self, asked: AskedBounds, source: Source) -> Bounds:
        """The bounds that apply to a read of a table."""
        if asked is NOTHING_ASKED and source.offset_lag_max is None and not source.time_bounds:
            return self.own
        table = of_table(source)
        found = self._bounds.get((asked, table))
        if found is None:
            if len(self._bounds) >= BOUNDS_MAX:
                self._bounds.clear()
            found = bounds_in_force(asked, self.own, table=table, limit=self.limit)
            self._bounds[asked, table] = found
        return found

    def is_current(self, route: CachedRoute, view: ClusterView) -> bool:
        """Whether nothing has changed that the route was decided from, besides the status, which
        its holder compares."""
        is_dated = route.due_boot_ms is not None
        return self.is_same(route, view) and not (is_dated and route.is_over(self.clock.boot_ms()))

    def is_same(self, route: CachedRoute, view: ClusterView) -> bool:
        """As `is_current`, for a caller that compares the time, too."""
        return (
            route.view is view
            and route.state is self.peers.state
            and route.open_paths is self.forwarder.open_paths
        )

    def of(
        self, view: ClusterView, replica_id: ReplicaId, status: ReplicaStatus | None, bounds: Bounds
    ) -> CachedRoute:
        """The routes to one partition."""
        known = self._known.get(replica_id)
        if (
            known is not None
            and known.status is status
            and known.bounds is bounds
            and self.is_current(known, view)
        ):
            return known
        suspects = self.forwarder.suspects(view.nodes)
        if view is not self._view or len(self._known) >= OPEN_STORES_MAX:
            self._known.clear()
            self._view = view
        state = self.peers.state
        lag_unknown, due_boot_ms = self._lag_unknown(status, bounds)
        verdicts = self._routed(
            view, replica_id, status, bounds, suspects=suspects, lag_unknown=lag_unknown
        )
        end = self.reported_end(replica_id)
        paths = self.forwarder.open_paths
        decided = CachedRoute(view, status, bounds, paths, state, verdicts, end, due_boot_ms)
        self._known[replica_id] = decided
        return decided

    def _lag_unknown(self, status: ReplicaStatus | None, bounds: Bounds) -> tuple[str, int | None]:
        """For bounded reads: why the lag of this node's replica is not known, and the boot ms from
        which it will not be. Its tailer may have died, or hear nothing of Kafka."""
        if status is None or not bounds.is_lag_bounded:
            return "", None
        now_boot_ms = self.clock.boot_ms()
        due_boot_ms: list[int] = []
        for said, age_ms, age_ms_max in (
            (TAILER_SILENT, tailer_silent_ms(status, now_boot_ms), TAILER_SILENT_MS_MAX),
            (KAFKA_SILENT, end_age_ms(status, now_boot_ms), self.end_age_ms_max),
        ):
            if age_ms is None:  # an end that was never confirmed is unknown, too
                continue
            if age_ms >= age_ms_max:
                return said.format(age_ms=age_ms), None
            due_boot_ms.append(now_boot_ms + age_ms_max - age_ms)
        return "", min(due_boot_ms, default=None)

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
        lag_unknown: str,
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
            lag_unknown=lag_unknown,
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
