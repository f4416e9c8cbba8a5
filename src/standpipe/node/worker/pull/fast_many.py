"""Many keys on the fast path: one read of each partition, if this node may answer for all of them.

    keys_by_partition  each key hashed once
    RouteCache.of      the verdict on each partition, before any row is read
    lookup_keys        one LMDB transaction for each partition; its meta labels the rows
    oldest             freshness of the parts as that of the whole

It answers as the slow path would, or leaves the request to it: where another replica is first, or
none is usable, for windows and computed columns, and for answers so large that they are sent in
pieces. More keys than KEYS_MAX are left as well, since a lookup of one key would wait behind
them: the slow path lets the loop turn after each partition.

Not here: the request and the response (`node.worker.pull.fast_path`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from msgspec.structs import replace

from standpipe.adapters.clock import Clock
from standpipe.adapters.store.reader import View
from standpipe.control.routing.bounds import Bounds
from standpipe.control.routing.route import Verdict
from standpipe.data.query.partition_keys import PartitionKeys, keys_by_partition
from standpipe.data.query.pull import is_plain, lookup_keys
from standpipe.data.replica.positions import StoreMeta, may_judge
from standpipe.freshness import Freshness
from standpipe.model import NodeId, ReplicaStatus
from standpipe.node.worker.pull.forward_checks import check, excess_lag, furthest
from standpipe.node.worker.pull.forward_headers import ForwardHeaders
from standpipe.node.worker.pull.route_cache import CachedRoute, RouteCache
from standpipe.node.worker.request.answer import freshness_of, oldest
from standpipe.node.worker.request.answer_pieces import PIECE_BYTES
from standpipe.node.worker.request.cluster_view import ClusterView, LocalReplica, Replicas
from standpipe.sql.plans import PullPlan

#: Keys that are read without a turn of the loop: they take as long as a slice of a scan.
KEYS_MAX: Final = 256


class ManyRows(NamedTuple):
    """The rows of all partitions, and how fresh they are."""

    rows: list[bytes]
    fresh: Freshness
    #: what was recorded with the rows of each partition
    metas: list[StoreMeta]


class _Part(NamedTuple):
    """A partition that this node may answer for."""

    asked: PartitionKeys
    replica: LocalReplica
    status: ReplicaStatus
    route: CachedRoute
    verdict: Verdict


class _TooLargeError(Exception):
    """The rows are to be sent in pieces."""


@dataclass
class _Size:
    """Bytes of the rows that were read."""

    bytes_: int = 0

    def add(self, rows: list[bytes]) -> None:
        self.bytes_ += sum(map(len, rows))
        if self.bytes_ > PIECE_BYTES:
            raise _TooLargeError


@dataclass
class ManyKeys:
    """Lookups of many keys in the stores of this node."""

    node_id: NodeId
    replicas: Replicas
    routes: RouteCache
    clock: Clock = field(default_factory=Clock)

    def read(
        self, plan: PullPlan, view: ClusterView, bounds: Bounds, forward: ForwardHeaders | None
    ) -> ManyRows | None:
        """The rows of all keys; None: the slow path finds them.

        Raises ForwardRefused if a peer means another table, NotReady, DamagedRow, UnfitKey.
        """
        if not is_plain(plan):
            return None
        wanted = keys_by_partition(plan)
        if forward is not None:
            check(forward, plan.source, tuple(wanted))
            if forward.partition is not None:
                wanted = {forward.partition: wanted[forward.partition]}
        if sum(len(asked.keys) for asked in wanted.values()) > KEYS_MAX:
            return None
        parts = self._parts(plan, wanted, view, bounds, forward)
        if not parts:
            return None
        rows: list[bytes] = []
        size = _Size()
        try:
            metas = [self._take(plan, part, rows, size) for part in parts]
        except _TooLargeError:
            return None
        if not all(may_judge(part.status, meta) for part, meta in zip(parts, metas, strict=True)):
            return None
        boot_ms, unix_ms = self.clock.boot_ms(), int(time.time() * 1000)
        fresh = [
            self._fresh(part, meta, forward, boot_ms, unix_ms)
            for part, meta in zip(parts, metas, strict=True)
        ]
        return ManyRows(rows[: plan.limit], oldest(fresh), metas)

    def _parts(
        self,
        plan: PullPlan,
        wanted: Mapping[int, PartitionKeys],
        view: ClusterView,
        bounds: Bounds,
        forward: ForwardHeaders | None,
    ) -> list[_Part] | None:
        """None: this node is not to answer for one of them."""
        parts: list[_Part] = []
        for partition, asked in wanted.items():
            replica_id = plan.source.replica_id(partition)
            replica = self.replicas.get(replica_id)
            status = replica.status()
            route = self.routes.of(view, replica_id, status, bounds)
            verdict = route.first_here(is_forward=forward is not None)
            if verdict is None or status is None:
                return None
            if forward is not None and excess_lag(forward, status, bounds) is not None:
                return None
            parts.append(_Part(asked, replica, status, route, verdict))
        return parts

    def _take(self, plan: PullPlan, part: _Part, rows: list[bytes], size: _Size) -> StoreMeta:
        """Append the rows of a partition; what was recorded with them."""
        store = part.replica.store
        with store.begin() as instant:
            rows += lookup_keys(plan, View(instant), part.asked, size.add)
            return store.meta_of(instant)

    def _fresh(
        self,
        part: _Part,
        meta: StoreMeta,
        forward: ForwardHeaders | None,
        boot_ms: int,
        unix_ms: int,
    ) -> Freshness:
        end = furthest(forward, part.route.reported_end)
        fresh = freshness_of(
            part.status,
            meta,
            reported_end=end,
            served_by=self.node_id,
            role=part.verdict.role.lower(),
            boot_ms=boot_ms,
            unix_ms=unix_ms,
        )
        if forward is None:
            return fresh
        return replace(fresh, committed_end=max(end, part.status.committed_end))
