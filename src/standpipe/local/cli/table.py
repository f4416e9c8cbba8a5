"""`standpipe table verify NAME`: do all replicas hold the same rows?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from standpipe.local.cli.internal_options import AsJson, Directory, Node, Secret
from standpipe.local.cluster.directory import DEFAULT_DIRECTORY

if TYPE_CHECKING:
    from standpipe.node.controller.digest_check import TableDigests

#: exit statuses beside 0
DIFFERENT, UNKNOWN = 1, 2
#: under load replicas are seldom asked at one batch
TRY_S_MAX = 20.0
TRY_EVERY_S = 0.3

app = typer.Typer(
    help="See to the replicas of a table.",
    epilog="Example: standpipe table verify AIRCRAFT --recompute",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _group() -> None:
    """See to the replicas of a table."""


@app.command(epilog="Example: standpipe table verify AIRCRAFT --recompute")
def verify(
    name: Annotated[str, typer.Argument(help="The table, as SHOW TABLES names it.")],
    *,
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Read every row, instead of the digest beside them.")
    ] = False,
    node: Node = None,
    secret_file: Secret = None,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Compare the digests of all replicas at one batch.

    Exit status 0: equal; 1: two replicas differ, or a row is damaged; 2: it cannot be told, since a
    replica does not answer or they were never seen at one batch.
    """
    from standpipe.data.replica.digest_verdict import Agreement
    from standpipe.local.client.internal_client import InternalClient, client_of
    from standpipe.node.controller.digest_check import WHOLE, TableDigests
    from standpipe.node.controller.long_poll import PATIENT

    client = client_of(InternalClient, node, secret_file, directory)
    query = urlencode({"name": name, "recompute": str(recompute).lower(), PATIENT: "true"})
    deadline, console = time.monotonic() + TRY_S_MAX, Console()
    with console.status(f"asking the replicas of {name}") if not as_json else _Silent():
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
            remark = f"THE ODD ONE: {one.of.damage or 'its rows are others'}"
        table.add_row(
            str(one.partition), one.node_id, str(one.of.position), str(one.of.batch), digest, remark
        )
    console.print(table)
    odd = sorted({node_id for one in found.verdicts for node_id in one.odd})
    console.print(_summary(found, odd), soft_wrap=True)


def _summary(found: TableDigests, odd: Sequence[str]) -> str:
    kinds = {one.agreement.value for one in found.verdicts}
    if not kinds:
        return f"{found.table} has no replicas yet: `standpipe assignment show` says why"
    if kinds == {"equal"}:
        return f"all replicas of {found.table} hold the same rows"
    if "different" in kinds:
        if odd:
            return f"replicas of {found.table} DIFFER: the one on {', '.join(odd)} is made anew"
        return (
            f"replicas of {found.table} DIFFER, which one is wrong cannot be told: try --recompute."
            " To make a replica anew: stop its node, move its store aside (state/ in its data "
            "directory), start the node"
        )
    if "apart" in kinds:
        return f"never seen at one batch within {TRY_S_MAX:.0f} s: try again when less is written"
    return f"nothing to compare: {found.table} has a single replica that answers"
