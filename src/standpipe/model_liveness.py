"""Lags that nodes report of their replicas, and verdicts on each other's liveness.

Wire format of beats and reports (`node/liveness/wire.py`) and of `run/lags` and `run/liveness`.
"""

from __future__ import annotations

from standpipe.model import BatchId, Health, NodeId, Offset, Record, ReplicaId, ReplicaState


class ReplicaLag(Record, frozen=True, kw_only=True, array_like=True):
    """How far one replica is, as its node reports it: KIP-535's LagInfo, and ours.

    Named by table id and generation, so that a table of the past cannot speak for one of now.
    """

    table_id: str
    generation: int
    partition: int
    position: Offset  # KIP-535: currentOffsetPosition
    committed_end: Offset  # KIP-535: endOffsetPosition; -1: unknown
    state: ReplicaState
    batch: BatchId
    replica_lag_ms: int | None = None  # when it was reported; None: never confirmed
    store_bytes: int = 0  # on disk, now and then

    @property
    def replica_id(self) -> ReplicaId:
        """Whose lag it is."""
        return ReplicaId(self.table_id, self.generation, self.partition)


class LagDelta(Record, frozen=True, kw_only=True):
    """What of a node's lags changed since the receiver acknowledged `base` (rides on a beat)."""

    session: int  # grows with every start of the sender
    base: int  # version that the receiver said it has; 0: nothing
    through: int  # version that it has after this
    #: over all lags of the sender; None: there are more changes than fit into one beat
    digest: int | None
    changes: tuple[ReplicaLag, ...] = ()


class KnownLag(Record, frozen=True, kw_only=True, array_like=True):
    """A reported lag at its receiver, which knows when it was last true."""

    node_id: NodeId
    lag: ReplicaLag
    at_boot_ms: int
    reported_boot_ms: int  # its lag in ms has grown since (`control.liveness.lag.known_lag_ms`)


class KnownLags(Record, frozen=True, kw_only=True):
    """`run/lags`: what the controller tells the workers of its node about the replicas of
    others."""

    published_boot_ms: int
    known: tuple[KnownLag, ...] = ()
    age_ms_max: int = 0  # for so long each is believed; 0: beats confirm them all the time


class PeerLiveness(Record, frozen=True, kw_only=True):
    """A node's verdict on a peer, and what the peer says of itself."""

    node_id: NodeId
    health: Health
    is_held_down: bool = False  # it is DOWN and beats: it came back too often
    beat_boot_ms: int = 0  # its last beat; 0: none
    workers_ok: bool = True  # its own word: none hangs and at least one lives
    tailer_ok: bool = True
    is_leaving: bool = False  # it is drained or about to stop


class Liveness(Record, frozen=True, kw_only=True):
    """`run/liveness`: the verdicts on all peers, for the workers of the node."""

    published_boot_ms: int
    peers: tuple[PeerLiveness, ...] = ()
