"""The state machine of the metadata log: commands in, catalog out.

`apply(catalog, index, command)` is deterministic and total: every node that applies the same log
has an equal catalog, and a command that does not fit (its name is taken, its base is outdated)
changes nothing but the index and the memory of requests, on every node alike. Whether a statement
*should* be refused is decided before it is logged (`ddl.propose`).

This is the quorum's state machine (`node.controller.catalog_replica` feeds it). What may be logged
at which `feature_level`: `control.metadata.feature_levels`. Indexes have gaps: the quorum's log
holds records that are no commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from standpipe.control.metadata import apply_sources, leases
from standpipe.control.metadata.apply_sources import without
from standpipe.control.metadata.commands import (
    VERSIONS,
    Base,
    Command,
    CommitAssignment,
    CreateSource,
    CreateTableAs,
    CreateType,
    DrainNode,
    DropSource,
    DropType,
    EndPipelines,
    FoundCluster,
    GrantLeases,
    InsertInto,
    Misfit,
    Receipt,
    RegisterNode,
    RemoveNode,
    ReplaceStreamAs,
    ReplaceTableAs,
    SetFeatureLevel,
    SetPlacementRules,
    SetQueryState,
    StartPipeline,
    SwitchTable,
    TerminateQuery,
    TopicDeleted,
    TopicWish,
    UnknownCommand,
    decode,
    encode,
)
from standpipe.control.metadata.request_dedup import REQUESTS_MAX, AppliedRequest, remember
from standpipe.model import (
    Assignment,
    LeaseEpoch,
    LogIndex,
    NodeId,
    NodeInfo,
    PersistentQuery,
    PlacementRules,
    QueryStatus,
    Record,
    Snapshot,
    Source,
)

__all__ = [
    "CATALOG_VERSION",
    "EMPTY",
    "REQUESTS_MAX",
    "VERSIONS",
    "AppliedRequest",
    "Base",
    "Catalog",
    "Command",
    "CommitAssignment",
    "CreateSource",
    "CreateTableAs",
    "CreateType",
    "DrainNode",
    "DropSource",
    "DropType",
    "EndPipelines",
    "FoundCluster",
    "GrantLeases",
    "InsertInto",
    "Receipt",
    "RegisterNode",
    "RemoveNode",
    "ReplaceStreamAs",
    "ReplaceTableAs",
    "SetFeatureLevel",
    "SetPlacementRules",
    "SetQueryState",
    "StartPipeline",
    "SwitchTable",
    "TerminateQuery",
    "TopicDeleted",
    "TopicWish",
    "UnknownCommand",
    "apply",
    "decode",
    "encode",
    "from_bytes",
    "to_bytes",
    "to_snapshot",
]


#: newest that is read; 2 says a feature level that a program of level 1 would overlook, 3 leases,
#: 4 successors
CATALOG_VERSION: Final = 4

_encoder = msgspec.msgpack.Encoder()


# ------------------------------------------------------------------------------------ catalog


class Catalog(Record, frozen=True, kw_only=True):
    """All that the log says up to `index`. A value: `apply` makes a new one.

    Mappings keep the order of creation, which is the order in which SHOW lists.
    """

    version: int = 1
    #: what may be logged (`control.metadata.feature_levels`); 1: a log that never said
    feature_level: int = 1
    index: LogIndex = LogIndex(0)
    cluster_id: str = ""
    nodes: Mapping[NodeId, NodeInfo] = {}
    sources: Mapping[str, Source] = {}
    queries: Mapping[str, PersistentQuery] = {}
    #: name of a table -> its next generation, which is built beside it
    successors: Mapping[str, Source] = {}
    #: name of CREATE TYPE -> what it stands for
    types: Mapping[str, str] = {}
    assignment: Assignment = Assignment()
    #: None: of a log from before they were in it; the next leader says them
    placement_rules: PlacementRules | None = None
    #: nodes that must end up empty
    draining: tuple[NodeId, ...] = ()
    #: the newest lease epoch, of a pipeline's start or of a query's lease
    pipeline_epoch: LeaseEpoch = LeaseEpoch(0)
    #: pipelines that are registered -> lease epoch of their start
    pipelines: Mapping[str, LeaseEpoch] = {}
    #: query id -> who writes it; its pipeline may have ended
    leases: Mapping[str, leases.QueryLease] = {}
    #: topic name -> topic that must exist
    topics: Mapping[str, TopicWish] = {}
    #: topics to delete before anything else may use their names
    doomed_topics: tuple[str, ...] = ()
    #: request id -> what became of it, oldest first, at most REQUESTS_MAX
    applied_requests: Mapping[str, AppliedRequest] = {}

    @property
    def generations(self) -> tuple[Source, ...]:
        """All sources, and what is built beside them."""
        return (*self.sources.values(), *self.successors.values())


EMPTY: Final = Catalog()


def apply(catalog: Catalog, index: LogIndex, command: Command) -> Catalog:
    """The catalog after one more command. Raises ValueError if `index` does not grow."""
    if index <= catalog.index:
        raise ValueError(f"index {index} was applied before, the catalog is at {catalog.index}")
    if command.request_id and command.request_id in catalog.applied_requests:
        return msgspec.structs.replace(catalog, index=index)
    try:
        changed, refusal = _change(catalog, command), ""
    except Misfit as misfit:
        changed, refusal = catalog, str(misfit)
    if not command.request_id:
        return msgspec.structs.replace(changed, index=index)
    given = changed.pipeline_epoch if isinstance(command, StartPipeline) else LeaseEpoch(0)
    outcome = AppliedRequest(
        index=index, receipt=command.receipt, refusal=refusal, lease_epoch=given
    )
    return msgspec.structs.replace(
        changed,
        index=index,
        applied_requests=remember(catalog.applied_requests, command.request_id, outcome),
    )


def to_bytes(catalog: Catalog) -> bytes:
    """The whole catalog as one blob, for snapshots of the log."""
    return _encoder.encode(catalog)


def from_bytes(data: bytes) -> Catalog:
    """Inverse of `to_bytes`. Raises UnknownCommand for a version that is not known."""
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
) -> Snapshot:
    """The catalog as workers and tailer see it. Whoever publishes it gives it a stamp."""
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
        types=dict(catalog.types),
        assignment=catalog.assignment,
        query_statuses=query_statuses,
        published_boot_ms=published_boot_ms,
        quorum_sync_ms=quorum_sync_ms,
    )


# ------------------------------------------------------------------------------- what changes


def _change(catalog: Catalog, command: Command) -> Catalog:
    match command:
        case FoundCluster():
            return _found(catalog, command)
        case SetFeatureLevel(level=level):
            return _raise_level(catalog, level)
        case RegisterNode(node=node):
            nodes = {**catalog.nodes, node.node_id: node}
            return msgspec.structs.replace(catalog, nodes=nodes)
        case CreateSource():
            return apply_sources.create_source(catalog, command)
        case CreateTableAs():
            return apply_sources.create_table_as(catalog, command)
        case InsertInto():
            return apply_sources.insert_into(catalog, command)
        case ReplaceStreamAs():
            return apply_sources.replace_stream(catalog, command)
        case ReplaceTableAs():
            return apply_sources.replace_table(catalog, command)
        case SwitchTable():
            return apply_sources.switch_table(catalog, command)
        case DropSource():
            return apply_sources.drop(catalog, command)
        case CreateType(name=name, definition=definition):
            if name in catalog.types:
                raise Misfit(f"type {name} exists")
            return msgspec.structs.replace(catalog, types={**catalog.types, name: definition})
        case DropType(name=name):
            if name not in catalog.types:
                raise Misfit(f"type {name} does not exist")
            return msgspec.structs.replace(catalog, types=without(catalog.types, name))
        case TopicDeleted(name=name):
            left = tuple(topic for topic in catalog.doomed_topics if topic != name)
            return msgspec.structs.replace(catalog, doomed_topics=left)
        case TerminateQuery(query_ids=query_ids):
            return apply_sources.end_queries(catalog, query_ids)
        case SetQueryState(query_ids=query_ids, state=state):
            changed = {
                query_id: msgspec.structs.replace(query, state=state)
                for query_id, query in catalog.queries.items()
                if query_id in query_ids
            }
            return msgspec.structs.replace(catalog, queries={**catalog.queries, **changed})
        case CommitAssignment(assignment=assignment):
            if assignment.epoch != catalog.assignment.epoch + 1:
                raise Misfit(f"assignment epoch is {catalog.assignment.epoch}")
            return msgspec.structs.replace(catalog, assignment=assignment)
        case SetPlacementRules(rules=rules):
            return msgspec.structs.replace(catalog, placement_rules=rules)
        case DrainNode(node_id=node_id, is_draining=is_draining):
            return _drain(catalog, node_id, is_draining=is_draining)
        case RemoveNode(node_id=node_id):
            return _remove_node(catalog, node_id)
        case StartPipeline():
            return _start_pipeline(catalog, command)
        case EndPipelines(pipeline_ids=ended):
            return msgspec.structs.replace(catalog, pipelines=without(catalog.pipelines, *ended))
        case GrantLeases(grants=grants):
            after, newest = leases.granted(
                grants,
                leases={q: lease for q, lease in catalog.leases.items() if q in catalog.queries},
                queries=catalog.queries,
                pipelines=catalog.pipelines,
                newest=catalog.pipeline_epoch,
            )
            return msgspec.structs.replace(catalog, leases=after, pipeline_epoch=newest)


def _start_pipeline(catalog: Catalog, command: StartPipeline) -> Catalog:
    epoch = LeaseEpoch(catalog.pipeline_epoch + 1)
    started = catalog.pipelines
    if command.version > 1:
        started = {**started, command.pipeline_id: epoch}
    return msgspec.structs.replace(catalog, pipeline_epoch=epoch, pipelines=started)


def _found(catalog: Catalog, command: FoundCluster) -> Catalog:
    if catalog.cluster_id:
        raise Misfit(f"the cluster is {catalog.cluster_id}")
    founded = msgspec.structs.replace(catalog, cluster_id=command.cluster_id)
    return _raise_level(founded, command.feature_level or 1)


def _raise_level(catalog: Catalog, level: int) -> Catalog:
    if level < catalog.feature_level:
        raise Misfit(f"the feature level is {catalog.feature_level} and never falls")
    version = min(level, CATALOG_VERSION) if level > 1 else catalog.version
    return msgspec.structs.replace(catalog, feature_level=level, version=version)


def _drain(catalog: Catalog, node_id: NodeId, *, is_draining: bool) -> Catalog:
    if node_id not in catalog.nodes:
        raise Misfit(f"{node_id} is no node of this cluster")
    others = tuple(node for node in catalog.draining if node != node_id)
    draining = (*others, node_id) if is_draining else others
    return msgspec.structs.replace(catalog, draining=draining)


def _remove_node(catalog: Catalog, node_id: NodeId) -> Catalog:
    if node_id not in catalog.nodes:
        raise Misfit(f"{node_id} is no node of this cluster")
    return msgspec.structs.replace(
        catalog,
        nodes=without(catalog.nodes, node_id),
        draining=tuple(node for node in catalog.draining if node != node_id),
    )
