"""Staging: what a commit's records come to, and how misplaced keys are found among many."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.data.rows import CODEC, commit, in_columns, key_of, numbers, record, table, tumbling

from standpipe.data.encoding import native
from standpipe.data.encoding.store_keys import commit_header, partition_of
from standpipe.data.replica.events import Fetched, bytes_of
from standpipe.data.replica.stage import SAMPLED_ABOVE, RowCodec, Stage
from standpipe.model import Column

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
    one_by_one, by_column = replace(CODEC, to_arrays=None), replace(CODEC, heads=())
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
