"""The command line: one thin function per command.

Errors that the user can fix (SetupError and its subclasses, statement errors) are printed in red
without a traceback, with the next step, and exit with status 1; `--debug` adds the traceback.
Heavy imports are inside the commands, so that `--help` and `sql` start fast.

Not here: what a command does (the other modules of `standpipe.local`).
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from standpipe.config import registry
from standpipe.errors import StandpipeError
from standpipe.local.cli import assignment, check, pipelines, quorum, table
from standpipe.local.cli.consoles import data_console, error_console
from standpipe.local.cli.options import (
    AsJson,
    Bootstrap,
    BrokerPort,
    ConfigFile,
    Directory,
    Master,
    NodePort,
    Nodes,
    Server,
    Settings,
    addresses_of,
    config_layers,
    directory_hint,
    pairs_of,
    servers_of,
)
from standpipe.local.cluster.directory import DEFAULT_DIRECTORY, ClusterDirectory, running_cluster


class Commands(TyperGroup):
    """The group of commands; it prints a StandpipeError without its traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command. A StandpipeError ends it with exit status 1."""
        try:
            return super().invoke(ctx)
        except StandpipeError as error:
            if os.environ.get("STANDPIPE_DEBUG"):
                raise
            from standpipe.local.cli.sql_output import print_error

            print_error(error_console(), error)
            raise typer.Exit(1) from error


app = typer.Typer(
    cls=Commands,
    name="standpipe",
    help="SQL key lookups over the tables that Spark streams maintain, from replicas that survive "
    "the loss of servers.",
    epilog="To start with: standpipe demo",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100},
)

app.add_typer(quorum.app, name="quorum")
app.add_typer(assignment.app, name="assignment")
app.add_typer(table.app, name="table")
app.add_typer(pipelines.app, name="query")
app.command(epilog=pipelines.EXAMPLE)(pipelines.pipeline)
app.command(epilog=check.EXAMPLE)(check.check)
node_app = typer.Typer(rich_markup_mode=None)
app.add_typer(node_app, name="node")
node_app.command(epilog="Example: standpipe node drain node-3")(assignment.drain)
node_app.command(epilog="Example: standpipe node remove node-3")(assignment.remove)


@app.callback()
def options(
    debug: Annotated[bool, typer.Option(help="Print the tracebacks of errors.")] = False,
) -> None:
    """Options of all commands."""
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
    workers: Annotated[
        int, typer.Option(min=0, help="HTTP workers per node; 0: one per core.")
    ] = 1,
    pipelines: Annotated[
        int,
        typer.Option(
            min=0,
            help="Spark drivers; each takes over from another. 0: only programs write tables.",
        ),
    ] = 1,
    checkpoints: Annotated[
        str, typer.Option(help="Where Spark's checkpoints are, if not there: hdfs://HOST:PORT/DIR.")
    ] = "",
    config: ConfigFile = None,
    set_: Settings = None,
) -> None:
    """Run Kafka, nodes and a pipeline on this machine, until Ctrl-C.

    The data stay for the next start; `standpipe purge` removes them."""
    from standpipe.local.cluster.steps import Steps
    from standpipe.local.cluster.supervisor import ClusterOptions, LocalCluster, until_interrupted

    settings = config_layers(config, set_)
    chosen = ClusterOptions(
        directory=directory,
        nodes=nodes,
        node_port=port,
        broker_port=broker_port,
        bootstrap_servers=servers_of(bootstrap_servers, settings),
        workers=workers,
        master=master,
        pipelines=pipelines,
        checkpoints=checkpoints,
        config=settings,
    )
    steps = Steps(data_console())
    with LocalCluster(chosen, steps) as cluster:
        public = cluster.plans[0].public
        steps.say(f"\nReady after {steps.seconds:.1f} s. In another terminal:", style="bold")
        steps.say(f"  standpipe sql{directory_hint(directory)}")
        steps.say(f"  standpipe status{directory_hint(directory)}")
        steps.say(f"  curl http://{public}/info")
        steps.say("Ctrl-C stops the cluster. Its data stay.")
        until_interrupted(steps.say)


@app.command(epilog="Example: standpipe demo --seconds 120 --keep")
def demo(
    *,
    seconds: Annotated[
        float, typer.Option(min=5, help="Length of the live phase, after start-up.")
    ] = 60,
    events: Annotated[
        int | None, typer.Option(min=1000, help="Load only the first N flights.")
    ] = None,
    reads_per_second: Annotated[int, typer.Option(min=1, help="Rate of key lookups.")] = 200,
    events_per_second: Annotated[int, typer.Option(min=1, help="Rate in the live phase.")] = 1000,
    nodes: Annotated[int, typer.Option(min=2, max=20, help="Number of nodes.")] = 3,
    out: Annotated[Path, typer.Option(help="Directory of the report.")] = Path("out/demo"),
    directory: Annotated[
        Path, typer.Option(help="Data directory; emptied first.")
    ] = DEFAULT_DIRECTORY / "demo",
    port: NodePort = 8088,
    broker_port: BrokerPort = 9092,
    keep: Annotated[bool, typer.Option(help="Keep the cluster running until Ctrl-C.")] = False,
) -> None:
    """Load flights into tables on three nodes, and kill a node under load."""
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
        data_console(),
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
        Path | None, typer.Option(help="An existing node.json, instead of the options below.")
    ] = None,
    node_id: Annotated[
        str, typer.Option(help="Name of the node, unique in the cluster.")
    ] = "node-1",
    data_dir: Annotated[Path, typer.Option(help="Directory of the node's data.")] = Path(
        "standpipe-data"
    ),
    bootstrap_servers: Annotated[
        str | None, typer.Option(help="HOST:PORT,… of Kafka; default: 127.0.0.1:9092.")
    ] = None,
    listen: Annotated[
        str, typer.Option(help="Public address. Internal port: + 1; peer port: + 3.")
    ] = "127.0.0.1:8088",
    advertise: Annotated[
        str | None, typer.Option(help="Public address as other machines reach it.")
    ] = None,
    voter: Annotated[
        list[str] | None,
        typer.Option(help="The first voters, the founder first; default: three nodes, by id."),
    ] = None,
    other: Annotated[
        list[str] | None,
        typer.Option(help="Another node; repeatable.", metavar="ID=INTERNAL_ADDRESS"),
    ] = None,
    secret_file: Annotated[Path, typer.Option(help="File of the cluster's secret.")] = Path(
        "secret"
    ),
    workers: Annotated[int, typer.Option(min=0, help="HTTP workers; 0: one per core.")] = 0,
    tag: Annotated[
        list[str] | None, typer.Option(help="Tag, e.g. zone=a; repeatable.", metavar="KEY=VALUE")
    ] = None,
    config: ConfigFile = None,
    set_: Settings = None,
) -> None:
    """Run one node until SIGTERM, or drain or remove a node."""
    if context.invoked_subcommand is not None:
        return
    from standpipe.local.cluster.node_files import StandaloneNode, write_standalone
    from standpipe.node.supervisor.parent import run_node

    settings = config_layers(config, set_)
    written = node_file or write_standalone(
        StandaloneNode(
            node_id=node_id,
            data_directory=data_dir.absolute(),
            bootstrap_servers=servers_of(bootstrap_servers, settings) or "127.0.0.1:9092",
            listen=listen,
            advertise=advertise or listen,
            others=pairs_of("--other", other),
            secret_file=secret_file.absolute(),
            voters=tuple(voter or ()),
            workers=workers,
            tags=pairs_of("--tag", tag),
            config=settings,
        )
    )
    raise typer.Exit(run_node(written))


@app.command(epilog="Example: standpipe broker --data-dir /var/tmp/kafka --port 9092")
def broker(
    data_dir: Annotated[Path, typer.Option(help="Directory of Kafka's log.")] = (
        DEFAULT_DIRECTORY / "kafka"
    ),
    port: Annotated[
        int | None, typer.Option(help="Default: 9092; if it is in use, the next free one.")
    ] = None,
) -> None:
    """Run only the embedded Kafka, until Ctrl-C."""
    from standpipe.local.cluster import broker as broker_module

    arguments = ["--data-dir", str(data_dir)]
    arguments += ["--port", str(port)] if port is not None else []
    raise typer.Exit(broker_module.main(arguments))


@app.command(epilog="Example: standpipe sql -e \"SELECT * FROM AIRCRAFT WHERE TAILNUM='N14228';\"")
def sql(
    *,
    execute: Annotated[
        str | None, typer.Option("-e", help="Run these statements and exit.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("-f", help="Run the statements of a file and exit.")
    ] = None,
    server: Server = None,
    ca: Annotated[
        Path | None, typer.Option(help="PEM file of certificates to trust, for https.")
    ] = None,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Run statements and queries: at a prompt, or with -e or -f."""
    from standpipe.local.cli import prompt
    from standpipe.local.cli.sql_files import read_sql, read_standard_input
    from standpipe.local.client.rest_client import NodesClient

    console = data_console()
    with NodesClient(addresses_of(server, directory), ca=ca) as client:
        texts = [*([execute] if execute is not None else []), *([read_sql(file)] if file else [])]
        if not texts and not sys.stdin.isatty():
            texts = [read_standard_input()]
        for text in texts:
            prompt.run_text(client, console, text, as_json=as_json)
        if not texts:
            prompt.prompt(client, console, prompt.history_file(), as_json=as_json)


@app.command(epilog="Example: standpipe status --watch, or: standpipe status --storage")
def status(
    server: Server = None,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
    watch: Annotated[bool, typer.Option(help="Repeat every second, until Ctrl-C.")] = False,
    storage: Annotated[
        bool, typer.Option(help="Show sizes per table, copy and node instead.")
    ] = False,
) -> None:
    """Show nodes, tables, replicas and queries.

    The exit status is 1 when no node answers."""
    from standpipe.local.cli import status_command

    named = [(address, address) for address in server or []] or [
        (entry.node_id, entry.public) for entry in running_cluster(directory).nodes
    ]
    ask = {"as_json": as_json, "watch": watch, "storage": storage}
    raise typer.Exit(status_command.show(named, data_console(), **ask))


@app.command(
    name="config", epilog="Example: standpipe config ksql.query.pull.max.allowed.offset.lag"
)
def config_command(
    key: Annotated[str | None, typer.Argument(help="A key; default: all.")] = None,
    config: ConfigFile = None,
    set_: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Show configuration keys: value, default and meaning."""
    from standpipe.local.docgen import config as config_doc

    values = registry.load(config_layers(config, set_))
    config_doc.show(data_console(), values, key, as_json=as_json)


@app.command(epilog="Example: standpipe purge --yes")
def purge(
    directory: Directory = DEFAULT_DIRECTORY,
    yes: Annotated[bool, typer.Option(help="Do not ask for confirmation.")] = False,
) -> None:
    """Remove the data of the local cluster: Kafka's log, tables and checkpoints.

    Stop the cluster first."""
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
    """Show the versions for a bug report."""
    from standpipe.local.cli.status_command import print_version

    print_version(data_console(), version_of("standpipe"), as_json=as_json)


def main() -> None:
    """Entry point."""
    app()
