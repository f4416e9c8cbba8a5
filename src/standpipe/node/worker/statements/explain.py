"""EXPLAIN in ksqlDB's shape: a running query, or what a statement would be. Pure.

Source: ksqlDB's rest model (QueryDescriptionEntity). Its topology here is what Spark is given.
"""

from __future__ import annotations

from standpipe.model import PersistentQuery, Source
from standpipe.node.worker.statements.describe import field_of, shown_columns
from standpipe.node.worker.statements.judge import unknown_query
from standpipe.node.worker.statements.show import Entity, Scene, entity, query_type
from standpipe.sql.plans import (
    CreateTableAsPlan,
    ExplainPlan,
    PullPlan,
    PushPlan,
    TransientPlan,
)


def explained(scene: Scene, plan: ExplainPlan, text: str) -> Entity:
    """The entity of EXPLAIN. Raises StatementError for an unknown query id."""
    if plan.query_id is not None:
        return _running(scene, plan.query_id, text)
    subject = plan.subject
    if isinstance(subject, (PullPlan, PushPlan)):
        names = zip(subject.column_names, subject.column_types, strict=True)
        fields: list[dict[str, object]] = [
            {"name": name, "schema": {"type": of}} for name, of in names
        ]
        kind = "PULL" if isinstance(subject, PullPlan) else "PUSH"
        return _described(text, fields, sources=[subject.source.name], kind=kind)
    assert subject is not None
    if isinstance(subject, TransientPlan):
        return _query(subject.query, subject.source, text, state="", kind="PUSH")
    sink = subject.source if isinstance(subject, CreateTableAsPlan) else None
    return _query(subject.query, sink, text, state="")


def _running(scene: Scene, query_id: str, text: str) -> Entity:
    query = next((q for q in scene.snapshot.queries if q.query_id == query_id), None)
    if query is None:
        raise unknown_query(query_id, (q.query_id for q in scene.snapshot.queries))
    known_sinks = (*scene.snapshot.sources, *scene.snapshot.transients)
    sink = next((s for s in known_sinks if s.name == query.sink), None)
    kind = query_type(query)
    return _query(query, sink, text, state=scene.query_state(query), kind=kind)


def _query(
    query: PersistentQuery,
    sink: Source | None,
    text: str,
    *,
    state: str,
    kind: str = "PERSISTENT",
) -> Entity:
    fields = [] if sink is None else [field_of(each, sink) for each in shown_columns(sink)]
    plan = query.plan
    parts = [*(step.sql for step in plan.steps), plan.sql, plan.batch_sql or ""]
    return _described(
        text,
        fields,
        id=query.query_id,
        statement=query.statement,
        sources=list(query.sources),
        sinks=[] if kind == "PUSH" else [query.sink],
        kind=kind,
        topology=";\n".join(part for part in parts if part),
        state=state,
        windowType=sink.window.kind if sink is not None and sink.window else None,
    )


def _described(text: str, fields: list[dict[str, object]], **known: object) -> Entity:
    description: dict[str, object] = {
        "id": known.get("id", ""),
        "statementText": known.get("statement", text),
        "windowType": known.get("windowType"),
        "fields": fields,
        "sources": known["sources"],
        "sinks": known.get("sinks", []),
        "topology": known.get("topology", ""),
        "executionPlan": known.get("topology", ""),
        "overriddenProperties": {},
        "queryType": known.get("kind", "PERSISTENT"),
        "state": known.get("state") or None,
    }
    return entity("queryDescription", text, queryDescription=description)
