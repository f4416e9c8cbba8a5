"""Statement → plan: `analyze`, the only entry point, and the table of handlers by statement.

A statement that Standpipe cannot execute is refused here by name, before anything changes.
Nothing inside `sql` imports this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, cast

from standpipe.errors import StatementError
from standpipe.model import Source
from standpipe.sql.context import Context
from standpipe.sql.ddl import alter, create, insert_values, named_types
from standpipe.sql.declarations import names
from standpipe.sql.declarations.checks import check_topic_name
from standpipe.sql.expressions import lambdas
from standpipe.sql.functions import registry
from standpipe.sql.lookup import plan as pull_plan
from standpipe.sql.lookup import push
from standpipe.sql.plans import (
    AssertTopicPlan,
    CreateTableAsPlan,
    DefinePlan,
    DescribeFunctionPlan,
    DescribePlan,
    ExplainAssignmentPlan,
    ExplainPlan,
    ExplainRoutePlan,
    InsertIntoPlan,
    PausePlan,
    Plan,
    PrintPlan,
    PullPlan,
    PushPlan,
    SetPropertyPlan,
    ShowLagPlan,
    ShowPlan,
    TerminatePlan,
    TransientPlan,
)
from standpipe.sql.spark import create_as
from standpipe.sql.spark import transient as transient_query
from standpipe.sql.syntax import ast_statements
from standpipe.sql.syntax.ast import Query, Statement
from standpipe.sql.syntax.ast_statements import ControlQuery, Describe, SetProperty, Show
from standpipe.sql.syntax.errors import located, nearest, refusal, unknown_name, unsupported

__all__ = ["Context", "analyze"]

Sources = Mapping[str, Source]
_SHOWN: Final = frozenset(
    {
        *("STREAMS", "TABLES", "QUERIES", "TOPICS"),
        *("FUNCTIONS", "PROPERTIES", "TYPES", "VARIABLES"),
    }
)


def analyze(statement: Statement, sources: Sources, context: Context) -> Plan:
    """The plan of a statement. Raises StatementError (or a subclass); its position is relative to
    `statement.text`."""
    handler = _HANDLERS.get(type(statement))
    try:
        if handler is None:
            raise unsupported(_NOT_YET[type(statement)], statement.at)
        return handler(named_types.resolved(statement, context.types), sources, context)
    except StatementError as error:
        raise located(error, statement) from None


def transient(
    statement: Statement, sources: Sources, context: Context, query_id: str
) -> TransientPlan:
    """The plan of a push query that needs Spark. Raises StatementError, also for a statement that
    is no push query."""
    try:
        if not isinstance(statement, Query) or statement.emit is None:
            raise refusal("It is no push query.", statement.at)
        resolved = named_types.resolved(statement, context.types)
        return _transient(resolved, sources, context, query_id)
    except StatementError as error:
        raise located(error, statement) from None


def _transient(query: Query, sources: Sources, context: Context, query_id: str) -> TransientPlan:
    plan = transient_query.transient(push.grouped(query), sources, context, query_id)
    push.pushed(plan, query.limit)  # refuses a LIMIT that is no number
    return plan


def _terminate(statement: ControlQuery, _sources: Sources, _context: Context) -> Plan:
    if statement.action != "TERMINATE":
        state = "PAUSED" if statement.action == "PAUSE" else "RUNNING"
        return PausePlan(query_id=statement.query_id, state=state)
    return TerminatePlan(query_id=statement.query_id)


_NO_CONNECTORS: Final = (
    "{} is not supported: Standpipe has no connectors. Run Kafka Connect beside it, and declare its"
    " topics as streams and tables."
)
_NO_REGISTRY: Final = "{} is not supported: ask the schema registry itself."


def _elsewhere(
    statement: ast_statements.Elsewhere, _sources: Sources, _context: Context
) -> NoReturn:
    text = _NO_REGISTRY if statement.what == "ASSERT SCHEMA" else _NO_CONNECTORS
    raise refusal(text.format(statement.what), statement.at)


def _show(statement: Show, _sources: Sources, _context: Context) -> Plan:
    what = statement.what.removeprefix("ALL ")
    if "CONNECTOR" in what:
        raise refusal(_NO_CONNECTORS.format(f"SHOW {what}"), statement.at)
    if what not in _SHOWN:
        raise unsupported(f"SHOW {what}", statement.at)
    return ShowPlan(what=cast("Any", what), extended=statement.extended)


def _show_lag(
    statement: ast_statements.ShowLag, sources: Sources, _context: Context
) -> ShowLagPlan:
    if statement.name is None:
        return ShowLagPlan()
    source = _found(statement.name, statement, sources)
    if source.kind == "STREAM":
        raise refusal(
            f"{source.name} is a stream: it is read from its topic and has no replicas.",
            statement.at,
        )
    if not source.is_materialized:
        raise refusal(
            f"{source.name} is a table that another program writes: it has no replicas. Tables of"
            " CREATE TABLE … AS SELECT and CREATE SOURCE TABLE have.",
            statement.at,
        )
    return ShowLagPlan(source=source)


def _found(name: str, statement: Statement, sources: Sources) -> Source:
    source = sources.get(name)
    if source is None:
        message = f"Could not find STREAM/TABLE '{name}' in the Metastore"
        raise unknown_name(message, statement.at, nearest(name, sources))
    return source


def _describe(statement: Describe, sources: Sources, _context: Context) -> Plan:
    source = _found(statement.name, statement, sources)
    return DescribePlan(source=source, extended=statement.extended)


def _set_property(statement: SetProperty, _sources: Sources, _context: Context) -> Plan:
    return SetPropertyPlan(name=statement.name, value=statement.value)


def _define(statement: ast_statements.Define, _sources: Sources, _context: Context) -> Plan:
    if statement.value is not None:
        names.check_name("variable", statement.name, statement.at)
    return DefinePlan(name=statement.name, value=statement.value)


def _query(
    statement: Query, sources: Sources, context: Context
) -> PullPlan | PushPlan | TransientPlan:
    if statement.emit is None:
        return pull_plan.pull(statement, sources, context)
    if push.needs_spark(statement):
        return _transient(statement, sources, context, push.EXAMPLE_ID)
    return push.push(statement, sources)


def _describe_all(
    statement: ast_statements.DescribeAll, _sources: Sources, _context: Context
) -> Plan:
    """DESCRIBE STREAMS is SHOW STREAMS EXTENDED (ksqlDB), and so with TABLES."""
    return ShowPlan(what=cast("Any", statement.what), extended=True)


def _describe_function(
    statement: ast_statements.DescribeFunction, _sources: Sources, _context: Context
) -> Plan:
    name = statement.name.upper()
    if not registry.variants(name) and name not in lambdas.NAMES:
        message = f"Can't find any functions with the name '{statement.name}'"
        raise unknown_name(message, statement.at, nearest(name, registry.names()))
    return DescribeFunctionPlan(name=name)


def _explain(statement: ast_statements.Explain, sources: Sources, context: Context) -> ExplainPlan:
    """EXPLAIN of a statement: the plan that it would get if it were sent now."""
    if isinstance(statement.subject, str):
        return ExplainPlan(query_id=statement.subject)
    subject = analyze(statement.subject, sources, context)
    kinds = (PullPlan, PushPlan, TransientPlan, CreateTableAsPlan, InsertIntoPlan)
    assert isinstance(subject, kinds), "by the grammar"
    return ExplainPlan(subject=subject)


#: ms that an ASSERT without TIMEOUT waits (ksqlDB's default)
_ASSERT_TIMEOUT_MS: Final = 1000
#: ms: the statement holds a connection, and asks Kafka, for as long
_ASSERT_TIMEOUT_MS_MAX: Final = 600_000


def _assert_topic(
    statement: ast_statements.AssertTopic, _sources: Sources, context: Context
) -> AssertTopicPlan:
    check_topic_name(statement.topic, context.rules, statement.at)
    wanted: dict[str, int | None] = {"PARTITIONS": None, "REPLICAS": None}
    for each in statement.properties:
        if each.name not in wanted:
            raise refusal(f"Cannot assert unknown topic property: {each.name}", each.at)
        if not str(each.value.value).isdecimal():
            raise refusal(f"{each.name} is a number, not {each.value.text}", each.at)
        wanted[each.name] = int(str(each.value.value))
    timeout_ms = statement.timeout_ms
    if timeout_ms is not None and timeout_ms > _ASSERT_TIMEOUT_MS_MAX:
        raise refusal(
            "ASSERT TOPIC waits for 10 minutes at most. Write a TIMEOUT of at most 600 SECONDS, and"
            " repeat the statement.",
            statement.at,
        )
    return AssertTopicPlan(
        topic=statement.topic,
        exists=statement.exists,
        partitions=wanted["PARTITIONS"],
        replicas=wanted["REPLICAS"],
        timeout_ms=_ASSERT_TIMEOUT_MS if timeout_ms is None else timeout_ms,
    )


def _print_topic(
    statement: ast_statements.PrintTopic, _sources: Sources, context: Context
) -> PrintPlan:
    return push.print_topic(statement, context.rules)


def _explain_route(
    statement: ast_statements.ExplainRoute, sources: Sources, context: Context
) -> ExplainRoutePlan:
    plan = pull_plan.pull(statement.query, sources, context)
    if plan.source.kind == "STREAM":
        raise refusal(
            f"{plan.source.name} is a stream: it is read from its topic and has no replicas.",
            statement.query.relation.at,
        )
    return ExplainRoutePlan(pull=plan)


def _explain_assignment(
    _statement: ast_statements.ExplainAssignment, _sources: Sources, _context: Context
) -> ExplainAssignmentPlan:
    return ExplainAssignmentPlan()


_HANDLERS: Final[dict[type, Callable[[Any, Sources, Context], Plan]]] = {
    ast_statements.CreateSource: create.create_source,
    ast_statements.CreateAs: create_as.create_as,
    ast_statements.InsertSelect: create_as.insert_select,
    ast_statements.DropSource: create.drop,
    ast_statements.InsertValues: insert_values.insert_values,
    ast_statements.CreateType: named_types.create_type,
    ast_statements.DropType: named_types.drop_type,
    ast_statements.AlterSource: alter.alter_source,
    ast_statements.ControlQuery: _terminate,
    ast_statements.Show: _show,
    ast_statements.ShowLag: _show_lag,
    ast_statements.Describe: _describe,
    ast_statements.SetProperty: _set_property,
    ast_statements.Define: _define,
    ast_statements.DescribeAll: _describe_all,
    ast_statements.DescribeFunction: _describe_function,
    ast_statements.Explain: _explain,
    ast_statements.AssertTopic: _assert_topic,
    ast_statements.Elsewhere: _elsewhere,
    ast_statements.ExplainRoute: _explain_route,
    ast_statements.ExplainAssignment: _explain_assignment,
    Query: _query,
    ast_statements.PrintTopic: _print_topic,
}
_NOT_YET: Final[dict[type, str]] = {
    ast_statements.AlterSystem: "ALTER SYSTEM",
}
