"""What an apply machine is told, and what it orders (`data/replica/machine.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from standpipe.data.commit.progress import TargetSet
from standpipe.data.encoding.record_batch import Fetched
from standpipe.data.replica.positions import StoreMeta
from standpipe.model import Offset

# ------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class RecordsFetched:
    """Kafka delivered records, offsets ascending; below `next_offset` there are no others."""

    records: Sequence[Fetched]
    next_offset: Offset


@dataclass(frozen=True, slots=True)
class EndReached:
    """Kafka says that the partition ends here: what was not fetched below is not there."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class LogEndHeard:
    """Kafka told the end of the partition, whoever wrote it. Never an order follows: it is only
    reported, for right after a change of leader it may be lower than what was read."""

    end: Offset


@dataclass(frozen=True, slots=True)
class RecordsGone:
    """Kafka has no record at the position and will have none: truncated, deleted or made anew."""


@dataclass(frozen=True, slots=True)
class TopicHeard:
    """Kafka was asked at `at_ms` which topic has the name of the replica's, and said `topic_id`;
    "": its brokers are from before there were ids (KIP-516)."""

    topic_id: str
    at_ms: int  # on any clock that does not jump


@dataclass(frozen=True, slots=True)
class TopicSilent:
    """Kafka has not said for `topic_identity.HEARD_MS_MAX` which topic has that name."""


@dataclass(frozen=True, slots=True)
class ProgressCaughtUp:
    """The progress topic was read up to its end: no older target can still come."""


Event = (
    TargetSet
    | RecordsFetched
    | EndReached
    | LogEndHeard
    | RecordsGone
    | TopicHeard
    | TopicSilent
    | ProgressCaughtUp
)


# ------------------------------------------------------------------------------------- orders


@dataclass(frozen=True, slots=True)
class ApplyBatch:
    """One transaction. Of a key that is put again the last row counts; a key is put or deleted,
    not both. The driver stamps `meta` with its clock and boot id."""

    puts: Sequence[tuple[bytes, bytes]]
    deletes: Sequence[bytes]
    meta: StoreMeta


@dataclass(frozen=True, slots=True)
class Report:
    """Records of committed ranges that were left out, since the last report."""

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
    """The topics end below what was applied: they are not the ones that were read."""

    reason: str


Order = ApplyBatch | Report | PauseFetching | ResumeFetching | ReportDataLoss
