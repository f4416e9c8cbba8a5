"""Statement → plan: `analyze`, the one entrance; a table of who does which statement.

What Standpipe cannot do yet is refused here by name, so that nothing is half done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from standpipe.errors import StatementError
from standpipe.model import Source
from standpipe.sql import (
    alter,
    ddl,
    functions,
    inserts,
    named_types,
    pull_plan,
    push_plan,
    query,
    statements,
)
from standpipe.sql.ast import Query, Statement
from standpipe.sql.context import Context
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
    PullPlan,
    PushPlan,
    SetPropertyPlan,
    ShowPlan,
    TerminatePlan,
)
from standpipe.sql.refusals import located, nearest, refusal, unknown_name, unsupported
from standpipe.sql.statements import ControlQuery, Describe, SetProperty, Show

__all__ = ["Context", "analyze"]

Sources = Mapping[str, Source]
_SHOWN: Final = frozenset(
    {
        *("STREAMS", "TABLES", "QUERIES", "TOPICS"),
        *("FUNCTIONS", "PROPERTIES", "TYPES", "VARIABLES"),
    }
)


def analyze(statement: Statement, sources: Sources, context: Context) -> Plan:
    """What the statement means. Raises StatementError (or a kind of it), its position counted in
    `statement.text`."""
    handler = _HANDLERS.get(type(statement))
    try:
        if handler is None:
            raise unsupported(_NOT_YET[type(statement)], statement.at)
        return handler(named_types.resolved(statement, context.types), sources, context)
    except StatementError as error:
        raise located(error, statement) from None


def _terminate(statement: ControlQuery, _sources: Sources, _context: Context) -> Plan:
    if statement.action != "TERMINATE":
        state = "PAUSED" if statement.action == "PAUSE" else "RUNNING"
        return PausePlan(query_id=statement.query_id, state=state)
    return TerminatePlan(query_id=statement.query_id)


def _show(statement: Show, _sources: Sources, _context: Context) -> Plan:
    what = statement.what.removeprefix("ALL ")
    if what not in _SHOWN:
        raise unsupported(f"SHOW {what}", statement.at)
    return ShowPlan(what=cast("Any", what), extended=statement.extended)


def _describe(statement: Describe, sources: Sources, _context: Context) -> Plan:
    source = sources.get(statement.name)
    if source is None:
        message = f"Could not find STREAM/TABLE '{statement.name}' in the Metastore"
        raise unknown_name(message, statement.at, nearest(statement.name, sources))
    return DescribePlan(source=source, extended=statement.extended)


def _set_property(statement: SetProperty, _sources: Sources, _context: Context) -> Plan:
    return SetPropertyPlan(name=statement.name, value=statement.value)


def _define(statement: statements.Define, _sources: Sources, _context: Context) -> Plan:
    return DefinePlan(name=statement.name, value=statement.value)


def _query(statement: Query, sources: Sources, context: Context) -> PullPlan | PushPlan:
    if statement.emit is None:
        return pull_plan.pull(statement, sources, context)
    return push_plan.push(statement, sources)


def _describe_all(statement: statements.DescribeAll, _sources: Sources, _context: Context) -> Plan:
    """DESCRIBE STREAMS is SHOW STREAMS EXTENDED (ksqlDB)."""
    return ShowPlan(what=cast("Any", statement.what), extended=True)


def _describe_function(
    statement: statements.DescribeFunction, _sources: Sources, _context: Context
) -> Plan:
    name = statement.name.upper()
    if not functions.variants(name):
        message = f"Can't find any functions with the name '{statement.name}'"
        raise unknown_name(message, statement.at, nearest(name, functions.names()))
    return DescribeFunctionPlan(name=name)


def _explain(statement: statements.Explain, sources: Sources, context: Context) -> ExplainPlan:
    """Of a statement: what it would be, were it sent now."""
    if isinstance(statement.subject, str):
        return ExplainPlan(query_id=statement.subject)
    subject = analyze(statement.subject, sources, context)
    kinds = (PullPlan, PushPlan, CreateTableAsPlan, InsertIntoPlan)
    assert isinstance(subject, kinds), "by the grammar"
    return ExplainPlan(subject=subject)


#: ms that an ASSERT without TIMEOUT waits (ksqlDB's default)
_ASSERT_TIMEOUT_MS: Final = 1000


def _assert_topic(
    statement: statements.AssertTopic, _sources: Sources, _context: Context
) -> AssertTopicPlan:
    wanted: dict[str, int | None] = {"PARTITIONS": None, "REPLICAS": None}
    for each in statement.properties:
        if each.name not in wanted:
            raise refusal(f"Cannot assert unknown topic property: {each.name}", each.at)
        if not str(each.value.value).isdecimal():
            raise refusal(f"{each.name} is a number, not {each.value.text}", each.at)
        wanted[each.name] = int(str(each.value.value))
    timeout_ms = statement.timeout_ms
    return AssertTopicPlan(
        topic=statement.topic,
        exists=statement.exists,
        partitions=wanted["PARTITIONS"],
        replicas=wanted["REPLICAS"],
        timeout_ms=_ASSERT_TIMEOUT_MS if timeout_ms is None else timeout_ms,
    )


def _explain_route(
    statement: statements.ExplainRoute, sources: Sources, context: Context
) -> ExplainRoutePlan:
    plan = pull_plan.pull(statement.query, sources, context)
    if plan.source.kind == "STREAM":
        raise refusal(
            f"{plan.source.name} is a stream: it is read from its topic and has no replicas.",
            statement.query.relation.at,
        )
    return ExplainRoutePlan(pull=plan)


def _explain_assignment(
    _statement: statements.ExplainAssignment, _sources: Sources, _context: Context
) -> ExplainAssignmentPlan:
    return ExplainAssignmentPlan()


_HANDLERS: Final[dict[type, Callable[[Any, Sources, Context], Plan]]] = {
    statements.CreateSource: ddl.create_source,
    statements.CreateAs: query.create_as,
    statements.InsertSelect: query.insert_select,
    statements.DropSource: lambda statement, sources, _: ddl.drop(statement, sources),
    statements.InsertValues: lambda statement, sources, _: inserts.insert_values(
        statement, sources
    ),
    statements.CreateType: named_types.create_type,
    statements.DropType: named_types.drop_type,
    statements.AlterSource: alter.alter_source,
    statements.ControlQuery: _terminate,
    statements.Show: _show,
    statements.Describe: _describe,
    statements.SetProperty: _set_property,
    statements.Define: _define,
    statements.DescribeAll: _describe_all,
    statements.DescribeFunction: _describe_function,
    statements.Explain: _explain,
    statements.AssertTopic: _assert_topic,
    statements.ExplainRoute: _explain_route,
    statements.ExplainAssignment: _explain_assignment,
    Query: _query,
    statements.PrintTopic: lambda statement, _sources, _context: push_plan.print_topic(statement),
}
_NOT_YET: Final[dict[type, str]] = {
    statements.AlterSystem: "ALTER SYSTEM",
}
