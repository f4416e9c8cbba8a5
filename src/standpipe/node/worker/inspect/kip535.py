"""KIP-535's metadata API in Python: who holds a key, who holds what, how far own copies are.

A pure view over one snapshot and the status pages of its node; it asks nobody and keeps nothing:

    metadata = Metadata(snapshot, statuses)
    found = metadata.query_metadata_for_key("VISITS", ("ada",))
    found.active, found.standbys, found.partition

Names are the KIP's in Python's spelling. A store is named as in `/lag` (`store_name`), or simply by
its table. Not here: which replica a read should go to (`control.routing.route`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from standpipe.control.routing.key_metadata import KeyQueryMetadata
from standpipe.control.routing.key_metadata import query_metadata_for_key as holders_of
from standpipe.control.routing.route import placements
from standpipe.data.encoding.kafka_keys import Value, encode_key
from standpipe.data.encoding.store_keys import partition_of
from standpipe.errors import ServerError
from standpipe.model import NodeInfo, ReplicaId, ReplicaState, ReplicaStatus, Snapshot, Source
from standpipe.node.liveness.wire import LagInfo, lag_of, store_lags, store_name

StoreType = Literal["key-value", "window", "session"]
#: raw key -> partition, for topics that were not partitioned by Kafka's default
Partitioner = Callable[[bytes, int], int]
#: key -> its bytes in the topic
KeySerializer = Callable[[Sequence[Value]], bytes | None]
TopicPartition = tuple[str, int]


class InvalidStateStore(ServerError):
    """No store of that name and type can be read here now; the message says which it is."""


@dataclass(frozen=True, kw_only=True)
class StreamsMetadata:
    """What one node holds. Source: KIP-535 `StreamsMetadata`."""

    host: NodeInfo
    state_store_names: frozenset[str]
    topic_partitions: frozenset[TopicPartition]
    standby_state_store_names: frozenset[str]
    standby_topic_partitions: frozenset[TopicPartition]


@dataclass(frozen=True, kw_only=True)
class LocalStore:
    """The partitions of a store that may be read on this node, with how far each is."""

    name: str
    type: StoreType
    partitions: Mapping[int, ReplicaStatus]


class Metadata:
    """The view of one node."""

    def __init__(self, snapshot: Snapshot, statuses: Mapping[ReplicaId, ReplicaStatus]) -> None:
        self._snapshot = snapshot
        self._statuses = statuses
        self._nodes = {node.node_id: node for node in snapshot.nodes}
        self._placements = placements(snapshot.assignment)
        self._tables = [source for source in snapshot.sources if source.is_materialized]
        self._by_name = {table.name: table for table in self._tables}
        self._by_name |= {store_name(table): table for table in self._tables}

    # ------------------------------------------------------------------------- of a key

    def query_metadata_for_key(
        self,
        store: str,
        key: Sequence[Value],
        *,
        serializer: KeySerializer | None = None,
        partitioner: Partitioner = partition_of,
    ) -> KeyQueryMetadata:
        """Active, standbys and partition of a key, one value per key column.

        Raises InvalidStateStore for an unknown store, UnfitKey for a key that is none of its type.
        Source: KIP-535 `queryMetadataForKey`, with a serializer or a partitioner.
        """
        table = self._table(store)
        raw = (
            encode_key(key, table.key_columns, table.key_format, table.key_delimiter)
            if serializer is None
            else serializer(key)
        )
        if raw is None:
            raise InvalidStateStore(f"{store} holds no row without a key")
        partition = partitioner(raw, table.partitions)
        placement = self._placements.get(table.replica_id(partition))
        return holders_of(placement, self._nodes, partition)

    def metadata_for_key(self, store: str, key: Sequence[Value]) -> NodeInfo | None:
        """The active node only; deprecated from birth, as in KIP-535: it hides the standbys."""
        warnings.warn(
            "metadata_for_key hides the standbys: use query_metadata_for_key",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.query_metadata_for_key(store, key).active

    # ------------------------------------------------------------------------- of nodes

    def all_metadata(self) -> list[StreamsMetadata]:
        """What every node holds, by node id. Source: KIP-535 `allMetadata`."""
        return [self._metadata_of(self._nodes[node]) for node in sorted(self._nodes)]

    def _metadata_of(self, node: NodeInfo) -> StreamsMetadata:
        active: set[tuple[str, TopicPartition]] = set()
        standby: set[tuple[str, TopicPartition]] = set()
        for table in self._tables:
            for partition in range(table.partitions):
                placement = self._placements.get(table.replica_id(partition))
                if placement is None or node.node_id not in placement.replicas:
                    continue
                held = active if placement.replicas[0] == node.node_id else standby
                held.add((store_name(table), (table.topic, partition)))
        return StreamsMetadata(
            host=node,
            state_store_names=frozenset(name for name, _ in active),
            topic_partitions=frozenset(place for _, place in active),
            standby_state_store_names=frozenset(name for name, _ in standby),
            standby_topic_partitions=frozenset(place for _, place in standby),
        )

    # --------------------------------------------------------------------- of this node

    def all_local_store_partition_lags(self) -> dict[str, dict[int, LagInfo]]:
        """Store -> partition -> lag of the copies on this node, actives and standbys.

        A copy whose committed end is not known is left out: unknown is no lag of 0. An active shows
        its real lag where the KIP says 0, for ours tails a topic as a standby does. Source:
        KIP-535 `allLocalStorePartitionLags`.
        """
        own = (
            lag_of(table.replica_id(partition), status, now_boot_ms=0)
            for table in self._tables
            for partition, status in self._local(table).items()
        )
        by_id = {(table.table_id or "", table.generation): table for table in self._tables}
        return {name: lags.lagByPartition for name, lags in store_lags(own, by_id).items()}

    def store(
        self, name: str, type_: StoreType, *, include_stale_stores: bool = False
    ) -> LocalStore:
        """The copies of a store on this node that may be read.

        `include_stale_stores` False: only partitions that this node leads and that are RUNNING.
        True: standbys, and copies that still catch up from a whole batch. Raises InvalidStateStore
        where there is none, or the store is of another type. Source: KIP-535 `store`.
        """
        table = self._table(name)
        if (found := type_of(table)) != type_:
            raise InvalidStateStore(f"{name} is a {found} store, not a {type_} store")
        readable = {
            partition: status
            for partition, status in self._local(table).items()
            if (
                status.state.answers
                if include_stale_stores
                else status.state is ReplicaState.RUNNING and self._leads(table, partition)
            )
        }
        if not readable:
            hint = "" if include_stale_stores else "; stale stores were not asked for"
            raise InvalidStateStore(f"no copy of {name} on this node can be read yet{hint}")
        return LocalStore(name=store_name(table), type=type_, partitions=readable)

    def _local(self, table: Source) -> dict[int, ReplicaStatus]:
        own = self._snapshot.node_id
        return {
            partition: self._statuses[replica]
            for partition in range(table.partitions)
            if (replica := table.replica_id(partition)) in self._statuses
            and replica in self._placements
            and own in self._placements[replica].replicas
        }

    def _leads(self, table: Source, partition: int) -> bool:
        return self._placements[table.replica_id(partition)].replicas[0] == self._snapshot.node_id

    def _table(self, store: str) -> Source:
        if (table := self._by_name.get(store)) is None:
            raise InvalidStateStore(f"there is no store {store}")
        return table


def type_of(table: Source) -> StoreType:
    """What kind of store a table has."""
    if table.window is None:
        return "key-value"
    return "session" if table.window.kind == "SESSION" else "window"
