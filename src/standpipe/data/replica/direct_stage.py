"""Records of a topic that others write, on their way into the store of a direct table.

Not here: when what is staged becomes visible (`data/replica/direct.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from standpipe.data.encoding.source_values import Cells, array_of, to_cells
from standpipe.data.encoding.store_keys import UnfitKey, partition_of, store_key_from_raw
from standpipe.data.encoding.stored_rows import pack_row, unpack_row
from standpipe.data.replica.events import Fetched, LeftOutReport
from standpipe.model import Source

#: keys of a store -> the rows of those that exist
StoredRows = Callable[[Sequence[bytes]], Mapping[bytes, bytes]]
#: a producer decides how long a number is that does not fit
EXAMPLE_CHARS_MAX: Final = 300

_decode_row = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_version = msgspec.json.Decoder(int).decode


@dataclass(frozen=True)
class DirectCodec:
    """How records of one partition of another program's topic become rows."""

    partition: int
    partitions: int
    to_store_key: Callable[[bytes], tuple[bytes, bytes]]
    to_cells: Callable[[bytes], Cells]
    #: place of the version among the value columns; None: the table has none
    version_at: int | None = None

    @classmethod
    def of(cls, source: Source, partition: int) -> DirectCodec:
        """Raises UnfitKey or ValueError for formats that nodes do not read."""
        names = [column.name for column in source.value_columns]
        return cls(
            partition=partition,
            partitions=source.partitions,
            to_store_key=store_key_from_raw(source.key_columns, source.key_format, bounds=0),
            to_cells=to_cells(source),
            version_at=names.index(source.version_column) if source.version_column else None,
        )

    def is_misplaced(self, raw_key: bytes) -> bool:
        """Whether a lookup would look for the key in another partition."""
        return self.partitions > 1 and partition_of(raw_key, self.partitions) != self.partition

    def version_of(self, row: bytes) -> int:
        """The version of a stored row."""
        assert self.version_at is not None
        return _decode_version(_decode_row(unpack_row(row).value_json)[self.version_at])


@dataclass(frozen=True, slots=True)
class _KeyChange:
    """A record that can be read. `row` None: a deletion. `version` None: it has none."""

    key: bytes
    row: bytes | None
    version: int | None


@dataclass
class DirectStage:
    """The changes of one transaction, as far as they were read."""

    #: store key -> its last row; None: deleted
    changes: dict[bytes, bytes | None] = field(default_factory=dict[bytes, "bytes | None"])
    #: store key -> version of its last row; None: there is no row
    versions: dict[bytes, int | None] = field(default_factory=dict[bytes, "int | None"])
    bytes_staged: int = 0
    mismatched: int = 0
    unreadable: int = 0
    superseded: int = 0
    example: str = ""

    @property
    def keys(self) -> int:
        """Keys that are remembered: those of replays are, too, although they change no row."""
        return max(len(self.changes), len(self.versions))

    @property
    def left_out_records(self) -> int:
        """Records that cannot be read, or are in the partition of another key."""
        return self.mismatched + self.unreadable

    def add(
        self,
        records: Sequence[Fetched],
        times_ms: Sequence[int],
        codec: DirectCodec,
        stored: StoredRows,
    ) -> None:
        """Stage records in order. `stored`: the rows that are in the store now."""
        read: list[_KeyChange] = []
        for record, at_ms in zip(records, times_ms, strict=True):
            try:
                change = _change(record, at_ms, codec)
            except (UnfitKey, ValueError) as error:
                self.unreadable += 1
                self.example = f"offset {record[0]}: {error}"[:EXAMPLE_CHARS_MAX]
                continue
            if change is None:
                self.mismatched += 1
                self.example = f"offset {record[0]}: its key belongs to another partition"
            else:
                read.append(change)
        if codec.version_at is not None:
            self._know_versions(read, codec, stored)
        for change in read:
            self._take(change, is_versioned=codec.version_at is not None)

    def _know_versions(
        self, read: Sequence[_KeyChange], codec: DirectCodec, stored: StoredRows
    ) -> None:
        wanted = [*dict.fromkeys(each.key for each in read if each.key not in self.versions)]
        rows = stored(wanted)
        for key in wanted:
            row = rows.get(key)
            self.versions[key] = None if row is None else codec.version_of(row)

    def _take(self, change: _KeyChange, *, is_versioned: bool) -> None:
        if is_versioned:
            there = self.versions[change.key]
            if change.version is not None and there is not None and change.version < there:
                self.superseded += 1
                return
            self.versions[change.key] = change.version
        self.changes[change.key] = change.row
        self.bytes_staged += len(change.key) + len(change.row or b"")

    def puts_and_deletes(self) -> tuple[list[tuple[bytes, bytes]], list[bytes]]:
        """What a transaction writes, see `data.replica.events.ApplyBatch`."""
        puts = [(key, row) for key, row in self.changes.items() if row is not None]
        return puts, [key for key, row in self.changes.items() if row is None]

    def left_out(self) -> LeftOutReport | None:
        """What to report; None: nothing was left out. A record below its row's version is as usual:
        replays have many."""
        if not self.left_out_records:
            return None
        counts = {"mismatched": self.mismatched, "unreadable": self.unreadable}
        return LeftOutReport(foreign=0, **counts, example=self.example)


def _change(record: Fetched, at_ms: int, codec: DirectCodec) -> _KeyChange | None:
    """None: a lookup would not find it here. Raises UnfitKey or ValueError."""
    _, raw_key, value, _ = record
    if raw_key is None:
        raise UnfitKey("a record without a key")
    if codec.is_misplaced(raw_key):
        return None
    key, full_key = codec.to_store_key(raw_key)
    if value is None:
        return _KeyChange(key, None, None)
    cells = codec.to_cells(value)
    version = None if codec.version_at is None else cells[codec.version_at]
    if version is None and codec.version_at is not None:
        raise ValueError("its VERSION_COLUMN is null")
    return _KeyChange(key, pack_row(array_of(cells), at_ms, full_key), version)
