"""Feature levels: what may be logged while two releases run side by side in one cluster.

    level   brings
    1       all that is not named below
    2       nodes' records say which levels their programs know (register_node 2), clusters begin at
            a level (found_cluster 2), the level is raised (set_feature_level), catalog version 2;
            named types (create_type, drop_type)
    3       leases per query (start_pipeline 2, end_pipelines, grant_leases), catalog version 3
    4       CREATE OR REPLACE … AS (replace_stream_as, replace_table_as, switch_table), catalog
            version 4
    5       logs nothing new: in a cluster of more than 20 nodes beats go to a few, and verdicts
            come by hearsay (`control.liveness.failure_detector`)

A program knows a range of levels, a cluster is at one of them, which its log says; a log that never
said is at 1. What a leader logs has the form of that level, so beside older nodes a newer one
writes what they read. An operator raises the level once every node runs the newer program; it never
falls, for what was logged stays. KIP-535 and KIP-708 bump the versions of Streams' metadata, and
version probing finds out what the oldest member reads; here it is asked for and then held fast, as
Kafka's metadata.version is (KIP-584).

A new level adds its line above, raises NEWEST, and names its commands in SINCE. Not here: who asks
the nodes (`node.controller.feature_probe`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from standpipe.control.metadata.commands import (
    Command,
    FoundCluster,
    RegisterNode,
    SetFeatureLevel,
    StartPipeline,
)
from standpipe.errors import BadRequest, FeatureLevelRefused
from standpipe.model import FeatureLevels, NodeId, NodeInfo

OLDEST: Final = 1
NEWEST: Final = 5
#: leases are granted query by query; below, the newest pipeline writes all queries
LEASES: Final = 3
#: below, every node expects a beat from every other
GOSSIP: Final = 5
#: of a program from before there were levels, which says nothing
FIRST: Final[FeatureLevels] = (1, 1)

#: (command, version) -> level from which on it may be logged; all others: from the first
SINCE: Final[Mapping[tuple[str, int], int]] = {
    ("found_cluster", 2): 2,
    ("set_feature_level", 1): 2,
    ("register_node", 2): 2,
    ("create_type", 1): 2,
    ("drop_type", 1): 2,
    ("start_pipeline", 2): LEASES,
    ("end_pipelines", 1): LEASES,
    ("grant_leases", 1): LEASES,
    ("replace_stream_as", 1): 4,
    ("replace_table_as", 1): 4,
    ("switch_table", 1): 4,
}


def known_to_program(level_max: int = 0) -> FeatureLevels:
    """What this program knows, or admits to (`level_max`; 0: all)."""
    return (OLDEST, min(level_max or NEWEST, NEWEST))


def as_told(levels: FeatureLevels) -> FeatureLevels | UnsetType:
    """What a node says of itself: level 1 has no word for it."""
    return levels if levels[1] > 1 else UNSET


def as_heard(levels: FeatureLevels | UnsetType) -> FeatureLevels:
    """What a node that said this knows."""
    return FIRST if levels is UNSET else levels


def check(level: int, known: FeatureLevels) -> None:
    """Raises FeatureLevelRefused where a program must not take part."""
    if not known[0] <= level <= known[1]:
        raise FeatureLevelRefused(
            f"the cluster is at feature level {level}, this program knows {text(known)}",
            next_step="start a release of Standpipe that knows it; the data directory is unharmed",
        )


def check_member(node: NodeInfo, level: int) -> None:
    """Raises BadRequest that names the node whose program does not know the cluster's level."""
    known = as_heard(node.feature_levels)
    if not known[0] <= level <= known[1]:
        raise BadRequest(
            f"{node.node_id} knows {text(known)}, and this cluster is at feature level {level}: "
            f"start a release of Standpipe on {node.node_id} that knows it"
        )


def check_raise(level: int, current: int, known: Mapping[NodeId, FeatureLevels | None]) -> None:
    """Raises BadRequest that says why the level cannot be raised: every member must know it.

    `known` None: a node that neither answers nor has said so in the log.
    """
    if level < current:
        raise BadRequest(
            f"the feature level is {current} and never falls: what was logged in a newer form stays"
        )
    reasons = [
        f"{node} {_why_not(levels)}"
        for node, levels in sorted(known.items())
        if levels is None or not levels[0] <= level <= levels[1]
    ]
    if reasons:
        raise BadRequest(
            f"the feature level stays {current}, {level} needs every node: {'; '.join(reasons)}"
        )


def _why_not(known: FeatureLevels | None) -> str:
    if known is None:
        return (
            "does not answer, so what it knows is not known: start it, or strike it from the "
            "members with `standpipe node remove`"
        )
    return f"knows {text(known)}: start the newer release on it first"


def in_form(command: Command, level: int) -> Command:
    """The command as a cluster at that level reads it.

    One that begins or raises a level has the form of the level it leads to: whoever reads it knows
    that one. Raises BadRequest where the level has no form of it.
    """
    match command:
        case FoundCluster(feature_level=begins):
            level = begins or 1
            changed = {"version": _second(level), "feature_level": begins if level > 1 else UNSET}
        case SetFeatureLevel(level=raised):
            level, changed = raised, {}
        case RegisterNode(node=node):
            changed = {"version": _second(level), "node": node_at(node, level)}
        case StartPipeline():
            changed = {"version": 2 if level >= LEASES else 1}
        case _:
            changed = {}
    formed = msgspec.structs.replace(command, **changed) if changed else command
    tag = str(formed.__struct_config__.tag)
    if (needed := SINCE.get((tag, formed.version), 1)) > level:
        raise BadRequest(
            f"{tag} needs feature level {needed}, this cluster is at {level}: "
            "`standpipe quorum upgrade`, once every node runs the newer release"
        )
    return formed


def _second(level: int) -> int:
    """Version of what got its second one at level 2."""
    return 2 if level > 1 else 1


def node_at(node: NodeInfo, level: int) -> NodeInfo:
    """A node as a catalog of that level has it."""
    if level > 1:
        return node
    return msgspec.structs.replace(node, feature_levels=UNSET)


def told_by(
    nodes: Iterable[NodeInfo], known: Mapping[NodeId, FeatureLevels | None]
) -> list[NodeInfo]:
    """The nodes of which the log does not say yet what they know, saying it."""
    return [
        msgspec.structs.replace(node, feature_levels=levels)
        for node in nodes
        if (levels := known.get(node.node_id)) is not None and node.feature_levels != levels
    ]


def text(known: FeatureLevels) -> str:
    """A range for people."""
    oldest, newest = known
    return f"feature level {newest}" if oldest == newest else f"feature levels {oldest} to {newest}"
