"""The statements of a case through parser, analyser, proposal and catalog, as control runs them.

Each case has a catalog of its own, so that hundreds can be open at once; the names of its topics,
queries and tables get a prefix on the way out (`physical`), never in its statements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from tests.conformance.cases import Case

from standpipe.control.ddl import propose
from standpipe.control.ddl.responses import StatementReply
from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import EMPTY, Catalog
from standpipe.errors import StandpipeError
from standpipe.model import LogIndex, PersistentQuery, Source
from standpipe.node.worker.request.drawn import statement_values
from standpipe.node.worker.statements.insert_record import record_of
from standpipe.pipeline.run import reconcile
from standpipe.sql.expressions.statement_values import in_text, in_tree
from standpipe.sql.plans import InsertValuesPlan, SetPropertyPlan
from standpipe.sql.syntax import ast, variables
from standpipe.sql.syntax.ast_statements import (
    AssertTopic,
    CreateAs,
    CreateSource,
    Define,
    InsertValues,
)

NOT_SUPPORTED = "is not supported yet."


@dataclass(frozen=True)
class Inserted:
    topic: str
    key: bytes | None
    value: bytes | None
    at_ms: int | None


class Topics(Mapping[str, int]):
    """Every topic exists, unless a statement says how many partitions it wants."""

    def __init__(self, named: Mapping[str, int], usual: int, absent: set[str]) -> None:
        self._named, self._usual, self._absent = named, usual, absent

    def __getitem__(self, name: str) -> int:
        if name in self._absent:
            raise KeyError(name)
        return self._named.get(name, self._usual)

    def __iter__(self) -> Iterator[str]:
        return iter(self._named)

    def __len__(self) -> int:
        return len(self._named)


def _partitions_asked(statement: ast.Statement) -> dict[str, int]:
    """A topic that a statement makes has the partitions that it asks for."""
    if not isinstance(statement, CreateSource):
        return {}
    given = {each.name: each.value.value for each in statement.properties}
    topic, count = given.get("KAFKA_TOPIC"), given.get("PARTITIONS")
    return {str(topic): count} if isinstance(count, int) and topic is not None else {}


def _topic_made(statement: ast.Statement) -> set[str]:
    """The topic of a CREATE … AS: it is not there before."""
    if not isinstance(statement, CreateAs):
        return set()
    given = {each.name: each.value.value for each in statement.properties}
    return {str(given.get("KAFKA_TOPIC", statement.creation.name))}


@dataclass
class Session:
    """A case's catalog while its statements are carried out."""

    case: Case
    prefix: str
    catalog: Catalog = field(default_factory=lambda: EMPTY)
    inserted: list[Inserted] = field(default_factory=list)
    #: (place among the statements, text) of SELECTs
    selects: list[tuple[int, str]] = field(default_factory=list)
    #: sources at any time, by topic: what they are written and read as
    by_topic: dict[str, Source] = field(default_factory=dict)
    queries: dict[str, tuple[PersistentQuery, Source]] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    failed_at: int | None = None
    failure: StandpipeError | None = None

    def run(self) -> None:
        properties, line = dict(self.case.properties), 0
        for number, text in enumerate(self.case.statements):
            # upstream sends the statements of a case as one text: lines count over all of it
            text, line = (
                ("" if self.case.is_pull else "\n" * line) + text,
                line + text.count("\n") + 1,
            )
            try:
                for statement in variables.parse(text, self.variables):
                    self._one(statement, number, properties)
            except StandpipeError as error:
                self.failed_at, self.failure = number, error
                return

    def _one(self, statement: ast.Statement, number: int, properties: dict[str, str]) -> None:
        values = statement_values()  # of RANDOM(), UNIX_TIMESTAMP() …, as a worker has them
        if isinstance(statement, ast.Query):
            self.selects.append((number, in_text(statement.text, values)))
            return
        if isinstance(statement, InsertValues):
            statement = in_tree(statement, values)
        asked = _partitions_asked(statement)
        known = {source.topic: source.partitions for source in self.catalog.sources.values()}
        own = _topic_made(statement) - set(known) - set(self.case.partitions)
        topics = Topics({**self.case.partitions, **asked, **known}, self.case.partitions_usual, own)
        plan = propose.analyzed(statement, self.catalog, properties, topics)
        if isinstance(statement, Define):
            variables.define(self.variables, statement)
        elif isinstance(plan, SetPropertyPlan):
            properties.pop(plan.name, None)
            if plan.value is not None:
                properties[plan.name] = plan.value
        elif isinstance(plan, InsertValuesPlan):
            key, value = record_of(plan)
            self.inserted.append(Inserted(plan.source.topic, key, value, plan.rowtime_ms))
        elif not isinstance(statement, AssertTopic):
            command = propose.propose(plan, self.catalog, statement=statement.text)
            if not isinstance(command, StatementReply):
                index = LogIndex(self.catalog.index + 1)
                self.catalog = apply(self.catalog, index, command)
                self._remember()

    def _remember(self) -> None:
        for source in self.catalog.sources.values():
            self.by_topic.setdefault(source.topic, source)
        for query in self.catalog.queries.values():
            self.queries.setdefault(query.query_id, (query, self.catalog.sources[query.sink]))

    # ------------------------------------------------------------------------------ prefixed

    def topic(self, name: str) -> str:
        return f"{self.prefix}{name}"

    def physical(self, source: Source) -> Source:
        changes: dict[str, Any] = {"topic": self.topic(source.topic)}
        if source.changelog:
            changes["changelog"] = self.topic(source.changelog)
        if source.table_id:
            changes["table_id"] = f"{self.prefix}{source.table_id}"
        if source.query_id:
            changes["query_id"] = f"{self.prefix}{source.query_id}"
        return msgspec.structs.replace(source, **changes)

    def physical_query(self, query: PersistentQuery) -> PersistentQuery:
        inputs = tuple(
            msgspec.structs.replace(each, topic=self.topic(each.topic))
            for each in query.plan.inputs
        )
        plan = msgspec.structs.replace(query.plan, inputs=inputs)
        name = f"{self.prefix}{query.query_id}"
        return msgspec.structs.replace(query, query_id=name, plan=plan)

    def writers(self) -> dict[str, str]:
        """The queries that write topics alone, by topic: what `pipeline.run.reconcile` finds.

        Where a case puts records of its own into a query's topic, they stand for the query's: its
        readers must see what no query has committed.
        """
        strangers = {record["topic"] for record in self.case.data["inputs"]}
        return {
            self.topic(topic): f"{self.prefix}{query_id}"
            for query in reconcile.every_query(self.catalog)
            for topic, query_id in query.writers.items()
            if topic not in strangers
        }

    def wanted_topics(self) -> dict[str, int]:
        """Topics that the case needs in Kafka, without the prefix."""
        usual = self.case.partitions_usual
        inputs = (record["topic"] for record in self.case.data["inputs"])
        wanted = {name: self.case.partitions.get(name, usual) for name in inputs}
        for source in self.by_topic.values():
            wanted |= dict.fromkeys((source.topic, source.stored_form().topic), source.partitions)
        return wanted
