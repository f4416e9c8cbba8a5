"""`node.json` for the nodes of a local cluster.

Not here: what a node does with it (node/node_config.py), which ports are free (ports.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from standpipe import config as settings
from standpipe.local.ports import HOST, NodePorts
from standpipe.model import NodeId
from standpipe.node import node_config


@dataclass(frozen=True, kw_only=True)
class NodePlan:
    """Where one node will be: its id, ports and data directory."""

    node_id: NodeId
    ports: NodePorts
    data_directory: Path

    @property
    def public(self) -> str:
        return f"{HOST}:{self.ports.public}"

    @property
    def internal(self) -> str:
        return f"{HOST}:{self.ports.internal}"

    @property
    def peer(self) -> str:
        return f"{HOST}:{self.ports.peer}"


@dataclass(frozen=True, kw_only=True)
class SharedSettings:
    """What all nodes of one cluster are told alike."""

    bootstrap_servers: str
    secret_file: Path
    workers: int = 0
    config: Mapping[str, str] = field(default_factory=dict[str, str])


def write_node_file(plan: NodePlan, plans: Sequence[NodePlan], shared: SharedSettings) -> Path:
    """Write `DATA/node.json` of one node; the first of `plans` holds the log. Returns its path.

    Raises ConfigError for a setting that is unknown or out of bounds.
    """
    values = settings.load(shared.config).values
    path = plan.data_directory / "node.json"
    node_config.save(
        path,
        node_config.NodeConfig(
            node_id=plan.node_id,
            data_dir=str(plan.data_directory),
            bootstrap_servers=shared.bootstrap_servers,
            public=plan.public,
            internal=plan.internal,
            peer=plan.peer,
            holder=plans[0].node_id,
            nodes={other.node_id: other.internal for other in plans if other is not plan},
            secret_file=str(shared.secret_file),
            service_id=str(values.get(settings.SERVICE_ID.name, settings.SERVICE_ID.default)),
            workers=shared.workers,
            config=dict(values),
        ),
    )
    return path
