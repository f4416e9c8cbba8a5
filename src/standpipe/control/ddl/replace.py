"""CREATE OR REPLACE … AS: which replacements are in place, and which build a new generation.

A stream's query continues from its position under a new plan: rows already written stay. It must
keep no state, since state belongs to one plan. A table is recomputed from the beginning of its
topics, beside the one that serves reads; `control.assignment.switchover` decides when reads move.

Not here: what the commands do (`control.metadata.apply`), which columns may change
(`sql.ddl.evolution`).
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from standpipe.control.metadata.catalog import Catalog, topics_of
from standpipe.control.metadata.commands import Receipt, ReplaceStreamAs, ReplaceTableAs
from standpipe.errors import StatementError
from standpipe.model import PersistentQuery, Source, SparkPlan, TopicSpec
from standpipe.sql.ddl import evolution
from standpipe.sql.plans import CreateTableAsPlan

#: Makes the error for a message; it includes the statement's text.
Refused = Callable[[str], StatementError]


def propose(
    plan: CreateTableAsPlan,
    there: Source,
    catalog: Catalog,
    *,
    request_id: str,
    receipt: Callable[[PersistentQuery], Receipt],
    refused: Refused,
) -> ReplaceStreamAs | ReplaceTableAs:
    """The command that replaces `there`. Raises StatementError, built by `refused`.

    `receipt` builds the answer from the query that will run.
    """
    kind = there.kind.lower()
    if there.query_id is None:
        raise refused(
            f"Cannot replace {kind} '{there.name}': no query writes it. Leave out AS SELECT, or"
            f" DROP {there.kind} {there.name} first."
        )
    writer = catalog.queries.get(there.query_id)
    if writer is not None and writer.is_external:
        raise refused(
            f"Cannot replace {kind} '{there.name}': a Spark application writes it (WRITER="
            f"'EXTERNAL'). DROP {there.kind} {there.name} first."
        )
    if there.name in plan.query.sources:
        raise refused(f"Cannot replace {kind} '{there.name}': the new query reads it.")
    if there.kind == "STREAM":
        source, query = _evolved(plan, there, catalog, refused)
        return ReplaceStreamAs(
            source=source, query=query, request_id=request_id, receipt=receipt(query)
        )
    source, query = _successor(plan, there, catalog, refused)
    return ReplaceTableAs(
        source=source,
        query=query,
        topic=TopicSpec(name=source.topic, partitions=source.partitions, kind="TABLE"),
        request_id=request_id,
        receipt=receipt(query),
    )


def _evolved(
    plan: CreateTableAsPlan, there: Source, catalog: Catalog, refused: Refused
) -> tuple[Source, PersistentQuery]:
    before = catalog.queries.get(there.query_id or "")
    drop = f"DROP STREAM {there.name} first."
    if before is None:
        raise refused(f"Cannot replace stream '{there.name}': its query has ended. {drop}")
    if _keeps_state(before.plan) or _keeps_state(plan.query.plan):
        raise refused(
            f"Cannot replace stream '{there.name}': a query that joins keeps a state, which belongs"
            f" to one plan. {drop}"
        )
    if before.plan.inputs[0].topic != plan.query.plan.inputs[0].topic:
        raise refused(
            f"Cannot replace stream '{there.name}': its query reads topic"
            f" {before.plan.inputs[0].topic}, the new one {plan.query.plan.inputs[0].topic}. {drop}"
        )
    evolution.check_upgrade(there, plan.source)
    check_inserts(plan.source, catalog, refused)
    source = replace(
        plan.source,
        query_id=there.query_id,
        table_id=there.table_id,
        takes_inserts=there.takes_inserts,
    )
    query = replace(plan.query, query_id=before.query_id, revision=before.revision + 1)
    return source, query


def _keeps_state(plan: SparkPlan) -> bool:
    """Whether a stream's query keeps state. (GROUP BY makes tables.)"""
    return len(plan.inputs) > 1 or bool(plan.steps)


def _successor(
    plan: CreateTableAsPlan, there: Source, catalog: Catalog, refused: Refused
) -> tuple[Source, PersistentQuery]:
    # by topic, too: another source may be declared over it
    topics = {there.topic, there.public_topic}
    names = {source.name for source in catalog.sources.values() if source.topic in topics}
    readers = sorted(
        query.query_id
        for query in catalog.persistent_queries.values()
        if not names.isdisjoint(query.sources)
    )
    if readers:
        raise refused(
            f"Cannot replace table '{there.name}': [{', '.join(readers)}] read it, and would see"
            " its changes twice. Drop what they write first."
        )
    evolution.check_rebuild(there, plan.source)
    newest = catalog.successors.get(there.name, there)
    source = replace(
        plan.source,
        table_id=there.table_id,
        generation=newest.generation + 1,
        topic=f"{plan.query.query_id}-changelog",
        public_topic=there.public_topic or there.topic,
    )
    return source, plan.query


def check_inserts(source: Source, catalog: Catalog, refused: Refused) -> None:
    """A query of INSERT INTO writes the columns that its stream had: with others it would fail at
    its next start. `source`: as it is to be. Raises StatementError, built by `refused`."""
    there = catalog.sources[source.name]
    if (there.columns, there.wrap_single_value) == (source.columns, source.wrap_single_value):
        return
    writers = sorted(
        query.query_id
        for query in catalog.persistent_queries.values()
        if query.sink == source.name and query.query_id != there.query_id
    )
    if writers:
        raise refused(
            f"Cannot change the columns of {there.kind.lower()} '{there.name}':"
            f" [{', '.join(writers)}] write those that it has now. TERMINATE them first."
        )


def check_settled(query: PersistentQuery, catalog: Catalog, refused: Refused) -> None:
    """A new query that reads a table under replacement would follow the old generation, which ends
    when reads move. Raises StatementError, built by `refused`."""
    topics = {source.topic for source in query.plan.inputs}
    for name, successor in catalog.successors.items():
        if name in query.sources or not topics.isdisjoint(topics_of(catalog.sources[name])):
            raise refused(
                f"Table {name} is being replaced by generation {successor.generation}. Try again"
                f" when reads have moved (SHOW QUERIES), or TERMINATE {successor.query_id}."
            )
