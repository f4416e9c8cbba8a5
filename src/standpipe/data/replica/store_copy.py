"""How a replica without a store gets one: from which peer, how far it is, when it will be done.

A peer's store is copied, verified and then tailed from its position. The time grows with the size
of the rows, whereas that of a replay grows with the changelog. Donors are live peers that hold the
partition and answer from it: first the one with the newest rows; of equals a standby, so that the
active keeps its disk for readers. While no donor is known the node waits a moment, since after its
start it hears from peers only after some heartbeats. Without any donor it replays. Pure.

Source: ours (KIP-535 restores from the changelog alone). Not here: the copy
(`adapters.store.copy`), the transport (`node.store_transfer.donor`,
`node.store_transfer.receiver`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from standpipe.model import BatchId, Health, NodeId, NodeInfo, Offset, Placement, Record
from standpipe.model_liveness import KnownLag, PeerLiveness

#: How long a node that knows of no donor waits for one.
HEAR_MS_MAX: Final = 3000
#: The time window of an estimate.
_PACE_MS: Final = 10_000


class CopyOffer(Record, frozen=True, kw_only=True):
    """A copy that a peer made and keeps for a while. `checksum`: blake2b of the file, hex."""

    copy_id: str
    size_bytes: int
    checksum: str
    position: Offset
    batch: BatchId


class RestoreView(Record, frozen=True, kw_only=True):
    """How far a restore is, for `/clusterStatus`. `of`: what `done` and `total` count."""

    source: str  # "copy" or "changelog"
    of: str  # "bytes" or "records"
    done: int
    total: int
    peer: str = ""
    eta_ms: int | None = None  # None: not known yet


def donors(
    placement: Placement,
    own: NodeId,
    nodes: Mapping[NodeId, NodeInfo],
    known: Iterable[KnownLag],
    liveness: Mapping[NodeId, PeerLiveness],
) -> list[NodeInfo]:
    """The nodes to ask for a copy, in order."""
    lags = {one.node_id: one.lag for one in known}
    offers: list[tuple[tuple[int, bool, int], NodeInfo]] = []
    for place, node_id in enumerate(placement.replicas):
        lag, peer, info = lags.get(node_id), liveness.get(node_id), nodes.get(node_id)
        if node_id == own or lag is None or info is None:
            continue
        is_down = peer is not None and peer.health is not Health.ALIVE
        if is_down or not lag.state.answers or lag.position <= 0:
            continue
        offers.append(((-lag.position, place == 0, place), info))
    return [info for _, info in sorted(offers, key=lambda offer: offer[0])]


def may_wait(
    placement: Placement,
    own: NodeId,
    liveness: Mapping[NodeId, PeerLiveness],
    known: Iterable[KnownLag],
    waited_ms: int,
) -> bool:
    """Whether a peer that has not reported yet may still become a donor.

    If this node only warms up, other holders have copies but may not have reported them to it yet.
    """
    told = {one.node_id for one in known}
    warms_up = own in placement.warmups
    unheard = [
        node_id
        for node_id in placement.replicas
        if node_id != own
        and (
            node_id not in liveness
            or liveness[node_id].health is Health.UNKNOWN
            or (warms_up and liveness[node_id].health is Health.ALIVE and node_id not in told)
        )
    ]
    return bool(unheard) and waited_ms < HEAR_MS_MAX


class Meter:
    """When a transfer will be complete, by its pace in the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int]] = deque()  # (instant in ms, done)

    def eta_ms(self, now_ms: int, done: int, total: int) -> int | None:
        """None: no pace is known yet, or it has stalled."""
        self._seen.append((now_ms, done))
        while self._seen[0][0] < now_ms - _PACE_MS:
            self._seen.popleft()
        began_ms, began = self._seen[0]
        if done >= total:
            return 0
        if done <= began or now_ms <= began_ms:
            return None
        return (total - done) * (now_ms - began_ms) // (done - began)
