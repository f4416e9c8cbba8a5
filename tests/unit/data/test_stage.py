"""Staging: what a commit's records come to, and how misplaced keys are found among many."""

from __future__ import annotations

import pytest

from standpipe.data.records import commit_header, partition_of
from standpipe.data.stage import SAMPLED_ABOVE, RowCodec, Stage, bytes_of, stage_records

from .rows import CODEC, commit, key_of, numbers, record, table, tumbling

BY = commit(1, 0)
WANTED = commit_header(BY)


def test_the_last_record_of_a_key_counts() -> None:
    stage = Stage()
    rows = [("a", 1), ("a", None), ("b", None), ("b", 2), ("c", None)]
    records = [record(n, key, number, BY) for n, (key, number) in enumerate(rows)]
    stage_records(records, stage, CODEC, WANTED)
    assert numbers(stage.puts) == {key_of("b"): b"[2]"}
    assert [*stage.deletes] == [key_of("a"), key_of("c")]


@pytest.mark.parametrize("wanted", [WANTED, None])
def test_only_none_takes_any_commit(wanted: bytes | None) -> None:
    stage = Stage()
    stage_records([record(0, "a", 1, commit(1, 1))], stage, CODEC, wanted)
    assert (len(stage.puts), stage.foreign) == ((1, 0) if wanted is None else (0, 1))


def test_stages_follow_one_another() -> None:
    first, second, empty = Stage(), Stage(), Stage()
    stage_records([record(0, "a", 1, BY), record(1, "b", 1, BY)], first, CODEC, WANTED)
    rows = [record(2, "a", None, BY), record(3, "b", 2, BY), record(4, "c", 3, None)]
    stage_records(rows, second, CODEC, WANTED)
    both = empty.followed_by(first).followed_by(second)
    assert numbers(both.puts) == {key_of("b"): b"[2]"}
    assert [*both.deletes] == [key_of("a")]
    assert both.foreign == 1


@pytest.mark.parametrize(
    ("count", "why"),
    [(3, "all are looked at"), (SAMPLED_ABOVE + 100, "a sample finds one, then all are counted")],
)
def test_misplaced_keys_are_counted(count: int, why: str) -> None:
    keys = [f"key{n}" for n in range(count)]
    codec, stage = RowCodec.of(table(partitions=3), 2), Stage()
    stage_records([record(n, key, 1, BY) for n, key in enumerate(keys)], stage, codec, WANTED)
    away = [key for key in keys if partition_of(key.encode(), 3) != 2]
    assert stage.mismatched == len(away), why
    assert len(stage.puts) == count, "they are committed, so they are kept"


def test_the_window_does_not_decide_the_partition() -> None:
    codec = RowCodec.of(table(partitions=3, window=tumbling()), partition_of(b"a", 3))
    offset, _, value, headers = record(0, "a", 1, BY)
    stage = Stage()
    stage_records([(offset, b"a" + bytes(8), value, headers)], stage, codec, WANTED)
    assert (stage.mismatched, len(stage.puts)) == (0, 1)


def test_a_waiting_record_has_a_size() -> None:
    assert bytes_of(record(0, "abc", 1, BY)) > 3
    assert bytes_of((0, None, None, None)) > 0
