"""Nodes that leave: what a drain and a removal change in the catalog.

Not here: where the replicas of such a node go (`control.assignment`).
"""

from __future__ import annotations

from msgspec.structs import replace

from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.commands import CommandRejected
from standpipe.model import NodeId


def drained(catalog: Catalog, node_id: NodeId, *, is_draining: bool) -> Catalog:
    """The catalog in which a node must give up all replicas, or no longer must. Raises
    CommandRejected if there is no such node."""
    others = _others(catalog, node_id)
    draining = (*others, node_id) if is_draining else others
    return replace(catalog, draining=draining)


def removed(catalog: Catalog, node_id: NodeId) -> Catalog:
    """The catalog without a node. Raises CommandRejected if there is no such node."""
    draining = _others(catalog, node_id)
    nodes = {key: node for key, node in catalog.nodes.items() if key != node_id}
    return replace(catalog, nodes=nodes, draining=draining)


def _others(catalog: Catalog, node_id: NodeId) -> tuple[NodeId, ...]:
    """The nodes that drain, but for this one."""
    if node_id not in catalog.nodes:
        raise CommandRejected(f"{node_id} is not a node of this cluster")
    return tuple(node for node in catalog.draining if node != node_id)
