"""Which schemas a batch is read under: asked for once, the same in a replay, and few at a time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import pytest
from tests.known_schemas import KnownSchemas

from standpipe.model import Column, SparkInput
from standpipe.pipeline.failures import registry_failure
from standpipe.pipeline.io.avro import writer_schemas
from standpipe.pipeline.io.avro.kept_answers import KeptAnswers
from standpipe.pipeline.io.avro.writer_schemas import (
    ASK_S_MAX,
    ASKED_MAX,
    Programs,
    WriterSchemas,
    parts_of,
)
from standpipe.sql.schemas.registry import RegisteredSchema, SchemaRegistryUnavailable

TEXT = '{"type":"record","name":"R","fields":[{"name":"V","type":"%s"}]}'
COLUMNS = (Column(name="K", type="BIGINT", is_key=True), Column(name="V", type="INTEGER"))
HEADER = Column(name="H", type="BYTES", header="h")


def source(key_format: str = "AVRO", value_format: str = "AVRO", **more: object) -> SparkInput:
    given = {"columns": COLUMNS, "key_format": key_format, "value_format": value_format, **more}
    return SparkInput(source="S", topic="t", view="V", **given)  # pyright: ignore[reportArgumentType]


class Asked(KnownSchemas):
    """Notes which ids are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[int] = []

    def by_id(self, schema_id: int) -> RegisteredSchema:
        self.ids.append(schema_id)
        return super().by_id(schema_id)


@pytest.fixture
def registry() -> Asked:
    """1: a BIGINT; 2: a record that fits the values; 3: one that fits nothing; 4: no schema."""
    made = Asked()
    for text in ('"long"', TEXT % "int", TEXT % "string"):
        made.register("t", "AVRO", text)
    made.subjects["t"].append(RegisteredSchema(4, "AVRO", "{"))
    return made


def batch(schemas: WriterSchemas, end: int, *named: int, already: Collection[int] = ()) -> Programs:
    """The programs of a batch whose records name these schemas."""

    def unseen(known: Collection[int]) -> Sequence[int]:
        assert set(already) <= set(known)
        return [each for each in named if each not in known]

    return schemas.of_batch({0: end - 1}, {0: end}, unseen)


def ids(programs: Programs) -> list[list[int]]:
    return [sorted(each) for each in programs]


@pytest.mark.parametrize(
    ("read", "names"),
    [
        (source(), ["key", "value"]),
        (source(value_format="JSON"), ["key"]),
        (source(key_format="NONE", columns=COLUMNS[1:]), ["value"]),
        (source(columns=COLUMNS[:1]), ["key"]),
        (source(columns=(*COLUMNS[:1], HEADER)), ["key"]),
        (source(key_format="JSON", value_format="JSON"), []),
    ],
)
def test_parts(read: SparkInput, names: list[str]) -> None:
    assert [part.name for part in parts_of(read)] == names


def test_a_part_without_a_record_around_it() -> None:
    wraps = {part.name: part.wraps for part in parts_of(source(wrap_single_value=False))}
    assert wraps == {"key": False, "value": False}
    assert [part.wraps for part in parts_of(source())] == [False, True]


def test_each_part_has_programs_of_the_schemas_that_fit_it(registry: Asked) -> None:
    schemas = WriterSchemas(parts_of(source()), registry)
    assert ids(batch(schemas, 1, 1, 2, 3, 4, 99)) == [[1], [2]]
    assert ids(batch(schemas, 2, 2, 1, already=(1, 2, 3, 4))) == [[1], [2]]
    assert sorted(registry.ids) == [1, 2, 3, 4, 99]


def test_an_unknown_id_is_asked_for_in_each_batch(registry: Asked) -> None:
    schemas = WriterSchemas(parts_of(source()), registry)
    assert ids(batch(schemas, 1, 5)) == [[], []]
    registry.register("t", "AVRO", TEXT % "int" + " ")
    registry.subjects["t"][-1] = registry.subjects["t"][-1]._replace(schema_id=5)
    assert ids(batch(schemas, 2, 5)) == [[], [5]]


def test_a_slow_registry_is_asked_for_the_rest_by_the_next_try(
    registry: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a run that begins with the batch: what it was told is on disk."""
    monkeypatch.setattr(writer_schemas, "_ASKERS", 1)
    named = (1, 97, 2, 98, 99)

    def tried() -> Programs:
        slow = lambda: len(registry.ids) * ASK_S_MAX / 2  # noqa: E731 each answer takes that long
        kept = KeptAnswers(tmp_path, "V")
        return batch(WriterSchemas(parts_of(source()), registry, kept, slow), 1, *named)

    for known in (2, 4):
        with pytest.raises(SchemaRegistryUnavailable, match=r"2 of . schemas .* 10 s; ") as slow:
            tried()
        assert registry_failure(f"{slow.typename}: {slow.value}"), "the query says why it waits"
        assert registry.ids == [*named[:known]]
    assert ids(tried()) == [[1], [2]]
    assert registry.ids == [*named], "nothing twice"


def test_a_replay_is_read_under_the_same_schemas(registry: Asked, tmp_path: Path) -> None:
    """Though another is known by then, and the registry has lost one."""
    first = WriterSchemas(parts_of(source()), registry, KeptAnswers(tmp_path, "V"))
    assert ids(batch(first, 1, 2, 99)) == [[], [2]]
    assert ids(batch(first, 2, 1, already=(2,))) == [[1], [2]]
    registry.subjects["t"][0] = registry.subjects["t"][0]._replace(schema_id=99)
    del registry.subjects["t"][1]
    again = WriterSchemas(parts_of(source()), registry, KeptAnswers(tmp_path, "V"))
    assert ids(batch(again, 1, 2, 99)) == [[], [2]]
    assert ids(batch(again, 3, 99, already=(1, 2))) == [[1, 99], [2]]


def test_a_replay_that_the_registry_does_not_allow_is_no_replay(
    registry: Asked, tmp_path: Path
) -> None:
    """Its schema was kept nowhere: the batch waits rather than losing records."""
    kept = KeptAnswers(tmp_path, "V")
    kept.keep_known({0: 0}, {0: 1}, [2, 50])
    with pytest.raises(SchemaRegistryUnavailable, match="no schema 50 any more"):
        batch(WriterSchemas(parts_of(source()), registry, kept), 1, 2)


def test_a_replay_waits_for_a_schema_that_was_not_kept(
    registry: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One schema is kept. The batch knew its others, so a node of the registry that is behind
    cannot make their records bad."""
    monkeypatch.setattr(writer_schemas, "KEPT_MAX", 1)
    kept = KeptAnswers(tmp_path, "V")
    first = WriterSchemas(parts_of(source()), registry, kept)
    assert ids(batch(first, 1, 1)) == [[1], []]
    assert ids(batch(first, 2, 2)) == [[1], [2]]
    assert ids(batch(first, 3, 2, already=(2,))) == [[1], [2]]
    lost = registry.subjects["t"].pop(1)
    for end in (2, 3):
        with pytest.raises(SchemaRegistryUnavailable, match="no schema 2 any more"):
            batch(WriterSchemas(parts_of(source()), registry, kept), end, 2)
    assert ids(batch(WriterSchemas(parts_of(source()), registry, kept), 1, 1)) == [[1], []]
    registry.subjects["t"].append(lost)
    for end in (2, 3):
        again = WriterSchemas(parts_of(source()), registry, kept)
        assert ids(batch(again, end, 2)) == [[1], [2]]


def test_kept_schemas_that_were_put_aside_are_not_asked_for(
    registry: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All programs together were too large. The registry has lost a schema since."""
    schemas = WriterSchemas(parts_of(source()), registry, KeptAnswers(tmp_path, "V"))
    assert ids(batch(schemas, 1, 1, 2)) == [[1], [2]]
    monkeypatch.setattr(writer_schemas, "PROGRAMS_CHARS_MAX", schemas._chars() - 1)
    registry.subjects.clear()
    assert ids(batch(schemas, 2, 2)) == [[], [2]]


def test_a_registry_that_is_away_is_not_one_without_the_schema(
    registry: Asked, tmp_path: Path
) -> None:
    schemas = WriterSchemas(parts_of(source()), registry, KeptAnswers(tmp_path, "V"))
    registry.is_down = True
    with pytest.raises(SchemaRegistryUnavailable):
        batch(schemas, 1, 2)
    assert not list(tmp_path.rglob("*.json"))
    registry.is_down = False
    assert ids(batch(schemas, 1, 2)) == [[], [2]]


def test_a_batch_asks_for_so_many_ids(registry: Asked, tmp_path: Path) -> None:
    """Those that come first, which most records name; in a replay for none."""
    new = [*range(100, 100 + ASKED_MAX - 1), 2, 1]
    kept = KeptAnswers(tmp_path, "V")
    assert ids(batch(WriterSchemas(parts_of(source()), registry, kept), 1, *new)) == [[], [2]]
    assert len(registry.ids) == ASKED_MAX
    assert ids(batch(WriterSchemas(parts_of(source()), registry, kept), 1, *new)) == [[], [2]]
    assert len(registry.ids) == ASKED_MAX


def test_a_batch_has_programs_of_bounded_size(
    registry: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a replay the same ones; a later batch begins with its own schemas."""
    wide = TEXT.replace("]}", ',{"name":"more","type":"int"}]}') % "int"
    large = registry.register("t", "AVRO", wide)
    registry.subjects["t"][-1] = registry.subjects["t"][-1]._replace(schema_id=large + 10)
    kept = KeptAnswers(tmp_path, "V")
    (_, alone) = batch(WriterSchemas(parts_of(source()), registry), 1, large + 10)
    monkeypatch.setattr(writer_schemas, "PROGRAMS_CHARS_MAX", len(alone[large + 10]))
    first = WriterSchemas(parts_of(source()), registry, kept)
    assert ids(batch(first, 1, large + 10, 2)) == [[], [2]]
    again = WriterSchemas(parts_of(source()), registry, kept)
    assert ids(batch(again, 1, large + 10, 2)) == [[], [2]]
    assert ids(batch(again, 2, large + 10)) == [[], [large + 10]]
