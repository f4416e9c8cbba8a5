"""The progress topic: which ranges of which table topics are committed, and by whom.

Order in the topic is the judge (docs/INTERFACES.md, "Kafka topics"): every reader that takes
records in order comes to the same verdicts, whenever it does. A record is *valid* unless a record
of a newer lease epoch came before it. A valid record makes a *target* for each partition of the
table: the range from the target before it up to its own end offset, of which only records that
carry exactly its commit are visible.

Order is only a judge as long as compaction cannot change it. So each record has a key of its own
(query and commit) and leaves the topic only by a tombstone, which `removable` decides from the
topic alone: a pipeline that wrongly believes it holds the lease may write those tombstones.

Not here: applying (`data/replica/machine.py`); reading Kafka (`adapters/kafka/reader.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Final

import msgspec

from standpipe.model import NO_BATCH, BatchId, Commit, LeaseEpoch, Offset, Progress, Record

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Progress).decode


class TargetSet(Record, frozen=True, kw_only=True):
    """A batch is committed in one partition: its records end at `end`, whole.

    `end` never goes back within a partition. A batch without records here has the `end` of the
    target before it, and still moves the label.
    """

    commit: Commit
    end: Offset
    #: offset at which its range begins; -1: it does not say, and none is known before it
    start: Offset = Offset(-1)
    #: end of the target that the topic has before it; where that is less than `start`, those in
    #: between were tombstoned; -1: it has none
    after: Offset = Offset(-1)
    #: below it offset order alone gives the right rows: every foreign record is repaired, or (of a
    #: stream) no record is left
    clean_through: Offset = Offset(0)
    watermark_ms: int = 0
    source_instant_ms: int = 0
    #: no record of its range is older, for all that is known: when the target before it was
    #: committed. Its own commit says little: a straggler may have written a week before it
    since_ms: int = 0
    committed_at_ms: int = 0  # no record behind `end` is older
    #: the writer found the partition to end before an older target: it is not the log it was
    went_back: bool = False
    #: Kafka's id of the topic that `end` is of; "": it does not say
    topic_id: str = ""

    def waits_for(self, newest: TargetSet) -> bool:
        """Whether a record that says how to read what lies before `start` is still to come.

        Records are tombstoned when a newer one calls their ranges clean, and it stays.
        """
        return max(0, self.after) < self.start and newest.clean_through < self.start

    @property
    def rank(self) -> tuple[int, int, int]:
        """Orders the valid targets of one partition: (end, lease epoch, batch)."""
        return (self.end, self.commit.lease_epoch, self.commit.batch)


class ValidTarget(Record, frozen=True, kw_only=True):
    """A target, and the partition that it is for."""

    query_id: str
    partition: int
    target: TargetSet


def fence(query_id: str, lease_epoch: LeaseEpoch, *, nonce: int, now_ms: int = 0) -> Progress:
    """What a pipeline appends before its first batch of a query: older writers end here."""
    commit = Commit(lease_epoch=lease_epoch, batch=NO_BATCH, attempt=nonce)
    return Progress(query_id=query_id, commit=commit, committed_at_ms=now_ms)


def progress_key(progress: Progress) -> bytes:
    """Key of a record: ``["<query>", <lease epoch>, <batch>, <attempt>]``; a fence's batch is -1.

    No two records share a key. If a second fence of an epoch took the place of the first, what a
    zombie wrote between the two would become valid for readers that come after compaction.
    """
    commit = progress.commit
    return _encode([progress.query_id, commit.lease_epoch, commit.batch, commit.attempt])


def is_fence(progress: Progress) -> bool:
    """Whether the record announces a lease holder and commits nothing."""
    return progress.commit.batch == NO_BATCH


def serialise(progress: Progress) -> tuple[bytes, bytes]:
    """(key, value) of a progress record or a fence."""
    return progress_key(progress), _encode(progress)


def parse(value: bytes) -> Progress:
    """Raises ValueError when the bytes are no progress record."""
    try:
        return _decode(value)
    except msgspec.MsgspecError as error:
        raise ValueError(f"no progress record: {value[:80]!r}: {error}") from error


class ProgressBook:
    """What a reader of the progress topic, in order and from its beginning, knows.

    The same records give the same book, so two readers at the same offset agree.
    """

    def __init__(self) -> None:
        #: {query: newest lease epoch read}
        self._lease_epochs: dict[str, LeaseEpoch] = {}
        #: {query: newest valid record that is no fence}
        self._newest: dict[str, Progress] = {}
        #: {query: {partition: valid targets in order; the last one is never pruned}}
        self._targets: dict[str, dict[int, list[TargetSet]]] = {}
        #: {(query, partition): end of the newest target that was pruned}
        self._pruned: dict[tuple[str, int], Offset] = {}

    def take(self, progress: Progress) -> list[ValidTarget]:
        """The next record of the topic -> the targets that it sets, none if it is not valid."""
        query, commit = progress.query_id, progress.commit
        if commit.lease_epoch < self._lease_epochs.get(query, 0):
            return []
        self._lease_epochs[query] = commit.lease_epoch
        if is_fence(progress):
            return []
        since_ms = _since_ms(self._newest.get(query), progress)
        self._newest[query] = progress
        known = self._targets.setdefault(query, {}).keys() | progress.sinks.keys()
        return [self._set(progress, partition, since_ms) for partition in sorted(known)]

    def _set(self, progress: Progress, partition: int, since_ms: int) -> ValidTarget:
        known = self.committed_end(progress.query_id, partition)
        before = max(0, known)
        end = Offset(max(before, progress.sinks.get(partition, before)))
        target = TargetSet(
            commit=progress.commit,
            start=Offset(min(max(progress.starts.get(partition, known), known), end)),
            after=known,
            end=end,
            clean_through=Offset(progress.clean_through.get(partition, 0)),
            watermark_ms=progress.watermark_ms,
            source_instant_ms=progress.batch_started_ms,
            since_ms=since_ms,
            committed_at_ms=progress.committed_at_ms,
            went_back=progress.sinks.get(partition, before) < before,
            topic_id=progress.topic_id,
        )
        self._targets[progress.query_id].setdefault(partition, []).append(target)
        return ValidTarget(query_id=progress.query_id, partition=partition, target=target)

    def lease_epoch(self, query_id: str) -> LeaseEpoch:
        """Newest lease epoch that was read; 0: none."""
        return self._lease_epochs.get(query_id, LeaseEpoch(0))

    def newest(self, query_id: str) -> Progress | None:
        """The newest valid record that is no fence: the batch up to which a query is committed."""
        return self._newest.get(query_id)

    def newest_batch(self, query_id: str) -> BatchId:
        """The batch up to which a query is committed; NO_BATCH: none is."""
        newest = self._newest.get(query_id)
        return NO_BATCH if newest is None else newest.commit.batch

    def committed_end(self, query_id: str, partition: int) -> Offset:
        """C(p); -1: nothing is committed that was read."""
        targets = self.targets(query_id, partition)
        return targets[-1].end if targets else Offset(-1)

    def targets(self, query_id: str, partition: int) -> Sequence[TargetSet]:
        """Valid targets in order, without those that were pruned."""
        return self._targets.get(query_id, {}).get(partition, ())

    def partitions(self) -> list[tuple[str, int]]:
        """(query, partition) of everything that is committed."""
        return [(query, each) for query, found in self._targets.items() for each in found]

    def covers(self, query_id: str, partition: int, position: Offset) -> bool:
        """Whether a replica at `position` finds every target that it still needs.

        If not, the topic must be read from its beginning, into a new book.
        """
        return self._pruned.get((query_id, partition), Offset(0)) <= position

    def prune(self, query_id: str, partition: int, applied: Iterable[Offset] = ()) -> None:
        """Forget what every replica of this node (at the positions `applied`) has behind it."""
        targets = self._targets.get(query_id, {}).get(partition)
        if not targets:
            return
        low = min(applied, default=targets[-1].end)
        keep = next((n for n, target in enumerate(targets) if target.end >= low), len(targets) - 1)
        if keep:
            self._pruned[query_id, partition] = targets[keep - 1].end
            del targets[:keep]


def _since_ms(before: Progress | None, progress: Progress) -> int:
    """`TargetSet.since_ms`. Where nothing was committed before, a batch's own rows are all that a
    foreign record of its range can take along, and they are as old as the batch at most."""
    if progress.since_ms:
        return progress.since_ms
    if before is not None:
        return before.committed_at_ms
    return progress.batch_started_ms or progress.committed_at_ms


#: progress records younger than this stay: who comes back soon finds every label
KEEP_MS: Final = 3_600_000


def left_of(rows: Iterable[tuple[bytes, bytes | None]]) -> list[Progress]:
    """What is left of a progress topic's (key, value)s once compaction has seen its tombstones.

    A key occurs once (`progress_key`), and one tombstone for it is enough: a pipeline that prunes
    by what the topic still holds would write them all again each time, until compaction comes.
    """
    left: dict[bytes, Progress] = {}
    for key, value in rows:
        if value is None:
            left.pop(key, None)
        else:
            left[key] = parse(value)
    return list(left.values())


def gone_through(known: Mapping[int, Offset], log_starts: Mapping[int, int]) -> dict[int, Offset]:
    """`clean_through` of a stream's progress records: below it retention has left no record.

    Where there are no records any order gives the right ones, so a reader that finds no progress
    for such a range misses nothing, and `removable` holds for streams as it is. It never goes
    back, or a reader would wait for a record that calls its gap clean once more.
    """
    return {p: Offset(max(clean, log_starts.get(p, 0))) for p, clean in known.items()}


def removable(
    records: Iterable[Progress], query_id: str, now_ms: int, keep_ms: int = KEEP_MS
) -> list[Progress]:
    """Records of one query that may be tombstoned, in the order in which it has to be done.

    `records`: the topic from its beginning, in order (`left_of`). Void ones go; valid ones go when
    every range up to their ends is clean (of a stream: gone by retention, `gone_through`) and the
    newest one, which says so, stays; fences before the last one go at the end, for they are what
    makes the void ones void.
    """
    book = ProgressBook()
    valid: list[Progress] = []
    void: list[Progress] = []
    fences: list[Progress] = []
    for record in records:
        if record.query_id != query_id:
            continue
        is_void = record.commit.lease_epoch < book.lease_epoch(query_id)
        book.take(record)
        (void if is_void else fences if is_fence(record) else valid).append(record)
    newest = book.newest(query_id)
    if newest is None:
        return []
    done = takewhile(
        lambda old: (
            old is not newest
            and old.committed_at_ms < now_ms - keep_ms
            and all(end <= newest.clean_through.get(p, 0) for p, end in old.sinks.items())
        ),
        valid,
    )
    return [*void, *done, *fences[:-1]]
