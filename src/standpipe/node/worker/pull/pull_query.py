"""One pull query in progress. Not here: how it is answered (`node.worker.pull.slow_path`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from standpipe.control.routing.bounds import Bounds
from standpipe.control.routing.session import Stamp
from standpipe.data.query.partition_keys import PartitionKeys
from standpipe.data.query.scan import rows_bytes
from standpipe.errors import BadRequest
from standpipe.model import ReplicaId
from standpipe.node.worker.pull.forward import PartitionAnswer
from standpipe.node.worker.pull.linearizable import LinearRead
from standpipe.node.worker.pull.session_read import SessionRead, stamp_of
from standpipe.node.worker.pull.snapshot_read import SnapshotRead
from standpipe.node.worker.request.cluster_view import ClusterView
from standpipe.node.worker.request.scan_requester import ScanRequester
from standpipe.sql.plans import PARTITION_PROPERTY, PullPlan


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
    #: None: another level than `snapshot`
    snapshot: SnapshotRead | None = None
    #: None: another level than `linearizable`
    linear: LinearRead | None = None
    #: the only one that a scan reads; None: all
    partition: int | None = None

    @property
    def partitions(self) -> Sequence[int]:
        """Those that are read."""
        if self.partition is not None:
            return (self.partition,)
        return range(self.plan.source.partitions) if self.plan.is_scan else tuple(self.keys)

    @property
    def is_stamped(self) -> bool:
        """Whether each part of the answer says its batch with the lease epoch."""
        return self.session is not None or self.snapshot is not None

    def wanting(self, wanted: Stamp | None, limit_ms: int | None = None) -> PullQuery:
        """The same at level `snapshot`, of that batch or a later one. `limit_ms`: if another."""
        left_ms = self.time_limit_ms if limit_ms is None else limit_ms
        return replace(self, snapshot=SnapshotRead(wanted), time_limit_ms=left_ms)

    def stamped(self, part: PartitionAnswer) -> PartitionAnswer:
        """A part of a client's answer: its stamp apart, as clients have no use for lease epochs."""
        if not self.is_stamped:
            return part
        shown = structs.replace(part.fresh, lease_epoch=None)
        return PartitionAnswer(rows=part.rows, fresh=shown, stamps=(stamp_of(part.fresh),))

    def dropped(self, part: PartitionAnswer) -> None:
        """Rows of it that no answer shows are no longer charged to its requester."""
        self.requester.hold(-rows_bytes(part.rows))

    def replica_id(self, partition: int) -> ReplicaId:
        """The replica of this query's table."""
        return self.plan.source.replica_id(partition)


def check_partition(partition: int | None, plan: PullPlan) -> None:
    """Raises BadRequest if the table has no partition of that number, or if the query names keys,
    which have partitions of their own."""
    if partition is None:
        return
    if not plan.is_scan:
        raise BadRequest(f"{PARTITION_PROPERTY} is for scans, and this query names keys")
    if partition >= plan.source.partitions:
        raise BadRequest(
            f"{PARTITION_PROPERTY} = {partition}: {plan.source.name} has"
            f" {plan.source.partitions} partitions, from 0 on"
        )
