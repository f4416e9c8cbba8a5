"""Prints the assignment: nodes, table partitions, moves, and rules that are not met.

Not here: where the view comes from (`control/assignment/explain.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

#: partitions that are listed individually; `--json` has all
PARTITIONS_SHOWN_MAX = 60


def print_view(console: Console, view: Mapping[str, Any]) -> None:
    """Print everything in the answer of `GET /assignment`."""
    rules = view["rules"]
    tags = ", ".join(rules["rackAwareTags"]) or "nothing: balanced by load only"
    console.print(
        f"assignment epoch {view['assignmentEpoch']}  "
        f"copies {rules['standbyCount'] + 1}  spread over {tags}",
        highlight=False,
    )
    _print_nodes(console, view["nodes"])
    _print_partitions(console, view["partitions"])
    print_moves(console, view)
    for unmet in view["unmet"]:
        console.print(f"not met: {unmet['why']}", style="yellow", markup=False, highlight=False)


def print_moves(console: Console, view: Mapping[str, Any]) -> None:
    """Print the moves that are due, if any."""
    moves = view["moves"]
    if not moves:
        console.print("nothing has to move", style="green")
        return
    table = Table("Partition", "Move", "To", "Size", "Why", box=box.SIMPLE_HEAD)
    for move in moves:
        place = f"{move['table']}/{move['partition']}"
        table.add_row(place, move["kind"], move["node"], _size(move["bytes"]), move["why"])
    console.print(table)
    console.print(f"{len(moves)} moves, {_size(view['moveBytes'])} to copy at most")


def _print_nodes(console: Console, nodes: list[Mapping[str, Any]]) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("Node", "State", "Tags"):
        table.add_column(name)
    for name in ("Capacity", "Actives", "Standbys", "Warm-ups"):
        table.add_column(name, justify="right")
    for node in nodes:
        then = node.get("then") or node
        tags = ", ".join(f"{key}={value}" for key, value in node["tags"].items())
        counts = (_change(node[one], then[one]) for one in ("actives", "standbys", "warmups"))
        table.add_row(node["nodeId"], node["state"], tags, str(node["capacity"]), *counts)
    console.print(table)


def _print_partitions(console: Console, partitions: list[Mapping[str, Any]]) -> None:
    table = Table("Partition", "Active", "Standbys", "Warm-ups", "Spread", "Then", box=box.SIMPLE)
    for line in partitions[:PARTITIONS_SHOWN_MAX]:
        lags, then = line["lags"], line.get("then")
        spread = "; ".join(
            f"{tag} {', '.join(str(value) for value in values)}"
            for tag, values in line["spread"].items()
        )
        table.add_row(
            f"{line['table']}/{line['partition']}",
            _copy(line["active"], lags),
            ", ".join(_copy(name, lags) for name in line["standbys"]),
            ", ".join(_copy(name, lags) for name in line["warmups"]),
            spread,
            ", ".join([then["active"] or "none", *then["standbys"]]) if then else "",
        )
    if partitions:
        console.print(table)
    if len(partitions) > PARTITIONS_SHOWN_MAX:
        rest = len(partitions) - PARTITIONS_SHOWN_MAX
        console.print(f"and {rest} more partitions; --json has all", style="dim")


def _copy(node: str | None, lags: Mapping[str, int | None]) -> str:
    """`node-1` if the copy has caught up, otherwise with its lag in records."""
    if node is None:
        return "none"
    lag = lags.get(node, 0)
    return node if lag == 0 else f"{node} (lag {'?' if lag is None else lag})"


def _change(now: int, then: int) -> str:
    return str(now) if now == then else f"{now} → {then}"


def _size(count: int) -> str:
    value, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{value:.0f} {units[0]}" if units[0] == "B" else f"{value:.1f} {units[0]}"
