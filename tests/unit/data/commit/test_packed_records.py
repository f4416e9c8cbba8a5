"""Packed records come out as they went in, whatever was taken in between."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standpipe.data.commit import packed_records
from standpipe.data.commit.packed_records import PackedRecord, PackedRecords
from standpipe.data.commit.repair import SweptRecord
from standpipe.data.encoding.store_keys import HEADER_COMMIT, HEADER_ROWTIME

MARKS = (b"one", b"two", None)
headers = st.none() | st.lists(
    st.tuples(st.sampled_from([HEADER_COMMIT, HEADER_ROWTIME]), st.sampled_from(MARKS)), max_size=3
)
steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("add"),
            st.lists(st.tuples(st.integers(1, 3), st.none() | st.binary(max_size=3), headers)),
        ),
        st.tuples(st.just("take"), st.integers(0, 12)),
        st.tuples(st.just("skip"), st.integers(0, 12), st.sampled_from([b"one", b"two"])),
    ),
    max_size=8,
)


def expected(record: SweptRecord) -> PackedRecord:
    commits = tuple(value for name, value in record.headers or () if name == HEADER_COMMIT)
    return PackedRecord(record.offset, record.key, record.written_ms, commits)


@given(st.integers(1, 4), steps)
def test_they_are_what_a_list_would_be(block_records: int, steps) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_records, "BLOCK_RECORDS", block_records)
        packed, model, offset = PackedRecords(), [], 0
        for kind, *of in steps:
            if kind == "add":
                added = []
                for distance, key, of_headers in of[0]:
                    offset += distance
                    added.append(SweptRecord(offset, key, b"value", of_headers, offset + 7))
                packed.extend(added)
                model += [expected(each) for each in added]
            elif kind == "take":
                below = [each for each in model if each.offset < of[0]]
                assert list(packed.take_below(of[0])) == below
                model = model[len(below) :]
            else:
                end, commit = of
                count = packed.skip_below(end, commit)
                assert all(each.offset < end and commit in each.commits for each in model[:count])
                model = model[count:]
            assert list(packed) == model


def test_a_whole_block_of_one_commit_is_skipped() -> None:
    packed, count = PackedRecords(), packed_records.BLOCK_RECORDS
    packed.extend([written(number) for number in range(count + 1)])
    assert packed.skip_below(count + 1, b"two") == 0
    assert packed.skip_below(count - 1, b"one") == 0
    assert packed.skip_below(count, b"one") == count
    assert [each.offset for each in packed] == [count]


def test_they_take_a_tenth_of_what_they_took_before() -> None:
    """Counted by the interpreter: a record, its parts, and its place in a queue."""
    records = [written(number) for number in range(packed_records.BLOCK_RECORDS)]
    packed = PackedRecords()
    packed.extend(records)
    (block,) = packed._blocks
    columns = [each for each in vars(block).values() if not isinstance(each, int)]
    before = sum(size(each) for each in records)
    assert sum(sys.getsizeof(each) for each in columns) < before / 10


def written(number: int) -> SweptRecord:
    """As Kafka's client gives it: nothing is shared."""
    mark, rowtime = bytes(bytearray(b"one")), bytes(bytearray(8))
    made = [(HEADER_COMMIT, mark), (HEADER_ROWTIME, rowtime)]
    return SweptRecord(number, b"customer-%09d" % number, b'{"N":%d}' % number, made, 7 + number)


def size(record: SweptRecord) -> int:
    assert record.headers is not None
    parts = [*record, *record.headers, *(value for _, value in record.headers)]
    return sys.getsizeof(record) + sum(map(sys.getsizeof, parts))
