"""The command line: one function per command, thin; what a command does is in `standpipe.local`.

Errors that a person can mend (SetupError and its kinds, errors of statements) are printed in red
without a traceback, with the next step, and end with exit status 1; `--debug` adds the traceback.
Imports of heavy parts are inside the commands, so that `--help` and `sql` start fast.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from standpipe.config import registry
from standpipe.errors import ConfigError, SetupError, StandpipeError
from standpipe.local.cli import assignment, quorum, table
from standpipe.local.cluster.directory import DEFAULT_DIRECTORY, ClusterDirectory, running_cluster


class Commands(TyperGroup):
    """The group of commands; what a person can mend is printed without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except StandpipeError as error:
            if os.environ.get("STANDPIPE_DEBUG"):
                raise
            from standpipe.local.cli.sql_output import print_error

            print_error(Console(stderr=True), error)
            raise typer.Exit(1) from error


app = typer.Typer(
    cls=Commands,
    name="standpipe",
    help="Serves the tables that Spark streams keep, and keeps serving them while servers die.",
    epilog="First time here? Try: standpipe demo",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100},
)

app.add_typer(quorum.app, name="quorum")
app.add_typer(assignment.app, name="assignment")
app.add_typer(table.app, name="table")
node_app = typer.Typer(rich_markup_mode=None)
app.add_typer(node_app, name="node")
node_app.command(epilog="Example: standpipe node drain node-3")(assignment.drain)
node_app.command(epilog="Example: standpipe node remove node-3")(assignment.remove)

Directory = Annotated[Path, typer.Option(help="Where the cluster keeps its data.", metavar="DIR")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="A configuration key.", metavar="KEY=VALUE")
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="A TOML file with configuration keys.")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON for other programs.")]
Nodes = Annotated[int, typer.Option(min=1, max=50, help="How many nodes.")]
Master = Annotated[str, typer.Option(help="Spark master: local[*], spark://…, k8s://…")]
Bootstrap = Annotated[
    str | None, typer.Option(help="A Kafka that exists, instead of an embedded one.")
]
NodePort = Annotated[int, typer.Option("--port", help="First node's port; taken: the next free.")]
BrokerPort = Annotated[int, typer.Option(help="Port of the embedded Kafka; taken: the next free.")]
Server = Annotated[
    list[str] | None,
    typer.Option(help="A node's public address; default: the local cluster.", metavar="HOST:PORT"),
]


@app.callback()
def options(
    debug: Annotated[bool, typer.Option(help="Show tracebacks of errors.")] = False,
) -> None:
    if debug:
        os.environ["STANDPIPE_DEBUG"] = "1"


@app.command(epilog="Example: standpipe up --nodes 3")
def up(
    *,
    nodes: Nodes = 3,
    directory: Directory = DEFAULT_DIRECTORY,
    port: NodePort = 8088,
    broker_port: BrokerPort = 9092,
    bootstrap_servers: Bootstrap = None,
    master: Master = "local[*]",
    workers: Annotated[int, typer.Option(min=0, help="HTTP workers per node; 0: per core.")] = 1,
    pipelines: Annotated[int, typer.Option(min=1, help="Spark drivers; one takes over.")] = 1,
    config: ConfigFile = None,
    set_: Settings = None,
) -> None:
    """Start Kafka, nodes and a pipeline here, until Ctrl-C.

    The data are kept for the next start; `standpipe purge` removes them."""
    from standpipe.local.cluster.steps import Steps
    from standpipe.local.cluster.supervisor import ClusterOptions, LocalCluster, until_interrupted

    chosen = ClusterOptions(
        directory=directory,
        nodes=nodes,
        node_port=port,
        broker_port=broker_port,
        bootstrap_servers=bootstrap_servers,
        workers=workers,
        master=master,
        pipelines=pipelines,
        config=_config_layers(config, set_),
    )
    steps = Steps(Console())
    with LocalCluster(chosen, steps) as cluster:
        public = cluster.plans[0].public
        steps.say(f"\nReady after {steps.seconds:.1f} s. In another terminal:", style="bold")
        steps.say(f"  standpipe sql{_hint(directory)}")
        steps.say(f"  standpipe status{_hint(directory)}")
        steps.say(f"  curl http://{public}/info")
        steps.say("Ctrl-C stops everything; the data stay.")
        until_interrupted(steps.say)


@app.command(epilog="Example: standpipe demo --seconds 120 --keep")
def demo(
    *,
    seconds: Annotated[float, typer.Option(min=5, help="Live phase, after start-up.")] = 60,
    events: Annotated[int | None, typer.Option(min=1000, help="Only the first N flights.")] = None,
    reads_per_second: Annotated[int, typer.Option(min=1)] = 200,
    events_per_second: Annotated[int, typer.Option(min=1, help="In the live phase.")] = 1000,
    nodes: Annotated[int, typer.Option(min=2, max=20)] = 3,
    out: Annotated[Path, typer.Option(help="Where the report goes.")] = Path("out/demo"),
    directory: Annotated[Path, typer.Option(help="Emptied first.")] = DEFAULT_DIRECTORY / "demo",
    port: NodePort = 8088,
    broker_port: BrokerPort = 9092,
    keep: Annotated[bool, typer.Option(help="Leave it running until Ctrl-C.")] = False,
) -> None:
    """Real flights into tables on three nodes; one node is killed under load."""
    from standpipe.local.demo.main import DemoOptions, run_demo

    status = run_demo(
        DemoOptions(
            seconds=seconds,
            events_max=events,
            reads_per_second=reads_per_second,
            events_per_second=events_per_second,
            nodes=nodes,
            out=out,
            directory=directory,
            node_port=port,
            broker_port=broker_port,
            keep=keep,
        ),
        Console(),
    )
    raise typer.Exit(status)


@node_app.callback(
    invoke_without_command=True,
    epilog="Example: standpipe node --node-id node-2 --data-dir /var/lib/standpipe "
    "--bootstrap-servers kafka:9092 --listen 0.0.0.0:8088 --advertise node2:8088 "
    "--other node-1=node1:8089 --other node-3=node3:8089 --secret-file secret",
)
def node(
    context: typer.Context,
    *,
    node_file: Annotated[
        Path | None, typer.Option(help="A node.json that is there, instead of all below.")
    ] = None,
    node_id: Annotated[str, typer.Option(help="Unique in the cluster.")] = "node-1",
    data_dir: Annotated[Path, typer.Option(help="State, log, node.json.")] = Path("standpipe-data"),
    bootstrap_servers: Annotated[str, typer.Option(help="Kafka.")] = "127.0.0.1:9092",
    listen: Annotated[
        str, typer.Option(help="Public address; internal is the port + 1, peer + 3.")
    ] = "127.0.0.1:8088",
    advertise: Annotated[
        str | None, typer.Option(help="The same as others should dial it.")
    ] = None,
    voter: Annotated[
        list[str] | None,
        typer.Option(help="First voters, founder first; default: three of all, by id."),
    ] = None,
    other: Annotated[
        list[str] | None, typer.Option(help="Another node.", metavar="ID=INTERNAL_ADDRESS")
    ] = None,
    secret_file: Annotated[Path, typer.Option(help="The secret that all share.")] = Path("secret"),
    workers: Annotated[int, typer.Option(min=0, help="HTTP workers; 0: one per core.")] = 0,
    tag: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE")] = None,
    config: ConfigFile = None,
    set_: Settings = None,
) -> None:
    """Run one node, until SIGTERM; or, with a command, see to one that runs."""
    if context.invoked_subcommand is not None:
        return
    from standpipe.local.cluster.node_files import StandaloneNode, write_standalone
    from standpipe.node.supervisor.parent import run_node

    written = node_file or write_standalone(
        StandaloneNode(
            node_id=node_id,
            data_directory=data_dir.absolute(),
            bootstrap_servers=bootstrap_servers,
            listen=listen,
            advertise=advertise or listen,
            others=_pairs("--other", other),
            secret_file=secret_file.absolute(),
            voters=tuple(voter or ()),
            workers=workers,
            tags=_pairs("--tag", tag),
            config=_config_layers(config, set_),
        )
    )
    raise typer.Exit(run_node(written))


@app.command(
    epilog="Example: standpipe pipeline --nodes 10.0.0.1:8089 --bootstrap-servers kafka:9092 "
    "--checkpoints /mnt/checkpoints --secret-file secret --master spark://master:7077"
)
def pipeline(
    *,
    nodes: Annotated[str, typer.Option(help="Internal addresses, comma between.")],
    bootstrap_servers: Annotated[str, typer.Option(help="Kafka.")],
    checkpoints: Annotated[Path, typer.Option(help="Spark's checkpoints; keep them.")],
    secret_file: Annotated[Path, typer.Option(help="The secret that the nodes share.")],
    master: Master = "local[*]",
    config: ConfigFile = None,
    set_: Settings = None,
) -> None:
    """Run the persistent queries on Spark, until SIGTERM.

    Start several, on several machines: they share the queries, and take over from each other. Their
    checkpoints must be the same storage."""
    from standpipe.pipeline.run import driver

    arguments = ["--nodes", nodes, "--bootstrap-servers", bootstrap_servers]
    arguments += ["--checkpoints", str(checkpoints), "--secret-file", str(secret_file)]
    for name, value in _config_layers(config, set_).items():
        arguments += ["--config", f"{name}={value}"]
    raise typer.Exit(driver.main([*arguments, "--master", master]))


@app.command(epilog="Example: standpipe broker --data-dir /var/tmp/kafka --port 9092")
def broker(
    data_dir: Annotated[Path, typer.Option(help="Where Kafka keeps its log.")] = (
        DEFAULT_DIRECTORY / "kafka"
    ),
    port: Annotated[int | None, typer.Option(help="Default: 9092, taken: the next free.")] = None,
) -> None:
    """Run the embedded Kafka alone, until Ctrl-C."""
    from standpipe.local.cluster import broker as broker_module

    arguments = ["--data-dir", str(data_dir)]
    arguments += ["--port", str(port)] if port is not None else []
    raise typer.Exit(broker_module.main(arguments))


@app.command(epilog="Example: standpipe sql -e \"SELECT * FROM AIRCRAFT WHERE TAILNUM='N14228';\"")
def sql(
    *,
    execute: Annotated[str | None, typer.Option("-e", help="Run this and end.")] = None,
    file: Annotated[Path | None, typer.Option("-f", help="Run this file and end.")] = None,
    server: Server = None,
    ca: Annotated[Path | None, typer.Option(help="PEM file to trust, for https://…")] = None,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Statements and key lookups: a prompt, or -e and -f."""
    from standpipe.local.cli import prompt
    from standpipe.local.client.rest_client import NodesClient

    console = Console(width=None if sys.stdout.isatty() else 200)
    with NodesClient(_addresses(server, directory), ca=ca) as client:
        texts = [*([execute] if execute is not None else []), *([_read(file)] if file else [])]
        if not texts and not sys.stdin.isatty():
            texts = [sys.stdin.read()]
        for text in texts:
            prompt.run_text(client, console, text, as_json=as_json)
        if not texts:
            history = Path.home() / ".local/state/standpipe/history"
            prompt.prompt(client, console, history, as_json=as_json)


@app.command(epilog="Example: standpipe status --watch, or: standpipe status --storage")
def status(
    server: Server = None,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
    watch: Annotated[bool, typer.Option(help="Again every second, until Ctrl-C.")] = False,
    storage: Annotated[bool, typer.Option(help="Instead: sizes per table, copy, node.")] = False,
) -> None:
    """Show nodes, tables, replicas and queries.

    Exit status 1 when no node answers."""
    from standpipe.local.cli import status_command

    named = [(address, address) for address in server or []] or [
        (entry.node_id, entry.public) for entry in running_cluster(directory).nodes
    ]
    ask = {"as_json": as_json, "watch": watch, "storage": storage}
    raise typer.Exit(status_command.show(named, Console(), **ask))


@app.command(
    name="config", epilog="Example: standpipe config ksql.query.pull.max.allowed.offset.lag"
)
def config_command(
    key: Annotated[str | None, typer.Argument(help="One key; default: all.")] = None,
    config: ConfigFile = None,
    set_: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Show configuration keys: value, default, meaning."""
    from standpipe.local.docgen import config as config_doc

    values = registry.load(_config_layers(config, set_))
    config_doc.show(Console(), values, key, as_json=as_json)


@app.command(epilog="Example: standpipe purge --yes")
def purge(
    directory: Directory = DEFAULT_DIRECTORY,
    yes: Annotated[bool, typer.Option(help="Do not ask.")] = False,
) -> None:
    """Remove the data of the local cluster.

    Kafka's log, the tables, the checkpoints; nothing may be running."""
    found = ClusterDirectory(directory)
    if not found.root.exists():
        typer.echo(f"{directory} does not exist: nothing to remove")
        return
    if not yes:
        typer.confirm(f"Remove everything in {directory}?", abort=True)
    for inner in (ClusterDirectory(directory / "demo"), found):
        removed = inner.purge()
    typer.echo(f"removed {directory} ({removed / 1e6:.1f} MB)")


@app.command(epilog="Example: standpipe version --json")
def version(as_json: AsJson = False) -> None:
    """Show the versions that a bug report needs."""
    from standpipe.local.cli.status_command import print_version

    print_version(Console(), version_of("standpipe"), as_json=as_json)


# ------------------------------------------------------------------------------ helpers


def _config_layers(file: Path | None, pairs: list[str] | None) -> dict[str, str]:
    """Keys from file, environment and command line, weakest first, as text. Checked by `load`."""
    merged: dict[str, object] = registry.file_layer(file) if file is not None else {}
    merged |= registry.environment_layer(os.environ)
    merged |= _pairs("--set", pairs)
    for warning in registry.load(merged).warnings:
        Console(stderr=True).print(warning, style="yellow", markup=False)
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in merged.items()
    }


def _pairs(option: str, pairs: list[str] | None) -> dict[str, str]:
    """KEY=VALUE as often as it was given."""
    found: dict[str, str] = {}
    for pair in pairs or []:
        name, sign, value = pair.partition("=")
        if not sign:
            raise ConfigError(f"{option} {pair} has no =", next_step=f"write {option} KEY=VALUE")
        found[name] = value
    return found


def _addresses(server: list[str] | None, directory: Path) -> list[str]:
    return server or [entry.public for entry in running_cluster(directory).nodes]


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError as error:
        raise SetupError(f"cannot read {file}: {error.strerror}", next_step="check -f") from error


def _hint(directory: Path) -> str:
    return "" if directory == DEFAULT_DIRECTORY else f" --directory {directory}"


def main() -> None:
    """Entry point."""
    app()
