"""How a node's replica of the quorum begins: as its founder or as a newcomer.

One node, the first of the voters in node.json, may found a cluster: it begins as its only voter and
the others join it, one after the other (KIP-853, `--standalone`). It must not found a second one
after its disk was wiped, nor beside a cluster that exists. So it first asks the other voters, and
founds only when a majority of them, itself included, knows of no cluster. Every other node begins
as an observer with an empty log, and so does a founder that finds a cluster.

Not here: how voters join (`node.controller.main`), what a restored backup is
(`local.cli.quorum_client`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import structlog

from standpipe.adapters.http.internal import HttpClient, PeerSilent, PeerUnreachable
from standpipe.adapters.raft.disk import QuorumDisk
from standpipe.control.metadata import feature_levels as features
from standpipe.control.metadata.catalog import Catalog, to_bytes
from standpipe.control.raft.events import ElectionState
from standpipe.control.raft.log import SnapshotInfo
from standpipe.control.raft.majority import (
    Incarnation,
    LeaderEpoch,
    LogOffset,
    ReplicaKey,
    VoterSet,
)
from standpipe.errors import DataDirectoryRefused
from standpipe.model import FeatureLevels, NodeId, Record
from standpipe.node import configuration
from standpipe.node.configuration import DataIdentity, NodeConfig

PATH: Final = "/quorum/self"
ASK_MS: Final = 1000
RETRY_S: Final = 0.1
FIRST_EPOCH: Final = LeaderEpoch(1)

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class Knowledge(Record, frozen=True, kw_only=True):
    """What a node knows of the cluster (`GET /quorum/self`)."""

    node_id: NodeId
    cluster_id: str = ""
    #: whether its replica holds anything of a quorum's log
    has_quorum: bool = False
    #: levels that its program knows; unset: level 1
    feature_levels: FeatureLevels | msgspec.UnsetType = msgspec.UNSET


class TooFewMembers(Exception):
    """No majority of the voters has answered; `str` names those that are silent."""


def may_found(mine: Knowledge, others: Sequence[Knowledge], voters: Sequence[NodeId]) -> bool:
    """Whether to found a cluster; False: there is one to join.

    Raises TooFewMembers until a majority has answered, and DataDirectoryRefused if this node once
    belonged to a cluster and has lost its log.
    """
    if any(other.has_quorum for other in others):
        return False
    silent = set(voters) - {mine.node_id} - {other.node_id for other in others}
    if (len(voters) - len(silent)) * 2 <= len(voters):
        raise TooFewMembers(f"no answer from {', '.join(sorted(silent))}")
    if mine.cluster_id:
        raise DataDirectoryRefused(
            f"the metadata log of {mine.node_id}, of cluster {mine.cluster_id}, is gone",
            next_step="restore a backup (standpipe quorum restore), or give an empty directory",
        )
    return True


def knowledge_of(config: NodeConfig, identity: DataIdentity, *, has_quorum: bool) -> Knowledge:
    """What this node answers to a founder."""
    return Knowledge(
        node_id=config.node_id,
        cluster_id=identity.cluster_id,
        has_quorum=has_quorum,
        feature_levels=features.to_record(configuration.feature_levels(config)),
    )


async def begin(config: NodeConfig, identity: DataIdentity, client: HttpClient) -> DataIdentity:
    """Make the replica's files if there are none; returns the identity that belongs to them.

    A founder waits here until a majority of the voters has answered. Raises DataDirectoryRefused.
    """
    directory = config.paths.log
    if QuorumDisk.is_formatted(directory):
        return identity
    founders = config.founders
    founds = config.node_id == founders[0] and await _found(config, identity, client)
    identity = configuration.renew(config, identity)
    me = ReplicaKey(config.node_id, Incarnation(identity.incarnation))
    voters = VoterSet((me,) if founds else ())
    QuorumDisk.format(directory, SnapshotInfo(LogOffset(0), LeaderEpoch(0), voters))
    return identity


def format_from_catalog(directory: Path, me: ReplicaKey, catalog: Catalog) -> None:
    """Make the files of a quorum of one whose log begins after a catalog, for a restore."""
    start = SnapshotInfo(LogOffset(catalog.index + 1), FIRST_EPOCH, VoterSet((me,)))
    election = ElectionState(FIRST_EPOCH)
    QuorumDisk.format(directory, start, state=to_bytes(catalog), election=election)


async def _found(config: NodeConfig, identity: DataIdentity, client: HttpClient) -> bool:
    mine, logged = knowledge_of(config, identity, has_quorum=False), ""
    while True:
        answers = await asyncio.gather(*(_ask(client, *node) for node in config.nodes.items()))
        others = [answer for answer in answers if answer is not None]
        try:
            return may_found(mine, others, config.founders)
        except TooFewMembers as silence:
            if str(silence) != logged:
                logged = str(silence)
                _log.info("waiting for other voters before the cluster is founded", why=logged)
            await asyncio.sleep(RETRY_S)


async def _ask(client: HttpClient, node: NodeId, address: str) -> Knowledge | None:
    try:
        reply = await client.get(address, PATH, to=node, timeout_ms=ASK_MS)
        return reply.json_as(Knowledge) if reply.ok else None
    except (PeerUnreachable, PeerSilent):
        return None


def addresses_of(
    node_id: NodeId, *, by_log: Mapping[NodeId, str], by_file: Mapping[NodeId, str]
) -> list[str]:
    """Where to dial a node: its address in the log, then its address in this node's node.json.

    The second is for a cluster whose nodes all came back under other addresses: no majority could
    be reached to log them. The peer must prove to be that node (`adapters.raft.wire`).
    """
    found = [by_log.get(node_id), by_file.get(node_id)]
    return list(dict.fromkeys(address for address in found if address))
