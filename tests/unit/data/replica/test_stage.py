"""Staging: what a commit's records come to, and how misplaced keys are found among many."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.data.rows import CODEC, commit, in_columns, key_of, numbers, record, table, tumbling

from standpipe.data.encoding import native
from standpipe.data.encoding.store_keys import commit_header, partition_of
from standpipe.data.encoding.stored_rows import StoredRow, unpack_row
from standpipe.data.replica.events import Fetched, bytes_of
from standpipe.data.replica.stage import SAMPLED_ABOVE, RowCodec, Stage
from standpipe.model import Column, Source
from standpipe.sql.declarations.added_columns import external_query_id

BY = commit(1, 0)
WANTED = commit_header(BY)


def staged(stage: Stage) -> tuple[dict[bytes, bytes], list[bytes]]:
    """(rows, deleted keys) as a transaction makes them."""
    puts, deletes = stage.puts_and_deletes()
    return numbers(dict(puts)), [*deletes]


def test_the_last_record_of_a_key_counts() -> None:
    stage = Stage()
    rows = [("a", 1), ("a", None), ("b", None), ("b", 2), ("c", None)]
    records = [record(n, key, number, BY) for n, (key, number) in enumerate(rows)]
    stage.add(records, CODEC, WANTED)
    assert staged(stage) == ({key_of("b"): b"[2]"}, [key_of("a"), key_of("c")])


@pytest.mark.parametrize("wanted", [WANTED, None])
def test_only_none_takes_any_commit(wanted: bytes | None) -> None:
    stage = Stage()
    stage.add([record(0, "a", 1, commit(1, 1))], CODEC, wanted)
    assert (len(stage.keys), stage.foreign) == ((1, 0) if wanted is None else (0, 1))


def test_stages_follow_one_another() -> None:
    first, second, empty = Stage(), Stage(), Stage()
    first.add([record(0, "a", 1, BY), record(1, "b", 1, BY)], CODEC, WANTED)
    rows = [record(2, "a", None, BY), record(3, "b", 2, BY), record(4, "c", 3, None)]
    second.add(rows, CODEC, WANTED)
    both = empty.followed_by(first).followed_by(second)
    assert staged(both) == ({key_of("b"): b"[2]"}, [key_of("a")])
    assert both.foreign == 1


def test_a_key_that_comes_again_and_again_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("standpipe.data.replica.stage.CHANGES_MAX", 10)
    stage = Stage(room=10)
    for n in range(100):
        rows = [(2 * n, "a", n), (2 * n + 1, "b", None if n % 2 else n)]
        stage.add([record(*row, BY) for row in rows], CODEC, WANTED)
        assert len(stage.keys) <= 12
    assert staged(stage) == ({key_of("a"): b"[99]"}, [key_of("b")])


def test_room_grows_with_what_has_to_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("standpipe.data.replica.stage.CHANGES_MAX", 10)
    stage = Stage(room=10)
    for n in range(11):
        stage.add([record(n, f"k{n}", n, BY)], CODEC, WANTED)
    assert (len(stage.keys), stage.room) == (11, 22), "else each record would look through them all"


@pytest.mark.parametrize(
    ("count", "why"),
    [(3, "all are looked at"), (SAMPLED_ABOVE + 100, "a sample finds one, then all are counted")],
)
def test_misplaced_keys_are_counted(count: int, why: str) -> None:
    keys = [f"key{n}" for n in range(count)]
    codec, stage = RowCodec.of(table(partitions=3), 2), Stage()
    stage.add([record(n, key, 1, BY) for n, key in enumerate(keys)], codec, WANTED)
    away = [key for key in keys if partition_of(key.encode(), 3) != 2]
    assert stage.mismatched == len(away), why
    assert len(stage.keys) == count, "they are committed, so they are kept"


def test_the_window_does_not_decide_the_partition() -> None:
    codec = RowCodec.of(table(partitions=3, window=tumbling()), partition_of(b"a", 3))
    offset, _, value, headers = record(0, "a", 1, BY)
    stage = Stage()
    stage.add([(offset, b"a" + bytes(8), value, headers)], codec, WANTED)
    assert (stage.mismatched, len(stage.keys)) == (0, 1)


def test_a_waiting_record_has_a_size() -> None:
    assert bytes_of(record(0, "abc", 1, BY)) > 3
    assert bytes_of((0, None, None, None)) > 0


def _with(record_: Fetched, *, value: bytes | None = None, headers: object = None) -> Fetched:
    offset, key, old, old_headers = record_
    return (offset, key, value or old, headers if headers is not None else old_headers)  # type: ignore[return-value]


_ODD: tuple[Callable[[Fetched], Fetched], ...] = (
    lambda _: record(0, "a", None, BY),
    lambda _: record(0, None, 1, BY),
    lambda _: record(0, "a", 1, commit(1, 1)),
    lambda _: record(0, "a", 1, None),
    lambda _: record(0, "\0", 1, BY),
    lambda _: record(0, "x" * 600, 1, BY),
    lambda it: _with(it, value=b"no object"),
    lambda it: _with(it, value=b'{"n":5}'),
    lambda it: _with(it, value=b'{"N":\n5}'),
    lambda it: (*it[:3], None),
    lambda it: _with(it, headers=[*(it[3] or ()), ("more", b"")]),
    lambda it: _with(it, headers=[*reversed(it[3] or ())]),
    lambda it: _with(it, headers=[(it[3] or ())[0], ("sp-rowtime", None)]),
    lambda it: _with(it, headers=[(it[3] or ())[0], ("sp-rowtime", bytes(7))]),
)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(_ODD)), max_size=2),
)
def test_at_once_or_one_by_one_is_the_same(
    plain: list[tuple[str, int]], odd: list[tuple[int, Callable[[Fetched], Fetched]]]
) -> None:
    records = [record(n, key, number, BY) for n, (key, number) in enumerate(plain)]
    for place, spoil in odd:
        at = place % len(records)
        records[at] = (at, *spoil(record(at, "a", 1, BY))[1:])
    one_by_one = replace(CODEC, to_arrays=None, heads=())
    by_column = replace(CODEC, heads=())
    columns = in_columns(records)
    stages: list[Stage] = []
    for codec, given_ in (
        (one_by_one, records),
        (by_column, records),
        (by_column, columns),
        (CODEC, records),
        (CODEC, columns),
    ):
        stages.append(Stage())
        stages[-1].add(given_[:2], codec, WANTED)
        stages[-1].add(given_[2:], codec, WANTED)
    assert all(stage == stages[0] for stage in stages)


def _must_not_be_called(_: object) -> Any:
    raise AssertionError("the long way")


@pytest.mark.parametrize(
    "codec",
    [
        replace(CODEC, to_store_key=_must_not_be_called, heads=()),
        *([replace(CODEC, to_arrays=_must_not_be_called)] if native.IS_COMPILED else []),
    ],
)
def test_what_our_writer_makes_goes_at_once(codec: RowCodec) -> None:
    stage = Stage()
    stage.add([record(n, key, n, BY) for n, key in enumerate("aba")], codec, WANTED)
    assert staged(stage) == ({key_of("a"): b"[2]", key_of("b"): b"[1]"}, [])


def test_keys_of_other_commits_are_not_looked_at() -> None:
    """A foreign key that no DOUBLE holds ended the tailer: keys were converted before headers were
    compared."""
    columns = (Column(name="K", type="ARRAY<DOUBLE>", is_key=True), table().columns[1])
    source = msgspec.structs.replace(table(), columns=columns, key_format="JSON")
    codec, stage = RowCodec.of(source, 0), Stage()
    ours, foreign = record(0, "a", 1, BY), record(1, "b", 1, commit(1, 1))
    huge = b"[" + b"9" * 400 + b"]"
    rows = [(0, b"[1.0]", *ours[2:]), (1, huge, *foreign[2:]), (2, huge, *ours[2:])]
    for given_ in (rows[:2], rows[2:]):
        stage.add(given_, codec, WANTED)
    assert (len(stage.keys), stage.foreign, stage.unreadable) == (1, 1, 1)


def growing(*names: str) -> Source:
    """A table that began with the column N, of an application."""
    columns = tuple(Column(name=name, type="BIGINT") for name in names)
    return msgspec.structs.replace(
        table(),
        columns=(*table().key_columns, *columns),
        query_id=external_query_id("t"),
        columns_first=1 if len(names) > 1 else msgspec.UNSET,
    )


def stored(codec: RowCodec, values: Sequence[bytes]) -> list[StoredRow]:
    records = [(n, b"k%03d" % n, value, record(0, "a", 1, BY)[3]) for n, value in enumerate(values)]
    stage = Stage()
    stage.add(records, codec, WANTED)
    assert stage.unreadable == 0
    return [unpack_row(row) for row in stage.rows if row is not None]


@pytest.mark.parametrize("is_compiled", [True, False])
@given(st.lists(st.lists(st.integers(-9, 9) | st.none(), min_size=1, max_size=4), max_size=6))
def test_replicas_that_know_other_columns_stage_the_same_rows(
    is_compiled: bool, cells: list[list[int | None]]
) -> None:
    """A writer may know a column before a replica does, or not know it when the replica does."""
    names = ("N", "M", "L", "K2")
    values = [msgspec.json.encode(dict(zip(names, each, strict=False))) for each in cells]
    expected = [StoredRow(msgspec.json.encode(each), 0, b"", len(each) - 1) for each in cells]
    with contextlib.nullcontext() if is_compiled else mock.patch.object(native, "_native", None):
        for known in range(1, len(names) + 1):
            assert stored(RowCodec.of(growing(*names[:known]), 0), values) == expected


@pytest.mark.skipif(not native.IS_COMPILED, reason="nothing was compiled")
def test_rows_with_fewer_columns_are_packed_at_once() -> None:
    codec = replace(RowCodec.of(growing("N", "M"), 0), to_array=_must_not_be_called)
    values = [b'{"N":1}', b'{"N":2,"M":3}', b'{"N":4}']
    arrays = [(row.value_json, row.added) for row in stored(codec, values)]
    assert arrays == [(b"[1]", 0), (b"[2,3]", 1), (b"[4]", 0)]
    with pytest.raises(AssertionError, match="the long way"):
        stored(codec, [*values, b'{"N":1,"M":2,"L":3}'])


def test_a_record_without_the_first_columns_has_no_row() -> None:
    """No writer of ours leaves one out."""
    stage, codec = Stage(), RowCodec.of(growing("N", "M"), 0)
    stage.add([(0, b"a", b"{}", record(0, "a", 1, BY)[3])], codec, WANTED)
    assert (stage.rows, stage.unreadable) == ([], 1)
    assert "not 1 columns and those that were added" in stage.example


@pytest.mark.parametrize(
    "changes", [{"query_id": "CTAS_T_1"}, {"query_id": "EXTERNAL_x"}, {"wrap_single_value": False}]
)
def test_the_rows_of_other_tables_go_by_the_names_of_columns(changes: dict[str, Any]) -> None:
    source = msgspec.structs.replace(growing("N"), **changes)
    codec = RowCodec.of(source, 0)
    assert codec.first is None
    if source.wrap_single_value:
        assert codec.to_array(b'{"M":1,"N":2}') == b"[2]"
