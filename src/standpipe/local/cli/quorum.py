"""`standpipe quorum …`: show and change the metadata quorum; back it up and restore it.

Not here: the requests and the output (`quorum_client.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
import typer
from rich.console import Console

from standpipe.local.cli.consoles import data_console
from standpipe.local.cli.options import AsJson, Directory, Node, Secret
from standpipe.local.cluster.directory import DEFAULT_DIRECTORY

if TYPE_CHECKING:
    from standpipe.local.cli.quorum_client import QuorumClient

View = TypeVar("View")

app = typer.Typer(
    help="Show and change the metadata quorum; back it up and restore it.",
    epilog="Example: standpipe quorum describe",
    no_args_is_help=True,
    rich_markup_mode=None,
)

NodeName = Annotated[
    str, typer.Argument(help="The node, as `describe` shows it.", metavar="NODE_ID")
]
File = Annotated[Path, typer.Argument(help="The backup file.", metavar="FILE")]


@app.command(epilog="Example: standpipe quorum describe --json")
def describe(
    node: Node = None,
    secret_file: Secret = None,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Show leader, epoch, high watermark and the lag of each replica."""
    from standpipe.local.cli.quorum_client import print_view

    _show(_client(node, secret_file, directory).describe(), print_view, as_json=as_json)


@app.command(name="add-voter", epilog="Example: standpipe quorum add-voter node-4")
def add_voter(
    node_id: NodeName,
    node: Node = None,
    secret_file: Secret = None,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Make a node a voter once it has caught up."""
    _change("add-voter", node_id, _client(node, secret_file, directory), as_json=as_json)


@app.command(name="remove-voter", epilog="Example: standpipe quorum remove-voter node-4")
def remove_voter(
    node_id: NodeName,
    node: Node = None,
    secret_file: Secret = None,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Make a voter an observer."""
    _change("remove-voter", node_id, _client(node, secret_file, directory), as_json=as_json)


@app.command(epilog="Example: standpipe quorum transfer node-2")
def transfer(
    node_id: NodeName,
    node: Node = None,
    secret_file: Secret = None,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Make another voter the leader."""
    _change("transfer", node_id, _client(node, secret_file, directory), as_json=as_json)


@app.command(epilog="Example: standpipe quorum features --json")
def features(
    node: Node = None,
    secret_file: Secret = None,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Show the cluster's feature level and the levels that each node supports."""
    from standpipe.local.cli.quorum_client import print_features

    _show(_client(node, secret_file, directory).features(), print_features, as_json=as_json)


@app.command(epilog="Example: standpipe quorum upgrade --level 2")
def upgrade(
    *,
    level: Annotated[
        int, typer.Option(min=0, help="New level; 0: the newest that the leader supports.")
    ] = 0,
    node: Node = None,
    secret_file: Secret = None,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Raise the feature level once all nodes and pipelines run the newer release.

    It cannot be lowered: an older release can no longer join."""
    raised = _client(node, secret_file, directory).upgrade(level)
    _say({"feature_level": raised}, f"feature level: {raised}", as_json=as_json)


@app.command(epilog="Example: standpipe quorum backup metadata.backup")
def backup(
    file: File,
    *,
    node: Node = None,
    secret_file: Secret = None,
    directory: Directory = DEFAULT_DIRECTORY,
    local: Annotated[
        bool, typer.Option("--local", help="Back up what the node knows, when no majority is left.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Back up statements, members and placements to a file. Rows are in Kafka."""
    from standpipe.local.cli.quorum_client import write_backup

    consistency = "local" if local else "linearizable"
    catalog = _client(node, secret_file, directory).catalog(consistency)
    size = write_backup(file.absolute(), catalog)
    told = {"file": str(file), "bytes": size, "log_index": catalog.index}
    _say(told, f"{file}: everything up to index {catalog.index}, {size} bytes", as_json=as_json)


@app.command(
    epilog="Example: standpipe quorum restore metadata.backup --data-dir data --node-id node-1"
)
def restore(
    file: File,
    data_dir: Annotated[Path, typer.Option(help="Data directory of a stopped node.")],
    node_id: Annotated[str, typer.Option(help="That node, at first the only voter.")],
    as_json: AsJson = False,
) -> None:
    """Restore a cluster from a backup, on one node.

    Start that node, then every other one with an empty log/ directory and the same order of
    --voter. The first voters then join automatically."""
    from standpipe.local.cli import quorum_client

    catalog = quorum_client.restore(file, data_dir, node_id)
    told = {"cluster_id": catalog.cluster_id, "log_index": catalog.index, "node_id": node_id}
    text = (
        f"{data_dir} holds cluster {catalog.cluster_id} up to index {catalog.index}.\n"
        f"Next: move log/ away on every other node, start {node_id}, then start the others"
    )
    _say(told, text, as_json=as_json)


def _client(nodes: list[str] | None, secret_file: Path | None, directory: Path) -> QuorumClient:
    from standpipe.local.cli.quorum_client import QuorumClient
    from standpipe.local.client.internal_client import client_of

    return client_of(QuorumClient, nodes, secret_file, directory)


def _change(what: str, node_id: str, client: QuorumClient, *, as_json: bool) -> None:
    voters = client.change(what, node_id)
    _say({"voters": voters}, f"voters: {', '.join(voters)}", as_json=as_json)


def _show(view: View, output: Callable[[Console, View], None], *, as_json: bool) -> None:
    if as_json:
        typer.echo(msgspec.json.encode(view).decode())
    else:
        output(data_console(), view)


def _say(told: Mapping[str, object], text: str, *, as_json: bool) -> None:
    typer.echo(msgspec.json.encode(told).decode() if as_json else text)
