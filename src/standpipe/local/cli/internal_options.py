"""Options of the commands that ask a node's internal listener."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Node = Annotated[
    list[str] | None,
    typer.Option(
        help="A node's internal address; default: the local cluster.", metavar="HOST:PORT"
    ),
]
Secret = Annotated[
    Path | None, typer.Option(help="The cluster's secret; default: the local cluster's.")
]
Directory = Annotated[Path, typer.Option(help="The local cluster's directory.", metavar="DIR")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON for other programs.")]
