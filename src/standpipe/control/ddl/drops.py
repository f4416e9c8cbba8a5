"""DROP STREAM and DROP TABLE: plan to command, and what forbids it. Texts are ksqlDB's.

Not here: which topic is deleted in the end (`control.metadata.topic_reconciler`).
"""

from __future__ import annotations

from standpipe.control.ddl.responses import StatementReply, warning
from standpipe.control.metadata.catalog import Catalog, topics_of
from standpipe.control.metadata.commands import DropSource, Receipt
from standpipe.control.metadata.feature_levels import TOPIC_IDS
from standpipe.errors import StatementError
from standpipe.model import Source
from standpipe.sql.plans import DropPlan


def propose(
    plan: DropPlan, catalog: Catalog, statement: str, request_id: str
) -> DropSource | StatementReply:
    """The command. Raises StatementError if the source is absent (without IF EXISTS) or in use, or
    if its topic must stay."""
    source = catalog.sources.get(plan.name)
    if source is None:
        message = f"Source `{plan.name}` does not exist."
        if plan.exists:
            raise StatementError(message, statement=statement)
        return warning(statement, message)
    if source.kind != plan.kind:
        raise StatementError(
            f"Incompatible data source type is {source.kind.lower()}, but statement was DROP"
            f" {plan.kind.lower()}",
            statement=statement,
        )
    _check_unused(source, catalog, statement)
    if plan.delete_topic:
        _check_topic_unshared(source, catalog, statement)
        _check_topic_ours(source, catalog, statement)
    topic = source.public_topic or source.topic
    return DropSource(
        name=source.name,
        delete_topic=plan.delete_topic,
        request_id=request_id,
        receipt=Receipt(
            statement=statement or source.statement,
            command_id=f"{source.kind.lower()}/{source.name}/drop",
            message=f"Source `{source.name}` (topic: {topic}) was dropped.",
        ),
    )


def _check_unused(source: Source, catalog: Catalog, statement: str) -> None:
    queries = catalog.persistent_queries.values()
    writers = sorted(
        query.query_id
        for query in queries
        if query.sink == source.name and query.query_id != source.query_id
    )
    if writers:
        raise StatementError(
            f"Cannot drop {source.name}.\n"
            f"The following queries write into this source: [{', '.join(writers)}].\n"
            f"You need to terminate them before dropping {source.name}.",
            statement=statement,
        )
    readers = [query for query in queries if source.name in query.sources]
    if not readers:
        return
    sinks = ", ".join(sorted(query.sink for query in readers))
    raise StatementError(
        f"Cannot drop {source.name}.\n"
        f"The following streams and/or tables read from this source: [{sinks}].\n"
        f"You need to drop them before dropping {source.name}.",
        statement=statement,
        hint=f"in use by query {', '.join(sorted(query.query_id for query in readers))}",
    )


def _check_topic_unshared(source: Source, catalog: Catalog, statement: str) -> None:
    topic = source.public_topic or source.topic
    sharing = sorted(
        other.name
        for other in catalog.sources.values()
        if topic in topics_of(other) and other.name != source.name
    )
    if sharing:
        raise StatementError(
            f"Refusing to delete topic. Found other data sources ({', '.join(sharing)}) "
            f"using topic {topic}",
            statement=statement,
        )


def _check_topic_ours(source: Source, catalog: Catalog, statement: str) -> None:
    """Whether the topic still is when it is deleted is decided then, by its id."""
    topic = source.public_topic or source.topic
    is_ours = topic in catalog.made_topics or topic in catalog.topics
    if catalog.feature_level >= TOPIC_IDS and not is_ours:
        raise StatementError(
            f"Cannot delete topic {topic}: it was there before {source.name}, so this cluster did"
            f" not make it. DROP {source.kind} {source.name} without DELETE TOPIC, and delete the"
            " topic with Kafka's tools.",
            statement=statement,
        )
