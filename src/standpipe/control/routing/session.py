"""Read level `session`: whether a replica's rows are as new as all that a session has seen. Pure.

The rows of a replica are those of one batch of its table's query (its *stamp*, read in the same
transaction as the rows). A token wants a batch and a lease epoch; both grow along the progress
topic, so a stamp covers the mark if neither is smaller. Whatever is not covered has one of three
reasons:

    BEHIND   the replica will cover it: wait, or ask another one
    LOST     a later lease epoch went on from an older batch: Kafka has lost what was committed
    BEYOND   after the read arrived, Kafka had nothing newer, and the token still wants more

The rows of no batch (after a gap that compaction left) cover nothing, not even an empty token: a
superseded row may be there whose successor a reader has seen.

Another generation (CREATE OR REPLACE). Batches of two generations cannot be compared. Reads move
only after the next generation covers what the one before it had committed, so a replica is past
that point if it was at the committed end at an instant after the read arrived: `is_current`. A
newer generation, or table, than this node's map has means that the map is old: refused, as is a
dropped table whose name was given again. A push query shows changes, and those between two
generations are in neither topic: it is refused after a switch.

Not here: tokens as text (`session_token.py`), waiting (`node/worker/pull/session_waits.py`), where
a push query begins (`data/query/push_start.py`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from standpipe.errors import NoReplica, TokenRefused
from standpipe.model import NO_BATCH, Source
from standpipe.session_token import ANEW, FollowedTable, SeenBatch, SessionToken, TableKey


class Stamp(NamedTuple):
    """Which batch rows are of, and its lease epoch; NO_BATCH: they are of none."""

    batch: int
    epoch: int


class SessionVerdict(Enum):
    """Whether rows cover what a session has seen, and if not, why. See the module."""

    COVERED = "covered"
    BEHIND = "behind"
    LOST = "lost"
    BEYOND = "beyond"


IMPOSSIBLE: Final = frozenset({SessionVerdict.LOST, SessionVerdict.BEYOND})


@dataclass(frozen=True)
class Wanted:
    """What a session wants of one table. `mark` None: any batch of it.

    `after_switch`: the session has seen an older generation of the table.
    """

    mark: SeenBatch | None = None
    after_switch: bool = False

    def verdict(self, stamp: Stamp, *, is_current: bool) -> SessionVerdict:
        """Of rows with this stamp. `is_current`: Kafka had nothing newer than these rows at an
        instant after the read arrived."""
        if stamp.batch == NO_BATCH:
            return SessionVerdict.BEHIND
        if self.after_switch:
            return SessionVerdict.COVERED if is_current else SessionVerdict.BEHIND
        mark = self.mark
        if mark is None or (stamp.batch >= mark.batch and stamp.epoch >= mark.epoch):
            return SessionVerdict.COVERED
        if stamp.epoch > mark.epoch and stamp.batch < mark.batch:
            return SessionVerdict.LOST
        return SessionVerdict.BEYOND if is_current else SessionVerdict.BEHIND

    def why(self, stamp: Stamp, verdict: SessionVerdict) -> str:
        """The sentence for a replica whose rows do not cover it: level, wanted, had."""
        had = "rows between two batches" if stamp.batch == NO_BATCH else _named(stamp)
        return f"Level session: wanted {self._named()}, had {had}. {_BECAUSE[verdict]}".rstrip()

    def _named(self) -> str:
        if self.after_switch:
            return "all that was committed before the read, as the session saw an older generation"
        return "a whole batch" if self.mark is None else _named(Stamp(*self.mark[1:]))


_BECAUSE: Final = {
    SessionVerdict.COVERED: "",
    SessionVerdict.BEHIND: "",
    SessionVerdict.LOST: "DATA_LOSS: Kafka has lost a batch that the session has seen.",
    SessionVerdict.BEYOND: "Kafka had nothing newer after the read arrived.",
}


def _named(stamp: Stamp) -> str:
    return f"batch {stamp.batch} (lease epoch {stamp.epoch})"


def wanted_of(
    token: SessionToken, source: Source, cluster: str, others: Iterable[Source] = ()
) -> Wanted:
    """What a token wants of a table, as this node's map has it. `others`: all that the map has.

    Raises TokenRefused if the token can never be covered here, NoReplica if this node's map is
    older than the token.
    """
    for other, _ in token.seen.keys() | token.followed.keys():
        if other != cluster:
            raise TokenRefused(
                f"the session token is of cluster {other!r}, this is cluster {cluster!r}: {ANEW}"
            )
    table_id = source.table_id or ""
    place = TableKey(cluster, table_id)
    mark = token.seen.get(place)
    if mark is None:
        if place not in token.followed:
            _check_recreated(token, source, {one.table_id for one in others})
        return Wanted()
    if mark.generation > source.generation:
        raise _newer_generation(mark.generation, source)
    if mark.generation < source.generation:
        return Wanted(after_switch=True)
    return Wanted(mark)


def followed_of(
    token: SessionToken, source: Source, cluster: str, others: Iterable[Source] = ()
) -> FollowedTable | None:
    """How far a session has followed a table, for a push query that goes on from there; None: it
    has seen nothing of the table.

    Raises TokenRefused and NoReplica as `wanted_of`, and TokenRefused after a switch.
    """
    wanted = wanted_of(token, source, cluster, others)
    followed = token.followed_of(TableKey(cluster, source.table_id or ""))
    generation = source.generation if followed is None else followed.generation
    if generation < source.generation or (followed is None and wanted.after_switch):
        raise TokenRefused(
            f"{source.name} was replaced since the session saw it, now it has generation "
            f"{source.generation}. No push query shows the changes in between: {ANEW}"
        )
    if generation > source.generation:
        raise _newer_generation(generation, source)
    return followed


def _newer_generation(wanted: int, source: Source) -> NoReplica:
    return NoReplica(
        f"Level session: wanted generation {wanted} of {source.name}, this node's map "
        f"has generation {source.generation}: ask again, or ask another node."
    )


def _check_recreated(token: SessionToken, source: Source, living: Container[str | None]) -> None:
    """The token may name another table of that name, which was dropped, or which is newer than
    this node's map. Ids end with the number of the statement that made the table; what is before it
    may be the same of two living tables, `orders` and `ORDERS`."""
    stem, number = _parts(source.table_id or "")
    if number is None:
        return
    for _, table_id in token.seen.keys() | token.followed.keys():
        other_stem, other = _parts(table_id)
        if other is None or other_stem != stem or table_id in living:
            continue
        if other < number:
            raise TokenRefused(
                f"{source.name} was dropped and created again since the session read it "
                f"({table_id}, now {source.table_id}): {ANEW}"
            )
        raise NoReplica(
            f"Level session: wanted {table_id}, this node's map has {source.table_id}, which is "
            "older: ask again, or ask another node."
        )


def _parts(table_id: str) -> tuple[str, int | None]:
    stem, _, number = table_id.rpartition("_")
    return (stem, int(number)) if number.isascii() and number.isdigit() else (table_id, None)


def token_after(
    token: SessionToken, source: Source, cluster: str, seen: Sequence[Stamp]
) -> SessionToken:
    """The token of an answer: all that the session has seen, and the batches of the answer's parts.

    The newest of them counts for later reads, the oldest for a push query that goes on from here:
    changes of the parts that are behind are still to come. No parts (no key has a partition): what
    was seen before.
    """
    if not seen:
        return token
    table, generation = TableKey(cluster, source.table_id or ""), source.generation
    stamps = {*seen}
    if len(stamps) == 1:
        return token.merged(SessionToken({table: SeenBatch(generation, *seen[0])}))
    newest, oldest = (
        SeenBatch(generation, of(one.batch for one in stamps), of(one.epoch for one in stamps))
        for of in (max, min)
    )
    followed = {table: FollowedTable(generation, whole=oldest)}
    return token.merged(SessionToken({table: newest}, followed=followed))
