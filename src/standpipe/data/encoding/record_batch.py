"""Records as a fetch brings them: bare tuples, or columns that are tuples only where one looks.

A tuple for each record, made and taken apart again, is a twentieth of what a restore spends
(bench/restore.py); where a fetch goes column by column (`data/replica/stage.py`) nobody needs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, overload

#: of a record, in the order in which they were written
Headers = Sequence[tuple[str, bytes | None]]
#: (offset, key, value, headers) of a Kafka record
Fetched = tuple[int, bytes | None, bytes | None, Headers | None]
#: what a waiting record costs beside its key and value: tuples, headers
RECORD_OVERHEAD_BYTES: Final = 300


class FetchedColumns(Sequence[Fetched]):
    """Records of one partition, offsets ascending: four columns of one length, never changed."""

    __slots__ = ("headers", "keys", "offsets", "values")

    def __init__(
        self,
        offsets: Sequence[int],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers: Sequence[Headers | None],
    ) -> None:
        self.offsets, self.keys, self.values, self.headers = offsets, keys, values, headers

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[Fetched]:
        return zip(self.offsets, self.keys, self.values, self.headers, strict=True)

    @overload
    def __getitem__(self, index: int) -> Fetched: ...
    @overload
    def __getitem__(self, index: slice) -> FetchedColumns: ...
    def __getitem__(self, index: int | slice) -> Fetched | FetchedColumns:
        if isinstance(index, slice):
            return FetchedColumns(
                self.offsets[index], self.keys[index], self.values[index], self.headers[index]
            )
        return self.offsets[index], self.keys[index], self.values[index], self.headers[index]


def columns_of(
    records: Sequence[Fetched],
) -> tuple[Sequence[bytes | None], Sequence[bytes | None], Sequence[Headers | None]]:
    """Keys, values, headers of records, at least one."""
    if isinstance(records, FetchedColumns):
        return records.keys, records.values, records.headers
    _, keys, values, headers = zip(*records, strict=True)
    return keys, values, headers


def offset_of(record: Fetched) -> int:
    return record[0]


def bytes_of(record: Fetched) -> int:
    """Memory that a record takes while it waits, roughly."""
    return len(record[1] or b"") + len(record[2] or b"") + RECORD_OVERHEAD_BYTES
