"""`standpipe node drain` and `undrain`: reads leave a node, or may come again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from standpipe.errors import ConfigError, SetupError
from standpipe.local.directory import DEFAULT_DIRECTORY, running_cluster

NodeName = Annotated[str, typer.Argument(metavar="NODE_ID")]
Internal = Annotated[
    str | None,
    typer.Option("--node", help="Its internal address; default: the local cluster's node."),
]
Secret = Annotated[
    Path | None, typer.Option(help="The cluster's secret; default: the local cluster's.")
]
Directory = Annotated[Path, typer.Option(help="The local cluster's directory.", metavar="DIR")]


def drain(
    node_id: NodeName,
    node: Internal = None,
    secret_file: Secret = None,
    directory: Directory = DEFAULT_DIRECTORY,
) -> None:
    """Read elsewhere before a node is stopped; it still answers what nobody else can.

    Ends with `undrain` or with the node's next start. A node that gets SIGTERM does the same by
    itself for a moment; drain it first where clients or load balancers need longer to leave."""
    _tell("/drain", node_id, node, secret_file, directory=directory)
    typer.echo(
        f"{node_id} is drained: its peers read elsewhere where they can, /healthcheck says no.\n"
        f"Next: stop it, or `standpipe node undrain {node_id}`"
    )


def undrain(
    node_id: NodeName,
    node: Internal = None,
    secret_file: Secret = None,
    directory: Directory = DEFAULT_DIRECTORY,
) -> None:
    """Let reads come again to a node that was drained."""
    _tell("/undrain", node_id, node, secret_file, directory=directory)
    typer.echo(f"{node_id} is read again")


def _tell(
    path: str, node_id: str, node: str | None, secret_file: Path | None, *, directory: Path
) -> None:
    """Raises ConfigError and SetupError."""
    from standpipe.local.quorum_client import QuorumClient, read_secret

    if node is not None:
        if secret_file is None:
            raise ConfigError(
                "--node needs --secret-file", next_step="give the file that all nodes share"
            )
        QuorumClient([node], read_secret(secret_file)).tell(path)
        return
    cluster = running_cluster(directory)
    found = next((entry for entry in cluster.nodes if entry.node_id == node_id), None)
    if found is None:
        names = ", ".join(entry.node_id for entry in cluster.nodes)
        raise SetupError(f"{node_id} is no node of this cluster", next_step=f"nodes are {names}")
    secret = read_secret(secret_file or Path(cluster.secret_file))
    QuorumClient([found.internal], secret).tell(path)
