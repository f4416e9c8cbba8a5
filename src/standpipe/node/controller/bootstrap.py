"""How a node's replica of the quorum begins: as its founder, as a newcomer, or from an older log.

One node, the first of the voters in node.json, may found a cluster: it begins as its only voter and
the others join it, one after the other (KIP-853, `--standalone`). It must not do so a second time
after it was wiped, or beside a cluster that exists. So it first asks the other voters, and founds
only when a majority of them, itself included, knows of no cluster. Every other node begins as an
observer with an empty log, and so does a founder that finds a cluster.

An older data directory holds `commands.log`, the log of the single holder that was before the
quorum. The founder carries it over: the catalog that it comes to becomes the snapshot with which
the quorum's log begins, indexes go on behind it. If another node's copy reaches further, the
founder refuses by name, because acknowledged statements would be lost.

Not here: how voters join (`node.controller.main`).
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
from standpipe.adapters.raft.log_file import LogFile
from standpipe.control.metadata import catalog as catalogs
from standpipe.control.metadata import feature_levels as features
from standpipe.control.metadata.catalog import Catalog
from standpipe.control.raft.events import ElectionState
from standpipe.control.raft.log import Snapshot
from standpipe.control.raft.majority import (
    Incarnation,
    LeaderEpoch,
    LogOffset,
    ReplicaKey,
    VoterSet,
)
from standpipe.errors import DataDirectoryRefused
from standpipe.model import FeatureLevels, LogIndex, NodeId, Record
from standpipe.node import configuration
from standpipe.node.configuration import DataIdentity, NodeConfig

PATH: Final = "/quorum/self"
ASK_MS: Final = 1000
RETRY_S: Final = 0.1
FIRST_EPOCH: Final = LeaderEpoch(1)
CARRIED_OVER: Final = ".carried-over"

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class Knowledge(Record, frozen=True, kw_only=True):
    """What a node knows of the cluster (`GET /quorum/self`)."""

    node_id: NodeId
    cluster_id: str = ""
    #: whether its replica holds anything of a quorum's log
    has_quorum: bool = False
    #: last index of its copy of an older log; 0: none
    old_index: LogIndex = LogIndex(0)
    #: what its program knows
    feature_levels: FeatureLevels | msgspec.UnsetType = msgspec.UNSET


class NotYet(Exception):
    """Too few nodes have answered; `str` says which."""


def may_found(mine: Knowledge, others: Sequence[Knowledge], voters: Sequence[NodeId]) -> bool:
    """Whether to found a cluster; False: there is one to join.

    Raises NotYet until a majority has answered, and DataDirectoryRefused where founding would lose
    what another node still has.
    """
    if any(other.has_quorum for other in others):
        return False
    ahead = max(others, key=lambda other: other.old_index, default=mine)
    if ahead.old_index > mine.old_index:
        raise DataDirectoryRefused(
            f"{ahead.node_id} has statements up to {ahead.old_index}, {mine.node_id} up to "
            f"{mine.old_index}: if {mine.node_id} began the quorum, the others would be lost",
            next_step=f"name {ahead.node_id} as the first voter on every node",
        )
    silent = set(voters) - {mine.node_id} - {other.node_id for other in others}
    if (len(voters) - len(silent)) * 2 <= len(voters):
        raise NotYet(f"no answer from {', '.join(sorted(silent))}")
    if mine.cluster_id and not mine.old_index:
        raise DataDirectoryRefused(
            f"the metadata log of {mine.node_id} is gone, but it was of cluster {mine.cluster_id}",
            next_step="restore a backup (standpipe quorum restore), or give an empty directory",
        )
    return True


def knowledge_of(
    config: NodeConfig, identity: DataIdentity, old: Catalog, *, has_quorum: bool
) -> Knowledge:
    """What this node tells a founder who asks."""
    return Knowledge(
        node_id=config.node_id,
        cluster_id=identity.cluster_id,
        has_quorum=has_quorum,
        old_index=old.index,
        feature_levels=features.as_told(configuration.feature_levels(config)),
    )


def old_catalog(config: NodeConfig) -> Catalog:
    """What the older log comes to; EMPTY if there is none. Raises DataDirectoryRefused."""
    path = config.paths.old_log
    if not path.exists():
        return catalogs.EMPTY
    opened = LogFile.open(path)
    opened.log.close()
    catalog = catalogs.EMPTY
    for record in opened.records:
        command = catalogs.decode(record.payload)
        catalog = catalogs.apply(catalog, LogIndex(record.index), command)
    return catalog


async def begin(
    config: NodeConfig, identity: DataIdentity, old: Catalog, client: HttpClient
) -> DataIdentity:
    """Make the replica's files where there are none; the identity that goes with them.

    Waits for other voters where it must. Raises DataDirectoryRefused.
    """
    directory = config.paths.log
    if QuorumDisk.is_formatted(directory):
        return identity
    founders = config.founders
    founds = config.node_id == founders[0] and await _found(config, identity, old, client)
    identity = configuration.renew(config, identity)
    me = ReplicaKey(config.node_id, Incarnation(identity.incarnation))
    if not founds:
        QuorumDisk.format(directory, _beginning(VoterSet(())))
    elif old.index:
        begin_with(directory, me, old)
        _log.info("the older log is carried over", log_index=old.index)
    else:
        QuorumDisk.format(directory, _beginning(VoterSet((me,))))
    return identity


def begin_with(directory: Path, me: ReplicaKey, catalog: Catalog) -> None:
    """Files of a quorum of one whose log begins behind a catalog (carry-over, restore)."""
    start = Snapshot(LogOffset(catalog.index + 1), FIRST_EPOCH, VoterSet((me,)))
    election = ElectionState(FIRST_EPOCH)
    QuorumDisk.format(directory, start, state=catalogs.to_bytes(catalog), election=election)


def put_away_old_log(config: NodeConfig) -> None:
    """The quorum has everything: the older log is kept under another name, for people."""
    path = config.paths.old_log
    if path.exists():
        path.rename(path.with_name(path.name + CARRIED_OVER))


def _beginning(voters: VoterSet) -> Snapshot:
    return Snapshot(LogOffset(0), LeaderEpoch(0), voters)


async def _found(
    config: NodeConfig, identity: DataIdentity, old: Catalog, client: HttpClient
) -> bool:
    mine, told = knowledge_of(config, identity, old, has_quorum=False), ""
    while True:
        answers = await asyncio.gather(*(_ask(client, at) for at in config.nodes.values()))
        others = [answer for answer in answers if answer is not None]
        try:
            return may_found(mine, others, config.founders)
        except NotYet as waiting:
            if str(waiting) != told:
                told = str(waiting)
                _log.info("waiting for other voters before the cluster is founded", why=told)
            await asyncio.sleep(RETRY_S)


async def _ask(client: HttpClient, address: str) -> Knowledge | None:
    try:
        reply = await client.get(address, PATH, timeout_ms=ASK_MS)
        return reply.json_as(Knowledge) if reply.ok else None
    except (PeerUnreachable, PeerSilent):
        return None


def addresses_of(
    node_id: NodeId, *, by_log: Mapping[NodeId, str], by_file: Mapping[NodeId, str]
) -> list[str]:
    """Where to dial a node: where the log says, then where this node was told at its start.

    The second one is for a cluster all of whose nodes came back elsewhere: no majority could be
    reached to say so. Whoever answers must prove to be that node (`adapters.raft.wire`).
    """
    found = [by_log.get(node_id), by_file.get(node_id)]
    return list(dict.fromkeys(address for address in found if address))
