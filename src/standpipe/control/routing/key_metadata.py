"""Which nodes hold a key: KIP-535's key metadata, as a pure function of the assignment.

Source: KIP-535 "Public Interfaces" (`KeyQueryMetadata`, `queryMetadataForKey`, `metadataForKey`).
Not here: which of them is read, and why (`control.routing.route`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from standpipe.model import NodeId, NodeInfo, Placement


@dataclass(frozen=True, kw_only=True)
class KeyQueryMetadata:
    """Which nodes hold a key. Source: KIP-535 (`activeHost`, `standbyHosts`, `partition`)."""

    active: NodeInfo | None  # None: no node is assigned, or the log has removed it
    standbys: tuple[NodeInfo, ...]
    partition: int


def query_metadata_for_key(
    placement: Placement | None, nodes: Mapping[NodeId, NodeInfo], partition: int
) -> KeyQueryMetadata:
    """KIP-535's queryMetadataForKey. `partition`: by the table's own partition count."""
    replicas = placement.replicas if placement else ()
    return KeyQueryMetadata(
        active=nodes.get(replicas[0]) if replicas else None,
        standbys=tuple(nodes[node] for node in replicas[1:] if node in nodes),
        partition=partition,
    )


def metadata_for_key(
    placement: Placement | None, nodes: Mapping[NodeId, NodeInfo], partition: int
) -> NodeInfo | None:
    """The active host only. Deprecated by KIP-535 in favour of `query_metadata_for_key`."""
    return query_metadata_for_key(placement, nodes, partition).active
