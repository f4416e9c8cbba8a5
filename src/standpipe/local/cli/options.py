"""Options that several commands share, and the configuration that results from them.

Not here: options of a single command (declared beside the command).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from standpipe.config import registry
from standpipe.config.kafka import BOOTSTRAP_SERVERS
from standpipe.errors import ConfigError
from standpipe.local.cli.consoles import error_console
from standpipe.local.cluster.directory import DEFAULT_DIRECTORY, running_cluster

# ------------------------------------------------------- of commands that call an internal listener

Node = Annotated[
    list[str] | None,
    typer.Option(
        help="Internal address of a node; default: the local cluster.", metavar="HOST:PORT"
    ),
]
Secret = Annotated[
    Path | None, typer.Option(help="File of the cluster's secret; default: the local cluster's.")
]

# ------------------------------------------------------------------ of commands that run things

Directory = Annotated[Path, typer.Option(help="Directory of the cluster's data.", metavar="DIR")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        *("--set", "--conf"), help="Set a configuration key; repeatable.", metavar="KEY=VALUE"
    ),
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="TOML file with configuration keys.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]
Nodes = Annotated[int, typer.Option(min=1, max=50, help="Number of nodes.")]
Master = Annotated[str, typer.Option(help="Spark master: local[*], spark://…, k8s://…")]
Bootstrap = Annotated[
    str | None, typer.Option(help="HOST:PORT of your own Kafka, instead of the embedded one.")
]
NodePort = Annotated[
    int, typer.Option("--port", help="Port of the first node; if it is in use, the next free one.")
]
BrokerPort = Annotated[
    int, typer.Option(help="Port of the embedded Kafka; if in use, the next free one.")
]
Server = Annotated[
    list[str] | None,
    typer.Option(help="Public address of a node; default: the local cluster.", metavar="HOST:PORT"),
]


def config_layers(file: Path | None, pairs: list[str] | None) -> dict[str, str]:
    """Keys from file, environment and command line; later ones win. `load` checks the values."""
    merged: dict[str, object] = registry.file_layer(file) if file is not None else {}
    merged = registry.canonical(merged)
    merged |= registry.environment_layer(os.environ)
    merged |= registry.canonical(pairs_of("--set", pairs))
    for warning in registry.load(merged).warnings:
        error_console().print(warning, style="yellow")
    return {name: registry.text_of(value) for name, value in merged.items()}


def servers_of(option: str | None, config: Mapping[str, str]) -> str | None:
    """Kafka's bootstrap servers: those of the option, else those of the key; None: neither."""
    return option or config.get(BOOTSTRAP_SERVERS.name)


def pairs_of(option: str, pairs: list[str] | None) -> dict[str, str]:
    """The pairs of a repeatable option KEY=VALUE. Raises ConfigError."""
    found: dict[str, str] = {}
    for pair in pairs or []:
        name, sign, value = pair.partition("=")
        if not sign:
            raise ConfigError(f"{option} {pair} has no =", next_step=f"write {option} KEY=VALUE")
        found[name] = value
    return found


def addresses_of(server: list[str] | None, directory: Path) -> list[str]:
    """Public addresses: the given ones, or those of the local cluster. Raises SetupError."""
    return server or [entry.public for entry in running_cluster(directory).nodes]


def directory_hint(directory: Path) -> str:
    """The option that names the directory; "" if it is the default."""
    return "" if directory == DEFAULT_DIRECTORY else f" --directory {directory}"
