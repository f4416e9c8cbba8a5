"""`node.json` for the nodes of a local cluster.

Not here: what a node does with it (node/configuration.py), which ports are free (ports.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from standpipe.config import keys, registry
from standpipe.errors import ConfigError
from standpipe.local.cluster.ports import HOST, NodePorts
from standpipe.model import NodeId
from standpipe.node import configuration


@dataclass(frozen=True, kw_only=True)
class NodePlan:
    """Where one node will be: its id, ports and data directory."""

    node_id: NodeId
    ports: NodePorts
    data_directory: Path

    @property
    def public(self) -> str:
        """Address for clients, `host:port`."""
        return f"{HOST}:{self.ports.public}"

    @property
    def internal(self) -> str:
        """Address of the metadata log and the quorum."""
        return f"{HOST}:{self.ports.internal}"

    @property
    def peer(self) -> str:
        """Address for forwarded reads of other nodes."""
        return f"{HOST}:{self.ports.peer}"


@dataclass(frozen=True, kw_only=True)
class SharedSettings:
    """The settings that all nodes of one cluster share."""

    bootstrap_servers: str
    secret_file: Path
    workers: int = 0
    config: Mapping[str, str] = field(default_factory=dict[str, str])


def write_node_file(plan: NodePlan, plans: Sequence[NodePlan], shared: SharedSettings) -> Path:
    """Write `DATA/node.json` of one node; the first of `plans` are voters. Returns its path.

    Raises ConfigError for a setting that is unknown or out of bounds.
    """
    values = registry.load(shared.config).values
    path = plan.data_directory / "node.json"
    configuration.save(
        path,
        configuration.NodeConfig(
            node_id=plan.node_id,
            data_dir=str(plan.data_directory),
            bootstrap_servers=shared.bootstrap_servers,
            public=plan.public,
            internal=plan.internal,
            peer=plan.peer,
            voters=first_voters([other.node_id for other in plans]),
            nodes={other.node_id: other.internal for other in plans if other is not plan},
            secret_file=str(shared.secret_file),
            service_id=str(values.get(keys.SERVICE_ID.name, keys.SERVICE_ID.default)),
            workers=shared.workers,
            config=dict(values),
        ),
    )
    return path


@dataclass(frozen=True, kw_only=True)
class StandaloneNode:
    """One node on its own machine, from the options of `standpipe node`.

    `listen` and `advertise` are the public `host:port`; internal is the port + 1, peer + 3.
    `others`: node id -> internal address of every other node.
    """

    node_id: str
    data_directory: Path
    bootstrap_servers: str
    listen: str
    advertise: str
    others: Mapping[str, str]
    secret_file: Path
    #: empty: `first_voters` of all node ids in order
    voters: Sequence[str] = ()
    workers: int = 0
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    config: Mapping[str, str] = field(default_factory=dict[str, str])


def write_standalone(node: StandaloneNode) -> Path:
    """Write the node's `DATA/node.json`. Returns its path; raises ConfigError."""
    known = {node.node_id, *node.others}
    for voter in node.voters:
        if voter not in known:
            raise ConfigError(
                f"the voter {voter} is not among the nodes",
                next_step=f"add --other {voter}=HOST:PORT, its internal address",
            )
    values = registry.load(node.config).values
    path = node.data_directory / "node.json"
    configuration.save(
        path,
        configuration.NodeConfig(
            node_id=NodeId(node.node_id),
            data_dir=str(node.data_directory),
            bootstrap_servers=node.bootstrap_servers,
            public=node.listen,
            internal=_shifted(node.listen, 1),
            peer=_shifted(node.listen, 3),
            public_advertised=node.advertise,
            internal_advertised=_shifted(node.advertise, 1),
            peer_advertised=_shifted(node.advertise, 3),
            voters=tuple(NodeId(name) for name in node.voters) or first_voters(sorted(known)),
            nodes={NodeId(name): address for name, address in node.others.items()},
            secret_file=str(node.secret_file),
            service_id=str(values.get(keys.SERVICE_ID.name, keys.SERVICE_ID.default)),
            workers=node.workers,
            tags=dict(node.tags),
            config=dict(values),
        ),
    )
    return path


def first_voters(node_ids: Sequence[str]) -> tuple[NodeId, ...]:
    """The voters of a new cluster: three nodes if there are three, otherwise one.

    Two would be worse than one: if either were lost, no write could commit. The operator must ask
    for more than three, since each write waits for a majority.
    """
    count = 3 if len(node_ids) >= 3 else 1
    return tuple(NodeId(node_id) for node_id in node_ids[:count])


def _shifted(address: str, by: int) -> str:
    host, sign, port = address.rpartition(":")
    if not sign or not port.isdigit():
        raise ConfigError(f"{address} is not HOST:PORT", next_step="write e.g. 10.0.0.1:8088")
    return f"{host}:{int(port) + by}"
