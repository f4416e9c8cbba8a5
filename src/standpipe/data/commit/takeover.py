"""What the writer of a query may do next: take it over, continue after a batch, commit these ends.

The decisions of the pipeline's side of the commit protocol, each with its
reason. Both `pipeline/` and the simulation (`tests/sim/data_world.py`) call these functions.

Not here: which records of the progress topic are valid (`data/commit/progress.py`), repair
(`data/commit/repair.py`), Spark's files (`pipeline/commit/checkpoint.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from standpipe.data.commit.progress import ProgressBook
from standpipe.model import NO_BATCH, BatchId, LeaseEpoch, Offset, Progress


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What a pipeline finds in the progress topic once it has read up to its own fence."""

    #: the newest batch that readers may see; None: none was ever committed
    newest: Progress | None
    #: lease epoch of another pipeline that fenced this one; None: the query is ours
    fenced_by: LeaseEpoch | None

    @property
    def valid(self) -> BatchId:
        """The newest batch that readers may see; NO_BATCH: none."""
        return NO_BATCH if self.newest is None else self.newest.commit.batch

    @property
    def ends(self) -> Mapping[int, int]:
        """Committed end of each partition."""
        return {} if self.newest is None else self.newest.sinks

    @property
    def clean_through(self) -> Mapping[int, int]:
        """{partition: offset below which no key is shadowed}, as the newest batch says."""
        return {} if self.newest is None else self.newest.clean_through


def standing(records: Iterable[Progress], query_id: str, lease_epoch: LeaseEpoch) -> Standing:
    """`records`: the progress topic from its beginning up to our fence, in order.

    A fenced pipeline must not touch the checkpoint: it belongs to the newer pipeline.
    """
    book = ProgressBook()
    for record in records:
        if record.query_id == query_id:
            book.take(record)
    newest_epoch = book.lease_epoch(query_id)
    return Standing(
        newest=book.newest(query_id),
        fenced_by=newest_epoch if newest_epoch > lease_epoch else None,
    )


@dataclass(frozen=True, kw_only=True)
class Surplus:
    """Batches whose entries must be removed from the two logs, so that Spark reruns them."""

    commits: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()


class Logs(NamedTuple):
    """The content of Spark's two logs in one checkpoint directory."""

    commits: frozenset[int]
    #: {batch: what it covers, as `Progress.sources` has it}
    offsets: Mapping[int, Mapping[str, Mapping[int, int]]]


def heir_of(found: Mapping[LeaseEpoch, Logs], *newest: Progress | None) -> LeaseEpoch | None:
    """Which lease epoch's checkpoint to continue from, or None: none of them has the newest batch.

    Each lease epoch has its own directory, created as a copy of the one chosen here. A zombie keeps
    writing to Spark's logs, and in a shared directory would determine what our batches cover. So a
    checkpoint that has the batch must also agree with what was committed for it.

    `newest`: the newest batch of the query; in a group, that of each member. A driver may die
    between two of their progress records; then the batch of some is one more than that of others.
    It is several more where a zombie could commit some of them longer (`is_apart`).
    """
    committed = [each for each in newest if each is not None]
    if not committed:
        return None
    valid = furthest_behind(newest)
    return next(
        (
            epoch
            for epoch, logs in sorted(found.items(), reverse=True)
            if not is_lost(logs.commits, logs.offsets, valid)
            and all(logs.offsets.get(each.commit.batch) == each.sources for each in committed)
        ),
        None,
    )


def furthest_behind(newest: Iterable[Progress | None]) -> BatchId:
    """The newest batch that is committed for each member of a group; NO_BATCH: there is none."""
    return min(NO_BATCH if each is None else each.commit.batch for each in newest)


def takes_part(newest: Progress | None, batch: int) -> bool:
    """Whether a member of a group is still to be committed in a batch. `newest`: its newest batch.

    A group goes on from the batch that all members have. A member that is further ahead than that
    has newer rows, which those of an older batch must not replace. Its own newest batch is
    replayed, as that of a table alone is: its rows are the same under another attempt.
    """
    return newest is None or batch >= newest.commit.batch


def streamed(newest: Progress | None) -> Progress | None:
    """The newest commit as the checkpoint of its query has to have it. `newest`: of the query.

    A *load* adds rows to the newest batch, under that batch's number and with its sources, as a
    repair does. So the checkpoint has it if it has the batch. No checkpoint has loads that came
    before any batch (`is_first`), and the first batch is still to come. Older releases do not say
    whether it was so; then it was if there are no sources, though a batch may have none: that of a
    topic pattern which no topic matches yet.
    """
    if newest is None or not newest.is_load:
        return newest
    is_first = not newest.sources if newest.is_first is None else newest.is_first
    return None if is_first else newest


def is_in_place(newest: Progress | None, batch: int, *, is_stream: bool) -> bool:
    """Whether a batch is a replay whose rows must not be written again: of a stream, they would be
    events twice; of a table, they would replace those of a load that came after the batch."""
    of_batches = streamed(newest)
    if of_batches is None or batch > of_batches.commit.batch:
        return False
    return is_stream or of_batches.is_load


def has_counted(records: Iterable[Progress], written: Progress) -> bool | None:
    """Whether readers see what a record commits. `records`: the progress topic from its beginning,
    up to this record or further. False: a newer lease epoch came before it. None: the record is no
    longer there, so nobody can tell."""
    book = ProgressBook()
    for record in records:
        if record.query_id == written.query_id:
            targets = book.take(record)
            if record.commit == written.commit:
                return bool(targets)
    return None


def is_lost(commits: Iterable[int], offsets: Iterable[int], valid: BatchId) -> bool:
    """Whether batch `valid`, which readers have seen, is neither finished nor started in Spark's
    logs: the checkpoint was lost or is an old copy, and Spark would count events twice."""
    newest = max(commits, default=NO_BATCH)
    return newest < valid and not (newest == valid - 1 and valid in offsets)


def next_batch(commits: Iterable[int], valid: BatchId) -> int:
    """The batch that Spark runs next if it continues after `valid`: that batch itself if its entry
    in the commit log was lost. It is the last one whose offsets are kept."""
    return min(valid, max((each for each in commits if each <= valid), default=NO_BATCH)) + 1


def is_apart(newest: Progress | None, following: int) -> bool:
    """Whether a member of a group would miss events. `following`: the next batch of the group.

    The batches after the next one are planned again, and may cover more than before. A member that
    has such a batch is left out of it (`takes_part`), unless it is its newest one: that is replayed
    as it was (`is_planned_otherwise`). It is several ahead where a zombie that one member's fence
    has stopped went on to commit the others until they were fenced, too.
    """
    return newest is not None and newest.commit.batch > following + 1


def is_planned_otherwise(
    newest: Progress | None, batch: int, ends: Mapping[str, Mapping[int, int]]
) -> bool:
    """Whether a batch that readers have seen is about to be committed with other source offsets.
    `newest`: the newest batch of the query, of a group that of one of its members; `ends`: up to
    which offsets the batch is planned now.

    Where it covers less, rows would go back: Spark divides the records of a batch among the
    partitions by how many wait in each, and another pipeline may allow fewer of them. Where it
    covers more, and the driver dies between two members, no checkpoint has both (`heir_of`).
    """
    of_batches = streamed(newest)
    if of_batches is None or of_batches.commit.batch != batch:
        return False
    return of_batches.sources != ends


def surplus(commits: Iterable[int], offsets: Iterable[int], valid: BatchId) -> Surplus:
    """What to remove so that Spark continues after `valid`, the newest batch that readers may see.

    The offsets of the next batch stay: a replay covers the same events. Later ones must be removed,
    because Spark starts with the newest offsets it finds and would skip what lies between. If the
    commit of `valid` itself was lost, that is the next batch.
    """
    following = next_batch(commits, valid)
    return Surplus(
        commits=tuple(sorted(batch for batch in commits if batch > valid)),
        offsets=tuple(sorted(batch for batch in offsets if batch > following)),
    )


def ends_refused(
    before: Mapping[int, int], answered: Mapping[int, int], rows: int | None
) -> str | None:
    """Why a broker's answer for the ends of the table topic cannot be committed, or None.

    A leader that was deposed, or has just taken over, may answer too low, and records of this batch
    beyond its committed end would be foreign permanently: rows would be lost. `before`: ends of the
    newest commit; `rows`: how many this attempt has written, None: unknown.
    """
    for partition, end in before.items():
        if answered.get(partition, -1) < end:
            return f"partition {partition} ends at {answered.get(partition)}, {end} was committed"
    grown = sum(end - before.get(partition, 0) for partition, end in answered.items())
    if rows is not None and grown < rows:
        return f"{rows} rows were written, but the partitions have grown by {grown}"
    return None


def ends_before(newest: Progress | None, partitions: int) -> dict[int, int]:
    """`Progress.starts` of the record after `newest`: nothing committed is offset 0."""
    ends = {} if newest is None else newest.sinks
    return {partition: ends.get(partition, 0) for partition in range(partitions)}


def no_offsets(partitions: Iterable[int]) -> dict[int, Offset]:
    """Ends of partitions in which nothing is committed."""
    return dict.fromkeys(partitions, Offset(0))
