"""Which schemas a statement registers, and which it leaves as they are."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace
from tests.known_schemas import KnownSchemas
from tests.samples import sample_stream

from standpipe.control.ddl import registered_schemas
from standpipe.control.ddl.propose import Request, judge
from standpipe.control.ddl.responses import StatementReply
from standpipe.control.metadata import feature_levels
from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import EMPTY, Catalog
from standpipe.control.metadata.commands import CreateSource, DropSource, Receipt
from standpipe.errors import BadRequest, StatementError
from standpipe.model import Column, LogIndex, Source
from standpipe.sql.schemas.registry import SchemaRefused, SchemaRegistryUnavailable

#: of a new cluster
NEW = replace(EMPTY, feature_level=feature_levels.NEWEST)
SOURCE = sample_stream(
    topic="t",
    key_format="AVRO",
    value_format="AVRO",
    columns=(
        Column(name="K", type="INTEGER", is_key=True),
        Column(name="V", type="INTEGER"),
        Column(name="H", type="BYTES", header="h"),
    ),
)


def command(source: Source) -> CreateSource:
    receipt = Receipt(statement="", command_id="", message="")
    return CreateSource(source=source, request_id="r", receipt=receipt)


def registered(source: Source, known: KnownSchemas) -> dict[str, int]:
    asked = command(source)
    assert registered_schemas.register(asked, NEW, known) is asked, "it names no ids"
    return {subject: len(versions) for subject, versions in known.subjects.items()}


@pytest.mark.parametrize(
    ("source", "subjects", "why"),
    [
        (SOURCE, {"t-key": 1, "t-value": 1}, "both parts"),
        (replace(SOURCE, key_format="KAFKA"), {"t-value": 1}, "KAFKA has no schema"),
        (replace(SOURCE, schema_ids=(None, 4)), {"t-key": 1}, "the statement names one"),
        (replace(SOURCE, columns=SOURCE.columns[1:]), {"t-value": 1}, "no key"),
        (replace(SOURCE, columns=SOURCE.columns[::2]), {"t-key": 1}, "headers are no value"),
        (replace(SOURCE, key_format="JSON", value_format="JSON"), {}, "none"),
    ],
)
def test_a_new_topic(source: Source, subjects: dict[str, int], why: str) -> None:
    assert registered(source, KnownSchemas()) == subjects, why


def test_a_schema_has_the_language_of_its_format() -> None:
    known = KnownSchemas()
    registered(replace(SOURCE, value_format="JSON_SR"), known)
    assert [known.latest(f"t-{part}").kind for part in ("key", "value")] == ["AVRO", "JSON"]


def test_a_subject_that_has_schemas_keeps_them() -> None:
    known = KnownSchemas()
    known.register("t-value", "AVRO", '"string"')
    assert registered(SOURCE, known) == {"t-key": 1, "t-value": 1}
    assert known.latest("t-value").text == '"string"'


def test_a_registry_that_refuses_or_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    known = KnownSchemas(is_down=True)
    with pytest.raises(SchemaRegistryUnavailable):
        registered(SOURCE, known)

    def refuse(*_: object, asks: bool = False) -> int:
        raise SchemaRefused("too old")

    known.is_down = False
    monkeypatch.setattr(known, "register", refuse)
    with pytest.raises(StatementError, match=r"Could not register schema for topic: too old"):
        registered(SOURCE, known)


def test_without_a_registry() -> None:
    asked = command(SOURCE)
    assert registered_schemas.register(asked, EMPTY, None) is asked


STREAM = "CREATE STREAM S (ID STRING KEY, V INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');"
TABLE = "CREATE {}TABLE T WITH (FORMAT='AVRO') AS SELECT ID, COUNT(*) AS N{} FROM S GROUP BY ID;"
SINK = "CREATE {}STREAM C WITH (VALUE_FORMAT='AVRO') AS SELECT ID, V{} FROM S;"
FIRST = ("", "")


def logged(sql: str, catalog: Catalog, known: KnownSchemas) -> Any:
    """The command of a statement, as the leader logs it."""
    asked = Request(ksql=sql, request_id="r")
    verdict = judge(asked, catalog, {"s": 4}, schemas=known)
    assert not isinstance(verdict, StatementReply)
    return registered_schemas.register(verdict, catalog, known)


def after(known: KnownSchemas, *statements: str) -> Catalog:
    catalog = NEW
    for sql in statements:
        done = replace(logged(sql, catalog, known), request_id="")
        catalog = apply(catalog, LogIndex(catalog.index + 1), done)
    return catalog


@pytest.mark.parametrize(
    ("statements", "versions", "ids"),
    [
        ((TABLE.format(*FIRST),), {"T-key": 1, "T-value": 1}, (1, 2)),
        (
            (TABLE.format(*FIRST), TABLE.format("OR REPLACE ", ", SUM(V) AS W")),
            {"T-key": 1, "T-value": 2},
            (1, 3),
        ),
        ((SINK.format(*FIRST),), {"C-value": 1}, (None, 1)),
        (
            (SINK.format(*FIRST), SINK.format("OR REPLACE ", ", V + 1 AS W")),
            {"C-value": 2},
            (None, 2),
        ),
        (
            (SINK.format(*FIRST), "INSERT INTO C SELECT ID, V FROM S;"),
            {"C-value": 1},
            (None, 1),
        ),
    ],
)
def test_a_query_gets_the_ids_of_its_schemas(
    statements: tuple[str, ...],
    versions: dict[str, int],
    ids: tuple[int | None, int | None],
) -> None:
    """A second generation is a new version under the subject of the public topic."""
    known = KnownSchemas()
    catalog = after(known, STREAM, *statements)
    assert {subject: len(each) for subject, each in known.subjects.items()} == versions
    newest = list(catalog.queries.values())[-1].plan.schemas
    assert newest is not UNSET
    assert tuple(each and each[0] for each in newest) == ids
    for each in filter(None, newest):
        assert known.by_id(each[0]).text == each[1]


def test_a_subject_that_was_deleted_is_registered_again() -> None:
    """By an operator, as no statement deletes one. A query keeps its id permanently."""
    known = KnownSchemas()
    catalog = after(known, STREAM)
    logged(SINK.format(*FIRST), catalog, known)
    known.subjects.clear()
    (_, value) = logged(SINK.format(*FIRST), catalog, known).query.plan.schemas
    assert known.by_id(value[0]).text == value[1]
    assert set(known.subjects) == {"C-value"}


def test_nothing_is_registered_for_what_cannot_be_logged() -> None:
    known = KnownSchemas()
    older = replace(after(known, STREAM), feature_level=feature_levels.SCHEMAS)
    with pytest.raises(BadRequest, match="create_table_as needs feature level 18"):
        logged(SINK.format(*FIRST), older, known)
    assert known.subjects == {}


JSON_SINK = SINK.replace("AVRO", "JSON_SR")


def test_a_query_into_json_sr_registers_json_schemas() -> None:
    known = KnownSchemas()
    insert = "INSERT INTO C SELECT ID, V FROM S;"
    catalog = after(known, STREAM, JSON_SINK.format(*FIRST))
    assert known.latest("C-value").kind == "JSON"
    (_, value) = logged(insert, catalog, known).query.plan.schemas
    assert value == (1, known.by_id(1).text)
    older = replace(catalog, feature_level=feature_levels.REGISTRY_QUERIES)
    for statement in (insert, JSON_SINK.replace("STREAM C", "STREAM D").format(*FIRST)):
        with pytest.raises(BadRequest, match="over or into JSON_SR needs feature level 19"):
            logged(statement, older, known)


def test_a_given_schema_is_not_registered() -> None:
    known = KnownSchemas()
    schema_id = known.register(
        "other", "AVRO", '{"type":"record","name":"R","fields":[{"name":"V","type":"int"}]}'
    )
    catalog = after(known, STREAM)
    sql = f"CREATE STREAM C WITH (VALUE_FORMAT='AVRO', VALUE_SCHEMA_ID={schema_id}) AS SELECT"
    command = logged(f"{sql} ID, V FROM S;", catalog, known)
    assert list(known.subjects) == ["other"]
    assert command.query.plan.schemas == (None, (1, known.by_id(1).text))


def test_a_query_whose_schema_is_refused_is_not_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    known = KnownSchemas()
    catalog = after(known, STREAM)

    def refuse(*_: object, asks: bool = False) -> int:
        raise SchemaRefused("not compatible")

    known.is_down = True
    with pytest.raises(SchemaRegistryUnavailable):
        logged(SINK.format(*FIRST), catalog, known)
    known.is_down = False
    monkeypatch.setattr(known, "register", refuse)
    with pytest.raises(StatementError, match=r"topic: not compatible\. Subject: C-value"):
        logged(SINK.format(*FIRST), catalog, known)


def test_both_topics_of_a_table_are_made_and_deleted() -> None:
    known = KnownSchemas()
    catalog = after(known, STREAM, TABLE.format(*FIRST))
    own = catalog.sources["T"].topic
    assert {own, "T"} <= set(catalog.topics)
    assert catalog.topics[own].partitions == catalog.topics["T"].partitions == 4
    dropped = apply(catalog, LogIndex(9), DropSource(name="T"))
    assert dropped.doomed_topics == (own,), "the public one is other programs', too"
    dropped = apply(catalog, LogIndex(9), DropSource(name="T", delete_topic=True))
    assert set(dropped.doomed_topics) == {own, "T"}


def test_no_two_tables_are_copied_into_one_topic() -> None:
    known = KnownSchemas()
    catalog = after(known, STREAM, TABLE.format(*FIRST))
    other = TABLE.format(*FIRST).replace("TABLE T WITH (", "TABLE U WITH (KAFKA_TOPIC='T', ")
    with pytest.raises(StatementError, match="Topic 'T' already belongs to TABLE T"):
        logged(other, catalog, known)
    terminated = replace(catalog, sources={}, successors={"T": catalog.sources["T"]})
    terminated = replace(terminated, sources={"S": catalog.sources["S"]})
    with pytest.raises(StatementError, match="Topic T is already written by query CTAS_T_2"):
        logged(other, terminated, known)
