"""`standpipe table verify NAME`: whether all replicas hold the same rows.

Not here: how replicas are compared (`data/replica/digest_verdict.py`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from standpipe.local.cli.consoles import data_console
from standpipe.local.cli.options import AsJson, Directory, Node, Secret
from standpipe.local.cluster.directory import DEFAULT_DIRECTORY

if TYPE_CHECKING:
    from standpipe.node.controller.digest_check import TableDigests

#: exit statuses other than 0
DIFFERENT, UNKNOWN = 1, 2
#: retry this long: under load, replicas are rarely at the same batch when they are asked
TRY_S_MAX = 20.0
TRY_EVERY_S = 0.3

app = typer.Typer(
    help="Compare the replicas of a table.",
    epilog="Example: standpipe table verify AIRCRAFT --recompute",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _group() -> None:
    """Compare the replicas of a table."""


@app.command(epilog="Example: standpipe table verify AIRCRAFT --recompute")
def verify(
    name: Annotated[str, typer.Argument(help="Name of the table, as SHOW TABLES prints it.")],
    *,
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Read every row instead of the stored digest.")
    ] = False,
    node: Node = None,
    secret_file: Secret = None,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Compare the digests of all replicas at the same batch.

    Exit status: 0, all are equal; 1, two replicas differ or a row is damaged; 2, unknown: a replica
    does not answer, or the replicas were never seen at the same batch.
    """
    from standpipe.data.replica.digest_verdict import Agreement
    from standpipe.local.client.internal_client import InternalClient, client_of
    from standpipe.node.controller.digest_check import WHOLE, TableDigests
    from standpipe.node.controller.long_poll import PATIENT

    client = client_of(InternalClient, node, secret_file, directory)
    query = urlencode({"name": name, "recompute": str(recompute).lower(), PATIENT: "true"})
    deadline, console = time.monotonic() + TRY_S_MAX, data_console()
    with console.status(Text(f"asking the replicas of {name}")) if not as_json else _Silent():
        while True:
            found = msgspec.json.decode(client.ask("GET", f"{WHOLE}?{query}"), type=TableDigests)
            if all(one.agreement is not Agreement.APART for one in found.verdicts):
                break
            if time.monotonic() > deadline:
                break
            time.sleep(TRY_EVERY_S)
    if as_json:
        typer.echo(msgspec.json.encode(found).decode())
    else:
        _print(console, found)
    said = {one.agreement for one in found.verdicts}
    if Agreement.DIFFERENT in said:
        raise typer.Exit(DIFFERENT)
    if not said or said != {Agreement.EQUAL} or any(one.error for one in found.replicas):
        raise typer.Exit(UNKNOWN)


class _Silent:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def _print(console: Console, found: TableDigests) -> None:
    table = Table("partition", "node", "position", "batch", "digest", "", box=None, pad_edge=False)
    verdicts = {one.partition: one for one in found.verdicts}
    for one in sorted(found.replicas, key=lambda each: (each.partition, each.node_id)):
        verdict = verdicts[one.partition]
        if one.of is None:
            table.add_row(str(one.partition), one.node_id, "", "", "", one.error)
            continue
        digest = "" if one.of.digest is None else f"{one.of.digest:016x}"
        remark = verdict.agreement.value
        if one.node_id in verdict.odd:
            remark = f"DIVERGED: {one.of.damage or 'its rows differ'}"
        table.add_row(
            str(one.partition), one.node_id, str(one.of.position), str(one.of.batch), digest, remark
        )
    console.print(table)
    odd = sorted({node_id for one in found.verdicts for node_id in one.odd})
    console.print(_summary(found, odd), soft_wrap=True)


def _summary(found: TableDigests, odd: Sequence[str]) -> str:
    kinds = {one.agreement.value for one in found.verdicts}
    if not kinds:
        return f"{found.table} has no replicas yet; `standpipe assignment show` gives the reason"
    if kinds == {"equal"}:
        return f"all replicas of {found.table} hold the same rows"
    if "different" in kinds:
        if odd:
            return f"replicas of {found.table} DIFFER: the one on {', '.join(odd)} is being rebuilt"
        return (
            f"replicas of {found.table} DIFFER, and it is unknown which one is wrong: try "
            "--recompute. To rebuild a replica, stop its node, move its store aside (state/ in the "
            "data directory), and start the node"
        )
    if "apart" in kinds:
        return f"never seen at the same batch within {TRY_S_MAX:.0f} s: try again under less load"
    return f"nothing to compare: only one replica of {found.table} answers"
