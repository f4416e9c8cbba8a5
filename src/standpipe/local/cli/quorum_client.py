"""The requests and output of `standpipe quorum`, and its backups.

A backup is a snapshot file of the quorum (`adapters.raft.disk`): a catalog with a checksum. It
holds statements, members and placements. Rows are not in it: nodes restore them from the changelog
topics.

Not here: the commands (`quorum.py`).
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from standpipe.adapters.files.fsync import replace_durably
from standpipe.adapters.raft.disk import QuorumDisk, snapshot_file, snapshot_state
from standpipe.control.metadata import feature_levels
from standpipe.control.metadata.catalog import Catalog, from_bytes, to_bytes
from standpipe.control.raft.log import SnapshotInfo
from standpipe.control.raft.majority import (
    Incarnation,
    LeaderEpoch,
    LogOffset,
    ReplicaKey,
    VoterSet,
)
from standpipe.errors import DataDirectoryRefused, SetupError
from standpipe.local.client.internal_client import InternalClient
from standpipe.model import NodeId
from standpipe.node import configuration
from standpipe.node.controller import bootstrap
from standpipe.node.controller.feature_probe import FeaturesView, UpgradeRequest
from standpipe.node.controller.quorum_routes import QuorumView, ReplicaLine


class QuorumClient(InternalClient):
    """The requests of `standpipe quorum` to a node."""

    def describe(self) -> QuorumView:
        """The quorum as its leader sees it. Raises QuorumRefused."""
        return msgspec.json.decode(self.ask("GET", "/quorum"), type=QuorumView)

    def change(self, what: str, node_id: str) -> list[str]:
        """Do add-voter, remove-voter or transfer; returns the new voters. Raises QuorumRefused."""
        body = msgspec.json.encode({"node_id": node_id})
        answer = msgspec.json.decode(self.ask("POST", f"/quorum/{what}", body))
        return list(answer["voters"])

    def features(self) -> FeaturesView:
        """The feature levels that the nodes support. Raises QuorumRefused."""
        return msgspec.json.decode(self.ask("GET", "/quorum/features"), type=FeaturesView)

    def upgrade(self, level: int) -> int:
        """Raise the feature level (0: to the newest) and return it. Raises QuorumRefused."""
        answer = self.ask("POST", "/quorum/upgrade", msgspec.json.encode(UpgradeRequest(level)))
        return int(msgspec.json.decode(answer)["feature_level"])

    def catalog(self, consistency: str) -> Catalog:
        """The whole catalog. Raises QuorumRefused."""
        return from_bytes(self.ask("GET", f"/catalog?consistency={consistency}"))


# ------------------------------------------------------------------------------------ showing


def print_view(console: Console, view: QuorumView) -> None:
    """Print the quorum as a table."""
    console.print(
        f"cluster {view.cluster_id}  leader {view.leader}  epoch {view.epoch}  "
        f"high watermark {view.high_watermark}",
        highlight=False,
    )
    table = Table("node", "role", "end", "lag", "fetched", "caught up", box=None, pad_edge=False)
    for line in view.replicas:
        table.add_row(
            line.node_id,
            _role(line, view.leader),
            _text(line.end_offset),
            _text(line.lag_records),
            _text(line.fetched_ms_ago, " ms ago"),
            _text(line.caught_up_ms_ago, " ms ago"),
        )
    console.print(table)


def print_features(console: Console, view: FeaturesView) -> None:
    """Print the feature levels as a table."""
    newest = _text(view.newest_of_all)
    console.print(
        f"feature level {view.feature_level}  newest that all nodes support {newest}",
        highlight=False,
    )
    table = Table("node", "oldest", "newest", "known from", box=None, pad_edge=False)
    for line in view.nodes:
        source = "the node" if line.answers else "unknown" if line.newest is None else "the log"
        table.add_row(line.node_id, _text(line.oldest), _text(line.newest), source)
    console.print(table)


def _role(line: ReplicaLine, leader: str) -> str:
    if line.votes:
        return "leader" if line.node_id == leader else "voter"
    return "observer"


def _text(number: int | None, unit: str = "") -> str:
    return "unknown" if number is None else f"{number}{unit}"


# ------------------------------------------------------------------------------------ backups


def write_backup(path: Path, catalog: Catalog) -> int:
    """Write a backup atomically. Returns its size in bytes; raises SetupError."""
    covers = SnapshotInfo(LogOffset(catalog.index + 1), LeaderEpoch(0), VoterSet(()))
    data = snapshot_file(covers, to_bytes(catalog))
    try:
        replace_durably(path, data)
    except OSError as error:
        raise SetupError(
            f"cannot write {path}: {error.strerror}", next_step="choose another file"
        ) from error
    return len(data)


def read_backup(path: Path) -> Catalog:
    """The catalog of a backup.

    Raises DataDirectoryRefused if it is damaged, FeatureLevelRefused, SetupError.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SetupError(
            f"cannot read {path}: {error.strerror}", next_step="check the name of the backup"
        ) from error
    _, state = snapshot_state(data, path)
    catalog = from_bytes(state)
    feature_levels.check(catalog.feature_level, feature_levels.known_to_program())
    return catalog


def restore(path: Path, data_directory: Path, node_id: str) -> Catalog:
    """Create a data directory from which a node starts the backup's cluster as its only voter.

    Raises DataDirectoryRefused if there already is a log: nothing is overwritten.
    """
    catalog = read_backup(path)
    config = configuration.NodeConfig(
        node_id=NodeId(node_id),
        data_dir=str(data_directory.absolute()),
        bootstrap_servers="",
        public="",
        internal="",
        peer="",
        secret_file="",
    )
    log = config.paths.log
    if QuorumDisk.is_formatted(log):
        raise DataDirectoryRefused(
            f"{log} already holds a log of the quorum",
            next_step="move that directory away first, here and on every other node",
        )
    identity = configuration.renew(config, configuration.claim(config))
    configuration.join(config, identity, catalog.cluster_id)
    me = ReplicaKey(config.node_id, Incarnation(identity.incarnation))
    bootstrap.format_from_catalog(log, me, catalog)
    return catalog
