"""`standpipe status --storage`: how much disk each copy of each table takes on its node.

Every node is asked for its own stores (`standpipe.storage` in its `/clusterStatus`). A node that
does not answer is named, and its stores are missing from the sums.

Not here: sizes of Kafka's topics. They need DescribeLogDirs, which confluent-kafka does not offer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import msgspec
from rich import box
from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from standpipe.adapters.http.peer_client import PathFailed
from standpipe.adapters.http.sync_client import SyncClient
from standpipe.local.client.rest_client import Entity
from standpipe.local.client.status import ASK_S_MAX, NodeView, ask_node
from standpipe.model import Record, ReplicaId

UNKNOWN = "–"


class StoreView(Record, frozen=True, kw_only=True):
    """A copy of a table partition as its node reports it. None: unknown, or not created yet."""

    table: str
    generation: int
    partition: int
    node: str
    #: active, standby, warm-up
    role: str
    state: str
    rows: int | None = None
    store_bytes: int | None = None  # on disk
    map_bytes: int | None = None  # size at which the store's map is doubled
    #: store_bytes / map_bytes, 0..1
    map_share: float | None = None


class Total(Record, frozen=True, kw_only=True):
    """Sum over the copies of a table or of a node."""

    name: str
    copies: int
    #: for a table, each partition counts once, however many copies it has; None: some are unknown
    rows: int | None
    store_bytes: int


class Storage(Record, frozen=True, kw_only=True):
    """The content of `standpipe status --storage`."""

    nodes: tuple[NodeView, ...]
    stores: tuple[StoreView, ...] = ()
    table_totals: tuple[Total, ...] = ()
    node_totals: tuple[Total, ...] = ()


def gather(nodes: Sequence[tuple[str, str]]) -> Storage:
    """Ask every node; `nodes` are (node id, public address)."""
    with SyncClient(timeout_s=ASK_S_MAX) as http:
        views = tuple(ask_node(http, node_id, public) for node_id, public in nodes)
        answers = [(view, _ask(http, view)) for view in views if view.is_up]
    return storage_of(views, (each for view, body in answers for each in stores_of(body, view)))


def _ask(http: SyncClient, node: NodeView) -> Entity:
    try:
        return msgspec.json.decode(http.get(node.public, "/clusterStatus").body)
    except (PathFailed, msgspec.MsgspecError):
        return {}


def stores_of(body: Entity, node: NodeView) -> list[StoreView]:
    """A node's own stores, as it reports them in its `/clusterStatus`."""
    own = cast(Entity, body.get("clusterStatus", {}).get(node.public) or {})
    extras = cast(Entity, own.get("standpipe") or {})
    stored = cast(dict[str, Entity], extras.get("storage") or {})
    return [_store(name, said, node) for name, said in stored.items()]


def _store(name: str, said: Entity, node: NodeView) -> StoreView:
    """`name`: `<table id>-<generation>-<partition>`."""
    replica = ReplicaId.parse(name)
    size, map_bytes = said.get("storeBytes"), said.get("mapBytes")
    return StoreView(
        table=said["table"],
        generation=replica.generation,
        partition=replica.partition,
        node=node.node_id,
        role=said["role"],
        state=said["state"],
        rows=said.get("rows"),
        store_bytes=size,
        map_bytes=map_bytes,
        map_share=None if size is None or not map_bytes else min(1.0, size / map_bytes),
    )


def storage_of(nodes: tuple[NodeView, ...], found: Iterable[StoreView]) -> Storage:
    """The stores in display order, and their sums."""
    order = {node.node_id: place for place, node in enumerate(nodes)}
    stores = sorted(
        found, key=lambda each: (each.table, each.generation, each.partition, order[each.node])
    )
    tables = _grouped(stores, _table_name(stores))
    holders = _grouped(stores, lambda each: each.node)
    return Storage(
        nodes=nodes,
        stores=tuple(stores),
        table_totals=tuple(_total(name, held, _rows_of_table(held)) for name, held in tables),
        node_totals=tuple(
            _total(name, held, _sum(each.rows for each in held))
            for name, held in sorted(holders, key=lambda pair: order[pair[0]])
        ),
    )


def _table_name(stores: Sequence[StoreView]) -> Callable[[StoreView], str]:
    """Names a table, with its generation if there are two."""
    generations: dict[str, set[int]] = {}
    for each in stores:
        generations.setdefault(each.table, set()).add(each.generation)
    several = {name for name, found in generations.items() if len(found) > 1}
    return lambda each: (
        f"{each.table} (generation {each.generation})" if each.table in several else each.table
    )


def _grouped(
    stores: Iterable[StoreView], name_of: Callable[[StoreView], str]
) -> list[tuple[str, list[StoreView]]]:
    groups: dict[str, list[StoreView]] = {}
    for each in stores:
        groups.setdefault(name_of(each), []).append(each)
    return list(groups.items())


def _rows_of_table(stores: Sequence[StoreView]) -> int | None:
    """Sum over partitions of the active's rows; where unknown, the most of any copy."""
    partitions: dict[int, list[StoreView]] = {}
    for each in stores:
        partitions.setdefault(each.partition, []).append(each)
    return _sum(map(_rows_of_partition, partitions.values()))


def _rows_of_partition(stores: Sequence[StoreView]) -> int | None:
    known = [each for each in stores if each.rows is not None]
    actives = [each.rows for each in known if each.role == "active"]
    return actives[0] if actives else max((each.rows or 0 for each in known), default=None)


def _sum(numbers: Iterable[int | None]) -> int | None:
    listed = list(numbers)
    known = [number for number in listed if number is not None]
    return sum(known) if len(known) == len(listed) else None


def _total(name: str, stores: Sequence[StoreView], rows: int | None) -> Total:
    size = sum(each.store_bytes or 0 for each in stores)
    return Total(name=name, copies=len(stores), rows=rows, store_bytes=size)


# -------------------------------------------------------------------------------- on a terminal


def render(storage: Storage) -> RenderableType:
    """Stores, then totals per table and per node."""
    parts: list[RenderableType] = []
    if down := [node.node_id for node in storage.nodes if not node.is_up]:
        names = ", ".join(down)
        parts.append(Text(f"no answer from {names}: stores there are missing below", style="red"))
    if not storage.stores:
        return Group(*parts, Text("no stores"))
    name_of = _table_name(storage.stores)
    stores = _table("Table", "Partition", "Node", "State", ">Rows", ">Store", ">Of map")
    for each in storage.stores:
        style = "green" if each.state == "RUNNING" else "red"
        stores.add_row(
            name_of(each),
            str(each.partition),
            f"{each.node} ({each.role})",
            Text(each.state, style=style),
            _count(each.rows),
            _size(each.store_bytes),
            _share(each),
        )
    return Group(
        *parts, stores, _totals("Table", storage.table_totals), _totals("Node", storage.node_totals)
    )


def _totals(what: str, totals: Sequence[Total]) -> Table:
    table = _table(what, ">Copies", ">Rows", ">Stores")
    for each in totals:
        table.add_row(each.name, str(each.copies), _count(each.rows), _size(each.store_bytes))
    return table


def _table(*columns: str) -> Table:
    """An empty table. A column whose name begins with `>` is right-aligned."""
    table = Table(box=box.SIMPLE_HEAD)
    for name in columns:
        justify: Any = "right" if name.startswith(">") else "left"
        table.add_column(name.removeprefix(">"), justify=justify, no_wrap=name != "Node")
    return table


def _count(rows: int | None) -> str:
    return UNKNOWN if rows is None else f"{rows:,}"


def _size(size: int | None) -> str:
    return UNKNOWN if size is None else decimal(size)


def _share(store: StoreView) -> str:
    return UNKNOWN if store.map_share is None else f"{store.map_share:.1%}"
