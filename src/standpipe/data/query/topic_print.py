"""Records as PRINT shows them: a line each, and lines that name their possible formats.

Nothing is known about a printed topic, so formats are guessed: PRINT names all formats that fit
every key (and every value) so far, and shows the bytes in the first of them. AVRO and JSON_SR are
two of them where there is a schema registry. Source: ksqlDB's PRINT, without PROTOBUF. One
difference: the last bytes of a long text key could nearly always be a window's start, and ksqlDB
then prints half of the key as a number; here a window starts before the year 10000.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from standpipe.data.encoding.framed_values import schema_id_of
from standpipe.data.encoding.kafka_keys import WINDOW_BYTES, java_double
from standpipe.data.query.record_rows import TopicRecord

NULL: Final = "<null>"
NO_DATA: Final = "¯\\_(ツ)_/¯ - no data processed"
NO_FORMAT: Final = (
    " does not match any supported format. It may be a STRING with encoding other than UTF8, or"
    " some other format."
)
YEAR_10000_MS: Final = 253_402_300_800_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_decode_json = msgspec.json.Decoder().decode

#: bytes -> text; raises ValueError or struct.error if they are not of the format
Reading = Callable[[bytes], str]


class Format(NamedTuple):
    """A format that bytes may have, and how it shows them."""

    name: str
    read: Reading


def _json(data: bytes) -> str:
    _decode_json(data)
    return data.decode()


def _integer(data: bytes) -> str:
    return str(struct.unpack(">i", data)[0])


def _bigint(data: bytes) -> str:
    return str(struct.unpack(">q", data)[0])


def _double(data: bytes) -> str:
    return java_double(struct.unpack(">d", data)[0])


def _string(data: bytes) -> str:
    text = data.decode()
    if not text or "\ufffd" in text:
        raise ValueError("no text")
    return text


#: byte -> as Kafka's Bytes prints it
_SHOWN_BYTES: Final = tuple(
    chr(each) if 32 <= each < 127 and each != ord("\\") else f"\\x{each:02X}" for each in range(256)
)


def _bytes(data: bytes) -> str:
    """For bytes that fit no format; it has no name."""
    return "".join(map(_SHOWN_BYTES.__getitem__, data))


_PLAIN: Final = (
    Format("JSON", _json),
    Format("KAFKA_INT", _integer),
    Format("KAFKA_BIGINT", _bigint),
    Format("KAFKA_DOUBLE", _double),
    Format("KAFKA_STRING", _string),
)


def _session_of(inner: Format) -> Format:
    def read(data: bytes) -> str:
        key, end, start = data[: -2 * WINDOW_BYTES], _instant(data, 2), _instant(data, 1)
        if end < start:
            raise ValueError("ends before it starts")
        return f"[{inner.read(key)}@{start}/{end}]"

    return Format(f"SESSION({inner.name})", read)


def _time_window_of(kind: str, inner: Format) -> Format:
    def read(data: bytes) -> str:
        return f"[{inner.read(data[:-WINDOW_BYTES])}@{_instant(data, 1)}/-]"

    return Format(f"{kind}({inner.name})", read)


def _instant(data: bytes, from_end: int) -> int:
    """The first or second 8 bytes from the end, as an instant in ms."""
    low = len(data) - from_end * WINDOW_BYTES
    if low < 0:
        raise ValueError("too short")
    found = int.from_bytes(data[low : low + WINDOW_BYTES], "big", signed=True)
    if not 0 <= found < YEAR_10000_MS:
        raise ValueError("no instant")
    return found


def _key_formats(plains: Iterable[Format]) -> list[Format]:
    found: list[Format] = []
    for plain in plains:
        windows = [_time_window_of(kind, plain) for kind in ("HOPPING", "TUMBLING")]
        found += (_session_of(plain), *windows, plain)
    return found


class _Guess:
    """What the keys, or the values, of a topic may be."""

    def __init__(self, formats: Iterable[Format]) -> None:
        self._formats = list(formats)
        self._has_seen = False

    def shown(self, data: bytes | None) -> str:
        if data is None:
            return NULL
        self._has_seen = True
        readings = [(each, _read(each, data)) for each in self._formats]
        fits = [(each, text) for each, text in readings if text is not None]
        self._formats = [each for each, _ in fits]
        return fits[0][1] if fits else _bytes(data)

    def may_be(self, names: frozenset[str]) -> bool:
        return any(each.name in names for each in self._formats)

    def said(self) -> str:
        if not self._has_seen:
            return NO_DATA
        return " or ".join(each.name for each in self._formats) or NO_FORMAT


def _read(format_: Format, data: bytes) -> str | None:
    try:
        return format_.read(data)
    except (ValueError, struct.error, msgspec.MsgspecError, RecursionError):
        return None


class TopicPrint:
    """One PRINT: every `interval`-th record, `limit` of them (None: all). `framed`: formats whose
    values name their schemas; none without a schema registry."""

    def __init__(
        self, interval: int = 1, limit: int | None = None, framed: Sequence[Format] = ()
    ) -> None:
        plains = (*framed, *_PLAIN)
        self._framed = frozenset(each.name for each in framed)
        self._interval = interval
        self._left = limit
        self._count = 0
        self._keys, self._values = _Guess(_key_formats(plains)), _Guess(plains)
        self._said: tuple[str, str] = ("", "")

    @property
    def is_over(self) -> bool:
        return self._left == 0

    def schema_ids(self, records: Iterable[TopicRecord]) -> set[int]:
        """Ids of the schemas that these records may have been written under."""
        records = list(records)
        found: set[int | None] = set()
        if self._keys.may_be(self._framed):
            found |= {schema_id_of(each.key) for each in records}
        if self._values.may_be(self._framed):
            found |= {schema_id_of(each.value) for each in records}
        return {each for each in found if each is not None}

    def lines(self, records: Iterable[TopicRecord]) -> list[str]:
        """Lines for the next records, after lines on formats if these changed."""
        shown: list[str] = []
        for record in records:
            if self.is_over:
                break
            self._count += 1
            if (self._count - 1) % self._interval == 0:
                shown.append(self._line(record))
                self._left = None if self._left is None else self._left - 1
        return [*self._news(), *shown] if shown else []

    def _line(self, record: TopicRecord) -> str:
        key, value = self._keys.shown(record.key), self._values.shown(record.value)
        return (
            f"rowtime: {_rowtime(record.timestamp_ms)}, key: {key}, value: {value},"
            f" partition: {record.partition}"
        )

    def _news(self) -> list[str]:
        names = ("Key format: ", "Value format: ")
        before, self._said = self._said, (self._keys.said(), self._values.said())
        told = zip(names, before, self._said, strict=True)
        return [name + now for name, was, now in told if was != now]


def _rowtime(at_ms: int) -> str:
    """`2020/01/17 14:50:43.000 Z`; Kafka says -1 where a record has no time."""
    try:
        at = _EPOCH + timedelta(milliseconds=at_ms)
    except OverflowError:
        return f"{at_ms}"
    return "N/A" if at_ms < 0 else f"{at:%Y/%m/%d %H:%M:%S}.{at_ms % 1000:03d} Z"
