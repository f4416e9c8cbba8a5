"""Entities of SHOW against ksqlDB's shapes."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest
from tests.samples import sample_stream

from standpipe.config.registry import (
    Config,
    load,
)
from standpipe.model import (
    Assignment,
    BatchId,
    Column,
    LeaseEpoch,
    LogIndex,
    NodeId,
    Offset,
    PersistentQuery,
    Placement,
    QueryStatus,
    ReplicaState,
    ReplicaStatus,
    Snapshot,
    SparkPlan,
    Window,
)
from standpipe.node.worker.statements import describe, show
from standpipe.node.worker.statements.show import AnswerTime, Scene
from standpipe.sql.types.types import parse_type

STREAM = sample_stream(
    columns=(Column(name="ID", type="STRING", is_key=True), Column(name="N", type="BIGINT")),
    partitions=2,
    statement="CREATE STREAM S …;",
)
TABLE = msgspec.structs.replace(
    STREAM,
    name="T",
    kind="TABLE",
    topic="T",
    window=Window(kind="TUMBLING", size_ms=1, advance_ms=1, grace_ms=0, retention_ms=2),
    query_id="CTAS_T_1",
    table_id="T1",
    is_materialized=True,
)
QUERY = PersistentQuery(
    query_id="CTAS_T_1",
    sink="T",
    sources=("S",),
    statement="CREATE TABLE T AS …;",
    plan=SparkPlan(version=1, inputs=(), sql="", output_mode="update", is_windowed=True),
)
SNAPSHOT = Snapshot(
    stamp=1,
    node_id=NodeId("node-1"),
    service_id="default_",
    cluster_id="c",
    log_index=LogIndex(3),
    leader=NodeId("node-1"),
    nodes=(),
    sources=(STREAM, TABLE),
    queries=(QUERY,),
    assignment=Assignment(
        placements=(
            Placement(
                table_id="T1",
                generation=1,
                partition=0,
                replicas=(NodeId("node-1"), NodeId("node-2")),
            ),
        )
    ),
)
PAGE = ReplicaStatus(
    state=ReplicaState.RUNNING,
    position=Offset(5),
    committed_end=Offset(7),
    log_end=Offset(9),
    batch=BatchId(1),
    lease_epoch=LeaseEpoch(1),
    confirmed_boot_ms=0,
    source_instant_ms=0,
    foreign_records=0,
    rows=2,
    watermark_ms=0,
)


def scene(snapshot: Snapshot = SNAPSHOT, settings: Config | None = None) -> Scene:
    return Scene(
        snapshot=snapshot,
        settings=settings or load({}),
        instant=AnswerTime(boot_ms=10, unix_ms=10),
        replicas={("T1", 1, 0): PAGE},
    )


def test_streams_and_tables() -> None:
    assert show.streams(scene(), "SHOW STREAMS;") == {
        "@type": "streams",
        "statementText": "SHOW STREAMS;",
        "streams": [
            {
                "type": "STREAM",
                "name": "S",
                "topic": "s",
                "keyFormat": "KAFKA",
                "valueFormat": "JSON",
                "isWindowed": False,
            }
        ],
        "warnings": [],
    }
    tables = show.tables(scene(), "SHOW TABLES;")["tables"]
    assert isinstance(tables, list)
    assert [(table["name"], table["isWindowed"]) for table in tables] == [("T", True)]


def test_a_table_in_avro_is_shown_as_other_programs_read_it() -> None:
    table = msgspec.structs.replace(
        TABLE, topic="CTAS_T_1-changelog", public_topic="t", public_formats=("KAFKA", "AVRO")
    )
    changed = msgspec.structs.replace(SNAPSHOT, sources=(STREAM, table))
    (listed,) = cast("list[dict[str, object]]", show.tables(scene(changed), "")["tables"])
    assert (listed["topic"], listed["keyFormat"], listed["valueFormat"]) == ("t", "KAFKA", "AVRO")


@pytest.mark.parametrize(
    ("wanted", "reported", "shown", "why"),
    [
        ("RUNNING", None, "UNRESPONSIVE", "no pipeline has reported it"),
        ("RUNNING", "STARTING", "RUNNING", "ksqlDB has no word for it"),
        ("RUNNING", "RUNNING", "RUNNING", "as reported"),
        ("RUNNING", "RETRYING", "RUNNING", "it will go on by itself"),
        ("RUNNING", "FAILED", "ERROR", "ksqlDB's word"),
        ("RUNNING", "STOPPED", "STOPPED", "as reported"),
        ("RUNNING", "UNRESPONSIVE", "UNRESPONSIVE", "nor does its pipeline any more"),
        ("PAUSED", "RUNNING", "PAUSED", "what is wanted comes first"),
    ],
)
def test_query_state(wanted: str, reported: str | None, shown: str, why: str) -> None:
    query = msgspec.structs.replace(QUERY, state=wanted)
    statuses = (QueryStatus(query_id="CTAS_T_1", state=reported),) if reported else ()
    snapshot = msgspec.structs.replace(SNAPSHOT, queries=(query,), query_statuses=statuses)
    (item,) = show.queries(scene(snapshot), "SHOW QUERIES;")["queries"]
    assert (item["state"], item["statusCount"]) == (shown, {shown: 1}), why
    assert (item["id"], item["sinks"], item["sinkKafkaTopics"]) == ("CTAS_T_1", ["T"], ["T"])


def test_a_push_query_that_spark_runs() -> None:
    """As in ksqlDB: SHOW QUERIES has it, and no other statement."""
    query_id = "transient_S_7"
    query = msgspec.structs.replace(
        QUERY, query_id=query_id, sink=query_id, served_by=NodeId("node-1")
    )
    made = msgspec.structs.replace(TABLE, name=query_id, query_id=query_id)
    snapshot = msgspec.structs.replace(
        SNAPSHOT, queries=(*SNAPSHOT.queries, query), transients=(made,)
    )
    item = show.queries(scene(snapshot), "SHOW QUERIES;")["queries"][-1]  # type: ignore[index]
    assert (item["id"], item["queryType"]) == (query_id, "PUSH")
    assert (item["sinks"], item["sinkKafkaTopics"]) == ([], [])
    for shown in (
        show.tables(scene(snapshot), ""),
        show.streams(scene(snapshot), ""),
        list(describe.each_described(scene(snapshot), "TABLE")),
        describe.source_description(scene(snapshot), STREAM, "", extended=True),
    ):
        assert query_id not in str(shown)


@pytest.mark.parametrize(
    ("type_", "schema"),
    [
        ("STRING", {"type": "STRING", "fields": None, "memberSchema": None}),
        (
            "DECIMAL(4, 2)",
            {
                "type": "DECIMAL",
                "fields": None,
                "memberSchema": None,
                "parameters": {"precision": 4, "scale": 2},
            },
        ),
        (
            "MAP<STRING, INTEGER>",
            {
                "type": "MAP",
                "fields": None,
                "memberSchema": {"type": "INTEGER", "fields": None, "memberSchema": None},
            },
        ),
        (
            "STRUCT<`A` BIGINT>",
            {
                "type": "STRUCT",
                "memberSchema": None,
                "fields": [
                    {
                        "name": "A",
                        "schema": {"type": "BIGINT", "fields": None, "memberSchema": None},
                    }
                ],
            },
        ),
    ],
)
def test_schema(type_: str, schema: dict[str, object]) -> None:
    assert show.schema(parse_type(type_)) == schema


def test_topics_leave_out_internal_ones() -> None:
    shown = show.topics({"b": [1], "a": [1, 1], "__consumer_offsets": [1]}, "SHOW TOPICS;")
    assert shown["topics"] == [
        {"name": "a", "replicaInfo": [1, 1]},
        {"name": "b", "replicaInfo": [1]},
    ]


def test_functions_and_properties() -> None:
    functions = show.function_names("SHOW FUNCTIONS;")["functions"]
    assert isinstance(functions, list)
    for name, type_ in (("COUNT", "AGGREGATE"), ("EXPLODE", "TABLE"), ("FILTER", "SCALAR")):
        assert {"name": name, "type": type_, "category": ""} in functions
    assert [each["name"] for each in functions] == sorted(each["name"] for each in functions)
    settings = load({"ksql.query.pull.enable.standby.reads": "false"})
    shown = show.properties(settings, "SHOW PROPERTIES;")
    assert {
        "name": "ksql.query.pull.enable.standby.reads",
        "scope": "KSQL",
        "value": "false",
        "level": "SERVER",
    } in shown["properties"]  # type: ignore[operator]
    assert shown["overwrittenProperties"] == ["ksql.query.pull.enable.standby.reads"]


def test_a_function_of_lambdas_has_its_variants() -> None:
    shown = show.function("TRANSFORM", "DESCRIBE FUNCTION TRANSFORM;")
    listed = [
        ([one["type"] for one in each["arguments"]], each["returnType"])
        for each in cast("Any", shown["functions"])
    ]
    assert listed == [
        (["ARRAY<T>", "LAMBDA (T) => U"], "ARRAY<U>"),
        (["MAP<K, V>", "LAMBDA (K, V) => A", "LAMBDA (K, V) => B"], "MAP<A, B>"),
    ]


def test_where_a_key_file_lies_is_not_shown() -> None:
    names = ("standpipe.tls.certificate", "standpipe.tls.key")
    paths = dict(zip(names, ("/etc/standpipe/tls.pem", "/etc/standpipe/tls.key"), strict=True))
    shown = show.properties(load({"standpipe.tls.listener": "h:1", **paths}), "SHOW PROPERTIES;")
    properties = cast("list[dict[str, str]]", shown["properties"])
    values = {one["name"]: one["value"] for one in properties}
    assert [values[name] for name in names] == ["[hidden]", "[hidden]"]
    assert not any(value.startswith("/") for value in values.values())
    unset = cast(
        "list[dict[str, str]]", show.properties(load({}), "SHOW PROPERTIES;")["properties"]
    )
    assert {one["value"] for one in unset if one["name"] in names} == {""}
