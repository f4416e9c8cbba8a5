"""What the leader asks before a node joins, drains or leaves."""

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


class DrainWish(msgspec.Struct):
    """Body of POST /nodes/drain."""

    node_id: NodeId
    undo: bool = False


class Registration(NodeInfo, frozen=True, kw_only=True):
    """Body of POST /register: a node, and the cluster-wide rules that its file names."""

    placement_rules: PlacementRules | None = None  # None: a program from before them

    @classmethod
    def of(cls, node: NodeInfo, rules: PlacementRules) -> Registration:
        """What a node sends."""
        return cls(**msgspec.structs.asdict(node), placement_rules=rules)

    def node(self) -> NodeInfo:
        """Without the rules, as it is logged."""
        return NodeInfo(**{name: getattr(self, name) for name in NodeInfo.__struct_fields__})


def check_rules(node: Registration, rules: PlacementRules | None) -> None:
    """Raises BadRequest that names what differs: two files must not pull copies to and fro."""
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
    """Raises BadRequest that lists the nodes there are."""
    if node_id not in catalog.nodes:
        names = ", ".join(sorted(catalog.nodes))
        raise BadRequest(f"{node_id} is no node of this cluster; its nodes are {names}")


def check_removable(catalog: Catalog, node_id: NodeId, *, votes: bool) -> None:
    """Raises BadRequest with what has to be done first: nothing that is needed is thrown away."""
    check_known(catalog, node_id)
    if votes:
        raise BadRequest(f"{node_id} votes: first `standpipe quorum remove-voter {node_id}`")
    if copies := copies_of(catalog, node_id):
        raise BadRequest(
            f"{node_id} still holds {copies} copies: first `standpipe node drain {node_id}`"
        )


def copies_of(catalog: Catalog, node_id: NodeId) -> int:
    """Table partitions that the node holds or is about to hold."""
    return sum(node_id in placement.holders for placement in catalog.assignment.placements)


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()
