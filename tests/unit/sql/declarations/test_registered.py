"""CREATE with a schema registry: what is inferred, what is refused, and which schema rows get."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import UNSET
from tests.known_schemas import KnownSchemas

from standpipe.data.encoding.kafka_keys import encode_key
from standpipe.data.encoding.store_keys import store_key_from_raw
from standpipe.data.query.pull import partition_of_key
from standpipe.errors import StandpipeError, StatementError
from standpipe.model import Source
from standpipe.sql import analyzer
from standpipe.sql.context import Context
from standpipe.sql.declarations import registered
from standpipe.sql.plans import CreateSourcePlan
from standpipe.sql.schemas.registry import RegisteredSchema, SchemaRegistryUnavailable
from standpipe.sql.syntax import parser


def record(*fields: tuple[str, Any], name: str = "Order") -> str:
    named = [{"name": field, "type": of} for field, of in fields]
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": named})


ORDER = record(("orderId", "int"), ("total", ["null", "double"]), ("gone", "null"))


OBJECT = json.dumps({
    "title": "shop.Order",
    "properties": {"orderId": {"type": "integer"}, "total": {"type": "number"}, "gone": {}},
})  # fmt: skip


@pytest.fixture
def known() -> KnownSchemas:
    found = KnownSchemas()
    found.register("t-value", "AVRO", record(("old", "int")))
    found.register("t-value", "AVRO", ORDER)
    found.register("t-key", "AVRO", '"long"')
    found.register("bare-value", "AVRO", '["null","string"]')
    found.register("json-value", "JSON", "{}")
    found.register("doc-value", "JSON", OBJECT)
    found.register("doc-key", "JSON", '{"type":"integer","connect.type":"int32"}')
    found.register("bare-key", "JSON", '{"oneOf":[{"type":"null"},{"type":"string"}]}')
    found.register(
        "twice-value", "JSON", '{"properties":{"ab":{"type":"string"},"aB":{"type":"string"}}}'
    )
    found.register("empty-value", "AVRO", record(("a", "null")))
    found.subjects["refers-value"] = [RegisteredSchema(99, "AVRO", ORDER, has_references=True)]
    return found


def created(text: str, schemas: KnownSchemas | None, **properties: str) -> Source:
    (statement,) = parser.parse(text)
    names = ("t", "bare", "json", "empty", "refers", "none", "doc", "twice")
    topics: dict[str, int] = dict.fromkeys(names, 2)
    named = {name.replace("_", "."): value for name, value in properties.items()}
    context = Context(topics=topics, schemas=schemas, properties=named)
    plan = analyzer.analyze(statement, {}, context)
    assert isinstance(plan, CreateSourcePlan)
    return plan.source


def shown(source: Source) -> str:
    return ", ".join(f"{c.name} {c.type}{' KEY' if c.is_key else ''}" for c in source.columns)


@pytest.mark.parametrize(
    ("statement", "columns"),
    [
        (
            "CREATE STREAM S WITH (KAFKA_TOPIC='t', VALUE_FORMAT='AVRO');",
            "ORDERID INTEGER, TOTAL DOUBLE",
        ),
        (
            (
                "CREATE STREAM S (K INT KEY, H BYTES HEADER('h'))"
                " WITH (KAFKA_TOPIC='t', VALUE_FORMAT='AVRO');"
            ),
            "K INTEGER KEY, ORDERID INTEGER, TOTAL DOUBLE, H BYTES",
        ),
        (
            "CREATE STREAM S WITH (KAFKA_TOPIC='t', FORMAT='AVRO');",
            "ROWKEY BIGINT KEY, ORDERID INTEGER, TOTAL DOUBLE",
        ),
        (
            "CREATE TABLE S WITH (KAFKA_TOPIC='t', FORMAT='AVRO');",
            "ROWKEY BIGINT KEY, ORDERID INTEGER, TOTAL DOUBLE",
        ),
        (
            "CREATE STREAM S (V INT) WITH (KAFKA_TOPIC='t', FORMAT='AVRO');",
            "ROWKEY BIGINT KEY, V INTEGER",
        ),
        (
            "CREATE STREAM S WITH (KAFKA_TOPIC='t', VALUE_FORMAT='AVRO', VALUE_SCHEMA_ID=2);",
            "orderId INTEGER, total DOUBLE",
        ),
        (
            "CREATE STREAM S WITH (KAFKA_TOPIC='none', VALUE_FORMAT='AVRO', VALUE_SCHEMA_ID=1);",
            "old INTEGER",
        ),
        (
            (
                "CREATE STREAM S WITH"
                " (KAFKA_TOPIC='bare', VALUE_FORMAT='AVRO', WRAP_SINGLE_VALUE=false);"
            ),
            "ROWVAL STRING",
        ),
        (
            (
                "CREATE STREAM S WITH (KAFKA_TOPIC='t', VALUE_FORMAT='AVRO',"
                " VALUE_SCHEMA_FULL_NAME='shop.Order');"
            ),
            "ORDERID INTEGER, TOTAL DOUBLE",
        ),
        (
            "CREATE STREAM S (V INT) WITH (KAFKA_TOPIC='none', VALUE_FORMAT='AVRO');",
            "V INTEGER",
        ),
    ],
)
def test_columns(statement: str, columns: str, known: KnownSchemas) -> None:
    assert shown(created(statement, known)) == columns


@pytest.mark.parametrize(
    ("statement", "columns"),
    [
        ("(KAFKA_TOPIC='doc', VALUE_FORMAT='JSON_SR')", "ORDERID BIGINT, TOTAL DOUBLE"),
        (
            "(KAFKA_TOPIC='doc', FORMAT='JSON_SR')",
            "ROWKEY INTEGER KEY, ORDERID BIGINT, TOTAL DOUBLE",
        ),
        ("(KAFKA_TOPIC='none', VALUE_FORMAT='JSON_SR', VALUE_SCHEMA_ID=6)",
         "orderId BIGINT, total DOUBLE"),
        (
            "(KAFKA_TOPIC='doc', VALUE_FORMAT='JSON_SR', VALUE_SCHEMA_FULL_NAME='shop.Order')",
            "ORDERID BIGINT, TOTAL DOUBLE",
        ),
        (
            ("(KAFKA_TOPIC='bare', KEY_FORMAT='JSON_SR', VALUE_FORMAT='AVRO',"
            " WRAP_SINGLE_VALUE=false)"),
            "ROWKEY STRING KEY, ROWVAL STRING",
        ),
        (
            "(KAFKA_TOPIC='t', KEY_FORMAT='AVRO', VALUE_FORMAT='JSON_SR', VALUE_SCHEMA_ID=6)",
            "ROWKEY BIGINT KEY, orderId BIGINT, total DOUBLE",
        ),
    ],
)  # fmt: skip
def test_columns_of_json_schemas(statement: str, columns: str, known: KnownSchemas) -> None:
    assert shown(created(f"CREATE STREAM S WITH {statement};", known)) == columns


def test_our_own_json_schema(known: KnownSchemas) -> None:
    """Without a name, unless the statement gives one; names of any form, as JSON has them."""
    text = "CREATE STREAM S (K INT KEY, `a b` INT) WITH (KAFKA_TOPIC='none', FORMAT='JSON_SR'%s);"
    source = created(text % "", known)
    assert (source.schema_ids, source.schema_names) == (UNSET, UNSET)
    value = json.loads(registered.own_schema(source, "VALUE"))
    assert (list(value["properties"]), "title" in value) == (["a b"], False)
    assert "oneOf" in json.loads(registered.own_schema(source, "KEY"))
    named = created(text % ", VALUE_SCHEMA_FULL_NAME='a b'", known)
    assert json.loads(registered.own_schema(named, "VALUE"))["title"] == "a b"


def test_the_schema_that_columns_came_from_is_that_of_our_rows(known: KnownSchemas) -> None:
    source = created("CREATE STREAM S WITH (KAFKA_TOPIC='t', FORMAT='AVRO');", known)
    assert source.schema_ids == (3, 2)
    named = created(
        "CREATE STREAM MY_S (K INT KEY, V INT) WITH (KAFKA_TOPIC='none', FORMAT='AVRO',"
        " VALUE_SCHEMA_FULL_NAME='a.B');",
        known,
    )
    assert registered.given_id(named, "VALUE") is None
    assert json.loads(registered.own_schema(named, "VALUE"))["namespace"] == "a"
    assert registered.own_schema(named, "KEY") == '"int"'


def test_the_default_format_of_a_session(known: KnownSchemas) -> None:
    text = "CREATE STREAM S WITH (KAFKA_TOPIC='t');"
    source = created(text, known, ksql_persistence_default_format_value="avro")
    assert shown(source) == "ORDERID INTEGER, TOTAL DOUBLE"


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "(KAFKA_TOPIC='none', VALUE_FORMAT='AVRO')",
            "message values on topic 'none' d",
        ),
        (
            "(KAFKA_TOPIC='t', VALUE_FORMAT='AVRO', VALUE_SCHEMA_ID=77)",
            "on topic 't' with id 77 does not exist in the Schema Registry",
        ),
        ("(KAFKA_TOPIC='none', FORMAT='AVRO')", "Schema for message keys on topic 'none'"),
        ("(KAFKA_TOPIC='json', VALUE_FORMAT='AVRO')", "want to set VALUE_FORMAT to 'JSON_SR'"),
        ("(KAFKA_TOPIC='bare', VALUE_FORMAT='AVRO')", "'WRAP_SINGLE_VALUE=false' in the WITH"),
        ("(KAFKA_TOPIC='empty', VALUE_FORMAT='AVRO')", "does not include any columns"),
        ("(KAFKA_TOPIC='refers', VALUE_FORMAT='AVRO')", "schemas of other subjects"),
        (
            "(KAFKA_TOPIC='t', VALUE_FORMAT='AVRO', VALUE_SCHEMA_FULL_NAME='x.Y')",
            "its name is shop.Order, not x.Y",
        ),
        (
            "(V INT) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='AVRO', VALUE_SCHEMA_ID=2)",
            "Table elements and VALUE_SCHEMA_ID cannot both exist for create statement.",
        ),
        (
            "(K INT KEY) WITH (KAFKA_TOPIC='t', FORMAT='AVRO', KEY_SCHEMA_ID=3)",
            "Table elements and KEY_SCHEMA_ID cannot both exist for create statement.",
        ),
        (
            "(V INT) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='JSON', VALUE_SCHEMA_ID=2)",
            (
                "VALUE_FORMAT should support schema inference when VALUE_SCHEMA_ID is provided."
                " Current format is JSON."
            ),
        ),
        (
            "(V INT) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='AVRO', KEY_SCHEMA_ID=2)",
            "Current format is KAFKA.",
        ),
        (
            "(V INT) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='JSON', VALUE_SCHEMA_FULL_NAME='a.B')",
            "JSON does not support the following configs: [fullSchemaName]",
        ),
        (
            "(`a b` INT) WITH (KAFKA_TOPIC='none', VALUE_FORMAT='AVRO')",
            "Schema is not compatible with Avro: Illegal character in: a b",
        ),
        (
            "(V MAP<INT, INT>) WITH (KAFKA_TOPIC='none', VALUE_FORMAT='AVRO')",
            "Avro only supports MAP types with STRING keys",
        ),
        (
            "(V INT) WITH (KAFKA_TOPIC='none', VALUE_FORMAT='AVRO', VALUE_SCHEMA_FULL_NAME='a b')",
            "Illegal character in: a b",
        ),
        ("(V INT) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='PROTOBUF')", "PROTOBUF is not supported"),
        ("(KAFKA_TOPIC='t', VALUE_FORMAT='JSON_SR')", "want to set VALUE_FORMAT to 'AVRO'"),
        (
            "(KAFKA_TOPIC='t', VALUE_FORMAT='JSON_SR')",
            "expected format: JSON_SR\nactual format: AVRO",
        ),
        ("(KAFKA_TOPIC='none', VALUE_FORMAT='JSON_SR')", "message values on topic 'none' d"),
        ("(KAFKA_TOPIC='json', VALUE_FORMAT='JSON_SR')", "'WRAP_SINGLE_VALUE=false' in the WITH"),
        ("(KAFKA_TOPIC='twice', VALUE_FORMAT='JSON_SR')", "because of field name duplication AB"),
        (
            "(KAFKA_TOPIC='doc', VALUE_FORMAT='JSON_SR', VALUE_SCHEMA_FULL_NAME='x.Y')",
            "its name is shop.Order, not x.Y",
        ),
        (
            "(V INT) WITH (KAFKA_TOPIC='doc', VALUE_FORMAT='JSON_SR', VALUE_SCHEMA_ID=6)",
            "Table elements and VALUE_SCHEMA_ID cannot both exist for create statement.",
        ),
        (
            "(V MAP<INT, INT>) WITH (KAFKA_TOPIC='none', VALUE_FORMAT='JSON_SR')",
            "JSON only supports MAP types with STRING keys",
        ),
    ],
)
def test_refused(statement: str, message: str, known: KnownSchemas) -> None:
    with_ = "" if "WITH" in statement else "WITH "
    with pytest.raises(StatementError) as refused:
        created(f"CREATE STREAM S {with_}{statement};", known)
    assert message in refused.value.message


def test_an_inferred_name_may_be_reserved(known: KnownSchemas) -> None:
    known.register("empty-value", "AVRO", record(("rowtime", "long")))
    with pytest.raises(StatementError, match="'ROWTIME' is a reserved column name"):
        created("CREATE STREAM S WITH (KAFKA_TOPIC='empty', VALUE_FORMAT='AVRO');", known)


@pytest.mark.parametrize("format_", ["AVRO", "JSON_SR"])
@pytest.mark.parametrize("columns", ["", "(V INT) "])
def test_without_a_registry(columns: str, format_: str) -> None:
    with pytest.raises(StandpipeError) as refused:
        created(f"CREATE STREAM S {columns}WITH (KAFKA_TOPIC='t', VALUE_FORMAT='{format_}');", None)
    assert refused.value.message == (
        f"Cannot create topic 't' with format {format_} without configuring"
        " 'ksql.schema.registry.url'"
    )
    assert (refused.value.status, refused.value.code) == (428, 42801)


def test_a_registry_that_does_not_answer(known: KnownSchemas) -> None:
    known.is_down = True
    with pytest.raises(SchemaRegistryUnavailable):
        created("CREATE STREAM S WITH (KAFKA_TOPIC='t', VALUE_FORMAT='AVRO');", known)
    declared = "CREATE STREAM S (V INT) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='AVRO');"
    assert shown(created(declared, known)) == "V INTEGER"


def analyzed(statement: str, known: KnownSchemas, format_: str = "AVRO") -> Any:
    """The plan of a statement about A, a stream in that format, and J, one in JSON."""
    made = (created(AVRO.replace("AVRO", format_), known), created(JSON, known))
    sources = {source.name: source for source in made}
    (parsed,) = parser.parse(statement.replace("'AVRO'", f"'{format_}'"))
    context = Context(topics={"t": 2, "none": 2, "empty": 2}, schemas=known)
    return analyzer.analyze(parsed, sources, context)


AVRO = "CREATE STREAM A (K INT KEY, V INT) WITH (KAFKA_TOPIC='t', FORMAT='AVRO');"
JSON = "CREATE STREAM J (K INT KEY, V INT) WITH (KAFKA_TOPIC='none', FORMAT='JSON');"


@pytest.mark.parametrize("format_", ["AVRO", "JSON_SR"])
@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE X WITH (FORMAT='JSON') AS SELECT K, COUNT(*) AS N FROM A GROUP BY K;",
        "CREATE STREAM X WITH (FORMAT='JSON') AS SELECT * FROM A;",
        "INSERT INTO J SELECT * FROM A;",
        (
            "CREATE STREAM X WITH (FORMAT='JSON') AS SELECT J.K, A.V FROM J JOIN A WITHIN 1 HOUR"
            " ON J.K = A.K;"
        ),
        "SELECT K, COUNT(*) FROM A GROUP BY K EMIT CHANGES;",
    ],
)
def test_what_spark_reads(statement: str, format_: str, known: KnownSchemas) -> None:
    plan = analyzed(statement, known, format_)
    (read,) = {each for each in plan.query.plan.inputs if each.topic == "t"}
    assert (read.key_format, read.value_format) == (format_, format_)


def test_a_source_table_with_values_in_avro(known: KnownSchemas) -> None:
    """Its query reads AVRO; what replicas and lookups read has keys and values without a schema."""
    text = "CREATE SOURCE TABLE X (K INT PRIMARY KEY, V INT) WITH (KAFKA_TOPIC='t', %s);"
    plan = analyzed(text % "VALUE_FORMAT='AVRO'", known)
    (read,) = plan.query.plan.inputs
    assert (read.key_format, read.value_format) == ("KAFKA", "AVRO")
    stored = plan.source.stored_form()
    assert (stored.key_format, stored.value_format) == ("KAFKA", "JSON")
    raw = encode_key((1,), stored.key_columns, stored.key_format)
    assert raw
    assert store_key_from_raw(stored.key_columns, stored.key_format, bounds=0)(raw)
    assert partition_of_key(plan.source, (1,)) == partition_of_key(stored, (1,))


@pytest.mark.parametrize("format_", ["AVRO", "JSON_SR"])
@pytest.mark.parametrize("given", ["FORMAT='{}'", "KEY_FORMAT='{}', VALUE_FORMAT='JSON'"])
def test_a_source_table_with_keys_of_a_registry_is_refused(
    known: KnownSchemas, format_: str, given: str
) -> None:
    """Lookups find a partition by the key's bytes, and these would name a schema."""
    text = f"CREATE SOURCE TABLE X (K INT PRIMARY KEY, V INT) WITH (KAFKA_TOPIC='t', {given});"
    with pytest.raises(StatementError, match=f"SOURCE TABLE with KEY_FORMAT='{format_}' is not"):
        analyzed(text.format(format_), known)


def test_a_direct_table_is_refused(known: KnownSchemas) -> None:
    with pytest.raises(StatementError, match="AVRO"):
        analyzed(
            "CREATE SOURCE TABLE X (K INT PRIMARY KEY, V INT)"
            " WITH (KAFKA_TOPIC='t', FORMAT='AVRO', APPLY='DIRECT');",
            known,
        )


def test_a_table_of_an_application_is_refused(known: KnownSchemas) -> None:
    with pytest.raises(
        StatementError, match="A table in AVRO or JSON_SR with WRITER='EXTERNAL' is not"
    ):
        created(
            "CREATE TABLE X (K INT PRIMARY KEY, V INT)"
            " WITH (KAFKA_TOPIC='empty', FORMAT='AVRO', WRITER='EXTERNAL');",
            known,
        )


def test_alter(known: KnownSchemas) -> None:
    """A column is added to our own schema, not to one that the statement names."""
    inferred = created("CREATE STREAM S WITH (KAFKA_TOPIC='t', VALUE_FORMAT='AVRO');", known)
    declared = created(
        "CREATE STREAM D (V INT) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='AVRO');", known
    )
    sources = {"S": inferred, "D": declared}

    def altered(text: str) -> Any:
        (statement,) = parser.parse(text)
        return analyzer.analyze(statement, sources, Context(schemas=known))

    assert shown(altered("ALTER STREAM D ADD COLUMN W INT;").source) == "V INTEGER, W INTEGER"
    with pytest.raises(StatementError, match="its columns are those of schema 2"):
        altered("ALTER STREAM S ADD COLUMN W INT;")
    with pytest.raises(StatementError, match="Illegal character in: w w"):
        altered("ALTER STREAM D ADD COLUMN `w w` INT;")
