"""What `standpipe status --storage` makes of the nodes' own words."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from rich.console import Console

from standpipe.local.client.status import NodeView
from standpipe.local.client.storage import Storage, StoreView, render, storage_of, stores_of

ONE, TWO = (NodeView(node_id=f"node-{n}", public=f"127.0.0.1:80{n}8", is_up=True) for n in (1, 2))
DOWN = NodeView(node_id="node-3", public="127.0.0.1:8038", is_up=False)
BODY = {
    "clusterStatus": {
        "127.0.0.1:8018": {
            "standpipe": {
                "storage": {
                    "A-B_7-1-0": {
                        "table": "A-B",
                        "role": "active",
                        "state": "RUNNING",
                        "rows": 12,
                        "storeBytes": 500,
                        "mapBytes": 2000,
                    },
                    "A-B_7-1-1": {
                        "table": "A-B",
                        "role": "warm-up",
                        "state": "ABSENT",
                        "rows": None,
                        "storeBytes": None,
                        "mapBytes": None,
                    },
                }
            }
        },
        "127.0.0.1:8028": {"standpipe": {"storage": {"T_1-1-0": {}}}},
        "127.0.0.1:8038": {"standpipe": {}},
    }
}


def store(  # a row of a table of tests
    table: str = "T",
    partition: int = 0,
    node: str = "node-1",
    rows: int | None = 10,
    size: int | None = 4096,
    **changes: object,
) -> StoreView:
    values = {"generation": 1, "role": "active", "state": "RUNNING"} | changes
    return StoreView(
        table=table,
        partition=partition,
        node=node,
        rows=rows,
        store_bytes=size,
        **values,  # type: ignore[arg-type]
    )


def test_a_node_speaks_for_its_own_stores_only() -> None:
    active, warming = stores_of(BODY, ONE)
    assert active == StoreView(
        table="A-B",
        generation=1,
        partition=0,
        node="node-1",
        role="active",
        state="RUNNING",
        rows=12,
        store_bytes=500,
        map_bytes=2000,
        map_share=0.25,
    )
    assert (warming.partition, warming.role, warming.state) == (1, "warm-up", "ABSENT")
    unknown = (warming.rows, warming.store_bytes, warming.map_bytes, warming.map_share)
    assert unknown == (None, None, None, None), "unknown is not 0"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({}, "no answer that can be read"),
        ({"clusterStatus": {}}, "it is not in its own map"),
        ({"clusterStatus": {DOWN.public: {}}}, "an answer of ksqlDB's"),
        (BODY, "a release that does not say it"),
    ],
)
def test_a_node_that_says_nothing_has_no_stores(body: dict[str, object], why: str) -> None:
    assert stores_of(body, DOWN) == [], why


ACTIVE = store(rows=10, size=1000)
STANDBY = store(node="node-2", role="standby", rows=9, size=1200)


@pytest.mark.parametrize(
    ("stores", "rows", "size", "why"),
    [
        ([ACTIVE], 10, 1000, "one"),
        ([ACTIVE, STANDBY], 10, 2200, "rows count once a partition, bytes once a copy"),
        ([ACTIVE, store(partition=1, rows=5, size=10)], 15, 1010, "partitions add up"),
        ([STANDBY], 9, 1200, "whose active does not answer"),
        ([store(rows=None), STANDBY], 9, 5296, "or is being made"),
        ([ACTIVE, store(partition=1, rows=None)], None, 5096, "a partition that nobody knows"),
        ([store(rows=0, size=None)], 0, 0, "empty, and not on the disk yet"),
    ],
)
def test_total_of_a_table(
    stores: Sequence[StoreView], rows: int | None, size: int, why: str
) -> None:
    (total,) = storage_of((ONE, TWO), stores).table_totals
    assert (total.name, total.copies) == ("T", len(stores))
    assert (total.rows, total.store_bytes) == (rows, size), why


def test_order_and_totals_of_nodes_and_generations() -> None:
    stores = [
        store("Z", 0, "node-1", rows=1),
        store("T", 10, "node-2", rows=2),
        store("T", 2, "node-2", rows=3),
        store("T", 2, "node-1", rows=None, role="standby"),
        store("T", 2, "node-1", rows=4, generation=2),
    ]
    found = storage_of((TWO, ONE), stores)
    places = [(each.table, each.generation, each.partition, each.node) for each in found.stores]
    assert places == [
        ("T", 1, 2, "node-2"),
        ("T", 1, 2, "node-1"),
        ("T", 1, 10, "node-2"),
        ("T", 2, 2, "node-1"),
        ("Z", 1, 0, "node-1"),
    ], "partitions as numbers, nodes as they were asked"
    tables = [(each.name, each.rows) for each in found.table_totals]
    assert tables == [("T (generation 1)", 5), ("T (generation 2)", 4), ("Z", 1)]
    nodes = [(each.name, each.copies, each.rows) for each in found.node_totals]
    assert nodes == [("node-2", 2, 5), ("node-1", 3, None)], "unknown rows make no sum"


def shown(storage: Storage) -> list[str]:
    """Lines that have words, with one space between them."""
    console = Console(file=io.StringIO(), width=100)
    console.print(render(storage))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return [" ".join(line.split()) for line in text.splitlines() if line.strip(" ─")]


def test_the_picture() -> None:
    stores = [
        store(rows=1_234_567, size=45_600_000, map_bytes=268_435_456, map_share=0.1699),
        store(node="node-2", role="standby", state="BOOTSTRAP", rows=None, size=None),
    ]
    assert shown(storage_of((ONE, TWO), stores)) == [
        "Table Partition Node State Rows Store Of map",
        "T 0 node-1 (active) RUNNING 1,234,567 45.6 MB 17.0%",
        "T 0 node-2 (standby) BOOTSTRAP – – –",
        "Table Copies Rows Stores",
        "T 2 1,234,567 45.6 MB",
        "Node Copies Rows Stores",
        "node-1 1 1,234,567 45.6 MB",
        "node-2 1 – 0 bytes",
    ]


@pytest.mark.parametrize(
    ("nodes", "lines", "why"),
    [
        ((ONE,), ["no stores"], "a cluster without tables"),
        (
            (ONE, DOWN),
            ["no answer from node-3: stores there are missing below", "no stores"],
            "a node that is down is never just left out",
        ),
    ],
)
def test_what_is_missing_is_said(nodes: tuple[NodeView, ...], lines: list[str], why: str) -> None:
    assert shown(storage_of(nodes, [])) == lines, why
