"""Nodes of any shape: how many keys, how long their values, how many tables, partitions and nodes.

One worker answers all. Its tables are alike: a text as key, a number, and a text that fills the
value up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from bench.load.cases import Case, one, query_rows
from bench.load.tables import (
    ROWTIME_MS,
    TABLE,
    Batch,
    key_of,
    new_config,
    partition_among,
    publish,
    write_rows,
)

from standpipe.data.encoding.store_keys import store_key
from standpipe.data.encoding.stored_rows import pack_row
from standpipe.model import Column, NodeId, NodeInfo, Source
from standpipe.node.configuration import NodeConfig

#: of one transaction of a store; all of them at once would take 10 GB for 20 M
_ROWS_AT_ONCE: Final = 500_000
_COLUMNS: Final = (
    Column(name="ID", type="STRING", is_key=True),
    Column(name="NUMBER", type="BIGINT"),
    Column(name="FILLING", type="STRING"),
)


@dataclass(frozen=True)
class Shape:
    """`keys`: of all tables together. `partitions`: of each table. `nodes`: of the map."""

    keys: int = 20_000
    value_bytes: int = 50
    connections: int = 16
    tables: int = 1
    partitions: int = 4
    nodes: int = 3

    @property
    def case(self) -> Case:
        """A point lookup of a key that is drawn from all."""
        return Case(
            "point",
            one(
                lambda number: f"SELECT * FROM {self._name(number)} WHERE ID = '{key_of(number)}';"
            ),
            lambda numbers: [self._row(number) for number in numbers],
            query_rows,
        )

    def make(self, folder: Path) -> NodeConfig:
        """A node that holds all of it."""
        most = 2 * max(self.connections, 1_000)
        config = new_config(
            folder,
            config={
                "standpipe.listener.connections.max": 2 * most,
                "standpipe.listener.connections.per.address.max": most,
            },
        )
        sources = [self._source(table) for table in range(self.tables)]
        for table, source in enumerate(sources):
            write_rows(config, source, self._batches(table, source))
        absent = [_node(number) for number in range(1, self.nodes)]
        publish(config, sources=(*sources,), absent=absent)
        return config

    def _name(self, number: int) -> str:
        return f"T{number % self.tables}"

    def _row(self, number: int) -> list[object]:
        return [key_of(number), number, self._filling(number)]

    def _filling(self, number: int) -> str:
        """As long as the value needs it, and of few letters, as text is."""
        left = self.value_bytes - len(f'[{number},""]')
        return "abcdefghij"[number % 10] * max(1, left)

    def _source(self, table: int) -> Source:
        return msgspec.structs.replace(
            TABLE,
            name=f"T{table}",
            topic=f"T{table}",
            table_id=f"T{table}",
            query_id=f"CTAS_T{table}_{table}",
            columns=_COLUMNS,
            partitions=self.partitions,
        )

    def _batches(self, table: int, source: Source) -> Iterator[Batch]:
        rows = _empty(source)
        for place, number in enumerate(range(table, self.keys, self.tables), 1):
            key = key_of(number)
            value = b'[%d,"%b"]' % (number, self._filling(number).encode())
            row = (store_key((key,), ("STRING",)), pack_row(value, ROWTIME_MS))
            rows[partition_among(key, source)].append(row)
            if place % _ROWS_AT_ONCE == 0:
                yield rows
                rows = _empty(source)
        yield rows


def _empty(source: Source) -> list[list[tuple[bytes, bytes]]]:
    return [[] for _ in range(source.partitions)]


def _node(number: int) -> NodeInfo:
    """One that does not run."""
    addresses: Sequence[str] = [f"127.0.0.1:{port}" for port in (1, 2, 3)]
    public, internal, peer = addresses
    return NodeInfo(
        node_id=NodeId(f"absent-{number}"),
        public=public,
        internal=internal,
        peer=peer,
        incarnation="bench",
    )
