"""Which topic and formats other programs read, and what a table in AVRO is kept as."""

from __future__ import annotations

import pytest
from msgspec import UNSET
from tests.samples import sample_stream, sample_table

from standpipe.model import Column
from standpipe.sql.declarations.published import is_registered, kept_form, public_form

TABLE = sample_table(query_id="CTAS_T_1", key_format="AVRO", value_format="AVRO")


@pytest.mark.parametrize(
    ("key_type", "key_format", "kept", "why"),
    [
        ("STRING", "AVRO", "KAFKA", "its bytes are known to all that find a partition"),
        ("BIGINT", "AVRO", "KAFKA", "likewise"),
        ("BOOLEAN", "AVRO", "JSON", "KAFKA has no such key"),
        ("STRUCT<`A` INTEGER>", "AVRO", "JSON", "likewise"),
        ("STRING", "DELIMITED", "DELIMITED", "it needs no registry"),
    ],
)
def test_a_table_has_a_copy(key_type: str, key_format: str, kept: str, why: str) -> None:
    columns = (Column(name="K", type=key_type, is_key=True), Column(name="V", type="INTEGER"))
    made = sample_table(
        query_id="CTAS_T_1", columns=columns, key_format=key_format, value_format="AVRO"
    )
    found = kept_form(made)
    assert (found.topic, found.public_topic) == ("CTAS_T_1-changelog", "T")
    assert (found.key_format, found.value_format) == (kept, "JSON"), why
    assert found.public_formats == (key_format, "AVRO")
    assert public_form(found) == made
    assert is_registered(found)


def test_two_key_columns_are_kept_as_json() -> None:
    keys = tuple(Column(name=name, type="INTEGER", is_key=True) for name in "AB")
    found = kept_form(sample_table(query_id="CTAS_T_1", columns=keys, key_format="AVRO"))
    assert (found.key_format, found.public_formats) == ("JSON", ("AVRO", "JSON"))


def test_what_needs_no_copy() -> None:
    stream = sample_stream(value_format="AVRO")
    assert kept_form(stream) is stream, "it has no replicas"
    assert is_registered(stream)
    table = sample_table()
    assert kept_form(table) is table
    assert not is_registered(table)


def test_a_replaced_table_has_its_own_formats_in_its_copy() -> None:
    found = public_form(sample_table(topic="CTAS_T_9-changelog", public_topic="T"))
    assert (found.topic, found.public_topic) == ("T", None)
    assert (found.key_format, found.value_format) == ("KAFKA", "JSON")
    assert found.public_formats is UNSET
