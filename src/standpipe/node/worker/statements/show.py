"""Entities of SHOW and LIST in ksqlDB's shapes, from what this node knows. Pure.

Each is `{"@type": …, "statementText": …, <content>, "warnings": []}`. Ours is under `standpipe`.
Source: ksqlDB's REST API and its rest model (StreamsList, TablesList, Queries, KafkaTopicsList,
FunctionNameList, PropertiesList).

Not here: which statement asks for what (`node.worker.statements.execute`), DESCRIBE
(`node.worker.statements.describe`), the topics of Kafka (passed in).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from standpipe.config.registry import (
    KEYS,
    Config,
    ConfigKey,
)
from standpipe.control.ddl.responses import warning
from standpipe.control.metadata.isolation import isolation_of
from standpipe.model import (
    Offset,
    PersistentQuery,
    Placement,
    QueryStatus,
    ReplicaId,
    ReplicaStatus,
    Snapshot,
    Source,
)
from standpipe.sql.declarations.published import public_form
from standpipe.sql.expressions import lambdas
from standpipe.sql.functions import registry
from standpipe.sql.plans import DefinePlan
from standpipe.sql.types.types import SqlType, parse_type

Entity = dict[str, object]
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

#: Kafka topics that SHOW TOPICS leaves out (ksqlDB: SHOW ALL TOPICS has them).
_INTERNAL_TOPIC_PREFIXES = ("__", "_confluent")


@dataclass(frozen=True, kw_only=True)
class AnswerTime:
    """The two clocks at the moment of an answer, in ms."""

    boot_ms: int
    unix_ms: int


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What this node knows at the moment of an answer: the input of every entity."""

    snapshot: Snapshot
    settings: Config
    instant: AnswerTime
    #: `(table id, generation, partition)` -> status page of this node's replicas
    replicas: Mapping[ReplicaId, ReplicaStatus | None] = field(
        default_factory=dict[ReplicaId, ReplicaStatus | None]
    )
    #: as `replicas` -> the largest committed end that others reported
    reported_ends: Mapping[ReplicaId, Offset] = field(default_factory=dict[ReplicaId, Offset])

    def query_state(self, query: PersistentQuery) -> str:
        """State to show: what a pipeline reports, in ksqlDB's words; UNRESPONSIVE if none does."""
        if query.state == "PAUSED":
            return "PAUSED"
        status = self.query_status(query.query_id)
        if status is None:
            return "UNRESPONSIVE"
        words = {"STARTING": "RUNNING", "RETRYING": "RUNNING", "FAILED": "ERROR"}
        return words.get(status.state, status.state)

    def query_status(self, query_id: str) -> QueryStatus | None:
        """The newest report of a query; None: no pipeline reported it."""
        return self._statuses.get(query_id)

    def placements_of(self, source: Source) -> Sequence[Placement]:
        """Of each partition, in the assignment's order."""
        return self._placements.get((source.table_id, source.generation), ())

    def writers_of(self, source: Source) -> Sequence[PersistentQuery]:
        """The queries that write a source."""
        return self._writers.get(source.query_id or "", ())

    def readers_of(self, source: Source) -> Sequence[PersistentQuery]:
        """The persistent queries that read a source."""
        return self._readers.get(source.name, ())

    def sinks_of(self, query: PersistentQuery) -> Sequence[Source]:
        """What a query writes: the generation that it builds first."""
        return self._sinks.get(query.query_id, ())

    # Each is made once, by one pass: a listing of all would otherwise look at all for each.

    @cached_property
    def _statuses(self) -> Mapping[str, QueryStatus]:
        return {status.query_id: status for status in reversed(self.snapshot.query_statuses)}

    @cached_property
    def _placements(self) -> Mapping[tuple[str | None, int], Sequence[Placement]]:
        placements = self.snapshot.assignment.placements
        return _grouped(((each.table_id, each.generation), each) for each in placements)

    @cached_property
    def _writers(self) -> Mapping[str, Sequence[PersistentQuery]]:
        return _grouped((query.query_id, query) for query in self.snapshot.queries)

    @cached_property
    def _readers(self) -> Mapping[str, Sequence[PersistentQuery]]:
        reading = (query for query in self.snapshot.queries if not query.served_by)
        return _grouped((name, query) for query in reading for name in dict.fromkeys(query.sources))

    @cached_property
    def _sinks(self) -> Mapping[str, Sequence[Source]]:
        written = (*self.snapshot.successors, *self.snapshot.sources)
        return _grouped((each.query_id, each) for each in written if each.query_id)


def _grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def streams(scene: Scene, text: str) -> Entity:
    """SHOW STREAMS."""
    items = [_listed(s) for s in scene.snapshot.sources if s.kind == "STREAM"]
    return entity("streams", text, streams=items)


def tables(scene: Scene, text: str) -> Entity:
    """SHOW TABLES."""
    items = [_listed(s) for s in scene.snapshot.sources if s.kind == "TABLE"]
    return entity("tables", text, tables=items)


def _listed(source: Source) -> dict[str, object]:
    public = public_form(source)
    return {
        "type": source.kind,
        "name": source.name,
        "topic": public.topic,
        "keyFormat": public.key_format,
        "valueFormat": public.value_format,
        "isWindowed": source.window is not None,
    }


def queries(scene: Scene, text: str) -> Entity:
    """SHOW QUERIES, with what pipelines report about them."""
    items = [query_item(scene, query) for query in scene.snapshot.queries]
    return entity("queries", text, queries=items)


def query_type(query: PersistentQuery) -> str:
    """As ksqlDB names it: transient queries are those of push queries."""
    return "PUSH" if query.served_by else "PERSISTENT"


def query_item(scene: Scene, query: PersistentQuery) -> dict[str, object]:
    """A query as SHOW QUERIES and DESCRIBE list it."""
    state = scene.query_state(query)
    snapshot = scene.snapshot
    own = scene.sinks_of(query)[:1]
    sinks = own or [s for s in snapshot.sources if s.name == query.sink]
    status = scene.query_status(query.query_id)
    isolation = "" if query.is_external else isolation_of(query, snapshot.isolated)
    return {
        "queryString": query.statement,
        "sinks": [] if query.served_by else [query.sink],
        "sinkKafkaTopics": [source.public_topic or source.topic for source in sinks],
        "id": query.query_id,
        "statusCount": {state: 1},
        "queryType": query_type(query),
        "state": state,
        "isExternal": bool(query.is_external),
        "standpipe": None if status is None else _status(status, isolation),
    }


def progress_percent(status: QueryStatus) -> float | None:
    """Through the records of its topics; only for a table that is built beside another one."""
    if status.backlog_records is None:
        return None
    records = status.read_records + status.backlog_records
    return round(100 * status.read_records / records, 1) if records else 0.0


def _status(status: QueryStatus, isolation: str) -> dict[str, object]:
    return {
        "state": status.state,
        "reason": status.reason,
        "message": status.message,
        "pipeline": status.pipeline_id,
        "isolatedUnder": isolation or None,
        "group": status.group or None,
        "leaseEpoch": status.lease_epoch,
        "batch": status.batch,
        "inputRowsPerSecond": status.input_rows_per_second,
        "badRecords": status.bad_records,
        "lateRecords": status.late_records,
        "repairedRows": status.repaired_rows,
        "progressPercent": progress_percent(status),
        "atMs": status.at_ms,
    }


def topics(replica_counts: Mapping[str, Sequence[int]], text: str) -> Entity:
    """`replica_counts`: topic -> for each partition, how many replicas Kafka keeps of it."""
    items = [
        {"name": name, "replicaInfo": list(counts)}
        for name, counts in sorted(replica_counts.items())
        if not name.startswith(_INTERNAL_TOPIC_PREFIXES)
    ]
    return entity("kafka_topics", text, topics=items)


def route(described: Mapping[str, object], text: str) -> Entity:
    """EXPLAIN ROUTE, Standpipe's own, as `GET /route` shows it."""
    return entity("route", text, **described)


def assignment(view: Mapping[str, object], text: str) -> Entity:
    """EXPLAIN ASSIGNMENT, Standpipe's own, as `GET /assignment` shows it."""
    return entity("assignment", text, **view)


def types(scene: Scene, text: str) -> Entity:
    """SHOW TYPES: what each name of CREATE TYPE stands for."""
    named = sorted(scene.snapshot.types.items())
    return entity("type_list", text, types={name: schema(parse_type(of)) for name, of in named})


def function_names(text: str) -> Entity:
    """SHOW FUNCTIONS."""
    items = [
        {"name": name, "type": _function_type(name), "category": ""}
        for name in sorted({*registry.names(), *lambdas.SIGNATURES})
    ]
    return entity("function_names", text, functions=items)


def function(name: str, text: str) -> Entity:
    """DESCRIBE FUNCTION: its variants."""
    items = [
        {
            "arguments": [
                {
                    "name": "",
                    "type": str(of),
                    "description": "",
                    "isVariadic": each.is_variadic and place == len(each.parameters) - 1,
                }
                for place, of in enumerate(each.parameters)
            ],
            "returnType": str(each.result) if isinstance(each.result, SqlType) else "",
            "description": "",
        }
        for each in registry.variants(name)
    ]
    items += [
        {
            "arguments": [
                {"name": "", "type": of, "description": "", "isVariadic": False} for of in given
            ],
            "returnType": result,
            "description": "",
        }
        for given, result in lambdas.SIGNATURES.get(name, ())
    ]
    return entity(
        "describe_function",
        text,
        name=name,
        description="",
        author="Standpipe",
        version="",
        path="internal",
        functions=items,
        type=_function_type(name),
    )


def _function_type(name: str) -> str:
    if registry.is_aggregate(name):
        return "AGGREGATE"
    return "TABLE" if registry.is_table_function(name) else "SCALAR"


def variables(known: Mapping[str, str], text: str) -> Entity:
    """SHOW VARIABLES: those that this request brought or defined."""
    items = [{"name": name, "value": value} for name, value in sorted(known.items())]
    return entity("variables", text, variables=items)


def properties(settings: Config, text: str) -> Entity:
    """SHOW PROPERTIES: the node's configuration, without the places of its files."""
    items = [
        {"name": key.name, "scope": "KSQL", "value": _shown(key, settings), "level": "SERVER"}
        for key in KEYS.values()
    ]
    overwritten = [name for name in settings.values if settings[KEYS[name]] != KEYS[name].default]
    defaults = [key.name for key in KEYS.values() if key.name not in overwritten]
    return entity(
        "properties",
        text,
        properties=items,
        overwrittenProperties=overwritten,
        defaultProperties=defaults,
    )


def _shown(key: ConfigKey[Any], settings: Config) -> str:
    value = settings[key]
    if key.is_private and value:
        return "[hidden]"  # ksqlDB's word for a password
    return str(value).lower() if isinstance(value, bool) else str(value)


def schema(type_: SqlType) -> dict[str, object]:
    """A type as ksqlDB's SchemaInfo: base name, fields of a STRUCT, member of ARRAY or MAP."""
    fields: list[dict[str, object]] | None = None
    member: dict[str, object] | None = None
    if type_.base == "STRUCT":
        named = zip(type_.field_names, type_.arguments, strict=True)
        fields = [{"name": name, "schema": schema(of)} for name, of in named]
    elif type_.arguments:
        member = schema(type_.arguments[-1])
    shown: dict[str, object] = {"type": type_.base, "fields": fields, "memberSchema": member}
    if type_.base == "DECIMAL":
        shown["parameters"] = {"precision": type_.precision, "scale": type_.scale}
    return shown


def entity(kind: str, text: str, **content: object) -> Entity:
    """An item of the answer of POST /ksql."""
    return {"@type": kind, "statementText": text, **content, "warnings": list[object]()}


def undefined(plan: DefinePlan, text: str, known: Mapping[str, str]) -> list[Entity]:
    """UNDEFINE of a variable that is not there; uses were substituted when the text was parsed."""
    if plan.value is not None or plan.name.upper() in known:
        return []
    message = f"Cannot undefine variable '{plan.name}' which was never defined"
    return list(warning(text, message).entities)
