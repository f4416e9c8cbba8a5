"""Records of other programs in a stage: what is kept, what is left out, which version stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from tests.samples import WIDE_ITEMS, json_items, sample_table
from tests.unit.data.rows import key_of, numbers

from standpipe.data.encoding.store_keys import partition_of
from standpipe.data.encoding.stored_rows import pack_row, unpack_row
from standpipe.data.replica.direct_stage import EXAMPLE_CHARS_MAX, DirectCodec, DirectStage
from standpipe.data.replica.events import Fetched, LeftOutReport
from standpipe.model import Column

PLAIN = DirectCodec.of(sample_table(is_direct=True), 0)
VERSIONED = DirectCodec.of(sample_table(is_direct=True, version_column="N"), 0)


def record(offset: int, key: str | None, number: int | None) -> Fetched:
    value = None if number is None else b'{"N":%d}' % number
    return offset, None if key is None else key.encode(), value, None


def staged(
    records: Sequence[Fetched], codec: DirectCodec = PLAIN, rows: Mapping[str, int] = {}
) -> DirectStage:
    """`rows`: what is in the store."""
    there = {key_of(key): pack_row(b"[%d]" % number, 0) for key, number in rows.items()}
    stage = DirectStage()
    times_ms = [1000 + offset for offset, *_ in records]
    stage.add(records, times_ms, codec, lambda keys: {k: there[k] for k in keys if k in there})
    return stage


def shown(stage: DirectStage) -> tuple[dict[str, str], list[bytes]]:
    puts, deletes = stage.puts_and_deletes()
    return {k[:-2].decode(): v.decode() for k, v in numbers(dict(puts)).items()}, deletes


def test_the_last_record_of_a_key_counts_with_its_time() -> None:
    stage = staged([record(0, "a", 1), record(1, "b", 2), record(2, "a", 3), record(5, "b", None)])
    assert shown(stage) == ({"a": "[3]"}, [key_of("b")])
    (row,) = (row for row in stage.changes.values() if row)
    assert unpack_row(row).rowtime_ms == 1002
    assert stage.left_out() is None


def test_what_cannot_be_read_is_left_out_and_its_key_keeps_its_row() -> None:
    bad: Fetched = (1, b"a", b"{", None)
    stage = staged([record(0, "a", 1), bad, record(2, None, 7), (3, b"\xff", b'{"N":1}', None)])
    assert shown(stage) == ({"a": "[1]"}, [])
    assert stage.unreadable == 3
    report = stage.left_out()
    assert report == LeftOutReport(0, 0, 3, example=stage.example)
    assert report.example.startswith("offset 3:")


def test_a_long_number_that_does_not_fit_is_not_logged_whole() -> None:
    long: Fetched = (1, b"a", b'{"N":%s.5}' % (b"1" * 9000), None)
    stage = staged([long])
    assert (stage.unreadable, len(stage.example)) == (1, EXAMPLE_CHARS_MAX)


def test_a_record_in_the_partition_of_another_key_is_left_out() -> None:
    codec = DirectCodec.of(sample_table(partitions=2), 0)
    keys = "abcdefgh"
    right = [key for key in keys if partition_of(key.encode(), 2) == 0]
    stage = staged([record(n, key, n) for n, key in enumerate(keys)], codec)
    assert sorted(shown(stage)[0]) == right
    assert stage.mismatched == len(keys) - len(right) > 0
    assert "belongs to another partition" in stage.example


@pytest.mark.parametrize(
    ("rows", "records", "kept", "superseded", "why"),
    [
        ({"a": 5}, [("a", 4)], {}, 1, "a replay does not take the row back"),
        ({"a": 5}, [("a", 5)], {"a": "[5]"}, 0, "an equal version replaces it"),
        ({"a": 5}, [("a", 6)], {"a": "[6]"}, 0, "a larger one, too"),
        ({}, [("a", 1)], {"a": "[1]"}, 0, "any version makes a row"),
        ({}, [("a", 5), ("a", 4)], {"a": "[5]"}, 1, "within one fetch"),
        ({"a": 5}, [("a", None), ("a", 1)], {"a": "[1]"}, 0, "a deletion forgets the version"),
        ({"a": 5}, [("a", 6), ("a", 5), ("b", -1)], {"a": "[6]", "b": "[-1]"}, 1, "each key"),
    ],
)
def test_the_larger_version_stays(
    rows: dict[str, int],
    records: list[tuple[str, int | None]],
    kept: dict[str, str],
    superseded: int,
    why: str,
) -> None:
    stage = staged([record(n, *each) for n, each in enumerate(records)], VERSIONED, rows)
    assert (shown(stage)[0], stage.superseded) == (kept, superseded), why
    assert stage.left_out() is None, "replays are no fault"


def test_a_later_fetch_is_held_against_what_is_staged() -> None:
    stage = staged([record(0, "a", 7)], VERSIONED, {"a": 5})
    stage.add([record(1, "a", 6)], [0], VERSIONED, lambda keys: {})
    assert shown(stage)[0] == {"a": "[7]"}


def test_a_record_without_a_version_cannot_be_read() -> None:
    stage = staged([(0, b"a", b'{"N":null}', None), (1, b"b", b"{}", None)], VERSIONED)
    assert (stage.changes, stage.unreadable) == ({}, 2)


def test_without_versions_the_store_is_not_read() -> None:
    DirectStage().add([record(0, "a", 1)], [0], PLAIN, lambda keys: pytest.fail("it was read"))


def test_direct_stage_leaves_out_a_record_that_would_make_too_many_fields() -> None:
    columns = (
        Column(name="ID", type="STRING", is_key=True),
        Column(name="V", type=WIDE_ITEMS),
    )
    codec = DirectCodec.of(sample_table(is_direct=True, columns=columns), 0)
    large = b'{"V":%b}' % json_items("{}", 6_000)
    stage = staged([(0, b"a", large, None), (1, b"b", b'{"V":[{}]}', None)], codec)
    assert (stage.unreadable, len(stage.changes)) == (1, 1)
    assert stage.example.startswith("offset 0:")
