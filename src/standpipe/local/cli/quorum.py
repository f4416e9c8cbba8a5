"""`standpipe quorum …`: see and change who keeps the metadata, back it up, bring it back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console

from standpipe.local.cli.internal_options import AsJson, Directory, Node, Secret
from standpipe.local.cluster.directory import DEFAULT_DIRECTORY

if TYPE_CHECKING:
    from standpipe.local.cli.quorum_client import QuorumClient

app = typer.Typer(
    help="See and change who keeps the metadata; back it up, bring it back.",
    epilog="Example: standpipe quorum describe",
    no_args_is_help=True,
    rich_markup_mode=None,
)

NodeName = Annotated[str, typer.Argument(metavar="NODE_ID")]
File = Annotated[Path, typer.Argument(metavar="FILE")]


@app.command(epilog="Example: standpipe quorum describe --json")
def describe(
    node: Node = None,
    secret_file: Secret = None,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Show leader, epoch, high watermark, and each replica's lag."""
    from standpipe.local.cli.quorum_client import print_view

    view = _client(node, secret_file, directory).describe()
    if as_json:
        typer.echo(msgspec.json.encode(view).decode())
    else:
        print_view(Console(), view)


@app.command(name="add-voter", epilog="Example: standpipe quorum add-voter node-4")
def add_voter(
    node_id: NodeName,
    node: Node = None,
    secret_file: Secret = None,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Let a node vote, once it has caught up."""
    _change("add-voter", node_id, _client(node, secret_file, directory), as_json=as_json)


@app.command(name="remove-voter", epilog="Example: standpipe quorum remove-voter node-4")
def remove_voter(
    node_id: NodeName,
    node: Node = None,
    secret_file: Secret = None,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Let a node vote no more; it goes on as an observer."""
    _change("remove-voter", node_id, _client(node, secret_file, directory), as_json=as_json)


@app.command(epilog="Example: standpipe quorum transfer node-2")
def transfer(
    node_id: NodeName,
    node: Node = None,
    secret_file: Secret = None,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Let another voter lead."""
    _change("transfer", node_id, _client(node, secret_file, directory), as_json=as_json)


@app.command(epilog="Example: standpipe quorum features --json")
def features(
    node: Node = None,
    secret_file: Secret = None,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Show the cluster's feature level, and which ones each node's program knows."""
    from standpipe.local.cli.quorum_client import print_features

    view = _client(node, secret_file, directory).features()
    if as_json:
        typer.echo(msgspec.json.encode(view).decode())
    else:
        print_features(Console(), view)


@app.command(epilog="Example: standpipe quorum upgrade --level 2")
def upgrade(
    *,
    level: Annotated[
        int, typer.Option(min=0, help="Level to raise to; 0: the newest that the leader knows.")
    ] = 0,
    node: Node = None,
    secret_file: Secret = None,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Raise the feature level, after all nodes and pipelines run the newer release.

    It never falls: an older release cannot join any more."""
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
        bool, typer.Option("--local", help="What the node knows, for when no majority is left.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write statements, members and placements into a file. Rows are Kafka's."""
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
    data_dir: Annotated[Path, typer.Option(help="Data directory of a node that does not run.")],
    node_id: Annotated[str, typer.Option(help="That node; the cluster's only voter at first.")],
    as_json: AsJson = False,
) -> None:
    """Begin a cluster again from a backup, on one node.

    Start that node, then each other one with an empty log/ directory and the same --voter order:
    the first voters join by themselves."""
    from standpipe.local.cli import quorum_client

    catalog = quorum_client.restore(file, data_dir, node_id)
    told = {"cluster_id": catalog.cluster_id, "log_index": catalog.index, "node_id": node_id}
    text = (
        f"{data_dir} begins cluster {catalog.cluster_id} behind index {catalog.index}.\n"
        f"Next: move log/ away on every other node, start {node_id}, then the others"
    )
    _say(told, text, as_json=as_json)


def _client(nodes: list[str] | None, secret_file: Path | None, directory: Path) -> QuorumClient:
    from standpipe.local.cli.quorum_client import QuorumClient
    from standpipe.local.client.internal_client import client_of

    return client_of(QuorumClient, nodes, secret_file, directory)


def _change(what: str, node_id: str, client: QuorumClient, *, as_json: bool) -> None:
    voters = client.change(what, node_id)
    _say({"voters": voters}, f"voters: {', '.join(voters)}", as_json=as_json)


def _say(told: Mapping[str, object], text: str, *, as_json: bool) -> None:
    typer.echo(msgspec.json.encode(told).decode() if as_json else text)
