"""Answers of a registry beside a checkpoint: by batch, the newest hundred."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from standpipe.pipeline.io.avro.kept_answers import BATCHES_MAX, KeptAnswers
from standpipe.sql.schemas.registry import RegisteredSchema


def test_schemas_and_batches_are_found_again(tmp_path: Path) -> None:
    """Also in a copy, as a take-over makes it."""
    kept = KeptAnswers(tmp_path / "a", "V")
    assert kept.schemas() == []
    assert kept.known_in({}, {0: 5}) is None
    schema = RegisteredSchema(7, "AVRO", '"int"', True)
    for _ in range(2):
        kept.keep(schema)
        kept.keep_known({}, {0: 5}, [9, 7])
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    again = KeptAnswers(tmp_path / "b", "V")
    assert again.schemas() == [schema]
    assert again.known_in({}, {0: 5}) == [7, 9]
    assert again.known_in({0: 4}, {0: 5}) is None
    assert KeptAnswers(tmp_path / "b", "W").schemas() == []


def test_the_newest_batches_are_kept(tmp_path: Path) -> None:
    kept = KeptAnswers(tmp_path, "V")
    for end in range(1, BATCHES_MAX + 3):
        kept.keep_known({0: end - 1}, {0: end, 1: 3}, [end])
    found = [kept.known_in({0: end - 1}, {0: end, 1: 3}) for end in (1, 2, 3, BATCHES_MAX + 2)]
    assert found == [None, None, [3], [BATCHES_MAX + 2]]


def test_files_that_are_broken(tmp_path: Path) -> None:
    """A schema is asked for again. A batch whose note is broken cannot run: what it had is unknown,
    and an OSError is tried again, while the operator may restore the file."""
    kept = KeptAnswers(tmp_path, "V")
    for schema_id in (7, 10, 9):
        kept.keep(RegisteredSchema(schema_id, "AVRO", '"int"'))
    kept.keep_known({}, {0: 5}, [7])
    for path in (tmp_path / "schemas" / "V" / "9.json", *tmp_path.rglob("batches/*.json")):
        path.write_bytes(b"")
    assert [each.schema_id for each in kept.schemas()] == [7, 10]
    assert (kept.schema(9), kept.schema(11)) == (None, None)
    with pytest.raises(OSError, match="batches"):
        kept.known_in({}, {0: 5})
