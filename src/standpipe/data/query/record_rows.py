"""Records of a topic as rows of the stream or table declared over it.

The full row is: key columns, WINDOWSTART and WINDOWEND if windowed, value columns, then ROWTIME,
ROWPARTITION and ROWOFFSET. Values are those of `data/encoding/cells.py`. A record that cannot be
read has no row, as in a persistent query.

Not here: which records are committed (`data/commit/committed.py`); reading Kafka.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from standpipe.data.encoding.cells import row_of, value_of
from standpipe.data.encoding.framed_values import schema_id_of
from standpipe.data.encoding.kafka_keys import WINDOW_BYTES
from standpipe.data.encoding.row_values import UnreadableValue, to_array
from standpipe.data.encoding.source_values import to_key_values, to_values
from standpipe.data.encoding.store_keys import HEADER_ROWTIME, OWN_HEADERS, UnfitKey
from standpipe.data.query.scan import types_of
from standpipe.model import Column, Snapshot, Source
from standpipe.sql.declarations.properties import READ_BY_SCHEMA, REGISTRY_FORMATS
from standpipe.sql.expressions.python.instants import parse_timestamp
from standpipe.sql.schemas.registry import Schemas
from standpipe.sql.types.types import INSTANT_MS_MAX

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """One record as it is in Kafka."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers
    partition: int = 0
    offset: int = 0

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")


@dataclass(slots=True)
class Share:
    """What may be handled at once: a number of records, or of bytes, read and shown."""

    records: int
    size: int

    def draw(self, waiting: deque[TopicRecord]) -> Iterator[TopicRecord]:
        """The next ones; the last may exceed `size`, since it may be larger by itself."""
        while waiting and self.records > 0 and self.size > 0:
            record = waiting.popleft()
            self.records -= 1
            self.size -= record.size
            yield record


@dataclass(frozen=True, slots=True)
class FullRow:
    """A record's row. `is_deletion`: a deletion in a table; the value columns are all NULL."""

    cells: list[Any]
    is_deletion: bool = False


def topic_of(source: Source) -> str:
    """The topic with a source's rows; for a CREATE SOURCE TABLE, our copy of the given topic."""
    return source.changelog or source.topic


def writer_of(topic: str, snapshot: Snapshot) -> str | None:
    """Id of the query that writes a topic, by which its commits are known; None: another writer.

    By topic, since it may be declared under several names. A topic that an INSERT INTO writes too
    is read as it is: no progress record names all its rows.
    """
    known = (*snapshot.sources, *snapshot.transients)
    on_topic = [each for each in known if topic_of(each) == topic]
    if any(each.takes_inserts for each in on_topic):
        return None
    return next((each.query_id for each in on_topic if each.query_id is not None), None)


def schema_ids_of(source: Source, record: TopicRecord) -> set[int]:
    """Ids of the schemas that a registry has to know for this record's row."""
    found: set[int | None] = set()
    if source.value_format in READ_BY_SCHEMA:
        found.add(schema_id_of(record.value))
    if source.key_format in READ_BY_SCHEMA:
        found.add(schema_id_of(record.key))
    return {each for each in found if each is not None}


class RecordRows:
    """The rows of one source's records. `schemas`: the schema registry; None: there is none."""

    def __init__(self, source: Source, schemas: Schemas | None = None) -> None:
        source = source.stored_form()  # its changelog, as `topic_of`
        self._source = source
        self._keys = source.key_columns
        self._columns = source.value_columns
        plain = tuple(column for column in self._columns if column.header is None)
        types = types_of(plain)
        if source.query_id is not None and source.value_format not in REGISTRY_FORMATS:
            convert = to_array(source)
            self._cells: Callable[[bytes], list[Any]] = lambda value: row_of(convert(value), types)
        else:  # also of somebody else's program: what is no value of its type makes no row
            read = to_values(source, plain, schemas)
            self._cells = lambda value: [*map(value_of, read(value), types)]
        self._key_types = types_of(source.key_columns)
        self._read_key = to_key_values(source, schemas)

    def row(self, record: TopicRecord) -> FullRow | None:
        """None: no event (a null value in a stream, a null key in a table), or unreadable, or of
        no time that a query can have. Raises SchemaRegistryUnavailable."""
        is_table = self._source.kind == "TABLE"
        if (record.key if is_table else record.value) is None:
            return None
        try:
            head = self._key(record.key)
            rest = self._value(record)
        except (UnfitKey, UnreadableValue, ValueError, RecursionError):
            return None
        row = [*head, *rest]
        rowtime = self._rowtime(record, row)
        if record.value is not None and (rowtime is None or not 0 <= rowtime < INSTANT_MS_MAX):
            return None
        row += (rowtime, record.partition, record.offset)
        return FullRow(row, is_deletion=record.value is None)

    def _key(self, raw: bytes | None) -> list[Any]:
        """Key columns, and the window's bounds."""
        window = self._source.window
        bounds: tuple[int, ...] = ()
        if window is not None:
            if raw is None:
                raise UnfitKey("a windowed record without a key")
            raw, bounds = _window_of(raw, window.size_ms if window.kind != "SESSION" else None)
        if raw is None or not self._keys:
            return [*(None for _ in self._keys), *bounds]
        cells = [*map(value_of, self._read_key(raw), self._key_types)]
        if self._source.kind == "TABLE" and None in cells:
            raise UnfitKey("a table's key with a null")
        return [*cells, *bounds]

    def _value(self, record: TopicRecord) -> list[Any]:
        if record.value is None:
            return [None for _ in self._columns]
        cells = iter(self._cells(record.value))
        return [
            next(cells) if column.header is None else header_value(column, record.headers)
            for column in self._columns
        ]

    def _rowtime(self, record: TopicRecord, row: Sequence[Any]) -> int | None:
        """The named column's time, else the header's if a query wrote it, else the record's.

        None: the named column is NULL, or is no time. Such records have no event in ksqlDB either.
        """
        source = self._source
        if source.timestamp_column is not None and record.value is not None:
            return self._named_time(row)
        for name, value in record.headers:
            if name == HEADER_ROWTIME and value is not None and source.query_id is not None:
                return int.from_bytes(value, "big", signed=True)
        return record.timestamp_ms

    def _named_time(self, row: Sequence[Any]) -> int | None:
        skipped = 2 if self._source.window is not None else 0
        cells = [*row[: len(self._keys)], *row[len(self._keys) + skipped :]]
        named = zip([*self._keys, *self._columns], cells, strict=True)
        found = next(cell for column, cell in named if column.name == self._source.timestamp_column)
        if self._source.timestamp_format is not None and found is not None:
            found = parse_timestamp(str(found), self._source.timestamp_format)
        return None if found is None else int(found)


def _window_of(raw: bytes, size_ms: int | None) -> tuple[bytes, tuple[int, int]]:
    """(key, bounds) of a windowed key as Kafka Streams writes it; `size_ms` None: a session, whose
    end precedes its start in the bytes. Raises UnfitKey."""
    width = WINDOW_BYTES if size_ms is not None else 2 * WINDOW_BYTES
    if len(raw) < width:
        raise UnfitKey(f"a windowed key has at least {width} bytes, not {len(raw)}")
    start = int.from_bytes(raw[-WINDOW_BYTES:], "big", signed=True)
    if size_ms is not None:
        return raw[:-width], (start, start + size_ms)
    end = int.from_bytes(raw[-width:-WINDOW_BYTES], "big", signed=True)
    return raw[:-width], (start, end)


def header_value(column: Column, headers: Headers) -> Any:
    """All headers as ksqlDB shows them, or the newest value under one key."""
    own = [each for each in headers if each[0] not in OWN_HEADERS]
    if column.header == "":
        return [{"KEY": key, "VALUE": value} for key, value in own]
    return next((value for key, value in reversed(own) if key == column.header), None)
