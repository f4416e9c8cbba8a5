"""A node's configuration (`node.json`) and the identity of its data directory (`meta.json`).

`standpipe node` writes `node.json`; every child of the node reads it. `meta.json` is made once and
then only ever compared: a data directory that was copied, moved to another node or written by a
newer version must not be opened by mistake.

Not here: the merging of configuration layers (`config.registry.load`), the start of processes
(`parent`).
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog

from standpipe.adapters.files.fsync import replace_durably
from standpipe.adapters.files.private import private_directory, read_secret
from standpipe.adapters.kafka.connection import KafkaConnection, connect_by
from standpipe.adapters.schema_registry import RegistryConnection, registry_by
from standpipe.adapters.sealed.handshake import INTERNAL, PeerIdentity
from standpipe.config import keys, registry
from standpipe.config.workers import HEAVY_WORKERS
from standpipe.control.assignment.racks import parse_forced, tag_faults
from standpipe.control.metadata import feature_levels as features
from standpipe.errors import ConfigError, DataDirectoryRefused
from standpipe.model import FeatureLevels, NodeId, NodeInfo, PlacementRules, Record

FORMAT_VERSION = 1  # of the data directory; grows when an older program could not read it
META_NAME = "meta.json"

#: a node's configuration as JSON -> how it reaches Kafka
_connections: dict[bytes, KafkaConnection] = {}
#: and how it reaches the schema registry
_registries: dict[bytes, RegistryConnection | None] = {}

Setting = str | int | float | bool  # value of a key of config/keys.py


class NodeConfig(Record, frozen=True, kw_only=True):
    """One node of a cluster. Addresses are `host:port`; `config` holds keys of
    `config/keys.py`."""

    node_id: NodeId
    data_dir: str
    bootstrap_servers: str  # empty: no Kafka; statements are logged, topics are never made
    public: str
    internal: str
    peer: str
    #: nodes that vote in the metadata quorum from its beginning; the first one founds the cluster.
    #: Only used until the log names voters. Empty: this node alone
    voters: tuple[NodeId, ...] = ()
    #: node id -> internal address of every other node, used until the log names it
    nodes: dict[NodeId, str] = msgspec.field(default_factory=dict[NodeId, str])
    secret_file: str
    service_id: str = keys.SERVICE_ID.default
    #: as others should dial them; empty: the address that is bound
    public_advertised: str = ""
    internal_advertised: str = ""
    peer_advertised: str = ""
    workers: int = 0  # HTTP worker processes; 0: one per core
    tags: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    #: keys of config/keys.py that this node sets
    config: dict[str, Setting] = msgspec.field(default_factory=dict[str, Setting])

    @property
    def founders(self) -> tuple[NodeId, ...]:
        """The first voters; this node alone where node.json names none."""
        return self.voters or (self.node_id,)

    @property
    def paths(self) -> NodePaths:
        """Places in the node's data directory."""
        return NodePaths(Path(self.data_dir))

    def settings(self) -> registry.Config:
        """Values of all keys for this node. Raises ConfigError."""
        return registry.load(self.config)

    @property
    def worker_count(self) -> int:
        """HTTP workers, the heavy ones not included. They have the numbers from 0 on."""
        return self.workers or len(os.sched_getaffinity(0))

    def heavy_numbers(self) -> Sequence[int]:
        """Numbers of the heavy workers. Raises ConfigError."""
        count = self.settings()[HEAVY_WORKERS] or max(1, self.worker_count // 2)
        return range(self.worker_count, self.worker_count + count)

    def kafka(self) -> KafkaConnection:
        """How this node's clients reach Kafka, secrets included. Raises ConfigError.

        Parsed once: children are forks of the parent, and one that starts again needs no file of a
        secret that has moved since.
        """
        key = msgspec.json.encode(self)
        if key not in _connections:
            found = connect_by(self.settings(), self.bootstrap_servers, os.environ)
            _connections[key] = found
        return _connections[key]

    def schema_registry(self) -> RegistryConnection | None:
        """How this node reaches the schema registry, secrets included; None: there is none. Parsed
        once, as `kafka` is. Raises ConfigError."""
        key = msgspec.json.encode(self)
        if key not in _registries:
            _registries[key] = registry_by(self.settings(), os.environ)
        return _registries[key]

    def identity(self, listener: str = INTERNAL) -> PeerIdentity:
        """Who this node is on connections to other nodes' listeners of that name, and at its own.
        Raises ConfigError."""
        return PeerIdentity(self.secret(), self.node_id, listener)

    def secret(self) -> str:
        """The cluster's secret. Raises ConfigError (`adapters.files.private.read_secret`)."""
        return read_secret(Path(self.secret_file))


@dataclass(frozen=True)
class NodePaths:
    """Where things are in a node's data directory (docs/INTERFACES.md)."""

    data: Path

    @property
    def meta(self) -> Path:
        """Identity of the directory (`DataIdentity`)."""
        return self.data / META_NAME

    @property
    def log(self) -> Path:
        """The quorum's log and snapshots (`adapters.raft.disk`)."""
        return self.data / "log"

    @property
    def run(self) -> Path:
        """Files in which the node's processes exchange their state; worthless after a stop."""
        return self.data / "run"

    @property
    def state(self) -> Path:
        """Stores of the node's replicas."""
        return self.data / "state"

    @property
    def logs(self) -> Path:
        """Log files of the node's processes."""
        return self.data / "logs"

    @property
    def snapshot(self) -> Path:
        """The catalog as the controller publishes it (`model.Snapshot`)."""
        return self.run / "snapshot"

    @property
    def liveness(self) -> Path:
        """Which nodes are alive (`model_liveness.Liveness`)."""
        return self.run / "liveness"

    @property
    def lags(self) -> Path:
        """Lags of other nodes' replicas (`model_liveness.KnownLags`)."""
        return self.run / "lags"

    @property
    def session(self) -> Path:
        """Number of the controller's newest start, which its lag reports carry."""
        return self.run / "session"

    @property
    def workers(self) -> Path:
        """What the parent knows about the workers (`node.worker_report.WorkersReport`)."""
        return self.run / "workers"

    @property
    def push(self) -> Path:
        """Push queries that are served now (`node/push_registry.py`)."""
        return self.run / "push"

    @property
    def leaving(self) -> Path:
        """Exists while the node is about to stop (`node.leaving`)."""
        return self.run / "leaving"

    @property
    def incoming(self) -> Path:
        """Stores that are being copied from a peer."""
        return self.data / "incoming"

    @property
    def copies(self) -> Path:
        """Copies of stores, for peers."""
        return self.data / "copies"

    @property
    def digests(self) -> Path:
        """Digests of this node's replicas: JSON, list of KeptDigests (`data.replica`)."""
        return self.run / "digests.json"

    @property
    def rebuilds(self) -> Path:
        """Replicas to rebuild: a file each, named as /clusterStatus names the replica."""
        return self.run / "rebuild"

    @property
    def restores(self) -> Path:
        """Progress of restores: JSON, name of the replica -> RestoreView (`data.replica`)."""
        return self.run / "restores.json"

    @property
    def status(self) -> Path:
        """Status pages of the node's replicas, a file each."""
        return self.run / "status"

    def make(self) -> None:
        """Create the directories that children expect."""
        for path in (self.data, self.run, self.log, self.status, self.state, self.logs):
            private_directory(path)


def load(path: Path) -> NodeConfig:
    """Read `node.json`. Raises ConfigError that names the file and what is wrong in it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=NodeConfig)
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(
            f"cannot read {path}: {error}", next_step="let `standpipe node` write it again"
        ) from error


def save(path: Path, config: NodeConfig) -> None:
    """Write `node.json` atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_durably(path, msgspec.json.format(msgspec.json.encode(config)) + b"\n")


class DataIdentity(Record, frozen=True, kw_only=True):
    """`meta.json`: whose data directory this is. `cluster_id` is empty until a log was seen."""

    node_id: NodeId
    incarnation: str  # chosen when the quorum's log is made: a wiped node is a new one
    cluster_id: str = ""
    has_voted: bool = False  # it was a voter once, so it does not become one again by itself
    format_version: int = FORMAT_VERSION


def claim(config: NodeConfig) -> DataIdentity:
    """Identity of the node's data directory, made at the first start.

    Raises DataDirectoryRefused if it belongs to another node or to a newer version, if its identity
    cannot be read, or if it holds a log without one.
    """
    paths = config.paths
    if not paths.meta.exists():
        if paths.log.is_dir() and any(paths.log.iterdir()):
            raise DataDirectoryRefused(
                f"{paths.data} holds a log but no {META_NAME}",
                next_step=f"restore {META_NAME}, or give an empty directory",
            )
        paths.make()
        identity = DataIdentity(node_id=config.node_id, incarnation=uuid.uuid4().hex)
        _write(paths, identity)
        return identity
    identity = _read(paths)
    if identity.node_id != config.node_id:
        raise DataDirectoryRefused(
            f"{paths.data} belongs to node {identity.node_id}, not to {config.node_id}",
            next_step=f"start {identity.node_id} on it, or give an empty directory",
        )
    paths.make()
    return identity


def join(config: NodeConfig, identity: DataIdentity, cluster_id: str) -> DataIdentity:
    """Bind the data directory permanently to the cluster whose log it follows.

    Raises DataDirectoryRefused if it is bound to another one.
    """
    if identity.cluster_id == cluster_id:
        return identity
    if identity.cluster_id:
        raise DataDirectoryRefused(
            f"{config.data_dir} belongs to cluster {identity.cluster_id}, "
            f"but the log is of cluster {cluster_id}",
            next_step="point the node at its own cluster, or give an empty directory",
        )
    joined = msgspec.structs.replace(identity, cluster_id=cluster_id)
    _write(config.paths, joined)
    return joined


def renew(config: NodeConfig, identity: DataIdentity) -> DataIdentity:
    """Choose another incarnation: the log is empty again, so the old one must no longer vote."""
    renewed = msgspec.structs.replace(identity, incarnation=uuid.uuid4().hex, has_voted=False)
    _write(config.paths, renewed)
    return renewed


def note_vote(config: NodeConfig, identity: DataIdentity) -> DataIdentity:
    """Record that the replica votes: once an operator removes it, it does not join again."""
    if identity.has_voted:
        return identity
    noted = msgspec.structs.replace(identity, has_voted=True)
    _write(config.paths, noted)
    return noted


def member(config: NodeConfig, identity: DataIdentity) -> NodeInfo:
    """The node as others should know it. Raises ConfigError."""
    values = config.settings()
    return NodeInfo(
        node_id=config.node_id,
        public=config.public_advertised or config.public,
        internal=config.internal_advertised or config.internal,
        peer=config.peer_advertised or config.peer,
        incarnation=identity.incarnation,
        tags=config.tags,
        rack=values[keys.RACK],
        capacity=values[keys.CAPACITY],
        feature_levels=features.to_record(feature_levels(config)),
    )


def feature_levels(config: NodeConfig) -> FeatureLevels:
    """Feature levels that this node takes part in. Raises ConfigError."""
    return features.known_to_program(config.settings()[keys.FEATURE_LEVEL_MAX])


def placement_rules(values: registry.Config) -> PlacementRules:
    """The cluster-wide placement rules in a node's configuration. Raises ConfigError."""
    try:
        forced = parse_forced(values[keys.RACK_FORCED])
    except ValueError as error:
        raise ConfigError(
            f"{keys.RACK_FORCED.name}: {error}", next_step="write it as zone:a,zone:b"
        ) from error
    names = (name.strip() for name in values[keys.RACK_TAGS].split(","))
    return PlacementRules(
        standby_count=values[keys.STANDBYS],
        rack_aware_tags=tuple(name for name in names if name),
        forced=forced,
    )


def check_tags(config: NodeConfig) -> None:
    """Check Kafka's limits on tags, and that each tag to spread over is set. Raises ConfigError."""
    rules = placement_rules(config.settings())
    if faults := tag_faults(config.tags, rules.rack_aware_tags):
        raise ConfigError(
            f"the tags of {config.node_id} cannot be used: {'; '.join(faults)}",
            next_step="give --tag KEY=VALUE for each name in rack.aware.assignment.tags",
        )


def log_json(process: str) -> None:
    """Let structlog write JSON lines to stderr, which the parent copies to logs/<process>.log."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
    )
    structlog.contextvars.bind_contextvars(process=process)


def _read(paths: NodePaths) -> DataIdentity:
    try:
        identity = msgspec.json.decode(paths.meta.read_bytes(), type=DataIdentity)
    except (OSError, msgspec.MsgspecError) as error:
        raise DataDirectoryRefused(
            f"cannot read {paths.meta}: {error}",
            next_step=f"restore {META_NAME}, or give an empty directory",
        ) from error
    if identity.format_version > FORMAT_VERSION:
        raise DataDirectoryRefused(
            f"{paths.data} has format version {identity.format_version}, "
            f"this program reads up to {FORMAT_VERSION}",
            next_step="start the newer program that wrote it",
        )
    return identity


def _write(paths: NodePaths, identity: DataIdentity) -> None:
    replace_durably(paths.meta, msgspec.json.encode(identity) + b"\n")
