"""One pull query in progress. Not here: how it is answered (`node.worker.pull.slow_path`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from standpipe.control.routing.bounds import Bounds
from standpipe.data.query.partition_keys import PartitionKeys
from standpipe.model import ReplicaId
from standpipe.node.worker.pull.linearizable import LinearRead
from standpipe.node.worker.pull.session_read import SessionRead
from standpipe.node.worker.request.cluster_view import ClusterView
from standpipe.node.worker.request.scan_requester import ScanRequester
from standpipe.sql.plans import PullPlan


@dataclass(frozen=True)
class PullQuery:
    """One query in progress, and the view that it began with."""

    text: str
    body: bytes
    view: ClusterView
    plan: PullPlan
    bounds: Bounds
    requester: ScanRequester
    #: for all tries at a partition
    time_limit_ms: int
    #: names the text (`node.worker.request.in_hand`)
    digest: bytes
    #: the keys of each partition that holds some; a scan has none
    keys: Mapping[int, PartitionKeys]
    #: None: another level than `session`
    session: SessionRead | None = None
    #: None: another level than `linearizable`
    linear: LinearRead | None = None

    @property
    def partitions(self) -> Sequence[int]:
        """Those that are read."""
        return range(self.plan.source.partitions) if self.plan.is_scan else tuple(self.keys)

    def replica_id(self, partition: int) -> ReplicaId:
        """The replica of this query's table."""
        return self.plan.source.replica_id(partition)
