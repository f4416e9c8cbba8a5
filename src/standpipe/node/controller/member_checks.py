"""What the leader checks before a node joins, drains or leaves.

Not here: feature levels of a joining node (`control.metadata.feature_levels`), the writes
themselves (`node.controller.leader`).
"""

from __future__ import annotations

import msgspec

from standpipe.config import keys
from standpipe.control.metadata.catalog import Catalog
from standpipe.errors import BadRequest
from standpipe.model import NodeId, NodeInfo, PlacementRules

_KEYS = {
    "standby_count": keys.STANDBYS.name,
    "rack_aware_tags": keys.RACK_TAGS.name,
    "forced": keys.RACK_FORCED.name,
}


class DrainRequest(msgspec.Struct):
    """Body of POST /nodes/drain."""

    node_id: NodeId
    undo: bool = False


class NodeRegistration(NodeInfo, frozen=True, kw_only=True):
    """Body of POST /register: a node, and the cluster-wide rules that its file names."""

    placement_rules: PlacementRules | None = None  # None: sent by a program that has no rules

    @classmethod
    def of(cls, node: NodeInfo, rules: PlacementRules) -> NodeRegistration:
        """The request of a node."""
        return cls(**msgspec.structs.asdict(node), placement_rules=rules)

    def node(self) -> NodeInfo:
        """The node's record as it is logged, without the rules."""
        return NodeInfo(**{name: getattr(self, name) for name in NodeInfo.__struct_fields__})


def check_rules(node: NodeRegistration, rules: PlacementRules | None) -> None:
    """Raises BadRequest with the differences: two files must not move replicas back and forth."""
    if rules is None or node.placement_rules is None or node.placement_rules == rules:
        return
    differing = [
        f"{key} is {_text(getattr(rules, field))} in this cluster and "
        f"{_text(getattr(node.placement_rules, field))} in the file of {node.node_id}"
        for field, key in _KEYS.items()
        if getattr(rules, field) != getattr(node.placement_rules, field)
    ]
    raise BadRequest(
        f"{'; '.join(differing)}: change the file, or the cluster with `standpipe assignment rules`"
    )


def check_known(catalog: Catalog, node_id: NodeId) -> None:
    """Raises BadRequest that lists the nodes of the cluster."""
    if node_id not in catalog.nodes:
        names = ", ".join(sorted(catalog.nodes))
        raise BadRequest(f"{node_id} is not a node of this cluster; its nodes are {names}")


def check_removable(catalog: Catalog, node_id: NodeId, *, votes: bool) -> None:
    """Raises BadRequest with the step to do first, while the node votes or holds replicas."""
    check_known(catalog, node_id)
    if votes:
        raise BadRequest(f"{node_id} votes: first `standpipe quorum remove-voter {node_id}`")
    if copies := copies_of(catalog, node_id):
        raise BadRequest(
            f"{node_id} still holds {copies} copies: first `standpipe node drain {node_id}`"
        )


def copies_of(catalog: Catalog, node_id: NodeId) -> int:
    """Count of the table partitions that the node holds or is about to hold."""
    return sum(node_id in placement.holders for placement in catalog.assignment.placements)


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()
