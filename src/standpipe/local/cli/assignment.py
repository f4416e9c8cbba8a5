"""`standpipe assignment …`, `node drain` and `node remove`: who holds which table partition.

Not here: the output (`assignment_output.py`); the planner (`control/assignment/`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from standpipe.local.cli.consoles import data_console
from standpipe.local.cli.options import AsJson, Directory, Node, Secret
from standpipe.local.cluster.directory import DEFAULT_DIRECTORY

if TYPE_CHECKING:
    from standpipe.local.client.internal_client import InternalClient

app = typer.Typer(
    help="Show which node holds which table partition, why, and what would move.",
    epilog="Example: standpipe assignment show --what-if 'remove node-3'",
    no_args_is_help=True,
    rich_markup_mode=None,
)

WhatIf = Annotated[
    str,
    typer.Option(
        help="A change to try: remove NODE, drain NODE, add NODE [tag=value …], capacity NODE "
        "NUMBER, standbys NUMBER; several separated by commas.",
        metavar="TEXT",
    ),
]


@app.command(epilog="Example: standpipe assignment show --what-if 'remove node-3, add node-4'")
def show(
    what_if: WhatIf = "",
    node: Node = None,
    secret_file: Secret = None,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Show which node holds what, what moves and why; with --what-if, what would move."""
    _print(_view(node, secret_file, directory, what_if), as_json=as_json)


@app.command(epilog="Example: standpipe assignment rebalance --dry-run")
def rebalance(
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Accepted for scripts: this command never moves anything."),
    ] = False,
    node: Node = None,
    secret_file: Secret = None,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Show the moves that are due. The leader makes them automatically, a few at a time."""
    view = _view(node, secret_file, directory)
    if as_json:
        moves = {"dry_run": dry_run, "moves": view["moves"], "moveBytes": view["moveBytes"]}
        typer.echo(msgspec.json.encode(moves).decode())
        return
    from standpipe.local.cli.assignment_output import print_moves

    print_moves(data_console(), view)


@app.command(epilog="Example: standpipe assignment rules --standbys 2 --spread-over zone")
def rules(
    *,
    standbys: Annotated[
        int, typer.Option(min=0, max=8, help="Number of copies beside the active one.")
    ],
    spread_over: Annotated[
        str, typer.Option(help="Tags, separated by commas: rack.aware.assignment.tags.")
    ] = "",
    forced: Annotated[
        str, typer.Option(help="tag:value,… of all racks: standpipe.rack.aware.forced.")
    ] = "",
    node: Node = None,
    secret_file: Secret = None,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Change the cluster-wide placement rules.

    Change the nodes' files too: a node whose file differs is refused at its next start."""
    from standpipe.config import keys, registry
    from standpipe.node.configuration import placement_rules

    values = registry.load(
        {
            keys.STANDBYS.name: standbys,
            keys.RACK_TAGS.name: spread_over,
            keys.RACK_FORCED.name: forced,
        }
    )
    body = msgspec.json.encode(placement_rules(values))
    _client(node, secret_file, directory).ask("POST", "/assignment/rules", body)
    typer.echo(body.decode() if as_json else "the rules are changed; copies move automatically")


def drain(
    node_id: Annotated[
        str, typer.Argument(help="The node, as `status` shows it.", metavar="NODE_ID")
    ],
    *,
    undo: Annotated[bool, typer.Option("--undo", help="Allow it to hold copies again.")] = False,
    node: Node = None,
    secret_file: Secret = None,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Move all copies to other nodes; the node serves until they are ready. Does not wait."""
    body = msgspec.json.encode({"node_id": node_id, "undo": undo})
    answer = _client(node, secret_file, directory).ask("POST", "/nodes/drain", body)
    if as_json:
        typer.echo(answer.decode())
        return
    copies = msgspec.json.decode(answer)["copies"]
    text = "may hold copies again" if undo else f"drains: {copies} copies move to other nodes"
    typer.echo(f"{node_id} {text}. `standpipe assignment show` shows the progress")


def remove(
    node_id: Annotated[
        str, typer.Argument(help="The node, as `status` shows it.", metavar="NODE_ID")
    ],
    node: Node = None,
    secret_file: Secret = None,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Remove a drained and stopped node from the cluster."""
    body = msgspec.json.encode({"node_id": node_id})
    answer = _client(node, secret_file, directory).ask("POST", "/nodes/remove", body)
    typer.echo(answer.decode() if as_json else f"{node_id} is removed")


def _view(
    nodes: list[str] | None, secret_file: Path | None, directory: Path, what_if: str = ""
) -> dict[str, Any]:
    from urllib.parse import urlencode

    path = "/assignment" + (f"?{urlencode({'what_if': what_if})}" if what_if else "")
    return msgspec.json.decode(_client(nodes, secret_file, directory).ask("GET", path))


def _client(nodes: list[str] | None, secret_file: Path | None, directory: Path) -> InternalClient:
    from standpipe.local.client.internal_client import InternalClient, client_of

    return client_of(InternalClient, nodes, secret_file, directory)


def _print(view: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        typer.echo(msgspec.json.encode(view).decode())
        return
    from standpipe.local.cli.assignment_output import print_view

    print_view(data_console(), view)
