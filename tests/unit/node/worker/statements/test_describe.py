"""Entities of DESCRIBE against ksqlDB's shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.unit.node.worker.statements.test_show import SNAPSHOT, STREAM, TABLE, scene

from standpipe.model import Source
from standpipe.node.worker.statements import describe


def test_description() -> None:
    shown = describe.source_description(scene(), TABLE, "DESCRIBE T;", extended=True)
    described = shown["sourceDescription"]
    assert isinstance(described, dict)
    assert [field["name"] for field in described["fields"]] == [
        "ID",
        "WINDOWSTART",
        "WINDOWEND",
        "N",
    ]
    assert [field.get("type") for field in described["fields"]] == ["KEY", "KEY", "KEY", None]
    assert (described["windowType"], described["partitions"]) == ("TUMBLING", 2)
    assert [query["id"] for query in described["writeQueries"]] == ["CTAS_T_1"]
    local, remote = described["standpipe"]["replicas"]
    assert (local["node"], local["role"], local["state"], local["offsetLag"]) == (
        "node-1",
        "ACTIVE",
        "RUNNING",
        2,
    )
    assert remote == {"partition": 0, "node": "node-2", "role": "STANDBY", "state": None}
    reader: Any = describe.source_description(scene(), STREAM, "", extended=False)
    queries = reader["sourceDescription"]["readQueries"]
    assert [query["id"] for query in queries] == ["CTAS_T_1"]


class Counted(tuple[Any, ...]):
    """Counts the passes over it."""

    passes = 0

    def __iter__(self) -> Iterator[Any]:
        self.passes += 1
        return super().__iter__()

    def __reversed__(self) -> Iterator[Any]:
        self.passes += 1
        return reversed(tuple(super().__iter__()))


def test_a_listing_of_all_looks_once_at_all() -> None:
    """It looked at all placements, queries and reports for each table, on the loop of the lookups:
    0.2 s for 500 tables of 8 partitions."""
    placements, queries = Counted(SNAPSHOT.assignment.placements), Counted(SNAPSHOT.queries)
    reports = Counted(SNAPSHOT.query_statuses)
    many = [msgspec.structs.replace(TABLE, name=f"T{number}") for number in range(50)]
    snapshot = msgspec.structs.replace(
        SNAPSHOT,
        sources=(*SNAPSHOT.sources, *many),
        queries=queries,
        query_statuses=reports,
        assignment=msgspec.structs.replace(SNAPSHOT.assignment, placements=placements),
    )
    seen = scene(snapshot)
    assert len(list(describe.each_described(seen, "TABLE"))) == 51
    assert placements.passes == reports.passes == 1
    assert queries.passes == 2, "for those that write and those that read"


@pytest.mark.parametrize(
    ("table", "bounds"),
    [
        (TABLE, (None, None, None)),
        (msgspec.structs.replace(TABLE, offset_lag_max=0), (0, None, None)),
        (
            msgspec.structs.replace(TABLE, time_bounds=(None, 5)),
            (None, None, 5),
        ),
    ],
)
def test_bounds_of_a_table(table: Source, bounds: tuple[int | None, ...]) -> None:
    shown: Any = describe.source_description(scene(), table, "", extended=False)
    found = shown["sourceDescription"]["standpipe"]["bounds"]
    assert tuple(found.values()) == bounds
    assert list(found) == ["offsetLagMax", "replicaLagMsMax", "sourceLagMsMax"]
