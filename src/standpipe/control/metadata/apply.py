"""The state machine of the metadata log: `apply` maps a catalog and a command to the next catalog.

`apply(catalog, index, command)` is deterministic and total: every node that applies the same log
has an equal catalog. A rejected command (its name is taken, its base is outdated) changes only the
index and the record of its request, on every node alike. Indexes have gaps: the quorum's log also
holds records that are not commands.

A replacement table is built beside the one that serves reads: the next generation
(`Catalog.successors`) has its own topic, query and replicas, and reads do not see it until
`SwitchTable`.

Not here: whether a statement should be refused (`control.ddl.propose`, before it is logged), what
may be logged at which feature level (`control.metadata.feature_levels`), when a new generation has
caught up (`control.assignment.switchover`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from standpipe.control.metadata import feature_levels, isolation, leases, members, transients
from standpipe.control.metadata.catalog import (
    Catalog,
    topics_of,
)
from standpipe.control.metadata.commands import (
    Command,
    CommandRejected,
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
    HoldTable,
    InsertInto,
    IsolateQuery,
    RecordTopics,
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
    WithdrawStatement,
)
from standpipe.control.metadata.holds import hold
from standpipe.control.metadata.requests import REQUEST_BYTES_MAX, AppliedRequest, remember
from standpipe.model import LeaseEpoch, LogIndex, Source, TopicSpec

K = TypeVar("K")
V = TypeVar("V")


def apply(catalog: Catalog, index: LogIndex, command: Command) -> Catalog:
    """The catalog after one more command. A request id that was already applied changes nothing.

    Raises ValueError if `index` does not grow.
    """
    if index <= catalog.index:
        raise ValueError(f"index {index} was applied before, the catalog is at {catalog.index}")
    if command.request_id and command.request_id in catalog.applied_requests:
        return replace(catalog, index=index)
    try:
        changed, refusal = _change(catalog, command), ""
    except CommandRejected as rejection:
        changed, refusal = catalog, str(rejection)
    if not command.request_id:
        return replace(changed, index=index)
    given = changed.pipeline_epoch if isinstance(command, StartPipeline) else LeaseEpoch(0)
    outcome = AppliedRequest(
        index=index, receipt=command.receipt, refusal=refusal, lease_epoch=given
    )
    return _remembered(replace(changed, index=index), command.request_id, outcome)


def _remembered(catalog: Catalog, request_id: str, outcome: AppliedRequest) -> Catalog:
    bytes_max = REQUEST_BYTES_MAX if catalog.feature_level >= feature_levels.TOPIC_IDS else None
    outcomes, forgotten = remember(
        catalog.applied_requests, request_id, outcome, bytes_max=bytes_max
    )
    if forgotten and catalog.feature_level >= feature_levels.FORGOTTEN_REQUESTS:
        catalog = replace(catalog, forgotten_index=forgotten)
    return replace(catalog, applied_requests=outcomes)


def _change(catalog: Catalog, command: Command) -> Catalog:
    match command:
        case FoundCluster():
            return _found(catalog, command)
        case SetFeatureLevel(level=level):
            return _raise_level(catalog, level)
        case RegisterNode(node=node):
            return replace(catalog, nodes={**catalog.nodes, node.node_id: node})
        case CreateSource():
            return _create_source(catalog, command)
        case CreateTableAs():
            return _create_table_as(catalog, command)
        case InsertInto():
            return _insert_into(catalog, command)
        case ReplaceStreamAs():
            return _replace_stream(catalog, command)
        case ReplaceTableAs():
            return _replace_table(catalog, command)
        case HoldTable():
            return hold(catalog, command)
        case SwitchTable():
            return _switch_table(catalog, command)
        case DropSource():
            return _drop(catalog, command)
        case CreateType(name=name, definition=definition):
            if name in catalog.types:
                raise CommandRejected(f"type {name} exists")
            return replace(catalog, types={**catalog.types, name: definition})
        case DropType(name=name):
            if name not in catalog.types:
                raise CommandRejected(f"type {name} does not exist")
            return replace(catalog, types=_without(catalog.types, name))
        case TopicDeleted(name=name):
            left = tuple(topic for topic in catalog.doomed_topics if topic != name)
            made = _without(catalog.made_topics, name)
            return replace(catalog, doomed_topics=left, made_topics=made)
        case RecordTopics(ids=ids):
            return replace(catalog, made_topics={**catalog.made_topics, **ids})
        case WithdrawStatement():
            return _withdraw(catalog, command)
        case TerminateQuery(query_ids=query_ids):
            return _end_queries(catalog, query_ids)
        case SetQueryState(query_ids=query_ids, state=state):
            known = catalog.queries
            changed = {q: replace(known[q], state=state) for q in query_ids if q in known}
            return replace(catalog, queries={**known, **changed})
        case CommitAssignment(assignment=assignment):
            if assignment.epoch != catalog.assignment.epoch + 1:
                raise CommandRejected(f"assignment epoch is {catalog.assignment.epoch}")
            return replace(catalog, assignment=assignment)
        case SetPlacementRules(rules=rules):
            return replace(catalog, placement_rules=rules)
        case DrainNode(node_id=node_id, is_draining=is_draining):
            return members.drained(catalog, node_id, is_draining=is_draining)
        case RemoveNode(node_id=node_id):
            return members.removed(catalog, node_id)
        case StartPipeline():
            return _start_pipeline(catalog, command)
        case EndPipelines(pipeline_ids=ended):
            return isolation.without_pipelines(catalog, ended)
        case IsolateQuery(name=name, is_isolated=is_isolated):
            return isolation.change(catalog, name, is_isolated=is_isolated)
        case GrantLeases(grants=grants):
            return _grant(catalog, grants)


def _grant(catalog: Catalog, grants: Iterable[leases.Grant]) -> Catalog:
    after, newest = leases.granted(
        grants,
        leases={q: lease for q, lease in catalog.leases.items() if q in catalog.queries},
        queries=catalog.queries,
        pipelines=catalog.pipelines,
        newest=catalog.pipeline_epoch,
    )
    return replace(catalog, leases=after, pipeline_epoch=newest)


def _start_pipeline(catalog: Catalog, command: StartPipeline) -> Catalog:
    epoch = LeaseEpoch(catalog.pipeline_epoch + 1)
    started, isolated = catalog.pipelines, catalog.isolated
    if command.version > 1:
        started = {**started, command.pipeline_id: epoch}
    if command.isolates:
        isolated = isolation.registered(catalog, command.pipeline_id, command.isolates)
    return replace(catalog, pipeline_epoch=epoch, pipelines=started, isolated=isolated)


def _found(catalog: Catalog, command: FoundCluster) -> Catalog:
    if catalog.cluster_id:
        raise CommandRejected(f"the cluster is {catalog.cluster_id}")
    founded = replace(catalog, cluster_id=command.cluster_id)
    return _raise_level(founded, command.feature_level or 1)


def _raise_level(catalog: Catalog, level: int) -> Catalog:
    if level < catalog.feature_level:
        raise CommandRejected(f"the feature level is {catalog.feature_level} and never falls")
    version = feature_levels.catalog_version(level) if level > 1 else catalog.version
    made = catalog.made_topics
    if catalog.feature_level < feature_levels.TOPIC_IDS <= level:  # made by statements, it seems
        made = dict.fromkeys((*catalog.topics, *catalog.doomed_topics), "")
    return replace(catalog, feature_level=level, version=version, made_topics=made)


# ------------------------------------------------------------- streams, tables, their queries


def _create_source(catalog: Catalog, command: CreateSource) -> Catalog:
    source = command.source
    if source.name in catalog.sources and not command.replace:
        raise CommandRejected(f"{source.name} exists")
    return replace(
        catalog,
        sources={**catalog.sources, source.name: source},
        topics=_with_topics(catalog, command.topic),
    )


def _create_table_as(catalog: Catalog, command: CreateTableAs) -> Catalog:
    source, query = command.source, command.query
    if query.served_by:
        return transients.begun(catalog, command)
    if source.name in catalog.sources or query.query_id in catalog.queries:
        raise CommandRejected(f"{source.name} or {query.query_id} exists")
    return replace(
        catalog,
        sources={**catalog.sources, source.name: source},
        queries={**catalog.queries, query.query_id: query},
        topics=_with_topics(
            catalog, command.source_topic or None, command.topic, command.public_topic or None
        ),
        isolated=isolation.with_external(catalog, query),
    )


def _insert_into(catalog: Catalog, command: InsertInto) -> Catalog:
    query = command.query
    target = catalog.sources.get(query.sink)
    if target is None or query.query_id in catalog.queries:
        raise CommandRejected(f"{query.sink} does not exist, or {query.query_id} does")
    written = replace(target, takes_inserts=True)
    return replace(
        catalog,
        sources={**catalog.sources, written.name: written},
        queries={**catalog.queries, query.query_id: query},
    )


def _replace_stream(catalog: Catalog, command: ReplaceStreamAs) -> Catalog:
    """The query keeps its id, its checkpoint and its positions in the topics that it reads."""
    source, query = command.source, command.query
    before = catalog.queries.get(query.query_id)
    if source.name not in catalog.sources or before is None:
        raise CommandRejected(f"{source.name} or {query.query_id} does not exist")
    if query.revision != before.revision + 1:
        raise CommandRejected(f"{query.query_id} has since been replaced")
    return replace(
        catalog,
        sources={**catalog.sources, source.name: source},
        queries={**catalog.queries, query.query_id: replace(query, state=before.state)},
    )


def _replace_table(catalog: Catalog, command: ReplaceTableAs) -> Catalog:
    """A generation that is still being built is dropped in favor of the newer one. Transient
    queries would see the changes of both, so they end."""
    source, query = command.source, command.query
    there = catalog.sources.get(source.name)
    catalog = _end_queries(catalog, transients.readers_of(catalog, source.name))
    if there is None or there.table_id != source.table_id:
        raise CommandRejected(f"{source.name} does not exist")
    if query.query_id in catalog.queries:
        raise CommandRejected(f"{query.query_id} exists")
    if before := catalog.successors.get(source.name):
        catalog = _end_queries(catalog, (before.query_id or "",))
    newest = before or there
    if source.generation != newest.generation + 1:
        raise CommandRejected(f"{source.name} has since been replaced")
    return replace(
        catalog,
        successors={**catalog.successors, source.name: source},
        queries={**catalog.queries, query.query_id: query},
        topics=_with_topics(catalog, command.topic),
    )


def _switch_table(catalog: Catalog, command: SwitchTable) -> Catalog:
    """Drops the old generation with its query and its own topic; the public topic stays."""
    there, successor = catalog.sources.get(command.name), catalog.successors.get(command.name)
    if there is None or successor is None or successor.generation != command.generation:
        raise CommandRejected(f"{command.name} has no generation {command.generation} to switch to")
    gone = _own_topics(there)
    return replace(
        catalog,
        sources={**catalog.sources, successor.name: successor},
        successors=_without(catalog.successors, successor.name),
        held=_without(catalog.held, there.table_id or ""),
        queries=_without(catalog.queries, there.query_id or ""),
        topics=_without(catalog.topics, *gone),
        doomed_topics=_with_names(catalog.doomed_topics, gone),
    )


def _drop(catalog: Catalog, command: DropSource) -> Catalog:
    source = catalog.sources.get(command.name)
    if source is None:
        raise CommandRejected(f"{command.name} does not exist")
    ended = transients.readers_of(catalog, source.name)
    if successor := catalog.successors.get(source.name):
        ended += (successor.query_id or "",)
    catalog = _end_queries(catalog, ended)
    catalog = isolation.without_external(catalog, (source.query_id or "",))
    left = _without(catalog.sources, source.name)
    used = {topic for other in left.values() for topic in topics_of(other)}
    doomed = [*_own_topics(source)]
    if command.delete_topic:
        doomed.append(source.public_topic or source.topic)
    return replace(
        catalog,
        sources=left,
        queries=_without(catalog.queries, source.query_id or ""),
        topics=_without(catalog.topics, *(t for t in topics_of(source) if t not in used)),
        doomed_topics=_with_names(catalog.doomed_topics, doomed),
    )


def _withdraw(catalog: Catalog, command: WithdrawStatement) -> Catalog:
    """The catalog as it was before the statement; its request has the reason as its outcome."""
    mine = command.table_id, command.generation
    successor = catalog.successors.get(command.name)
    source = catalog.sources.get(command.name)
    if successor is not None and (successor.table_id, successor.generation) == mine:
        left = _end_queries(catalog, (successor.query_id or "",))
    elif source is not None and (source.table_id, source.generation) == mine:
        if any(command.name in each.sources for each in catalog.persistent_queries.values()):
            raise CommandRejected(f"{command.name} is read by another query by now")
        topic = source.public_topic or source.topic  # the one that `_drop` deletes
        is_ours = topic in catalog.made_topics and _is_to_be_made(catalog, source)
        others = [each for each in catalog.generations if each.name != command.name]
        shares = any(topic in topics_of(each) for each in others)
        drop = DropSource(name=command.name, delete_topic=is_ours and not shares)
        left = _drop(catalog, drop)
    else:
        raise CommandRejected(f"{command.name} has no generation {command.generation}")
    before = catalog.applied_requests.get(command.of_request)
    if before is None:
        return left
    outcome = replace(before, refusal=command.reason)
    return replace(left, applied_requests={**left.applied_requests, command.of_request: outcome})


def _is_to_be_made(catalog: Catalog, source: Source) -> bool:
    """Whether a statement that still holds makes its topic. A source table may read one that an
    earlier stream left: this cluster made it, and another program's records are in it."""
    if source.changelog is None or catalog.feature_level < feature_levels.SOURCE_TOPICS:
        return True
    return source.topic in catalog.topics


def _end_queries(catalog: Catalog, query_ids: Sequence[str]) -> Catalog:
    """What they write stays as it is, unless it is transient or a generation still being built."""
    catalog = isolation.without_external(catalog, query_ids)
    abandoned = [each for each in catalog.successors.values() if each.query_id in query_ids]
    gone = [topic for each in abandoned for topic in _own_topics(each)]
    gone += [each.topic for key, each in catalog.transients.items() if key in query_ids]
    return replace(
        transients.without(catalog, query_ids),
        successors=_without(catalog.successors, *(each.name for each in abandoned)),
        queries=_without(catalog.queries, *query_ids),
        topics=_without(catalog.topics, *gone),
        doomed_topics=_with_names(catalog.doomed_topics, gone),
    )


def _own_topics(source: Source) -> tuple[str, ...]:
    """Topics that only this source uses and that are deleted with it."""
    if source.changelog is not None:
        return (source.changelog,)
    return () if source.public_topic is None else (source.topic,)


def _without(mapping: Mapping[K, V], *keys: K) -> dict[K, V]:
    """The mapping without these keys."""
    return {key: value for key, value in mapping.items() if key not in keys}


def _with_topics(catalog: Catalog, *topics: TopicSpec | None) -> Mapping[str, TopicSpec]:
    return {**catalog.topics, **{topic.name: topic for topic in topics if topic}}


def _with_names(names: tuple[str, ...], more: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*names, *more)))
