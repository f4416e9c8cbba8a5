"""The catalog: the state of the metadata log at one index, as a value.

    control.ddl.propose ─► a command ─► the quorum's log ─► apply ─► Catalog, equal on every node
                                                                        └─► Snapshot, for workers

Its bytes are the quorum's snapshots. Workers and the tailer of a node get it as a `model.Snapshot`,
which the controller publishes. Workers check statements against `from_snapshot`: the same checks on
the same fields as at the leader.

Not here: how a command changes it (`control.metadata.apply`), the commands themselves
(`control.metadata.commands`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from standpipe.control.metadata.commands import UnknownCommand
from standpipe.control.metadata.requests import AppliedRequest
from standpipe.model import (
    Assignment,
    LeaseEpoch,
    LogIndex,
    NodeId,
    NodeInfo,
    PersistentQuery,
    PlacementRules,
    QueryLease,
    QueryStatus,
    Record,
    Snapshot,
    Source,
    TopicSpec,
)

#: newest version that this program reads; 2 adds a feature level, which a level 1 program would
#: overlook, 3 adds leases, 4 successors, 5 ids of topics, 6 isolated names, 7 tables
#: that are held, 8 external queries, 9 tables with bounds in ms, 10 transient queries, 11 direct
#: tables, 12 which outcomes of requests are forgotten, 13 schemas in a registry, 14 JSON_SR, and
#: queries of Spark with AVRO, 15 columns that were added in place
CATALOG_VERSION: Final = 15

_encoder = msgspec.msgpack.Encoder()


class Catalog(Record, frozen=True, kw_only=True):
    """The state of the log at `index`. Immutable: `control.metadata.apply` builds the next one.

    Mappings keep the order of creation, which is the order in which SHOW lists.
    """

    version: int = 1
    #: what may be logged (`control.metadata.feature_levels`); 1: the log does not name a level
    feature_level: int = 1
    index: LogIndex = LogIndex(0)
    cluster_id: str = ""
    nodes: Mapping[NodeId, NodeInfo] = {}
    sources: Mapping[str, Source] = {}
    queries: Mapping[str, PersistentQuery] = {}
    #: name of a table -> its next generation, which is being built
    successors: Mapping[str, Source] = {}
    #: id of a transient query -> what it writes, which no statement can name
    transients: Mapping[str, Source] = {}
    #: table id -> the next generation, for which the one that answers is held
    #: (`control.metadata.holds`)
    held: Mapping[str, int] = {}
    #: name of CREATE TYPE -> its definition
    types: Mapping[str, str] = {}
    assignment: Assignment = Assignment()
    #: None: not logged yet; the next leader logs them
    placement_rules: PlacementRules | None = None
    #: nodes that must end up empty
    draining: tuple[NodeId, ...] = ()
    #: the newest lease epoch, of a pipeline's start or of a query's lease
    pipeline_epoch: LeaseEpoch = LeaseEpoch(0)
    #: pipelines that are registered -> lease epoch of their start
    pipelines: Mapping[str, LeaseEpoch] = {}
    #: query id -> the pipeline that writes it; that pipeline may have ended
    leases: Mapping[str, QueryLease] = {}
    #: isolated name -> the pipelines that are registered for it (`control.metadata.isolation`)
    isolated: Mapping[str, tuple[str, ...]] = {}
    #: topic name -> topic that must exist
    topics: Mapping[str, TopicSpec] = {}
    #: topics to delete before anything else may use their names
    doomed_topics: tuple[str, ...] = ()
    #: topic that this cluster made -> Kafka's id of it; "": it was absent and is being made
    made_topics: Mapping[str, str] = {}
    #: request id -> its outcome, oldest first (`control.metadata.requests`)
    applied_requests: Mapping[str, AppliedRequest] = {}
    #: the newest index whose outcome is forgotten; 0: none is
    forgotten_index: LogIndex = LogIndex(0)

    @property
    def generations(self) -> tuple[Source, ...]:
        """All that queries write or read: the sources, the next generations that are built beside
        them, and what transient queries write."""
        return (*self.sources.values(), *self.successors.values(), *self.transients.values())

    @property
    def persistent_queries(self) -> Mapping[str, PersistentQuery]:
        """The queries that statements create and end: all but transient ones."""
        return {key: query for key, query in self.queries.items() if not query.served_by}


EMPTY: Final = Catalog()


def topics_of(source: Source) -> tuple[str, ...]:
    """All topics in which a source is stored, from which it is read, or to which it is copied."""
    public = () if source.public_topic is None else (source.public_topic,)
    return (source.topic, source.stored_form().topic, *public)


def to_bytes(catalog: Catalog) -> bytes:
    """The whole catalog as one blob, for snapshots of the log."""
    return _encoder.encode(catalog)


def from_bytes(data: bytes) -> Catalog:
    """Inverse of `to_bytes`. Raises UnknownCommand for an unknown version."""
    try:
        catalog = msgspec.msgpack.decode(data, type=Catalog)
    except msgspec.MsgspecError as error:
        raise UnknownCommand(f"a catalog cannot be read: {error}") from error
    if catalog.version > CATALOG_VERSION:
        raise UnknownCommand(
            f"a catalog of version {catalog.version}; this program reads up to {CATALOG_VERSION}"
        )
    return catalog


def to_snapshot(
    catalog: Catalog,
    *,
    node_id: NodeId,
    leader: NodeId,
    service_id: str,
    query_statuses: tuple[QueryStatus, ...],
    published_boot_ms: int,
    quorum_sync_ms: int,
    topic_faults: tuple[str, ...] = (),
) -> Snapshot:
    """The catalog as workers and tailer see it; `SnapshotWriter.publish` sets its stamp."""
    return Snapshot(
        stamp=0,
        node_id=node_id,
        service_id=service_id,
        cluster_id=catalog.cluster_id,
        log_index=catalog.index,
        leader=leader,
        nodes=tuple(catalog.nodes.values()),
        sources=tuple(catalog.sources.values()),
        queries=tuple(catalog.queries.values()),
        successors=tuple(catalog.successors.values()),
        transients=tuple(catalog.transients.values()),
        types=dict(catalog.types),
        assignment=catalog.assignment,
        feature_level=catalog.feature_level,
        topics=tuple(catalog.topics.values()),
        doomed_topics=catalog.doomed_topics,
        made_topics=dict(catalog.made_topics),
        placement_rules=catalog.placement_rules,
        draining=catalog.draining,
        pipeline_epoch=catalog.pipeline_epoch,
        pipelines=dict(catalog.pipelines),
        leases=dict(catalog.leases),
        isolated=dict(catalog.isolated),
        held=dict(catalog.held),
        query_statuses=query_statuses,
        published_boot_ms=published_boot_ms,
        quorum_sync_ms=quorum_sync_ms,
        topic_faults=topic_faults,
    )


def from_snapshot(snapshot: Snapshot) -> Catalog:
    """Inverse of `to_snapshot`: the catalog at `log_index`, without the outcomes of requests."""
    return Catalog(
        feature_level=snapshot.feature_level,
        index=snapshot.log_index,
        cluster_id=snapshot.cluster_id,
        nodes={node.node_id: node for node in snapshot.nodes},
        sources={source.name: source for source in snapshot.sources},
        queries={query.query_id: query for query in snapshot.queries},
        successors={source.name: source for source in snapshot.successors},
        transients={source.query_id or "": source for source in snapshot.transients},
        types=snapshot.types,
        assignment=snapshot.assignment,
        placement_rules=snapshot.placement_rules,
        draining=snapshot.draining,
        pipeline_epoch=snapshot.pipeline_epoch,
        pipelines=snapshot.pipelines,
        leases=snapshot.leases,
        isolated=snapshot.isolated,
        held=snapshot.held,
        topics={topic.name: topic for topic in snapshot.topics},
        doomed_topics=snapshot.doomed_topics,
        made_topics=snapshot.made_topics,
    )
