"""PRINT's lines: formats that are guessed, and guessed anew; what is counted."""

from __future__ import annotations

import struct

import pytest

from standpipe.data.query import topic_print
from standpipe.data.query.record_rows import TopicRecord
from standpipe.data.query.topic_print import NO_FORMAT, Format, TopicPrint


def record(key: bytes | None, value: bytes | None, at_ms: int = 1_579_272_643_005) -> TopicRecord:
    return TopicRecord(key, value, at_ms, (), partition=2)


def at(ms: int) -> bytes:
    return ms.to_bytes(8, "big")


@pytest.mark.parametrize(
    ("key", "formats", "shown", "why"),
    [
        (b"10.0.0.1a", "KAFKA_STRING", "10.0.0.1a", "text"),
        (b"12", "JSON or KAFKA_STRING", "12", "a number is JSON"),
        (b"\0\0\0\7", "KAFKA_INT or KAFKA_STRING", "7", "4 bytes; control characters are text"),
        (at(7), "KAFKA_BIGINT or KAFKA_DOUBLE or KAFKA_STRING", "7", "8 bytes"),
        (struct.pack(">d", -2.5), "KAFKA_BIGINT or KAFKA_DOUBLE", "-4610560118520545280", "double"),
        (
            b"a\xc3\xa4" + at(3_600_000),
            "HOPPING(KAFKA_STRING) or TUMBLING(KAFKA_STRING)",
            "[aä@3600000/-]",
            "a window's start behind a key",
        ),
        (
            b"abc" + at(100) + at(50),
            (
                "SESSION(KAFKA_STRING) or HOPPING(KAFKA_STRING) or TUMBLING(KAFKA_STRING)"
                " or KAFKA_STRING"
            ),
            "[abc@50/100]",
            "end, start",
        ),
        (b"a long text key", "KAFKA_STRING", "a long text key", "no window: its start is no time"),
        (b"\xff", NO_FORMAT, "\\xFF", "bytes"),
        (b"", NO_FORMAT, "", "nothing"),
        (None, "¯\\_(ツ)_/¯ - no data processed", "<null>", "nothing is known yet"),
    ],
)
def test_keys(key: bytes | None, formats: str, shown: str, why: str) -> None:
    formats_of_key, _, line = TopicPrint().lines([record(key, b"{}")])
    assert formats_of_key == f"Key format: {formats}", why
    assert line.startswith(f"rowtime: 2020/01/17 14:50:43.005 Z, key: {shown}, value: {{}}"), why
    assert line.endswith(", partition: 2")


def test_formats_are_said_again_when_fewer_fit() -> None:
    """And the first that fits all shows the bytes, also of the record that was the exception."""
    printed = TopicPrint()
    assert printed.lines([record(b"a", b'{"a": 12}'), record(b"a", None)])[1:] == [
        "Value format: JSON or KAFKA_STRING",
        'rowtime: 2020/01/17 14:50:43.005 Z, key: a, value: {"a": 12}, partition: 2',
        "rowtime: 2020/01/17 14:50:43.005 Z, key: a, value: <null>, partition: 2",
    ]
    assert len(printed.lines([record(b"a", b"{}")])) == 1, "no news"
    assert printed.lines([record(b"a", b"no JSON")])[0] == "Value format: KAFKA_STRING"
    assert printed.lines([record(b"a", b"{}"), record(b"a", b"\xff")])[0].startswith("Value format")


def test_bytes_that_fit_a_format_are_not_shown_as_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs as much as all other formats together."""
    asked: list[bytes] = []
    monkeypatch.setattr(topic_print, "_bytes", lambda data: asked.append(data) or "bytes")
    printed = TopicPrint()
    printed.lines([record(b"a", b"{}"), record(b"b", b"text")])
    assert asked == []
    assert "value: bytes," in printed.lines([record(b"a", b"\xff")])[-1]
    assert asked == [b"\xff"]


def test_interval_and_limit() -> None:
    printed = TopicPrint(interval=2, limit=2)
    lines = printed.lines([record(b"k%d" % number, b"v") for number in range(9)])
    assert [line.split(", ")[1] for line in lines[2:]] == ["key: k0", "key: k2"]
    assert (printed.is_over, printed.lines([record(b"a", b"b")])) == (True, [])
    assert TopicPrint(limit=0).is_over


@pytest.mark.parametrize(
    ("at_ms", "shown"),
    [(-1, "N/A"), (0, "1970/01/01 00:00:00.000 Z"), (2**62, str(2**62))],
)
def test_rowtime(at_ms: int, shown: str) -> None:
    assert TopicPrint().lines([record(b"a", b"b", at_ms)])[-1].startswith(f"rowtime: {shown}, ")


def _avro(data: bytes) -> str:
    if data[:5] != b"\0\0\0\0\7":
        raise ValueError("of another schema")
    return f"{{{data[5:].decode()}}}"


AVRO = Format("AVRO", _avro)


def test_avro_is_the_first_guess_where_there_is_a_registry() -> None:
    printed = TopicPrint(framed=(AVRO,))
    of_key, of_value, line = printed.lines([record(b"\0\0\0\0\7k" + at(50), b"\0\0\0\0\7v")])
    assert of_key.startswith("Key format: HOPPING(AVRO) or TUMBLING(AVRO) or AVRO or HOPPING(")
    assert of_value == "Value format: AVRO or KAFKA_STRING"
    assert "key: [{k}@50/-], value: {v}, " in line
    *_, of_value, line = printed.lines([record(None, b"{}")])
    assert of_value == "Value format: KAFKA_STRING"
    assert "value: {}, " in line


def test_formats_that_name_their_schemas_are_told_apart_by_these() -> None:
    def of_json(data: bytes) -> str:
        if data[:5] != b"\0\0\0\0\1":
            raise ValueError("of another schema")
        return data[5:].decode()

    framed = (AVRO, Format("JSON_SR", of_json))
    printed = TopicPrint(framed=framed)
    _, of_value, line = printed.lines([record(None, b"\0\0\0\0\1{}")])
    assert of_value == "Value format: JSON_SR or KAFKA_STRING"
    assert "value: {}, " in line
    assert printed.schema_ids([record(None, b"\0\0\0\0\7v")]) == {7}, "it still names one"


def test_schemas_are_wanted_only_while_the_format_may_be_avro() -> None:
    framed, plain = record(b"\0\0\0\0\7k", b"\0\0\0\0\1v"), record(b"{}", None)
    assert TopicPrint().schema_ids([framed]) == set()
    printed = TopicPrint(framed=(AVRO,))
    assert printed.schema_ids(iter([framed, plain])) == {7, 1}
    printed.lines([framed])  # its value is of a schema that does not read it
    assert printed.schema_ids([framed]) == {7}
