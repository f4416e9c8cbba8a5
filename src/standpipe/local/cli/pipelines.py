"""`standpipe pipeline` and `standpipe query isolate`: which driver runs which queries.

Not here: the driver (`pipeline/run/driver.py`), who may run what (`control/metadata/isolation.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from standpipe.errors import ConfigError
from standpipe.local.cli.options import (
    AsJson,
    ConfigFile,
    Directory,
    Master,
    Node,
    Secret,
    Settings,
    config_layers,
    servers_of,
)
from standpipe.local.cluster.directory import DEFAULT_DIRECTORY

if TYPE_CHECKING:
    from standpipe.local.client.internal_client import InternalClient

EXAMPLE = (
    "Example: standpipe pipeline --nodes 10.0.0.1:8089 --bootstrap-servers kafka:9092 "
    "--checkpoints /mnt/checkpoints --secret-file secret --master spark://master:7077; "
    "the same with --isolate VISITS runs what writes VISITS, and nothing else"
)

app = typer.Typer(
    help="Give queries a Spark driver of their own.",
    epilog="Example: standpipe query isolate VISITS",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _group() -> None:
    """Give queries a Spark driver of their own."""


def pipeline(
    *,
    nodes: Annotated[str, typer.Option(help="Internal addresses of nodes, separated by commas.")],
    bootstrap_servers: Annotated[
        str | None,
        typer.Option(help="HOST:PORT,… of Kafka; default: the key kafka.bootstrap.servers."),
    ] = None,
    checkpoints: Annotated[
        str,
        typer.Option(
            help="Where Spark's checkpoints are; keep it. A directory, or hdfs://HOST:PORT/DIR.",
            metavar="DIR",
        ),
    ],
    notes: Annotated[
        Path | None,
        typer.Option(
            help="A directory of this machine, for checkpoints that are in none: drivers note "
            "there which queries are in a batch, to find one that ends them. Keep it.",
        ),
    ] = None,
    secret_file: Annotated[Path, typer.Option(help="File of the cluster's secret.")],
    master: Master = "local[*]",
    isolate: Annotated[
        str | None,
        typer.Option(
            help="Isolate the queries that write this stream or table, or the query with this id, "
            "as `query isolate` does, and run only those.",
            metavar="NAME",
        ),
    ] = None,
    config: ConfigFile = None,
    set_: Settings = None,
) -> None:
    """Run the persistent queries on Spark, until SIGTERM.

    Start several on several machines: they share the queries and take over from each other. All of
    them need the same checkpoint storage."""
    from standpipe.pipeline.run import driver

    settings = config_layers(config, set_)
    servers = servers_of(bootstrap_servers, settings)
    if not servers:
        raise ConfigError(
            "it is not said where Kafka is", next_step="give --bootstrap-servers HOST:PORT,…"
        )
    arguments = ["--nodes", nodes, "--bootstrap-servers", servers]
    arguments += ["--checkpoints", checkpoints, "--secret-file", str(secret_file)]
    arguments += ["--notes", str(notes)] if notes is not None else []
    for name, value in settings.items():
        arguments += ["--config", f"{name}={value}"]
    if isolate is not None:
        client = _client(nodes.split(","), secret_file, DEFAULT_DIRECTORY)
        arguments += ["--isolate", str(_isolate(client, isolate)["name"])]
    raise typer.Exit(driver.main([*arguments, "--master", master]))


@app.command(epilog="Example: standpipe query isolate VISITS; later: … isolate VISITS --undo")
def isolate(
    name: Annotated[
        str,
        typer.Argument(
            help="A stream or table: the queries that write it. Or the id of a query.",
            metavar="NAME",
        ),
    ],
    *,
    undo: Annotated[
        bool, typer.Option("--undo", help="Let the shared pipelines run them again.")
    ] = False,
    node: Node = None,
    secret_file: Secret = None,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Let only a driver of their own run these queries: they can neither end nor starve others.

    `standpipe up` starts that driver by itself; elsewhere: `standpipe pipeline --isolate NAME`.
    Until it runs, the queries wait, and their tables are served as they are. Isolate a name before
    you create it, and its query never runs beside others."""
    answer = _isolate(_client(node, secret_file, directory), name, undo=undo)
    typer.echo(msgspec.json.encode(answer).decode() if as_json else _said(answer, undo=undo))


def _isolate(client: InternalClient, name: str, *, undo: bool = False) -> dict[str, Any]:
    body = msgspec.json.encode({"name": name, "undo": undo})
    return msgspec.json.decode(client.ask("POST", "/queries/isolate", body))


def _said(answer: dict[str, Any], *, undo: bool) -> str:
    name, queries = answer["name"], ", ".join(answer["queries"])
    if undo:
        return f"{name} is isolated no longer: shared pipelines run {queries or 'what writes it'}"
    which = queries or "no query yet; what will write it never runs beside others"
    drivers = ", ".join(answer["pipelines"]) or (
        f"none yet: `standpipe up` starts one; elsewhere `standpipe pipeline --isolate {name}`"
    )
    return f"{name} is isolated: {which}\nits drivers: {drivers}"


def _client(nodes: list[str] | None, secret_file: Path | None, directory: Path) -> InternalClient:
    from standpipe.local.client.internal_client import InternalClient, client_of

    return client_of(InternalClient, nodes, secret_file, directory)
