"""Turns an analyzed statement into the command to log, or refuses it.

`propose` checks a plan against a catalog that includes everything before the statement. It returns
the command, or a reply if there is nothing to do (IF NOT EXISTS), or raises StatementError. A
worker checks a whole request with it before it executes anything; the leader, whose verdict counts,
checks each statement again before logging it (`judge`). Texts are ksqlDB's (MetaStoreImpl,
DdlCommandExec, DropSourceFactory).

Not here: the grammar and the meaning of statements (`sql`), what a command changes
(`control.metadata.apply`), SHOW and DESCRIBE (`node.worker.statements`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from standpipe.control.ddl import direct_tables, drops, replace, source_topics, transients, types
from standpipe.control.ddl.limits import DEFAULT_LIMITS, StatementLimits
from standpipe.control.ddl.query_states import QueryStates
from standpipe.control.ddl.responses import StatementReply, warning
from standpipe.control.ddl.transients import PushRequest
from standpipe.control.metadata.catalog import Catalog, topics_of
from standpipe.control.metadata.commands import (
    Command,
    CreateSource,
    CreateTableAs,
    InsertInto,
    Receipt,
    ReplaceStreamAs,
    ReplaceTableAs,
)
from standpipe.control.metadata.feature_levels import TIME_BOUNDS
from standpipe.errors import KafkaUnavailable, StatementError
from standpipe.model import LogIndex, PersistentQuery, Source, TopicSpec
from standpipe.sql import analyzer
from standpipe.sql.ddl import evolution
from standpipe.sql.plans import (
    AlterSourcePlan,
    CreateSourcePlan,
    CreateTableAsPlan,
    CreateTypePlan,
    DropPlan,
    DropTypePlan,
    InsertIntoPlan,
    PausePlan,
    Plan,
    TerminatePlan,
    TransientPlan,
)
from standpipe.sql.schemas.registry import Schemas
from standpipe.sql.syntax import ast, parser


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Body of POST /execute: one statement with its properties. Names are ksqlDB's."""

    ksql: str
    streams_properties: dict[str, str | int | float | bool] = msgspec.field(
        name="streamsProperties", default_factory=dict[str, str | int | float | bool]
    )
    request_id: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    #: the sender's index of the log before it made the id (`control.metadata.requests`)
    known_index: LogIndex | None = None
    #: the statement is a push query that needs Spark; None: any other
    push: PushRequest | None = None


def warm_up() -> None:
    """Build the parser's tables (half a second of CPU) before the first statement needs them."""
    parser.parse("SHOW STREAMS;")


def judge(
    request: Request,
    catalog: Catalog,
    topics: Mapping[str, int],
    limits: StatementLimits = DEFAULT_LIMITS,
    *,
    schemas: Schemas | None = None,
) -> Command | StatementReply:
    """Text to command, at the leader: parse, analyze and propose against the newest catalog.

    `topics`: partition counts by topic. `schemas`: the schema registry; None: there is none.
    Raises StatementError and its kinds, SchemaRegistryUnavailable.
    """
    statements = parser.parse(request.ksql)
    if len(statements) != 1:
        raise StatementError(
            f"Expected exactly one KSQL statement; found {len(statements)} instead",
            statement=request.ksql,
        )
    properties = {name: str(value) for name, value in request.streams_properties.items()}
    statement = statements[0]
    plan = analyzed(
        statement, catalog, properties, topics, limits, push=request.push, schemas=schemas
    )
    request_id = request.request_id
    return propose(plan, catalog, statement=statement.text, request_id=request_id, limits=limits)


def analyzed(
    statement: ast.Statement,
    catalog: Catalog,
    properties: Mapping[str, str],
    topics: Mapping[str, int],
    limits: StatementLimits = DEFAULT_LIMITS,
    *,
    push: PushRequest | None = None,
    schemas: Schemas | None = None,
) -> Plan:
    """The plan of a statement, even while Kafka is unavailable if the statement is complete.

    A statement with PARTITIONS, or one whose topic Standpipe creates, does not need Kafka's answer:
    its topic follows later. Raises KafkaUnavailable for others, StatementError as `analyze` does.
    """

    def under(known: Mapping[str, int]) -> Plan:
        context = analyzer.Context(
            properties=properties,
            topics=known,
            next_index=catalog.index + 1,
            types=catalog.types,
            rules=limits.rules,
            replicas_max=limits.replicas_max,
            schemas=schemas,
        )
        if push is not None:
            return push.plan(statement, catalog.sources, context)
        return analyzer.analyze(statement, catalog.sources, context)

    try:
        return under(topics)
    except KafkaUnavailable as unavailable:
        try:
            return under({})
        except StatementError:
            raise unavailable from None


def propose(
    plan: Plan,
    catalog: Catalog,
    *,
    statement: str = "",
    request_id: str = "",
    limits: StatementLimits = DEFAULT_LIMITS,
) -> Command | StatementReply:
    """The command for a plan. Raises StatementError if the catalog forbids it, or has no room."""
    proposed = _proposed(plan, catalog, statement, request_id)
    if isinstance(proposed, StatementReply):
        return proposed
    if why := limits.quotas.excess(proposed, catalog):
        raise StatementError(why, statement=statement)
    return proposed


def _proposed(
    plan: Plan, catalog: Catalog, statement: str, request_id: str
) -> Command | StatementReply:
    proposal = _Proposal(catalog, statement, request_id)
    match plan:
        case CreateSourcePlan():
            return proposal.create_source(plan)
        case CreateTableAsPlan():
            return proposal.create_table_as(plan)
        case TransientPlan():
            replace.check_settled(plan.query, catalog, proposal.refused)
            return transients.begin(plan, request_id, proposal.created(plan.source, plan.query))
        case InsertIntoPlan():
            return proposal.insert_into(plan)
        case DropPlan():
            return drops.propose(plan, catalog, statement, request_id)
        case TerminatePlan():
            return QueryStates(catalog, statement, request_id).terminate(plan)
        case PausePlan():
            return QueryStates(catalog, statement, request_id).pause(plan)
        case CreateTypePlan():
            return types.create(plan, catalog, statement, request_id)
        case DropTypePlan():
            return types.drop(plan, catalog, statement, request_id)
        case AlterSourcePlan():
            return proposal.alter_source(plan)
        case _:
            raise StatementError(
                "The statement changes no stream, table or query, so it is not logged.",
                statement=statement,
            )


@dataclass(frozen=True)
class _Proposal:
    """One statement against one catalog."""

    catalog: Catalog
    statement: str
    request_id: str

    def create_source(self, plan: CreateSourcePlan) -> CreateSource | StatementReply:
        source = plan.source
        there = self.catalog.sources.get(source.name)
        if there is not None and plan.if_not_exists:
            return self._exists_already(source, there)
        if there is not None and not plan.or_replace:
            raise self.refused(_taken(source, there))
        direct_tables.check(source, self.catalog, self.refused)
        if there is not None:
            self._check_replaceable(source, there)
            source = msgspec.structs.replace(source, takes_inserts=there.takes_inserts)
        source_topics.check_stays(source, self.catalog, self.refused, is_made=plan.create_topic)
        return CreateSource(
            source=source,
            replace=there is not None,
            topic=source_topics.made(source) if plan.create_topic else None,
            request_id=self.request_id,
            receipt=self._receipt(source, "create", f"{source.kind.capitalize()} created"),
        )

    def create_table_as(
        self, plan: CreateTableAsPlan
    ) -> CreateTableAs | ReplaceStreamAs | ReplaceTableAs | StatementReply:
        source, query = plan.source, plan.query
        there = self.catalog.sources.get(source.name)
        if there is not None and plan.if_not_exists:
            return self._exists_already(source, there)
        if there is not None and (not plan.or_replace or there.kind != source.kind):
            raise self.refused(_taken(source, there))
        self._check_time_bounds(source)
        if source.changelog:
            source_topics.check_stays(source, self.catalog, self.refused, is_made=plan.create_topic)
        if there is not None:
            return replace.propose(
                plan,
                there,
                self.catalog,
                request_id=self.request_id,
                receipt=lambda query: self.created(source, query),
                refused=self.refused,
            )
        self._check_not_written(source.stored_form())
        replace.check_settled(query, self.catalog, self.refused)
        topic = TopicSpec(
            name=source.stored_form().topic,
            partitions=source.partitions,
            # a stream's records are events: its topic is not compacted
            kind="TABLE" if source.kind == "TABLE" else "SOURCE",
            retention_ms=None if source.changelog else source.retention_ms,
        )
        public = source.public_topic
        return CreateTableAs(
            source=source,
            query=query,
            topic=topic,
            source_topic=self._read_topic(plan),
            public_topic=UNSET if public is None else msgspec.structs.replace(topic, name=public),
            request_id=self.request_id,
            receipt=self.created(source, query),
        )

    def _read_topic(self, plan: CreateTableAsPlan) -> TopicSpec | UnsetType:
        """The topic that is made for the query to read, beside the one that it writes."""
        if not plan.create_topic:
            return UNSET
        source_topics.check_level(plan.source, self.catalog, self.refused)
        return source_topics.made(plan.source)

    def _check_time_bounds(self, source: Source) -> None:
        """`feature_levels.at_level` would refuse them, too, and not say what in the statement."""
        level = self.catalog.feature_level
        if source.time_bounds and level < TIME_BOUNDS:
            raise self.refused(
                "ACCEPTABLE_REPLICA_LAG_MS and ACCEPTABLE_SOURCE_LAG_MS need feature level"
                f" {TIME_BOUNDS}, this cluster is at {level}: `standpipe quorum upgrade`, once"
                " every node runs the newer release."
            )

    def created(self, source: Source, query: PersistentQuery) -> Receipt:
        """The answer to a statement that starts a query."""
        message = f"Created query with ID {query.query_id}"
        return self._receipt(source, "create", message, query.query_id)

    def insert_into(self, plan: InsertIntoPlan) -> InsertInto:
        query = plan.query
        if query.query_id in self.catalog.queries:
            raise self.refused(f"Query ID '{query.query_id}' already exists.")
        if (target := self.catalog.sources.get(query.sink)) is not None:
            direct_tables.check_not_followed(target.topic, self.catalog, self.refused)
        replace.check_settled(query, self.catalog, self.refused)
        return InsertInto(
            query=query,
            request_id=self.request_id,
            receipt=Receipt(
                statement=self.statement,
                command_id=f"stream/{query.sink}/insert",
                message=f"Created query with ID {query.query_id}",
                query_id=query.query_id,
            ),
        )

    def alter_source(self, plan: AlterSourcePlan) -> CreateSource:
        source = plan.source
        replace.check_inserts(source, self.catalog, self.refused)
        message = f"{source.kind.capitalize()} altered"
        return CreateSource(
            source=source,
            replace=True,
            request_id=self.request_id,
            receipt=self._receipt(source, "alter", message),
        )

    def _exists_already(self, source: Source, there: Source) -> StatementReply:
        return warning(
            self.statement,
            f"Cannot add {source.kind.lower()} `{source.name}`: "
            f"A {there.kind.lower()} with the same name already exists.",
        )

    def _check_replaceable(self, source: Source, there: Source) -> None:
        if there.kind != source.kind:
            raise self.refused(_taken(source, there))
        if there.query_id is not None:
            raise self.refused(
                f"Cannot replace {there.kind.lower()} '{there.name}': "
                f"query {there.query_id} writes it. Replace it with CREATE OR REPLACE … AS SELECT."
            )
        evolution.check_upgrade(there, source)
        replace.check_inserts(source, self.catalog, self.refused)

    def _check_not_written(self, source: Source) -> None:
        """Two writers of one table topic would overwrite each other's keys."""
        topic = source.public_topic or source.topic  # one of its own has a name of its own
        direct_tables.check_not_followed(topic, self.catalog, self.refused)
        for other in self.catalog.generations:
            if other.query_id is not None and topic in topics_of(other):
                raise self.refused(
                    f"Topic {topic} is already written by query {other.query_id} "
                    f"for {other.kind.lower()} {other.name}."
                )

    def _receipt(
        self, source: Source, action: str, message: str, query_id: str | None = None
    ) -> Receipt:
        return Receipt(
            statement=self.statement or source.statement,
            command_id=f"{source.kind.lower()}/{source.name}/{action}",
            message=message,
            query_id=query_id,
        )

    def refused(self, message: str) -> StatementError:
        """The error with the statement's text."""
        return StatementError(message, statement=self.statement)


def _taken(source: Source, there: Source) -> str:
    return (
        f"Cannot add {source.kind.lower()} '{source.name}': "
        f"A {there.kind.lower()} with the same name already exists"
    )
