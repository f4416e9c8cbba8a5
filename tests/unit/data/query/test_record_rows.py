"""Records as full rows: keys, windows, times; what is no event."""

from __future__ import annotations

import msgspec
import pytest
from tests.samples import sample_table

from standpipe.data.encoding.store_keys import HEADER_ROWTIME, rowtime_header
from standpipe.data.query.record_rows import FullRow, RecordRows, TopicRecord, topic_of, writer_of
from standpipe.model import Assignment, Column, LogIndex, NodeId, Snapshot, Source, Window

TABLE = sample_table(
    topic="t",
    query_id="Q",
    columns=(Column(name="K", type="STRING", is_key=True), Column(name="V", type="BIGINT")),
)
HOURS = Window(kind="TUMBLING", size_ms=3600, advance_ms=3600, grace_ms=0, retention_ms=0)
TUMBLING = msgspec.structs.replace(TABLE, window=HOURS)
SESSION = msgspec.structs.replace(
    TABLE, window=msgspec.structs.replace(HOURS, kind="SESSION", size_ms=5)
)
STREAM = msgspec.structs.replace(TABLE, kind="STREAM", query_id=None)
OURS = ((HEADER_ROWTIME, rowtime_header(77)),)


def at(ms: int) -> bytes:
    return ms.to_bytes(8, "big")


@pytest.mark.parametrize(
    ("source", "key", "value", "cells", "why"),
    [
        (TABLE, b"a", b'{"V":1}', ["a", 1, 77], "ROWTIME is in the header of what we wrote"),
        (STREAM, b"a", b'{"V":1}', ["a", 1, 5], "somebody else's header says nothing"),
        (STREAM, None, b'{"V":1}', [None, 1, 5], "a stream's key may be null"),
        (TABLE, None, b'{"V":1}', None, "a table's may not"),
        (STREAM, b"a", None, None, "no event"),
        (STREAM, b"a", b"[", None, "unreadable"),
        (STREAM, b"a", b'{"V":%b}' % (b"[" * 10_000 + b"]" * 10_000), None, "too deep to be read"),
        (TUMBLING, b"a" + at(7200), b'{"V":1}', ["a", 7200, 10800, 1, 77], "start, end"),
        (TUMBLING, b"a", b'{"V":1}', None, "no room for a window"),
        (SESSION, b"a" + at(9) + at(4), b'{"V":1}', ["a", 4, 9, 1, 77], "its end comes first"),
        (SESSION, b"a" + at(9), b'{"V":1}', None, "no room for two bounds"),
    ],
)
def test_row(
    source: Source, key: bytes | None, value: bytes | None, cells: list[object] | None, why: str
) -> None:
    row = RecordRows(source).row(TopicRecord(key, value, 5, OURS, partition=3, offset=9))
    assert (None if row is None else row.cells) == (cells and [*cells, 3, 9]), why


def test_a_deletion_keeps_its_key() -> None:
    row = RecordRows(TUMBLING).row(TopicRecord(b"a" + at(0), None, 5, OURS))
    assert row == FullRow(["a", 0, 3600, None, 77, 0, 0], is_deletion=True)


def test_a_named_column_is_the_time() -> None:
    source = msgspec.structs.replace(TUMBLING, timestamp_column="V")
    row = RecordRows(source).row(TopicRecord(b"a" + at(0), b'{"V":123}', 5, ()))
    assert row is not None
    assert row.cells[4] == 123, "not one of the window's bounds"


def snapshot_of(*sources: Source) -> Snapshot:
    return Snapshot(
        stamp=1, node_id=NodeId("n"), service_id="", cluster_id="", log_index=LogIndex(1),
        leader=NodeId(""), nodes=(), sources=sources, queries=(), assignment=Assignment(),
    )  # fmt: skip


def test_a_copied_topic_is_written_by_its_copier() -> None:
    """CREATE SOURCE TABLE: the copy is ours, the topic that was given is not."""
    copied = msgspec.structs.replace(TABLE, changelog="copy")
    beside = msgspec.structs.replace(STREAM, name="S")
    snapshot = snapshot_of(beside, copied)
    assert (topic_of(copied), topic_of(beside)) == ("copy", "t")
    assert (writer_of("copy", snapshot), writer_of("t", snapshot)) == ("Q", None)


def test_a_topic_that_an_insert_into_writes_beside_has_no_one_writer() -> None:
    """Whichever of its names the statement gave."""
    beside = msgspec.structs.replace(STREAM, name="S")
    written = msgspec.structs.replace(beside, takes_inserts=True)
    assert writer_of("t", snapshot_of(beside, TABLE)) == "Q"
    assert writer_of("t", snapshot_of(written, TABLE)) is None
