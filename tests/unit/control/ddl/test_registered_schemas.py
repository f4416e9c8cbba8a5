"""Which schemas a CREATE registers, and which it leaves as they are."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.known_schemas import KnownSchemas
from tests.samples import sample_stream

from standpipe.control.ddl import registered_schemas
from standpipe.control.metadata.commands import CreateSource, Receipt
from standpipe.errors import StatementError
from standpipe.model import Column, Source
from standpipe.sql.schemas.registry import SchemaRefused, SchemaRegistryUnavailable

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
    registered_schemas.register(command(source), known)
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

    def refuse(*_: object) -> int:
        raise SchemaRefused("too old")

    known.is_down = False
    monkeypatch.setattr(known, "register", refuse)
    with pytest.raises(StatementError, match=r"Could not register schema for topic: too old"):
        registered(SOURCE, known)


def test_without_a_registry() -> None:
    registered_schemas.register(command(SOURCE), None)
