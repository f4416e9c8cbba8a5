"""Transient queries: one for each push query that needs Spark's state, gone when its client is.

A transient query is in `Catalog.queries` beside the persistent ones, so pipelines lease, run and
fence it as they do any other. What it writes is in `Catalog.transients` and not in
`Catalog.sources`: no statement can name it, no replica holds it, and SHOW does not list it. When
the query ends, so does its sink, and its topic is doomed.

A new query, lost owners and dropped sources are all decided by the log, so that every node agrees.
The worker that serves the client renews the query at the leader; the leader ends those that nobody
renews (`node.controller.leases`). Not here: the plan (`sql.spark.transient`), when a worker ends
one (`node.worker.push.transients`).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from msgspec.structs import replace

from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.commands import CommandRejected, CreateTableAs

#: of the ids that push queries get (`node.worker.push.push_query.new_query_id`)
_ID: Final = re.compile(r"transient_[A-Z0-9_]{1,64}_[0-9]{1,19}")

#: what follows the id in the name of its topic (`sql.spark.transient`)
TOPIC_END: Final = "-changelog"


def is_transient_id(query_id: str) -> bool:
    """Whether a push query may have that id. Statements cannot give it to another query, but a
    stream or table may have such a name, and older releases took it as a QUERY_ID."""
    return _ID.fullmatch(query_id) is not None


def topics_left(catalog: Catalog) -> int:
    """How many topics of ended transient queries Kafka has not deleted yet."""
    ids = [topic.removesuffix(TOPIC_END) for topic in catalog.doomed_topics]
    return sum(map(is_transient_id, ids))


def begun(catalog: Catalog, command: CreateTableAs) -> Catalog:
    """The catalog with one more transient query. Raises CommandRejected if one of its sources is
    gone since it was judged."""
    source, query = command.source, command.query
    if query.query_id in catalog.queries or source.name in catalog.sources:
        raise CommandRejected(f"{query.query_id} exists")
    if missing := [name for name in query.sources if name not in catalog.sources]:
        raise CommandRejected(f"{', '.join(missing)} does not exist")
    return replace(
        catalog,
        transients={**catalog.transients, query.query_id: source},
        queries={**catalog.queries, query.query_id: query},
        topics={**catalog.topics, command.topic.name: command.topic},
    )


def without(catalog: Catalog, query_ids: Collection[str]) -> Catalog:
    """The catalog without what these queries write, as far as they are transient. The queries
    themselves and their topics' deletion: `apply`."""
    left = {key: source for key, source in catalog.transients.items() if key not in query_ids}
    return replace(catalog, transients=left)


def readers_of(catalog: Catalog, name: str) -> tuple[str, ...]:
    """The transient queries that read a stream or table. They do not keep it from being dropped: a
    client that stays connected could otherwise block every statement."""
    return tuple(
        query.query_id
        for query in catalog.queries.values()
        if query.served_by and name in query.sources
    )
