"""Prints SHOW LAG: tables, their replicas, the topics of a table, and why numbers are unknown.

Not here: where the numbers come from (`node/worker/statements/lags.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table

#: lines that are named beside a reason; `--json` has all
PLACES_SHOWN_MAX = 4
#: 400 years of the Gregorian calendar
_CYCLE_MS: Final = 146_097 * 24 * 3_600_000

Line = Mapping[str, Any]


def print_lags(console: Console, entity: Line) -> None:
    """Print the entity of SHOW LAG."""
    tables, replicas, topics = entity["tables"], entity["replicas"], entity.get("topics", [])
    if not tables:
        console.print("no tables", highlight=False)
        return
    _print_tables(console, tables)
    if replicas:
        _print_replicas(console, replicas)
    if topics:
        _print_topics(console, topics)
    for why, places in _reasons([*tables, *replicas]).items():
        more = len(places) - PLACES_SHOWN_MAX
        named = ", ".join(places[:PLACES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
        console.print(f"{named}: {why}", style="dim", markup=False, highlight=False, soft_wrap=True)


def _print_tables(console: Console, rows: Sequence[Line]) -> None:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for name in ("Table", "Query"):
        table.add_column(name)
    for name in ("Committed", "Backlog", "Source lag", "Watermark"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            row["table"],
            row["queryState"],
            _text(row["batch"], "batch {}"),
            _text(row["sourceBacklogRecords"], "{:,} records"),
            _text(row["sourceLagMs"], "{:,} ms"),
            _instant(row["watermarkMs"]),
        )
    console.print(table)


def _print_replicas(console: Console, rows: Sequence[Line]) -> None:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for name in ("Replica", "Node", "Role", "State"):
        table.add_column(name)
    for name in ("Applied", "Lag", "Replica lag", "Source lag"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            f"{row['table']}/{row['partition']}",
            row["node"],
            row["role"].lower(),
            row["state"] or "unknown",
            _text(row["batch"], "batch {}"),
            _text(row["offsetLag"], "{:,} records"),
            _text(row["replicaLagMs"], "{:,} ms"),
            _text(row["sourceLagMs"], "{:,} ms"),
        )
    console.print(table)


def _print_topics(console: Console, rows: Sequence[Line]) -> None:
    table = Table("Topic", box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for name in ("Partition", "End", "Committed up to", "Backlog"):
        table.add_column(name, justify="right")
    for row in rows:
        numbers = (row[name] for name in ("partition", "end", "covered", "backlogRecords"))
        table.add_row(row["topic"], *(f"{number:,}" for number in numbers))
    console.print(table)


def _reasons(rows: Sequence[Line]) -> dict[str, list[str]]:
    """Why -> the lines and fields that are unknown for that reason."""
    found: dict[str, list[str]] = {}
    for row in rows:
        where = row["table"]
        if "node" in row:
            where = f"{where}/{row['partition']} on {row['node']}"
        fields: dict[str, list[str]] = {}
        for name, why in row["unknown"].items():
            fields.setdefault(why, []).append(name)
        for why, names in fields.items():
            found.setdefault(why, []).append(f"{where} ({', '.join(names)})")
    return found


def _text(value: object, form: str) -> str:
    return "unknown" if value is None else form.format(value)


def _instant(unix_ms: int | None) -> str:
    if unix_ms is None:
        return "unknown"
    # one record whose time is in other units moves a watermark beyond the years of Python's dates
    cycles, within_ms = divmod(unix_ms, _CYCLE_MS)
    at = datetime.fromtimestamp(within_ms / 1000, UTC)
    return f"{at.year + 400 * cycles:04d}" + at.strftime("-%m-%dT%H:%M:%SZ")
