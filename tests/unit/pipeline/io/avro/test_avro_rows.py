"""Which functions write a query's rows in AVRO, from its plan alone. What they write: on real Spark
in tests/e2e/test_avro_sinks_on_spark.py and test_avro_records_on_spark.py."""

from __future__ import annotations

import pytest
from msgspec import UNSET, UnsetType
from msgspec.structs import replace
from tests.samples import sample_stream, sample_table

from standpipe.model import Source, SparkPlan, WrittenSchema
from standpipe.pipeline.io.avro.avro_rows import writers_of
from standpipe.sql.declarations.published import kept_form
from standpipe.sql.declarations.registered import own_schema
from standpipe.sql.declarations.sink_schemas import may_be_unwritable
from standpipe.sql.schemas.avro import BadSchema

PLAN = SparkPlan(version=1, inputs=(), sql="", output_mode="update", is_windowed=False)
STREAM = sample_stream(key_format="AVRO", value_format="AVRO")
KEY, VALUE = (4, own_schema(STREAM, "KEY")), (5, own_schema(STREAM, "VALUE"))
OTHERS = '"bytes"'
JSON_STREAM = sample_stream(key_format="JSON_SR", value_format="JSON_SR")
JSON_KEY = (6, own_schema(JSON_STREAM, "KEY"))
JSON_VALUE = (7, own_schema(JSON_STREAM, "VALUE"))


@pytest.mark.parametrize(
    ("source", "schemas", "made"),
    [
        (sample_stream(), UNSET, []),
        (STREAM, (None, VALUE), [("standpipe_avro_value", 5, True)]),
        (
            STREAM,
            (KEY, VALUE),
            [("standpipe_avro_key", 4, False), ("standpipe_avro_value", 5, True)],
        ),
        (
            kept_form(sample_table(query_id="CTAS_T_1", value_format="AVRO")),
            (None, VALUE),
            [("standpipe_avro_value", 5, True)],
        ),
        (JSON_STREAM, (JSON_KEY, JSON_VALUE), []),
        (
            sample_stream(key_format="JSON_SR", value_format="AVRO"),
            (JSON_KEY, VALUE),
            [("standpipe_avro_value", 5, True)],
        ),
    ],
)
def test_one_for_each_part_in_avro_and_none_in_json_sr(
    source: Source,
    schemas: tuple[WrittenSchema | None, WrittenSchema | None] | UnsetType,
    made: list[tuple[str, int, bool]],
) -> None:
    found = writers_of(source, replace(PLAN, schemas=schemas))
    assert [(each.name, each.schema_id, each.wraps) for each in found] == made


def test_a_schema_that_has_not_the_columns() -> None:
    """A damaged plan: it ends its query by name, as other plans that Spark cannot run do."""
    with pytest.raises(BadSchema, match="no record"):
        writers_of(STREAM, replace(PLAN, schemas=(None, (5, '"int"'))))


@pytest.mark.parametrize(
    ("schemas", "may_be"),
    [
        ((KEY, VALUE), False),
        ((None, VALUE), False),
        ((None, None), False),
        ((KEY, (5, OTHERS)), True),
        (((4, OTHERS), VALUE), True),
        (UNSET, True),
    ],
)
def test_only_our_own_schemas_have_every_row(
    schemas: tuple[WrittenSchema | None, WrittenSchema | None] | UnsetType, may_be: bool
) -> None:
    assert may_be_unwritable(STREAM, schemas) is may_be


def test_the_schema_that_is_written_decides_and_not_the_declaration() -> None:
    """INSERT INTO keeps the schema that the stream had, when the stream is declared again."""
    declared_again = replace(STREAM, schema_ids=UNSET)
    assert may_be_unwritable(declared_again, (KEY, (5, OTHERS)))


def test_rows_without_a_registry_are_not_judged() -> None:
    assert not may_be_unwritable(sample_stream(), UNSET)
