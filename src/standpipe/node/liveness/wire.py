"""Bodies of `POST /heartbeat` and `POST /lag`: ksqlDB's shapes, ours under `standpipe`. Pure.

A body without our part is accepted too, so that what was written for ksqlDB works here. Sources:
KLIP-12 "/heartbeat", "/reportlag"; ksqlDB's /clusterStatus; KIP-535 LagInfo.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from standpipe.control.liveness.gossip import WELL, Note, Rumour
from standpipe.control.liveness.lag import digest_of, offset_lag
from standpipe.data.replica.positions import replica_lag_ms, source_lag_ms
from standpipe.model import (
    NO_BATCH,
    NodeId,
    NodeInfo,
    Offset,
    Record,
    ReplicaId,
    ReplicaState,
    ReplicaStatus,
    Source,
)
from standpipe.model_liveness import LagDelta, ReplicaLag

#: The peer listener answers it at once: does a worker respond?
PROBE_PATH: Final = "/probe"


class BeatExtra(Record, frozen=True, kw_only=True):
    """What our nodes add to a heartbeat."""

    node_id: NodeId
    incarnation: str
    workers_ok: bool = True
    tailer_ok: bool = True
    is_leaving: bool = False
    lags: LagDelta | None = None
    #: in a large cluster (`control.liveness.gossip`); None: the sender sends one to all nodes
    digest: int | None = None
    rumours: tuple[Rumour, ...] = ()
    #: False: this message is no heartbeat and only carries rumours
    is_beat: bool = True

    @property
    def note(self) -> Note:
        """What it says about its sender."""
        sick = Note.WORKERS_SICK if not self.workers_ok else WELL
        sick |= Note.TAILER_SICK if not self.tailer_ok else WELL
        return sick | (Note.LEAVING if self.is_leaving else WELL)


class Beat(Record, frozen=True, kw_only=True):
    """Body of /heartbeat. `timestamp` is the sender's clock; no decision uses it."""

    hostInfo: str  # noqa: N815 ksqlDB's name
    timestamp: int
    standpipe: BeatExtra | None = None


class BeatAnswer(Record, frozen=True, kw_only=True):
    """`lag_version`: version of the sender's lags that the receiver has now."""

    ok: bool = True
    lag_version: int | None = None
    #: everything the receiver knows, if the sender's digest differs
    digest: int | None = None
    rumours: tuple[Rumour, ...] = ()


class LagInfo(Record, frozen=True, kw_only=True):
    """KIP-535's, under ksqlDB's names."""

    currentOffsetPosition: int  # noqa: N815 KIP-535's name
    endOffsetPosition: int  # noqa: N815 KIP-535's name
    offsetLag: int  # noqa: N815 KIP-535's name


class StoreLags(Record, frozen=True, kw_only=True):
    """Lags of one store's partitions, in ksqlDB's shape."""

    lagByPartition: dict[int, LagInfo]  # noqa: N815 ksqlDB's name


class HostStoreLags(Record, frozen=True, kw_only=True):
    """Lags of a host's stores. `updateTimeMs`: Unix time of the sender."""

    stateStoreLags: dict[str, StoreLags]  # noqa: N815 ksqlDB's name
    updateTimeMs: int = 0  # noqa: N815 ksqlDB's name


class LagExtra(Record, frozen=True, kw_only=True):
    """Our nodes' report: all lags, with their version."""

    node_id: NodeId
    incarnation: str
    lags: LagDelta


class LagReport(Record, frozen=True, kw_only=True):
    """Body of /lag and /reportlag."""

    ksqlHost: str  # noqa: N815 ksqlDB's name
    hostStoreLags: HostStoreLags  # noqa: N815 ksqlDB's name
    standpipe: LagExtra | None = None


def store_name(table: Source) -> str:
    """Name of a table's state store, as ksqlDB reports it: `<query id>#<store>`."""
    return f"{table.query_id or table.name}#Aggregate-Aggregate-Materialize"


def lag_of(
    replica: ReplicaId, status: ReplicaStatus, now_boot_ms: int, store_bytes: int = 0
) -> ReplicaLag:
    """A status page as it is reported: what this replica knows itself, nothing that a peer said.

    The source lag is that by this node's own clock. What the pipeline's clock says is left out: the
    reader would have to trust the clocks of three machines.
    """
    table_id, generation, partition = replica
    source_ms = source_lag_ms(status, 0, now_ms=0, now_boot_ms=now_boot_ms)
    return ReplicaLag(
        table_id=table_id,
        generation=generation,
        partition=partition,
        position=status.position,
        committed_end=status.committed_end,
        state=status.state,
        batch=status.batch,
        replica_lag_ms=replica_lag_ms(status, now_boot_ms),
        store_bytes=store_bytes,
        source_lag_ms=source_ms,
    )


def store_lags(
    lags: Iterable[ReplicaLag], tables: Mapping[tuple[str, int], Source]
) -> dict[str, StoreLags]:
    """KIP-535's LagInfo per store and partition. Unknown ends and tables are left out, never 0."""
    stores: dict[str, dict[int, LagInfo]] = {}
    for lag in lags:
        table = tables.get((lag.table_id, lag.generation))
        behind = offset_lag((lag.committed_end,), lag.position)
        if table is not None and behind is not None:
            stores.setdefault(store_name(table), {})[lag.partition] = LagInfo(
                currentOffsetPosition=lag.position,
                endOffsetPosition=lag.committed_end,
                offsetLag=behind,
            )
    return {name: StoreLags(lagByPartition=infos) for name, infos in stores.items()}


def delta_of(report: LagReport, tables: Iterable[Source]) -> LagDelta:
    """A ksqlDB report as a full one of ours: session 0, and the sender's time as its version."""
    named = {store_name(table): table for table in tables}
    lags = [
        ReplicaLag(
            table_id=named[store].table_id or "",
            generation=named[store].generation,
            partition=partition,
            position=Offset(info.currentOffsetPosition),
            committed_end=Offset(info.endOffsetPosition),
            state=ReplicaState.RUNNING,
            batch=NO_BATCH,
        )
        for store, by_partition in report.hostStoreLags.stateStoreLags.items()
        if store in named
        for partition, info in by_partition.lagByPartition.items()
    ]
    version = report.hostStoreLags.updateTimeMs
    return LagDelta(session=0, base=0, through=version, digest=digest_of(lags), changes=tuple(lags))


def node_named(host: str, nodes: Iterable[NodeInfo]) -> NodeInfo | None:
    """The member that a ksqlDB body names by one of its addresses."""
    return next((n for n in nodes if host in (n.public, n.internal, n.peer)), None)
