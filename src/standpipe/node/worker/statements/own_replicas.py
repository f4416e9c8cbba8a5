"""What statements show of this node's replicas, each read when an entity first asks for it.

Most statements ask for none. To read a replica's page opens it, and at most OPEN_STORES_MAX are
open: a SHOW that read all of them closed those that lookups use, on a node that has more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from standpipe.model import ReplicaId
from standpipe.node.worker.request.cluster_view import ClusterView

V = TypeVar("V")


class OwnReplicas(Mapping[ReplicaId, V]):
    """`read` of each replica that a map places on its node; asked once for each."""

    def __init__(self, view: ClusterView, read: Callable[[ReplicaId], V]) -> None:
        self._placements, self._own = view.placements, view.snapshot.node_id
        self._read = read
        self._known: dict[ReplicaId, V] = {}

    def __getitem__(self, replica_id: ReplicaId) -> V:
        if replica_id not in self._known:
            if self._own not in self._placements[replica_id].holders:
                raise KeyError(replica_id)
            self._known[replica_id] = self._read(replica_id)
        return self._known[replica_id]

    def __iter__(self) -> Iterator[ReplicaId]:
        return (i for i, placement in self._placements.items() if self._own in placement.holders)

    def __len__(self) -> int:
        return sum(1 for _ in self)
