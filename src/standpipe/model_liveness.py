"""Lags that nodes report for their replicas, and their verdicts on each other's liveness.

Wire format of heartbeats and reports (`node/liveness/wire.py`) and of `run/lags` and
`run/liveness`.
"""

from __future__ import annotations

from standpipe.model import BatchId, Health, NodeId, Offset, Record, ReplicaId, ReplicaState


class ReplicaLag(Record, frozen=True, kw_only=True, array_like=True):
    """How far one replica has read, as its node reports it: KIP-535's LagInfo, and our fields.

    Named by table id and generation, so that a dropped table's lag is never taken for a new one's.
    """

    table_id: str
    generation: int
    partition: int
    position: Offset  # KIP-535: currentOffsetPosition
    committed_end: Offset  # KIP-535: endOffsetPosition; -1: unknown
    state: ReplicaState
    batch: BatchId
    replica_lag_ms: int | None = None  # at the time of the report; None: never confirmed
    store_bytes: int = 0  # on disk, updated occasionally
    #: at the time of the report; None: unknown, or an older release
    source_lag_ms: int | None = None

    @property
    def replica_id(self) -> ReplicaId:
        """The replica whose lag this is."""
        return ReplicaId(self.table_id, self.generation, self.partition)


class OwnLags(Record, frozen=True, kw_only=True):
    """Answer of `GET /replica-lags`: a node's own replicas that may answer reads."""

    node_id: NodeId
    lags: tuple[ReplicaLag, ...]


class LagDelta(Record, frozen=True, kw_only=True):
    """What changed in a node's lags since the `base` that the receiver acknowledged."""

    session: int  # grows with every start of the sender
    base: int  # version that the receiver acknowledged; 0: nothing
    through: int  # version that it has after this delta
    #: over all lags of the sender; None: there are more changes than fit into one heartbeat
    digest: int | None
    changes: tuple[ReplicaLag, ...] = ()


class KnownLag(Record, frozen=True, kw_only=True, array_like=True):
    """A reported lag at its receiver, with the instant at which it was last true."""

    node_id: NodeId
    lag: ReplicaLag
    at_boot_ms: int
    reported_boot_ms: int  # its lag in ms has grown since (`control.liveness.lag.known_lag_ms`)


class KnownLags(Record, frozen=True, kw_only=True):
    """`run/lags`: what the controller publishes to its node's workers about other nodes'
    replicas."""

    published_boot_ms: int
    known: tuple[KnownLag, ...] = ()
    age_ms_max: int = 0  # how long each is valid; 0: heartbeats confirm them continuously
    refused_count: int = 0  # reports that could not be true, since control started


class PeerLiveness(Record, frozen=True, kw_only=True):
    """A node's verdict on a peer, and what the peer reports about itself."""

    node_id: NodeId
    health: Health
    is_held_down: bool = False  # it is DOWN although it sends heartbeats: it came back too often
    beat_boot_ms: int = 0  # its last heartbeat; 0: none
    workers_ok: bool = True  # by its own report: none hangs and at least one is alive
    tailer_ok: bool = True
    is_leaving: bool = False  # it is drained or about to stop


class Liveness(Record, frozen=True, kw_only=True):
    """`run/liveness`: the verdicts on all peers, for the workers of the node."""

    published_boot_ms: int
    peers: tuple[PeerLiveness, ...] = ()
