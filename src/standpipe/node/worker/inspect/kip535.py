"""KIP-535's metadata API in Python: holders of a key, contents of a node, lags of local replicas.

A pure view over the published map and the status pages of its node; it asks no other process and
keeps nothing:

    metadata = Metadata(view, statuses)
    found = metadata.query_metadata_for_key("VISITS", ("ada",))
    found.active, found.standbys, found.partition

`GET /clusterStatus` (`node.worker.inspect.cluster_status`), `GET /route` and `EXPLAIN ROUTE`
(`node.worker.inspect.route`) compute their answers through it. Names are the KIP's in Python's
spelling. A store is named as in `/lag` (`store_name`), or by its table.

Not here: which replica a read should go to (`control.routing.route`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from standpipe.control.liveness.lag import NO_END
from standpipe.control.routing.key_metadata import KeyQueryMetadata
from standpipe.control.routing.key_metadata import query_metadata_for_key as holders_of
from standpipe.data.encoding.kafka_keys import Value, encode_key
from standpipe.data.encoding.store_keys import partition_of
from standpipe.data.query.pull import partitions
from standpipe.errors import ServerError
from standpipe.model import NodeInfo, Offset, ReplicaId, ReplicaState, ReplicaStatus, Source
from standpipe.node.liveness.wire import LagInfo, lag_of, store_lags, store_name
from standpipe.node.worker.request.cluster_view import ClusterView
from standpipe.sql.plans import PullPlan

StoreType = Literal["key-value", "window", "session"]
#: raw key -> partition, for topics that were not partitioned by Kafka's default
Partitioner = Callable[[bytes, int], int]
#: key -> its bytes in the topic
KeySerializer = Callable[[Sequence[Value]], bytes | None]
TopicPartition = tuple[str, int]


class InvalidStateStore(ServerError):
    """No store of that name and type can be read here now; the message says which it is."""


@dataclass(frozen=True)
class HeldPartition:
    """A table partition of which a node holds a replica."""

    table: Source
    partition: int
    is_active: bool

    @property
    def topic_partition(self) -> TopicPartition:
        """The changelog that the replica follows."""
        return self.table.topic, self.partition


@dataclass(frozen=True, kw_only=True)
class StreamsMetadata:
    """What one node holds. Source: KIP-535 `StreamsMetadata`."""

    host: NodeInfo
    #: in the order of the assignment
    held: tuple[HeldPartition, ...]

    @property
    def state_store_names(self) -> frozenset[str]:
        """Stores of which the node is the active of some partition."""
        return frozenset(store_name(each.table) for each in self.held if each.is_active)

    @property
    def topic_partitions(self) -> frozenset[TopicPartition]:
        """Partitions that the node is the active of."""
        return frozenset(each.topic_partition for each in self.held if each.is_active)

    @property
    def standby_state_store_names(self) -> frozenset[str]:
        """Stores of which the node is a standby of some partition."""
        return frozenset(store_name(each.table) for each in self.held if not each.is_active)

    @property
    def standby_topic_partitions(self) -> frozenset[TopicPartition]:
        """Partitions that the node is a standby of."""
        return frozenset(each.topic_partition for each in self.held if not each.is_active)


@dataclass(frozen=True, kw_only=True)
class LocalStore:
    """The partitions of a store that may be read on this node, with how far each is."""

    name: str
    type: StoreType
    partitions: Mapping[int, ReplicaStatus]


class Metadata:
    """The view of one node. `statuses`: of its own replicas; needed for lags and local stores."""

    def __init__(
        self, view: ClusterView, statuses: Mapping[ReplicaId, ReplicaStatus | None] | None = None
    ) -> None:
        self._view = view
        self._statuses = statuses or {}
        #: by id and generation, including generations that are still being built
        self._tables = view.tables()

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

        Raises InvalidStateStore for an unknown store, UnfitKey for a key of the wrong type.
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
        return self.of_partition(table, partitioner(raw, table.partitions))

    def query_metadata_for_plan(self, plan: PullPlan) -> list[KeyQueryMetadata]:
        """For each partition that holds keys of a pull query, ascending; for all, if it scans."""
        return [self.of_partition(plan.source, partition) for partition in partitions(plan)]

    def of_partition(self, table: Source, partition: int) -> KeyQueryMetadata:
        """Active and standbys of a partition; none if nothing is assigned."""
        placement = self._view.placements.get(table.replica_id(partition))
        return holders_of(placement, self._view.nodes, partition)

    def metadata_for_key(self, store: str, key: Sequence[Value]) -> NodeInfo | None:
        """The active node only; deprecated from the start, as in KIP-535: it hides the standbys."""
        warnings.warn(
            "metadata_for_key hides the standbys: use query_metadata_for_key",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.query_metadata_for_key(store, key).active

    # ------------------------------------------------------------------------- of nodes

    def all_metadata(self) -> list[StreamsMetadata]:
        """What every node holds, by node id. Source: KIP-535 `allMetadata`."""
        return [self.metadata_of(node) for _, node in sorted(self._view.nodes.items())]

    def metadata_of(self, node: NodeInfo) -> StreamsMetadata:
        """What one node holds; replicas of tables that left the catalog are left out."""
        held = (
            HeldPartition(table, replica_id.partition, placement.replicas[0] == node.node_id)
            for replica_id, placement in self._view.placements.items()
            if node.node_id in placement.replicas
            and (table := self._tables.get((replica_id.table_id, replica_id.generation)))
        )
        return StreamsMetadata(host=node, held=tuple(held))

    # --------------------------------------------------------------------- of this node

    def all_local_store_partition_lags(
        self, furthest_end: Callable[[ReplicaId], Offset] = lambda _: NO_END
    ) -> dict[str, dict[int, LagInfo]]:
        """Store -> partition -> lag of the replicas on this node, actives and standbys.

        `furthest_end`: the largest committed end that other nodes reported; NO_END: none. A replica
        whose committed end is not known is left out: an unknown lag is never a lag of 0. An active
        shows its real lag where the KIP says 0, because here it tails a topic as a standby does.
        Source: KIP-535 `allLocalStorePartitionLags`.
        """
        own = (
            replace(lag, committed_end=max(lag.committed_end, furthest_end(replica_id)))
            for replica_id, status in self._local()
            for lag in (lag_of(replica_id, status, now_boot_ms=0),)
        )
        return {name: lags.lagByPartition for name, lags in store_lags(own, self._tables).items()}

    def store(
        self, name: str, type_: StoreType, *, include_stale_stores: bool = False
    ) -> LocalStore:
        """The copies of a store on this node that may be read.

        `include_stale_stores` False: only partitions that this node leads and that are RUNNING.
        True: standbys, and copies that still catch up from a whole batch. Raises InvalidStateStore
        if there is none, or it is of another type. Source: KIP-535 `store`.
        """
        table = self._table(name)
        if (found := type_of(table)) != type_:
            raise InvalidStateStore(f"{name} is a {found} store, not a {type_} store")
        readable = {
            replica_id.partition: status
            for replica_id, status in self._local()
            if replica_id[:2] == (table.table_id, table.generation)
            and (
                status.state.answers
                if include_stale_stores
                else status.state is ReplicaState.RUNNING and self._leads(replica_id)
            )
        }
        if not readable:
            hint = "" if include_stale_stores else "; stale stores were not asked for"
            raise InvalidStateStore(f"no copy of {name} on this node can be read yet{hint}")
        return LocalStore(name=store_name(table), type=type_, partitions=readable)

    def _local(self) -> Iterator[tuple[ReplicaId, ReplicaStatus]]:
        """Replicas that are assigned to this node and have a status, in the assignment's order."""
        for replica_id in self._view.replicas_of(self._view.snapshot.node_id):
            status = self._statuses.get(replica_id)
            if status is not None:
                yield replica_id, status

    def _leads(self, replica_id: ReplicaId) -> bool:
        return self._view.placements[replica_id].replicas[0] == self._view.snapshot.node_id

    def _table(self, store: str) -> Source:
        """Only tables that answer: a generation that is being built has the same names."""
        for table in self._view.snapshot.sources:
            if table.is_materialized and store in (table.name, store_name(table)):
                return table
        raise InvalidStateStore(f"there is no store {store}")


def type_of(table: Source) -> StoreType:
    """What kind of store a table has."""
    if table.window is None:
        return "key-value"
    return "session" if table.window.kind == "SESSION" else "window"
