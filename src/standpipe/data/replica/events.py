"""The events and orders of an apply machine (`data/replica/machine.py`).

`RecordsFetched`, `EndReached` and `RecordsGone` are created where Kafka is read
(`adapters/kafka/reader.py`), so these facts have only one representation.

Records arrive as bare tuples, or as columns that become tuples only on access: building and
unpacking a tuple per record is a twentieth of the cost of a restore (bench/restore.py), and a fetch
that is handled column by column (`data/replica/stage.py`) needs none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, overload

from standpipe.data.commit.progress import TargetSet
from standpipe.data.encoding.store_keys import Headers
from standpipe.data.replica.positions import StoreMeta
from standpipe.model import Offset

# ------------------------------------------------------------------------------------ records

#: (offset, key, value, headers) of a Kafka record
Fetched = tuple[int, bytes | None, bytes | None, Headers | None]
#: what a waiting record costs besides its key and value: tuples, headers
RECORD_OVERHEAD_BYTES: Final = 300


class FetchedColumns(Sequence[Fetched]):
    """Records of one partition, offsets ascending: four columns of equal length, immutable."""

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
    """Keys, values and headers of records; at least one record."""
    if isinstance(records, FetchedColumns):
        return records.keys, records.values, records.headers
    _, keys, values, headers = zip(*records, strict=True)
    return keys, values, headers


def offset_of(record: Fetched) -> int:
    """Offset of a record: the key by which a fetch is bisected."""
    return record[0]


def bytes_of(record: Fetched) -> int:
    """Memory that a record takes while it waits, roughly."""
    return len(record[1] or b"") + len(record[2] or b"") + RECORD_OVERHEAD_BYTES


# ------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class RecordsFetched:
    """Kafka delivered records, offsets ascending; there are no others below `next_offset`.

    `times_ms`: the timestamp of each record, if they were asked for.
    """

    records: Sequence[Fetched]
    next_offset: Offset
    times_ms: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class EndReached:
    """Kafka reports that the partition ends here: unfetched records below it do not exist."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class LogEndReported:
    """The end of the partition in Kafka, foreign records included.

    No order ever follows: it is only reported, since right after a change of leader it may be lower
    than what was read.
    """

    end: Offset


@dataclass(frozen=True, slots=True)
class RecordsGone:
    """Kafka has no record at the position and will have none: truncated, deleted or recreated."""


@dataclass(frozen=True, slots=True)
class TopicReported:
    """Kafka was asked at `at_ms` which topic has the name of the replica's, and answered
    `topic_id`; "": its brokers predate topic ids (KIP-516)."""

    topic_id: str
    at_ms: int  # on any clock that does not jump
    partitions: int = 0  # of that topic; 0: unknown


@dataclass(frozen=True, slots=True)
class TopicSilent:
    """Kafka has not answered for `topic_identity.HEARD_MS_MAX` which topic has that name."""


@dataclass(frozen=True, slots=True)
class EndTold:
    """Kafka was asked at `asked_ms` where the readable part of the partition ends. Everything below
    `fetched` had been delivered by then. For direct tables."""

    end: Offset
    fetched: Offset
    asked_ms: int  # on any clock that does not jump


@dataclass(frozen=True, slots=True)
class ProgressCaughtUp:
    """The progress topic was read to its end: no older target can still arrive."""


Event = (
    TargetSet
    | RecordsFetched
    | EndReached
    | LogEndReported
    | RecordsGone
    | TopicReported
    | TopicSilent
    | EndTold
    | ProgressCaughtUp
)


# ------------------------------------------------------------------------------------- orders


@dataclass(frozen=True, slots=True)
class ApplyBatch:
    """One transaction. If a key is put twice, the last row counts; a key is put or deleted, not
    both. The driver stamps `meta` with its clock and boot id."""

    puts: Sequence[tuple[bytes, bytes]]
    deletes: Sequence[bytes]
    meta: StoreMeta


@dataclass(frozen=True, slots=True)
class LeftOutReport:
    """Records of committed ranges that were left out since the last report."""

    foreign: int
    mismatched: int
    unreadable: int
    example: str  # offset and reason of the last one that was not merely foreign


@dataclass(frozen=True, slots=True)
class PauseFetching:
    """Too much waits for a target."""


@dataclass(frozen=True, slots=True)
class ResumeFetching:
    """There is room again."""


@dataclass(frozen=True, slots=True)
class ReportDataLoss:
    """The topics do not have what was applied: they are not the ones that were read."""

    reason: str


@dataclass(frozen=True, slots=True)
class RebuildStore:
    """The topic no longer has records that were not read: build the store from what it has."""

    reason: str


Order = ApplyBatch | LeftOutReport | PauseFetching | ResumeFetching | ReportDataLoss | RebuildStore
