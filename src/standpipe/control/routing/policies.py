"""Which of equally good replicas a node prefers: `standpipe.query.pull.routing.policy`.

Doubts and bounds come first (`control.routing.route`): no policy prefers a doubtful replica.

Source: KLIP-12 (active first). Not here: which replicas may answer (`control.routing.route`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Final, Protocol

from standpipe.model import NodeId, NodeInfo, Placement


class Choice(Protocol):
    """The properties of a replica that a policy uses (`control.routing.route.Candidate`)."""

    @property
    def node_id(self) -> NodeId:
        """Node of the replica."""
        ...

    @property
    def role(self) -> str:
        """ACTIVE or STANDBY."""
        ...

    @property
    def info(self) -> NodeInfo | None:
        """The node's record in the log; None: it was removed."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether it is this node's own replica."""
        ...


#: (a replica, its placement, this node) -> the smallest is preferred
Policy = Callable[[Choice, Placement, NodeInfo | None], tuple[int, ...]]


def active_first(choice: Choice, placement: Placement, here: NodeInfo | None) -> tuple[int]:
    """KLIP-12: the active, wherever it is."""
    return (choice.role != "ACTIVE",)


def balanced(choice: Choice, placement: Placement, here: NodeInfo | None) -> tuple[int, int]:
    """The local replica, else one that differs from node to node and by partition."""
    name = f"{here.node_id if here else ''}/{placement.partition}/{choice.node_id}"
    draw = int.from_bytes(blake2b(name.encode(), digest_size=4).digest())
    return (not choice.is_local, draw)


def nearest(choice: Choice, placement: Placement, here: NodeInfo | None) -> tuple[int, ...]:
    """The local replica, else the one that shares most tags with this node, else the active."""
    tags = choice.info.tags if choice.info else {}
    shared = sum(tags.get(tag) == value for tag, value in here.tags.items()) if here else 0
    return (not choice.is_local, -shared, choice.role != "ACTIVE")


#: by the value of the configuration key
POLICIES: Final[Mapping[str, Policy]] = {
    "active-first": active_first,
    "balanced": balanced,
    "nearest": nearest,
}
