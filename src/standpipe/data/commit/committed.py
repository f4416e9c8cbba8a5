"""What is committed of a query's topic: for other queries, and for pull queries on streams.

A stream has no keys, so no later record corrects what was read too early or twice. Its readers stop
at committed ends (never the log's) and see, in each range, only the records that carry exactly the
commit of its progress record. Both come from the progress topic, so a replay sees the same rows.

Where progress records were tombstoned (only ever those of a table, below `clean_through`), every
record counts, in order, as for a restored replica (`data/commit/repair.py`).

Not here: which progress records are valid (`data/commit/progress.py`); Spark
(`pipeline/io/committed_source.py`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from standpipe.data.commit.progress import ProgressBook, TargetSet
from standpipe.data.encoding.store_keys import HEADER_COMMIT, commit_header
from standpipe.model import Offset, Progress, Source

#: a batch covers at most this many ranges of a partition: each is an entry of the filter's table
RANGES_MAX: Final = 64

Headers = Sequence[tuple[str, bytes | None]]


class Range(NamedTuple):
    """Offsets `low` to `high`, exclusive. `mark`: the commit that its records must carry in their
    header; None: any record counts."""

    low: int
    high: int
    mark: bytes | None


def written_by_one_query(sources: Iterable[Source]) -> dict[str, str]:
    """{topic: the query that writes it} of the topics whose records are all named by the progress
    records of that query. By topic, since it may be declared under several names.

    Not the topic of a CREATE SOURCE TABLE, which its query only reads, nor one that an INSERT INTO
    writes, too: these are read as they are, to their log's end.
    """
    listed = list(sources)
    shared = {source.topic for source in listed if source.takes_inserts}
    return {
        source.topic: source.query_id
        for source in listed
        if source.query_id is not None and source.changelog is None and source.topic not in shared
    }


class Committed:
    """The committed ranges of one query's topic. Progress records arrive in order."""

    def __init__(self, query_id: str) -> None:
        self.query_id = query_id
        self._book = ProgressBook()
        #: Kafka's id of this topic; "": no commit names it
        self.topic_id = ""

    def take(self, record: Progress) -> None:
        """The next record of the progress topic, of any query."""
        if record.query_id == self.query_id:
            self._book.take(record)
            newest = self._book.newest(self.query_id)
            self.topic_id = (newest.topic_id if newest else "") or self.topic_id

    def forget(self, passed: Mapping[int, int]) -> None:
        """Drop what is below these offsets, which no reader will ask for again."""
        for partition, offset in passed.items():
            self._book.prune(self.query_id, partition, [Offset(offset)])

    def end(self, partition: int) -> int:
        """Up to where the partition can be read now."""
        targets = self._targets(partition)
        for target in reversed(targets):
            if not target.waits_for(targets[-1]):
                return target.end
        return 0

    def ends(self) -> dict[int, int]:
        return {p: self.end(p) for query, p in self._book.partitions() if query == self.query_id}

    def ranges(self, partition: int, low: int, high: int) -> list[Range]:
        """The ranges between two offsets, in order; records in none of them must not be seen."""
        targets = self._targets(partition)
        found: list[Range] = []
        for target in targets[bisect_right(targets, low, key=_end) :]:
            found += _cut(_ranges_of(target, targets[-1]), low, high)
            if target.end >= high:
                break
        return found

    def reached(self, positions: Mapping[int, int]) -> tuple[int, int] | None:
        """The newest batch, and the newest lease epoch, of which a record may lie before these
        offsets; None: nothing does."""
        found: list[TargetSet] = []
        for partition, at in positions.items():
            targets = self._targets(partition)
            if targets and at > 0:
                place = bisect_left(targets, at, key=_end)
                found.append(targets[min(place, len(targets) - 1)])
        if not found:
            return None
        commits = [target.commit for target in found]
        return max(one.batch for one in commits), max(one.lease_epoch for one in commits)

    def ends_of(self, batch: int, lease_epoch: int) -> dict[int, int] | None:
        """Where a batch ended in each partition; None: it is older than all that is known.

        What was added to it later, by a load or a repair, comes after its end."""
        found: dict[int, int | None] = {
            partition: _end_of(self._targets(partition), batch, lease_epoch)
            for query, partition in self._book.partitions()
            if query == self.query_id
        }
        if all(end is None for end in found.values()):
            return None
        begins = {each: max(0, self._targets(each)[0].start) for each in found}
        return {each: begins[each] if end is None else end for each, end in found.items()}

    def is_exact(self, partition: int, low: int) -> bool:
        """Whether it is known which records from this offset on are committed. Where it is not,
        their newer versions are there, and compaction has removed them, or may at any time."""
        later = self._later(partition, low)
        return not any(max(low, target.after) < target.start for target in later)

    def is_younger(self, partition: int, low: int, than_ms: int) -> bool:
        """Whether all that is committed from this offset on was written after that time."""
        return all(target.begun_ms > than_ms for target in self._later(partition, low))

    def newest(self) -> Progress | None:
        """The newest commit; None: nothing is committed."""
        return self._book.newest(self.query_id)

    def table_ranges(self) -> dict[int, list[Range]] | None:
        """{partition: the ranges of the newest commit}, for a reader that keeps the newest record
        of each key. Below `clean_through` every record counts, so the ranges are few.

        None: progress records are missing, and the one that says what they committed was not read
        yet (`TargetSet.waits_for`).
        """
        newest = self.newest()
        found: dict[int, list[Range]] = {}
        for partition, end in self._book.committed_ends(self.query_id).items():
            if self.end(partition) < end or newest is None:
                return None
            clean = min(newest.clean_through.get(partition, 0), end)
            by_order = [Range(0, clean, None)] if clean else []
            found[partition] = by_order + self.ranges(partition, clean, end)
        return found

    def doubtful(self, log_ends: Mapping[int, int], gone_ms: int) -> dict[int, tuple[int, int]]:
        """{partition: offsets} of what only its own records can clear: a foreign tombstone among
        them, written before `gone_ms`, may have left the topic after it had superseded a row. If
        none of these records is missing, it has not (`data/replica/gaps.py`, obstacle 3)."""
        newest = self.newest()
        found: dict[int, tuple[int, int]] = {}
        for partition, log_end in log_ends.items():
            clean = newest.clean_through.get(partition, 0) if newest else 0
            ranges = [(int(t.end), t.since_ms) for t in self._targets(partition)]
            if newest is not None:  # beyond the newest commit
                ranges.append((log_end, newest.committed_at_ms))
            if log_end > clean and any(e > clean and since < gone_ms for e, since in ranges):
                found[partition] = (clean, log_end)
        return found

    def shows(self, partition: int, offset: int, headers: Headers) -> bool:
        """Whether the record at this offset is committed."""
        return any(
            each.mark is None or (HEADER_COMMIT, each.mark) in headers
            for each in self.ranges(partition, offset, offset + 1)
        )

    def is_by_order(self, partition: int, offset: int) -> bool:
        """Whether any record at this offset counts, so that one which is shown may be foreign."""
        return any(each.mark is None for each in self.ranges(partition, offset, offset + 1))

    def next_ends(self, starts: Mapping[int, int], records_max: int) -> dict[int, int]:
        """Where a batch that begins at `starts` ends: committed, and not too large.

        Each partition's share of `records_max` offsets is proportional to what it has to read.
        """
        there = {p: max(0, self.end(p) - start) for p, start in starts.items()}
        total = sum(there.values())
        ends: dict[int, int] = {}
        for partition, start in starts.items():
            share = there[partition]
            if total > records_max:
                share = min(share, max(1, share * records_max // total)) if share else 0
            ends[partition] = self._within_bounds(partition, start, start + share)
        return ends

    def _within_bounds(self, partition: int, start: int, end: int) -> int:
        """At most RANGES_MAX ranges, and nothing after a range in which any record counts."""
        found = self.ranges(partition, start, end)
        for place, each in enumerate(found):
            if each.mark is None or place + 1 == RANGES_MAX:
                return each.high
        return end

    def _later(self, partition: int, low: int) -> Sequence[TargetSet]:
        """The targets with records from this offset on."""
        targets = self._targets(partition)
        return targets[bisect_right(targets, low, key=_end) :]

    def _targets(self, partition: int) -> Sequence[TargetSet]:
        return self._book.targets(self.query_id, partition)


def _end(target: TargetSet) -> int:
    return target.end


def _end_of(targets: Iterable[TargetSet], batch: int, lease_epoch: int) -> int | None:
    """The end of the first target of a batch, or of the last one before it. Lease epochs never go
    back, nor do batches within one: only where Kafka lost commits is the batch itself missing."""
    found: int | None = None
    for target in targets:
        commit = target.commit
        if commit.batch > batch or commit.lease_epoch > lease_epoch:
            break
        found = target.end
        if (commit.batch, commit.lease_epoch) == (batch, lease_epoch):
            break
    return found


def _ranges_of(target: TargetSet, newest: TargetSet) -> list[Range]:
    """The target's own range, and before it the range whose progress records are gone."""
    after, start = max(0, target.after), target.start
    if start < 0:  # a record that does not say where it begins
        start = min(newest.clean_through, target.end)
    mark = commit_header(target.commit)
    return [Range(after, start, None), Range(max(after, start), target.end, mark)]


def _cut(ranges: Sequence[Range], low: int, high: int) -> list[Range]:
    cut = [Range(max(low, each.low), min(high, each.high), each.mark) for each in ranges]
    return [each for each in cut if each.low < each.high]
