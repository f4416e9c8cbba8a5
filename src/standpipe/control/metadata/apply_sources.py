"""What a command does to the sources of a catalog, their queries and their topics.

A table that is replaced is built anew beside itself: its next generation (`Catalog.successors`) has
a topic, a query and replicas of its own, and reads know nothing of it until `switch_table`.

Not here: whether a statement should be refused (`ddl`), when a generation has caught up
(`succession`), all other commands (`catalog`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from standpipe.control.metadata.commands import (
    CreateSource,
    CreateTableAs,
    DropSource,
    InsertInto,
    Misfit,
    ReplaceStreamAs,
    ReplaceTableAs,
    SwitchTable,
    TopicWish,
)
from standpipe.model import Source

if TYPE_CHECKING:
    from standpipe.control.metadata.catalog import Catalog

K = TypeVar("K")
V = TypeVar("V")


def create_source(catalog: Catalog, command: CreateSource) -> Catalog:
    source = command.source
    if source.name in catalog.sources and not command.replace:
        raise Misfit(f"{source.name} exists")
    return replace(
        catalog,
        sources={**catalog.sources, source.name: source},
        topics=_with_topic(catalog, command.topic),
    )


def create_table_as(catalog: Catalog, command: CreateTableAs) -> Catalog:
    source, query = command.source, command.query
    if source.name in catalog.sources or query.query_id in catalog.queries:
        raise Misfit(f"{source.name} or {query.query_id} exists")
    return replace(
        catalog,
        sources={**catalog.sources, source.name: source},
        queries={**catalog.queries, query.query_id: query},
        topics=_with_topic(catalog, command.topic),
    )


def insert_into(catalog: Catalog, command: InsertInto) -> Catalog:
    query = command.query
    target = catalog.sources.get(query.sink)
    if target is None or query.query_id in catalog.queries:
        raise Misfit(f"{query.sink} does not exist, or {query.query_id} does")
    written = replace(target, takes_inserts=True)
    return replace(
        catalog,
        sources={**catalog.sources, written.name: written},
        queries={**catalog.queries, query.query_id: query},
    )


def replace_stream(catalog: Catalog, command: ReplaceStreamAs) -> Catalog:
    """Its query keeps its id, its checkpoint and its place in the topics that it reads."""
    source, query = command.source, command.query
    before = catalog.queries.get(query.query_id)
    if source.name not in catalog.sources or before is None:
        raise Misfit(f"{source.name} or {query.query_id} does not exist")
    if query.revision != before.revision + 1:
        raise Misfit(f"{query.query_id} was replaced meanwhile")
    return replace(
        catalog,
        sources={**catalog.sources, source.name: source},
        queries={**catalog.queries, query.query_id: replace(query, state=before.state)},
    )


def replace_table(catalog: Catalog, command: ReplaceTableAs) -> Catalog:
    """A generation that is still being built is dropped for a newer one."""
    source, query = command.source, command.query
    there = catalog.sources.get(source.name)
    if there is None or there.table_id != source.table_id:
        raise Misfit(f"{source.name} does not exist")
    if query.query_id in catalog.queries:
        raise Misfit(f"{query.query_id} exists")
    if before := catalog.successors.get(source.name):
        catalog = end_queries(catalog, (before.query_id or "",))
    newest = before or there
    if source.generation != newest.generation + 1:
        raise Misfit(f"{source.name} was replaced meanwhile")
    return replace(
        catalog,
        successors={**catalog.successors, source.name: source},
        queries={**catalog.queries, query.query_id: query},
        topics=_with_topic(catalog, command.topic),
    )


def switch_table(catalog: Catalog, command: SwitchTable) -> Catalog:
    """The generation before goes with its query; its own topic is deleted, the public one stays."""
    there, successor = catalog.sources.get(command.name), catalog.successors.get(command.name)
    if there is None or successor is None or successor.generation != command.generation:
        raise Misfit(f"{command.name} has no generation {command.generation} to switch to")
    gone = own_topics(there)
    return replace(
        catalog,
        sources={**catalog.sources, successor.name: successor},
        successors=without(catalog.successors, successor.name),
        queries=without(catalog.queries, there.query_id or ""),
        topics=without(catalog.topics, *gone),
        doomed_topics=_with_names(catalog.doomed_topics, gone),
    )


def drop(catalog: Catalog, command: DropSource) -> Catalog:
    source = catalog.sources.get(command.name)
    if source is None:
        raise Misfit(f"{command.name} does not exist")
    if successor := catalog.successors.get(source.name):
        catalog = end_queries(catalog, (successor.query_id or "",))
    left = without(catalog.sources, source.name)
    used = {topic for other in left.values() for topic in topics_of(other)}
    doomed = [*own_topics(source)]
    if command.delete_topic:
        doomed.append(source.public_topic or source.topic)
    return replace(
        catalog,
        sources=left,
        queries=without(catalog.queries, source.query_id or ""),
        topics=without(catalog.topics, *(t for t in topics_of(source) if t not in used)),
        doomed_topics=_with_names(catalog.doomed_topics, doomed),
    )


def end_queries(catalog: Catalog, query_ids: Sequence[str]) -> Catalog:
    """Their tables stay as they are, but one that was only being built is gone."""
    abandoned = [each for each in catalog.successors.values() if each.query_id in query_ids]
    gone = [topic for each in abandoned for topic in own_topics(each)]
    return replace(
        catalog,
        successors=without(catalog.successors, *(each.name for each in abandoned)),
        queries=without(catalog.queries, *query_ids),
        topics=without(catalog.topics, *gone),
        doomed_topics=_with_names(catalog.doomed_topics, gone),
    )


def own_topics(source: Source) -> tuple[str, ...]:
    """Topics that nobody else knows of: they go with the source."""
    if source.changelog is not None:
        return (source.changelog,)
    return () if source.public_topic is None else (source.topic,)


def topics_of(source: Source) -> tuple[str, ...]:
    """All topics that a source has a part in."""
    public = () if source.public_topic is None else (source.public_topic,)
    return (source.topic, source.stored_form().topic, *public)


def without(mapping: Mapping[K, V], *keys: K) -> dict[K, V]:
    """All of a mapping but some keys."""
    return {key: value for key, value in mapping.items() if key not in keys}


def _with_topic(catalog: Catalog, wish: TopicWish | None) -> Mapping[str, TopicWish]:
    return {**catalog.topics, wish.name: wish} if wish else catalog.topics


def _with_names(names: tuple[str, ...], more: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*names, *more)))
