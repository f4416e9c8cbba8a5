"""Compares every key of every table with results that pandas computes from the same flights.

The computation is independent of the product: it reads the CSV file again and shares no code with
the pipeline. Every key is read through every node and compared row by row. A row that differs, is
missing, or should not exist is wrong.

Not here: checks of single answers while the demo runs (`questions.py`).
"""

# pandas has no type hints; what leaves this module is typed
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from standpipe.adapters.http.peer_client import PathFailed, PeerClient
from standpipe.local.demo.flights import DAY_MS, WEEK_MS, data_directory
from standpipe.local.demo.questions import same_number

LINES = "application/vnd.ksqlapi.delimited.v1"
ASKED_AT_ONCE_MAX = 16
ASK_S_MAX = 10.0
SHOWN_MAX = 20

Row = tuple[Any, ...]


@dataclass
class CheckResult:
    """What the comparison found. `wrong` holds one sentence per wrong row."""

    rows: int = 0
    reads: int = 0
    wrong: list[str] = field(default_factory=list[str])
    failed: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class Expected:
    """The rows that one lookup must return, in any order."""

    sql: str
    rows: tuple[Row, ...]


def recompute(events_max: int | None) -> list[Expected]:
    """What every lookup must return after the first `events_max` flights."""
    import pandas as pd

    frame = pd.read_csv(data_directory() / "flights.csv.zip")
    frame = frame.sort_values("time_hour", kind="stable").head(events_max or len(frame))
    seconds = pd.to_datetime(frame["time_hour"], utc=True).astype("datetime64[s, UTC]")
    frame["time_ms"] = seconds.astype("int64") * 1000
    return [
        *_grouped("AIRCRAFT", _aircraft(frame), ("TAILNUM",)),
        *_grouped("CARRIER_DAY", _carrier_day(frame), ("CARRIER",)),
        *_grouped("ORIGIN_CARRIER_WEEK", _origin_carrier_week(frame), ("ORIGIN", "CARRIER")),
        Expected("SELECT * FROM AIRCRAFT WHERE TAILNUM = 'no such aircraft';", ()),
    ]


def _aircraft(frame: Any) -> Iterable[Row]:
    groups = frame[frame["tailnum"].notna()].groupby("tailnum", sort=False)
    delays = groups["arr_delay"]
    columns = (groups.size(), delays.sum(), delays.count(), groups["dest"].last())
    for key, flights, total, known, last in zip(columns[0].index, *columns, strict=True):
        yield key, int(flights), _mean(total, known), last


def _carrier_day(frame: Any) -> Iterable[Row]:
    start = frame["time_ms"] // DAY_MS * DAY_MS
    groups = frame.groupby(["carrier", start], sort=False)
    delays = groups["dep_delay"]
    columns = (groups.size(), delays.sum(), delays.count(), groups["arr_delay"].max())
    for key, flights, total, known, worst in zip(columns[0].index, *columns, strict=True):
        window = (int(key[1]), int(key[1]) + DAY_MS)
        yield key[0], *window, int(flights), _mean(total, known), _or_none(worst)


def _origin_carrier_week(frame: Any) -> Iterable[Row]:
    start = frame["time_ms"] // WEEK_MS * WEEK_MS
    groups = frame.groupby(["origin", "carrier", start], sort=False)
    columns = (groups.size(), groups["distance"].sum(), groups["dep_delay"].min())
    for key, flights, miles, earliest in zip(columns[0].index, *columns, strict=True):
        window = (int(key[2]), int(key[2]) + WEEK_MS)
        yield key[0], key[1], *window, int(flights), int(miles), _or_none(earliest)


def _mean(total: float, known: int) -> float:
    return float(total) / int(known) if known else 0.0  # AVG of no values is 0 (ksqlDB)


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _grouped(table: str, rows: Iterable[Row], keys: Sequence[str]) -> Iterable[Expected]:
    """One lookup per key; a windowed table's lookup without bounds returns all windows."""
    found: dict[Row, list[Row]] = {}
    for row in rows:
        found.setdefault(row[: len(keys)], []).append(row)
    for key, own in found.items():
        where = " AND ".join(f"{name} = '{value}'" for name, value in zip(keys, key, strict=True))
        yield Expected(f"SELECT * FROM {table} WHERE {where};", tuple(own))  # noqa: S608


def check(nodes: Sequence[str], expected: Sequence[Expected]) -> CheckResult:
    """Send every lookup to every node and compare."""
    return asyncio.run(_check(nodes, expected))


async def _check(nodes: Sequence[str], expected: Sequence[Expected]) -> CheckResult:
    result = CheckResult()
    gate = asyncio.Semaphore(ASKED_AT_ONCE_MAX)
    http = PeerClient({"accept": LINES, "content-type": "application/json"})

    async def one(index: int, node: str, wanted: Expected) -> None:
        async with gate:
            rows = await _ask(http, [node, nodes[(index + 1) % len(nodes)]], wanted.sql, result)
        if rows is not None:
            _compare(node, wanted, rows, result)

    await asyncio.gather(*(one(i, node, item) for item in expected for i, node in enumerate(nodes)))
    http.close()
    return result


async def _ask(
    http: PeerClient, nodes: Sequence[str], sql: str, result: CheckResult
) -> list[list[Any]] | None:
    """Rows from the first node or, if that fails, from the second; None: both failed."""
    notes: list[str] = []
    body = msgspec.json.encode({"sql": sql, "properties": {}})
    result.reads += 1
    for node in nodes:
        try:
            response = await http.request(
                node, "/query-stream", timeout_s=ASK_S_MAX, body=body, is_repeatable=False
            )
            if response.status == 200:
                return [msgspec.json.decode(line) for line in response.body.splitlines()[1:]]
            notes.append(f"{node}: HTTP {response.status} {response.body[:200].decode()}")
        except (PathFailed, msgspec.MsgspecError) as error:
            notes.append(f"{node}: {type(error).__name__} {error}")
    result.failed.append(f"{sql} {'; '.join(notes)}")
    return None


def _compare(node: str, wanted: Expected, rows: list[list[Any]], result: CheckResult) -> None:
    """Match rows by identity; note rows that differ, are missing or should not exist."""
    result.rows += len(wanted.rows)
    shown = {_identity(row): row for row in rows}
    for row in wanted.rows:
        found = shown.pop(_identity(row), None)
        if found is None or not _same(row, found):
            result.wrong.append(f"{node}: {found} instead of {list(row)} for {wanted.sql}")
    result.wrong += [f"{node}: {row} should not be there: {wanted.sql}" for row in shown.values()]


def _identity(row: Sequence[Any]) -> Row:
    """Identifies a row within one lookup: the window start of a windowed row, else nothing."""
    return tuple(value for value in row if isinstance(value, int) and value > 10**11)


def _same(left: Sequence[Any], right: Sequence[Any]) -> bool:
    return len(left) == len(right) and all(map(same_number, left, right))
