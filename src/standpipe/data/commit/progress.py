"""The progress topic: which ranges of which table topics are committed, and by which writer.

The topic's order decides (docs/INTERFACES.md, "Kafka topics"): every reader that reads records in
order reaches the same verdicts, whenever it reads. A record is *valid* unless a record of a newer
lease epoch precedes it. A valid record sets a *target* for each partition of the table: the range
from the previous target up to its own end offset, in which only records that carry exactly its
commit are visible.

Order can only decide if compaction cannot change it. So each record has a unique key (query and
commit) and leaves the topic only by a tombstone, which `removable` chooses from the topic alone:
even a pipeline that wrongly believes it holds the lease may write those tombstones.

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


#: orders the valid targets of one partition: (end, lease epoch, batch)
Rank = tuple[int, int, int]


class TargetSet(Record, frozen=True, kw_only=True):
    """A batch is committed in one partition: all its records are below `end`.

    `end` never goes back within a partition. A batch without records here has the previous target's
    `end`, and still advances the batch label.
    """

    commit: Commit
    end: Offset
    #: offset at which its range begins; -1: not given, and no earlier target is known
    start: Offset = Offset(-1)
    #: end of the previous target in the topic; if it is less than `start`, the targets in between
    #: were tombstoned; -1: there is none
    after: Offset = Offset(-1)
    #: below it offset order alone gives the right rows: every foreign record is repaired, or (of a
    #: stream) no record is left
    clean_through: Offset = Offset(0)
    watermark_ms: int = 0
    source_instant_ms: int = 0
    #: no record of its range is known to be older: when the previous target was committed. Its own
    #: commit time says little: a straggler may have written a week earlier
    since_ms: int = 0
    committed_at_ms: int = 0  # no record at or after `end` is older
    #: none of the batch's own records is older; 0: not known
    begun_ms: int = 0
    #: the writer found that the partition ends before an older target: it is a different log
    went_back: bool = False
    #: Kafka's id of the topic that `end` belongs to; "": not given
    topic_id: str = ""

    def waits_for(self, newest: TargetSet) -> bool:
        """Whether a record that tells how to read what precedes `start` is still to come.

        Records are tombstoned only once a newer record, which stays, declares their ranges clean.
        """
        return max(0, self.after) < self.start and newest.clean_through < self.start

    @property
    def rank(self) -> Rank:
        """Its place among the valid targets of its partition."""
        return (self.end, self.commit.lease_epoch, self.commit.batch)


class ValidTarget(Record, frozen=True, kw_only=True):
    """A target, and the partition that it applies to."""

    query_id: str
    partition: int
    target: TargetSet


def fence(query_id: str, lease_epoch: LeaseEpoch, *, nonce: int, now_ms: int = 0) -> Progress:
    """What a pipeline appends before its first batch of a query: it fences older writers."""
    commit = Commit(lease_epoch=lease_epoch, batch=NO_BATCH, attempt=nonce)
    return Progress(query_id=query_id, commit=commit, committed_at_ms=now_ms)


def progress_key(progress: Progress) -> bytes:
    """Key of a record: ``["<query>", <lease epoch>, <batch>, <attempt>]``; a fence's batch is -1.

    No two records share a key. If a second fence of an epoch replaced the first, what a zombie
    wrote between them would become valid for readers that start after compaction.
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
    """Raises ValueError if the bytes are not a progress record."""
    try:
        return _decode(value)
    except (msgspec.MsgspecError, RecursionError) as error:  # its writer chose how deep it is
        raise ValueError(f"not a progress record: {value[:80]!r}: {error}") from error


class ProgressBook:
    """What a reader knows that reads the progress topic in order from its beginning.

    The same records give the same book, so two readers at the same offset agree.
    """

    def __init__(self) -> None:
        #: {query: newest lease epoch read}
        self._lease_epochs: dict[str, LeaseEpoch] = {}
        #: {query: newest valid record that is not a fence}
        self._newest: dict[str, Progress] = {}
        #: {query: {partition: valid targets in order; the last one is never pruned}}
        self._targets: dict[str, dict[int, list[TargetSet]]] = {}
        #: {(query, partition): end of the newest target that was pruned}
        self._pruned: dict[tuple[str, int], Offset] = {}

    def take(self, progress: Progress) -> list[ValidTarget]:
        """The next record of the topic -> the targets that it sets; none if it is not valid."""
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
            source_instant_ms=progress.source_instant_ms,
            since_ms=since_ms,
            committed_at_ms=progress.committed_at_ms,
            begun_ms=progress.batch_started_ms or progress.committed_at_ms,
            went_back=progress.sinks.get(partition, before) < before,
            topic_id=progress.topic_id,
        )
        self._targets[progress.query_id].setdefault(partition, []).append(target)
        return ValidTarget(query_id=progress.query_id, partition=partition, target=target)

    def lease_epoch(self, query_id: str) -> LeaseEpoch:
        """Newest lease epoch read so far; 0: none."""
        return self._lease_epochs.get(query_id, LeaseEpoch(0))

    def newest(self, query_id: str) -> Progress | None:
        """The newest valid record that is not a fence: up to its batch the query is committed."""
        return self._newest.get(query_id)

    def newest_batch(self, query_id: str) -> BatchId:
        """The batch up to which a query is committed; NO_BATCH: none is."""
        newest = self._newest.get(query_id)
        return NO_BATCH if newest is None else newest.commit.batch

    def committed_end(self, query_id: str, partition: int) -> Offset:
        """C(p); -1: no commit was read."""
        targets = self.targets(query_id, partition)
        return targets[-1].end if targets else Offset(-1)

    def committed_ends(self, query_id: str) -> dict[int, Offset]:
        """{partition: committed end} of a query's own topic."""
        return {each: found[-1].end for each, found in self._targets.get(query_id, {}).items()}

    def targets(self, query_id: str, partition: int) -> Sequence[TargetSet]:
        """Valid targets in order, without pruned ones."""
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
        """Forget targets that every replica of this node (at positions `applied`) has passed."""
        targets = self._targets.get(query_id, {}).get(partition)
        if not targets:
            return
        low = min(applied, default=targets[-1].end)
        keep = next((n for n, target in enumerate(targets) if target.end >= low), len(targets) - 1)
        if keep:
            self._pruned[query_id, partition] = targets[keep - 1].end
            del targets[:keep]


def _since_ms(before: Progress | None, progress: Progress) -> int:
    """`TargetSet.since_ms`. If nothing was committed before, a foreign record in the range can only
    supersede the batch's own rows, which are not older than the batch."""
    if progress.since_ms:
        return progress.since_ms
    if before is not None:
        return before.committed_at_ms
    return progress.batch_started_ms or progress.committed_at_ms


#: progress records younger than this stay: a replica that returns soon finds every batch label
KEEP_MS: Final = 3_600_000


def gone_through(known: Mapping[int, Offset], log_starts: Mapping[int, int]) -> dict[int, Offset]:
    """`clean_through` of a stream's progress records: below it retention has left no record.

    In a range without records there is nothing to get wrong, so a reader without progress for it
    misses nothing, and `removable` applies to streams unchanged. It never goes back; otherwise a
    reader would wait for another record that declares its gap clean.
    """
    return {p: Offset(max(clean, log_starts.get(p, 0))) for p, clean in known.items()}


def removable(
    records: Iterable[Progress], query_id: str, now_ms: int, keep_ms: int = KEEP_MS
) -> list[Progress]:
    """Records of one query that may be tombstoned, in the order in which this must be done.

    `records`: the topic from its beginning, in order (`seal.left_of`). Void ones are removed; valid
    ones once every range up to their ends is clean (of a stream: gone, `gone_through`), while the
    newest one, which says so, stays. Fences before the last one are removed at the end,
    because they make the void ones void.
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
