"""Which statements would be accepted one after another. Nothing is carried out here.

A statement is judged against the catalog that those before it would make, with what SET and DEFINE
left for it. `execute.py` judges a request with it, `dry_run.py` the statements of a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from standpipe.config import keys
from standpipe.control.ddl.limits import DEFAULT_LIMITS, StatementLimits
from standpipe.control.ddl.propose import analyzed, propose
from standpipe.control.ddl.responses import StatementReply
from standpipe.control.metadata import feature_levels
from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.commands import Command
from standpipe.errors import QueryOnStatementEndpoint, StatementError
from standpipe.model import LogIndex
from standpipe.node.topic_partitions import KafkaTopics, TopicPartitions
from standpipe.node.worker.request.body import asked_bounds, check_properties
from standpipe.node.worker.statements.insert_record import record_of
from standpipe.node.worker.statements.read_index import LINEARIZABLE, is_linearizable
from standpipe.sql.plans import (
    LOGGED,
    DefinePlan,
    ExplainPlan,
    ExplainRoutePlan,
    InsertValuesPlan,
    Plan,
    SetPropertyPlan,
)
from standpipe.sql.schemas.registry import Schemas
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.ast_statements import PrintTopic, SetProperty

QUERY_HINT: Final = (
    "The following statement types should be issued to the websocket endpoint '/query':\n"
    "\t* PRINT\n\t* SELECT"
)


@dataclass(frozen=True)
class RequestSession:
    """What SET and DEFINE leave for the statements after them, within one request."""

    properties: Mapping[str, str]
    variables: Mapping[str, str]

    def after(self, plan: Plan) -> RequestSession:
        """The session once the statement is carried out."""
        match plan:
            case SetPropertyPlan(name=name, value=value):
                return replace(self, properties=_with(self.properties, name, value))
            case DefinePlan(name=name, value=value):
                return replace(self, variables=_with(self.variables, name.upper(), value))
            case _:
                return self


@dataclass(frozen=True)
class JudgedStatement:
    """A statement that would be accepted after those before it, and what it means there."""

    text: str
    plan: Plan
    session: RequestSession  # as the statements before it leave it


def judge_all(
    statements: Sequence[ast.Statement],
    catalog: Catalog,
    session: RequestSession,
    kafka: KafkaTopics,
    limits: StatementLimits = DEFAULT_LIMITS,
    *,
    schemas: Schemas | None = None,
) -> list[JudgedStatement]:
    """Judge each statement against the catalog that those before it would make. Blocks.

    Raises what the leader would raise for the first that it would refuse, BadRequest as `judge`
    does, and StatementError for an EXPLAIN of a query that would not be there.
    """
    judged: list[JudgedStatement] = []
    for statement in statements:
        if isinstance(statement, (ast.Query, PrintTopic)):
            raise QueryOnStatementEndpoint(QUERY_HINT, statement=statement.text)
        known = {source.topic: source.partitions for source in catalog.sources.values()}
        topics = TopicPartitions(kafka, known)
        one = judge(statement, catalog, session, topics, limits, schemas=schemas)
        if isinstance(one.plan, ExplainPlan) and one.plan.query_id not in (None, *catalog.queries):
            raise unknown_query(one.plan.query_id or "", catalog.queries, one.text)
        judged.append(one)
        session = session.after(one.plan)
        catalog = after(one, catalog, limits)
    return judged


def judge(
    statement: ast.Statement,
    catalog: Catalog,
    session: RequestSession,
    topics: Mapping[str, int],
    limits: StatementLimits = DEFAULT_LIMITS,
    *,
    schemas: Schemas | None = None,
) -> JudgedStatement:
    """What a statement means. Raises StatementError, and BadRequest for a property that nothing
    reads or that has no such value, and for a row of INSERT … VALUES that its format cannot hold.

    Nothing that is known before may be left for when it is carried out: others are in force then.
    """
    plan = analyzed(statement, catalog, session.properties, topics, limits, schemas=schemas)
    match plan:
        case InsertValuesPlan():
            record_of(plan, schemas, registers=False)
        case SetPropertyPlan(name=name, value=value):
            check_properties({name: value})
            is_linearizable(session.after(plan).properties)
        case ExplainRoutePlan():
            asked_bounds(session.properties)
        case _:
            pass
    return JudgedStatement(statement.text, plan, session)


def sets_linearizable(statements: Sequence[ast.Statement]) -> bool:
    """Whether a SET among them asks for the newest catalog, against which those after it are to be
    judged."""
    return any(
        isinstance(each, SetProperty)
        and each.name == keys.CONSISTENCY.name
        and (each.value or "").lower() == LINEARIZABLE
        for each in statements
    )


def unknown_query(query_id: str, known: Iterable[str], statement: str = "") -> StatementError:
    """The error for a query id that no query has. `known`: the ids that there are."""
    names = ", ".join(known)
    return StatementError(
        f"Query with id:{query_id} does not exist, use SHOW QUERIES to view the full set of"
        " queries.",
        statement=statement,
        hint=f"Known queries: {names}." if names else "",
    )


def after(judged: JudgedStatement, catalog: Catalog, limits: StatementLimits) -> Catalog:
    """The catalog once the statement is carried out. Raises what the leader would raise."""
    if not isinstance(judged.plan, LOGGED):
        return catalog
    proposed = propose(judged.plan, catalog, statement=judged.text, limits=limits)
    return catalog if isinstance(proposed, StatementReply) else _applied(catalog, proposed)


def _applied(catalog: Catalog, proposed: Command) -> Catalog:
    command = feature_levels.at_level(proposed, catalog.feature_level)
    return apply(catalog, LogIndex(catalog.index + 1), command)


def _with(texts: Mapping[str, str], name: str, value: str | None) -> Mapping[str, str]:
    others = {other: text for other, text in texts.items() if other != name}
    return others if value is None else {**others, name: value}
