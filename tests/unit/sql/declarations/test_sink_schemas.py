"""CREATE … AS SELECT and INSERT INTO … SELECT in AVRO: which schema the rows have, what is refused.
Texts: ksqlDB's DefaultSchemaInjector."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace
from tests.known_schemas import KnownSchemas

from standpipe.errors import StatementError
from standpipe.model import Source, SparkPlan
from standpipe.sql import analyzer
from standpipe.sql.context import Context
from standpipe.sql.declarations import sink_schemas
from standpipe.sql.declarations.published import public_form
from standpipe.sql.declarations.registered import own_schema
from standpipe.sql.plans import CreateSourcePlan, CreateTableAsPlan, InsertIntoPlan
from standpipe.sql.schemas.registry import SchemaRegistryMissing, SchemaRegistryUnavailable
from standpipe.sql.syntax import parser


def record(*fields: tuple[str, Any], **more: Any) -> str:
    named = [{"name": name, "type": of, **more} for name, of in fields]
    return json.dumps({"type": "record", "name": "R", "fields": named})


ROW = record(("V", ["null", "int"]), ("MORE", ["null", "string"]), default=None)
STRICT = record(("V", "int"), ("MORE", "string"))


def json_object(*required: str, **types: str) -> str:
    properties = {name: {"type": of, "connect.type": "int32"} for name, of in types.items()}
    return json.dumps({"type": "object", "properties": properties, "required": [*required]})


JSON_ROW = json_object(V="integer")
JSON_STRICT = json_object("W", V="integer", W="integer")


@pytest.fixture
def known() -> KnownSchemas:
    found = KnownSchemas()
    for subject, text in (("rows", ROW), ("strict", STRICT), ("key", '"int"'), ("int", '"int"')):
        found.register(subject, "AVRO", text)
    found.register("json", "JSON", "{}")
    found.register("json_row", "JSON", JSON_ROW)
    found.register("json_strict", "JSON", JSON_STRICT)
    return found


SOURCES: dict[str, Source] = {}


def planned(text: str, schemas: KnownSchemas | None) -> Any:
    (statement,) = parser.parse(text)
    topics = {"j": 2, "t": 2, "a": 2, "i": 2}
    return analyzer.analyze(statement, SOURCES, Context(topics=topics, schemas=schemas))


@pytest.fixture(autouse=True)
def sources(known: KnownSchemas) -> None:
    SOURCES.clear()
    for text in (
        "CREATE STREAM J (K INT KEY, V INT) WITH (KAFKA_TOPIC='j', FORMAT='JSON');",
        "CREATE STREAM A (K INT KEY, V INT) WITH (KAFKA_TOPIC='a', FORMAT='AVRO');",
        (
            "CREATE STREAM BARE (V INT) WITH (KAFKA_TOPIC='i', VALUE_FORMAT='AVRO',"
            " WRAP_SINGLE_VALUE=false);"
        ),
    ):
        plan = planned(text, known)
        assert isinstance(plan, CreateSourcePlan)
        SOURCES[plan.source.name] = plan.source


def test_a_stream_is_in_avro_itself(known: KnownSchemas) -> None:
    plan = planned("CREATE STREAM T WITH (VALUE_FORMAT='AVRO') AS SELECT K, V FROM J;", known)
    assert isinstance(plan, CreateTableAsPlan)
    assert (plan.source.topic, plan.source.public_topic) == ("T", None)
    assert (plan.source.key_format, plan.source.value_format) == ("JSON", "AVRO")
    assert plan.query.plan.schemas == (None, None), "ours, which the leader registers"


def test_a_table_has_a_topic_of_its_own(known: KnownSchemas) -> None:
    plan = planned(
        "CREATE TABLE T WITH (FORMAT='AVRO') AS SELECT K, COUNT(*) AS N FROM J GROUP BY K;", known
    )
    assert isinstance(plan, CreateTableAsPlan)
    assert (plan.source.topic, plan.source.public_topic) == ("CTAS_T_1-changelog", "T")
    assert (plan.source.key_format, plan.source.value_format) == ("KAFKA", "JSON")
    assert "KsqlDataSourceSchema" in own_schema(public_form(plan.source), "VALUE")
    assert own_schema(public_form(plan.source), "KEY") == '"int"'


def test_formats_are_those_of_what_is_read(known: KnownSchemas) -> None:
    """As in ksqlDB: WITH says nothing, so the result is in the formats that its source has for
    other programs, not in those of a table's own topic."""
    table = planned(
        "CREATE TABLE T WITH (FORMAT='AVRO') AS SELECT K, COUNT(*) AS N FROM J GROUP BY K;", known
    )
    SOURCES["T"] = table.source
    plan = planned("CREATE TABLE U AS SELECT K, N + 1 AS M FROM T;", known)
    assert plan.source.public_formats == ("AVRO", "AVRO")
    assert plan.query.plan.inputs[0].topic == table.source.topic
    assert plan.query.plan.inputs[0].value_format == "JSON", "so Spark needs no registry"


@pytest.mark.parametrize(
    ("clauses", "select", "schema_ids"),
    [
        ("VALUE_FORMAT='AVRO', VALUE_SCHEMA_ID=1", "K, V", (None, 1)),
        ("FORMAT='AVRO', KEY_SCHEMA_ID=3", "K, V", (3, None)),
        (
            "VALUE_FORMAT='AVRO', VALUE_SCHEMA_ID=3, WRAP_SINGLE_VALUE=false",
            "K, V",
            (None, 3),
        ),
        ("VALUE_FORMAT='JSON_SR', VALUE_SCHEMA_ID=6", "K, V", (None, 6)),
    ],
)
def test_a_schema_by_its_id(
    clauses: str, select: str, schema_ids: tuple[int | None, int | None], known: KnownSchemas
) -> None:
    plan = planned(f"CREATE STREAM T WITH ({clauses}) AS SELECT {select} FROM J;", known)
    assert plan.source.schema_ids == schema_ids
    texts = [each and (each, known.by_id(each).text) for each in schema_ids]
    assert plan.query.plan.schemas == tuple(texts), "text and all: nobody is asked to write a row"


@pytest.mark.parametrize(
    ("clauses", "message"),
    [
        (
            "FORMAT='JSON', VALUE_SCHEMA_ID=1",
            (
                "VALUE_FORMAT should support schema inference when VALUE_SCHEMA_ID is provided."
                " Current format is JSON."
            ),
        ),
        (
            "VALUE_FORMAT='AVRO', KEY_SCHEMA_ID=3",
            (
                "KEY_FORMAT should support schema inference when KEY_SCHEMA_ID is provided. Current"
                " format is JSON."
            ),
        ),
        ("VALUE_FORMAT='AVRO', VALUE_SCHEMA_ID=99", "on topic 'T' with id 99 does not exist"),
        ("VALUE_FORMAT='AVRO', VALUE_SCHEMA_ID=4", "anonymous type"),
        ("VALUE_FORMAT='AVRO', VALUE_SCHEMA_ID=5", "want to set VALUE_FORMAT to 'JSON_SR'"),
        ("VALUE_FORMAT='AVRO', VALUE_SCHEMA_ID=2", "no column has a value for field MORE"),
        ("VALUE_FORMAT='JSON_SR', VALUE_SCHEMA_ID=7", "no column has a value for W"),
        ("VALUE_FORMAT='JSON_SR', VALUE_SCHEMA_ID=1", "want to set VALUE_FORMAT to 'AVRO'"),
        ("VALUE_FORMAT='AVRO', VALUE_SCHEMA_FULL_NAME='a b'", "Illegal character in: a b"),
    ],
)
def test_what_is_refused(clauses: str, message: str, known: KnownSchemas) -> None:
    with pytest.raises(StatementError) as refused:
        planned(f"CREATE STREAM T WITH ({clauses}) AS SELECT K, V FROM J;", known)
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("select", "listed"),
    [
        ("K, V AS W", "[`W` INTEGER]. Schema from schema registry is [`V` INTEGER, `MORE` STRING]"),
        ("K, CAST(V AS BIGINT) AS V", "[`V` BIGINT]"),
        ("K, V, V + 1 AS W", "[`W` INTEGER]"),
        ("K, 'x' AS MORE, V", "[`MORE` STRING, `V` INTEGER]"),
    ],
)
def test_columns_are_the_first_of_a_given_schema(
    select: str, listed: str, known: KnownSchemas
) -> None:
    with pytest.raises(StatementError) as refused:
        planned(
            f"CREATE STREAM T WITH (VALUE_FORMAT='AVRO', VALUE_SCHEMA_ID=1) AS SELECT {select}"
            " FROM J;",
            known,
        )
    assert "The following value columns are changed, missing or reordered" in refused.value.message
    assert listed in refused.value.message


def test_columns_are_the_first_of_a_given_json_schema(known: KnownSchemas) -> None:
    with_ = "VALUE_FORMAT='JSON_SR', VALUE_SCHEMA_ID=6"
    with pytest.raises(StatementError) as refused:
        planned(f"CREATE STREAM T WITH ({with_}) AS SELECT K, V AS W FROM J;", known)
    assert "[`W` INTEGER]. Schema from schema registry is [`V` INTEGER]" in refused.value.message


@pytest.mark.parametrize("schema_id", [6, 7])
def test_an_insert_is_judged_by_the_json_schema_of_its_target(
    schema_id: int, known: KnownSchemas
) -> None:
    """The stream is declared with columns of its own, so only the insert looks at all of it."""
    given = f"VALUE_FORMAT='JSON_SR', VALUE_SCHEMA_ID={schema_id}"
    created = planned(f"CREATE STREAM C WITH (KAFKA_TOPIC='t', {given});", known).source
    SOURCES["C"] = replace(created, columns=created.columns[:1])
    text = "INSERT INTO C SELECT V FROM BARE;"
    if schema_id == 6:
        assert planned(text, known).query.plan.schemas == (None, (6, JSON_ROW))
        return
    with pytest.raises(StatementError, match="no column has a value for W, which is required"):
        planned(text, known)


@pytest.mark.parametrize(("target", "schemas"), [("A", (None, None)), ("J", UNSET)])
def test_an_insert_has_the_schemas_of_its_target(
    target: str, schemas: object, known: KnownSchemas
) -> None:
    read = "J" if target == "A" else "CREATED"
    SOURCES["CREATED"] = planned("CREATE STREAM CREATED AS SELECT * FROM J;", known).source
    plan = planned(f"INSERT INTO {target} SELECT K, V FROM {read};", known)
    assert isinstance(plan, InsertIntoPlan)
    assert plan.query.plan.schemas == schemas


def test_a_registry_that_is_missing_or_away(known: KnownSchemas) -> None:
    text = "CREATE STREAM T WITH (VALUE_FORMAT='AVRO', VALUE_SCHEMA_ID=1) AS SELECT * FROM J;"
    with pytest.raises(SchemaRegistryMissing, match="Cannot create topic 'T' with format AVRO"):
        planned(text, None)
    with pytest.raises(SchemaRegistryMissing, match="Cannot create topic 'a' with format AVRO"):
        planned("INSERT INTO A SELECT * FROM J;", None)
    known.is_down = True
    with pytest.raises(SchemaRegistryUnavailable):
        planned(text, known)


def test_how_the_parts_of_a_record_are_wrapped() -> None:
    made = SOURCES["A"]
    assert not sink_schemas.wraps(made, "KEY"), "a key of one column is bare"
    assert sink_schemas.wraps(made, "VALUE")
    assert not sink_schemas.wraps(SOURCES["BARE"], "VALUE")


def test_plans_of_other_formats_are_as_ever(known: KnownSchemas) -> None:
    """A stored plan has no such field, and its checkpoint names the digest of the plan."""
    plan = planned("CREATE STREAM T AS SELECT * FROM J;", known).query.plan
    assert isinstance(plan, SparkPlan)
    assert plan.schemas is UNSET
