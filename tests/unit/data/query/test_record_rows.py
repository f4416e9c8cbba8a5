"""Records as full rows: keys, windows, times; what is no event."""

from __future__ import annotations

import msgspec
import pytest
from tests.known_schemas import KnownSchemas
from tests.samples import sample_table

from standpipe.data.encoding.framed_values import framed
from standpipe.data.encoding.store_keys import (
    HEADER_COMMIT,
    HEADER_REPAIR,
    HEADER_ROWTIME,
    rowtime_header,
)
from standpipe.data.query.record_rows import (
    FullRow,
    RecordRows,
    TopicRecord,
    header_value,
    schema_ids_of,
    topic_of,
    writer_of,
)
from standpipe.model import Assignment, Column, LogIndex, NodeId, Snapshot, Source, Window
from standpipe.sql.schemas.registry import SchemaRegistryUnavailable

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


@pytest.mark.parametrize(
    ("value", "cells", "why"),
    [
        (b'{"V":1}', [1, None], "its writer did not know the column that was added"),
        (b'{"V":1,"W":"x"}', [1, "x"], ""),
        (b'{"V":1,"W":"x","NEW":[2]}', [1, "x"], "this node does not know the newest yet"),
    ],
)
def test_a_record_of_a_table_that_got_columns(value: bytes, cells: list[object], why: str) -> None:
    columns = (*TABLE.columns, Column(name="W", type="STRING"))
    source = msgspec.structs.replace(TABLE, columns=columns, columns_first=1)
    row = RecordRows(source).row(TopicRecord(b"a", value, 5, OURS))
    assert row is not None
    assert row.cells == ["a", *cells, 77, 0, 0], why


def test_a_deletion_keeps_its_key() -> None:
    row = RecordRows(TUMBLING).row(TopicRecord(b"a" + at(0), None, 5, OURS))
    assert row == FullRow(["a", 0, 3600, None, 77, 0, 0], is_deletion=True)


def test_a_named_column_is_the_time() -> None:
    source = msgspec.structs.replace(TUMBLING, timestamp_column="V")
    row = RecordRows(source).row(TopicRecord(b"a" + at(0), b'{"V":123}', 5, ()))
    assert row is not None
    assert row.cells[4] == 123, "not one of the window's bounds"


TYPES = ("INTEGER", "BOOLEAN", "DECIMAL(4, 2)", "MAP<STRING, INTEGER>", "STRUCT<`A` INTEGER>")


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("value", ["[1]", '"x"', "300000000000", "true"])
def test_what_is_no_value_of_its_type_makes_no_row(type_: str, value: str) -> None:
    """In a stream of another program: there was a NULL, a number too large, or, beside MAP and
    STRUCT, an AttributeError that ended the query. A persistent query leaves such records out."""
    if (type_, value) == ("BOOLEAN", "true"):
        value = "1"
    columns = (*STREAM.columns[:1], Column(name="V", type=type_))
    source = msgspec.structs.replace(STREAM, columns=columns)
    record = TopicRecord(b"a", b'{"V":%b}' % value.encode(), 5, ())
    assert RecordRows(source).row(record) is None
    null = RecordRows(source).row(TopicRecord(b"a", b"{}", 5, ()))
    assert null is not None
    assert null.cells[1] is None
    # a foreign record in a topic of ours is not committed, but it must not end a query either
    RecordRows(msgspec.structs.replace(source, query_id="Q")).row(record)


@pytest.mark.parametrize(
    ("named", "value", "time"),
    [
        ({"timestamp_column": "V"}, b'{"V":7}', 7),
        ({"timestamp_column": "V"}, b'{"V":null}', None),
        ({"timestamp_column": "V"}, b'{"V":-7}', None),
        (
            {"timestamp_column": "W", "timestamp_format": "dd.MM.yyyy"},
            b'{"W":"02.01.1970"}',
            86400000,
        ),
        ({"timestamp_column": "W", "timestamp_format": "dd.MM.yyyy"}, b'{"W":"1970"}', None),
        ({"timestamp_column": "K", "timestamp_format": "HH:mm X"}, b"{}", 60000),
        ({}, b"{}", 5),
    ],
)
def test_the_time_of_a_record(named: dict[str, str], value: bytes, time: int | None) -> None:
    """As in persistent queries: a column of text by its format, and no row without a time."""
    columns = (*STREAM.columns, Column(name="W", type="STRING"))
    source = msgspec.structs.replace(STREAM, columns=columns, **named)
    row = RecordRows(source).row(TopicRecord(b"01:01 +01", value, 5, ()))
    assert (None if row is None else row.cells[3]) == time


def keyed(format_: str, *types: str) -> Source:
    keys = tuple(Column(name=f"K{n}", type=of, is_key=True) for n, of in enumerate(types))
    columns = (*keys, Column(name="V", type="BIGINT"))
    return msgspec.structs.replace(STREAM, columns=columns, key_format=format_)


@pytest.mark.parametrize(
    ("format_", "types", "key", "cells"),
    [
        ("JSON", ("STRING", "INTEGER"), b'{"K0":"a","K1":null}', ["a", None]),
        ("JSON", ("STRING", "INTEGER"), b'{"k1":"7"}', [None, 7]),
        ("JSON", ("INTEGER",), b'"7"', [7]),
        ("JSON", ("INTEGER",), b"null", [None]),
        ("JSON", ("STRING",), b"7", ["7"]),
        ("JSON", ("STRUCT<`A` INTEGER, `B` STRING>",), b'{"a":"1"}', [{"A": 1, "B": None}]),
        ("DELIMITED", ("STRING", "INTEGER"), b'"a,",', ["a,", None]),
        ("KAFKA", ("BYTES",), b"\xff", [b"\xff"]),
        ("JSON", ("INTEGER",), b"3000000000", None),
        ("JSON", ("ARRAY<INTEGER>",), b"{}", None),
        ("JSON", ("STRING", "INTEGER"), b"7", None),
        ("DELIMITED", ("STRING", "INTEGER"), b"a", None),
    ],
)
def test_the_key_of_a_streams_record(
    format_: str, types: tuple[str, ...], key: bytes, cells: list[object] | None
) -> None:
    """A key with a null among its columns made no row, also where INSERT … VALUES had written it;
    numbers as text did neither, and parts of nested keys were not looked at."""
    row = RecordRows(keyed(format_, *types)).row(TopicRecord(key, b"{}", 5, ()))
    assert (None if row is None else row.cells[: len(types)]) == cells


def test_the_key_of_a_tables_row_has_no_null() -> None:
    source = msgspec.structs.replace(keyed("JSON", "STRING", "INTEGER"), kind="TABLE")
    assert RecordRows(source).row(TopicRecord(b'{"K0":"a"}', b"{}", 5, ())) is None


def test_a_record_before_1970_is_no_event() -> None:
    assert RecordRows(STREAM).row(TopicRecord(b"a", b"{}", -1, ())) is None


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


@pytest.mark.parametrize("value_format", ["AVRO", "JSON", "DELIMITED"])
def test_rows_of_a_copied_topic(value_format: str) -> None:
    """Our copy is in JSON, whatever the topic is in, and has a column for each header."""
    columns = (*TABLE.columns, Column(name="H", type="STRING", header="h"))
    copied = msgspec.structs.replace(
        TABLE, columns=columns, changelog="copy", value_format=value_format, timestamp_column="V"
    )
    row = RecordRows(copied).row(TopicRecord(b"a", b'{"V":1,"H":"x"}', 5, OURS))
    assert row is not None
    assert row.cells[:4] == ["a", 1, "x", 77]


def test_no_header_of_the_commit_protocol_is_a_column_s() -> None:
    column = Column(name="H", type="ARRAY<STRUCT<KEY STRING, VALUE BYTES>>", header="")
    own = ((HEADER_COMMIT, b"c"), (HEADER_REPAIR, b"r"), *OURS)
    assert header_value(column, (*own, ("h", b"x"))) == [{"KEY": "h", "VALUE": b"x"}]


def test_a_topic_that_an_insert_into_writes_beside_has_no_one_writer() -> None:
    """Whichever of its names the statement gave."""
    beside = msgspec.structs.replace(STREAM, name="S")
    written = msgspec.structs.replace(beside, takes_inserts=True)
    assert writer_of("t", snapshot_of(beside, TABLE)) == "Q"
    assert writer_of("t", snapshot_of(written, TABLE)) is None


AVRO = msgspec.structs.replace(STREAM, key_format="AVRO", value_format="AVRO")
ROW = '{"type":"record","name":"R","fields":[{"name":"%s","type":"%s"}]}'


def test_rows_in_avro() -> None:
    """The second schema is newer; the third does not fit, and there is no fourth."""
    known = KnownSchemas()
    key = known.register("t-key", "AVRO", '"string"')
    made = [
        known.register("t-value", "AVRO", ROW % each)
        for each in (("v", "int"), ("V", "long"), ("v", "string"))
    ]
    rows = RecordRows(AVRO, known)

    def cells(schema_id: int) -> list[object] | None:
        record = TopicRecord(framed(key, b"\x02a"), framed(schema_id, b"\x06"), 5, ())
        row = rows.row(record)
        return None if row is None else row.cells[:2]

    assert [cells(each) for each in (*made, 99)] == [["a", 3], ["a", 3], None, None]
    assert rows.row(TopicRecord(None, framed(made[0], b"\x06"), 5, ())) is not None
    assert rows.row(TopicRecord(b"a", framed(made[0], b"\x06"), 5, ())) is None
    known.is_down = True
    fresh = TopicRecord(None, framed(made[0], b"\x06"), 5, ())
    with pytest.raises(SchemaRegistryUnavailable):
        RecordRows(AVRO, known).row(fresh)
    with pytest.raises(SchemaRegistryUnavailable, match=r"ksql\.schema\.registry\.url"):
        RecordRows(AVRO)


def test_rows_in_json_sr_need_no_schema_and_no_registry() -> None:
    source = msgspec.structs.replace(STREAM, key_format="JSON_SR", value_format="JSON_SR")
    record = TopicRecord(framed(7, b'"a"'), framed(9, b'{"v": 3, "more": 1}'), 5, ())
    row = RecordRows(source).row(record)
    assert row is not None
    assert row.cells[:2] == ["a", 3]
    assert schema_ids_of(source, record) == set()
    for value in (b'{"V": 3}', framed(9, b"{"), framed(9, b'{"V": "x"}'), framed(9, b"")):
        assert RecordRows(source).row(TopicRecord(None, value, 5, ())) is None


def test_schema_ids() -> None:
    record = TopicRecord(framed(7, b""), framed(9, b""), 5, ())
    assert schema_ids_of(AVRO, record) == {7, 9}
    assert schema_ids_of(msgspec.structs.replace(AVRO, key_format="KAFKA"), record) == {9}
    assert schema_ids_of(AVRO, TopicRecord(b"a", None, 5, ())) == set()
    assert schema_ids_of(STREAM, record) == set()
