"""Read level `snapshot`: which parts of an answer are read again, until all show one batch. Pure.

An answer has a part for each partition that is read, and each part has a stamp: the batch of its
rows and its lease epoch, read in the same transaction as the rows. A batch moves the stamp of every
partition of its table on, whether or not it has written rows there, so equal stamps mean rows of
one instant of the query.

    round 1   every part is read at its replica's newest batch
    round n   the newest stamp that a part has is wanted: the parts that are behind it are read
              again, at that batch or a later one, which may then be wanted of the others

Stores keep no older rows, so the parts meet at the newest batch that one of them had, and a replica
may be past it by the time it is asked: hence rounds. A lone part needs one.

Two commits of one batch, under two lease epochs, count as two: a program that a user serves may
have made other rows the second time. Rows of no batch (after a gap that compaction left) have no
place in any answer.

*Rejected:* to keep what a batch replaced beside the rows, so that a reader goes back to the batch
that all have. It makes every transaction of a tailer slower, for the few reads whose parts miss
each other in all rounds.

Not here: the reads (`node/worker/pull/snapshot_read.py`), stamps as such (`session.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from standpipe.control.routing.session import Stamp
from standpipe.model import UNLABELLED
from standpipe.session_token import SNAPSHOT

#: after these, parts that still differ are an error
ROUNDS_MAX: Final = 4
#: what the user may do if the parts do not meet
NEXT_STEP: Final = (
    "Ask again; or read fewer partitions (fewer keys, a range of them); or allow more time, by "
    "ksql.query.pull.routing.timeout.ms, and of a scan by standpipe.query.pull.scan.timeout.ms."
)
#: batches that an error names; with more, it names the oldest and the newest
_NAMED_MAX: Final = 8


class NextRound(NamedTuple):
    """The parts at the places `behind` are read again, at `wanted` or a later batch."""

    wanted: Stamp
    behind: tuple[int, ...]


def next_round(had: Sequence[Stamp]) -> NextRound | None:
    """What is read again, given the stamp of each part; None: all show one batch."""
    if not had:
        return None
    wanted = max([stamp for stamp in had if not _is_none(stamp)] or had, key=_age)
    behind = tuple(place for place, stamp in enumerate(had) if stamp != wanted or _is_none(stamp))
    return NextRound(wanted, behind) if behind else None


def is_reached(wanted: Stamp | None, stamp: Stamp) -> bool:
    """Whether rows with this stamp may be a part of the answer. `wanted` None: any batch may."""
    return not _is_none(stamp) and (wanted is None or _age(stamp) >= _age(wanted))


def lack(wanted: Stamp | None, stamp: Stamp) -> str | None:
    """Why rows with this stamp cannot be a part, as a sentence: level, wanted, had. None: they
    can."""
    if is_reached(wanted, stamp):
        return None
    wants = "a whole batch" if wanted is None else _named(wanted)
    return f"Level {SNAPSHOT}: wanted {wants}, had {_named(stamp)}."


def differing(had: Mapping[int, Sequence[Stamp]]) -> str:
    """What the parts of each partition showed last, and what to do, if they do not meet."""
    at: dict[Stamp, list[int]] = {}
    for partition, stamps in sorted(had.items()):
        for stamp in dict.fromkeys(stamps):
            at.setdefault(stamp, []).append(partition)
    ordered = sorted(at, key=_age)
    if len(ordered) > _NAMED_MAX:
        ordered = [ordered[0], ordered[-1]]
    shown = "; ".join(f"partition{_listed(at[stamp])} had {_named(stamp)}" for stamp in ordered)
    return (
        f"Level {SNAPSHOT}: the parts of the answer did not show one batch in any of {ROUNDS_MAX} "
        f"rounds. In the last one, {shown}. {NEXT_STEP}"
    )


def unreached(wanted: Stamp, number: int) -> str:
    """What an error adds if a part did not reach what round `number` wanted in time."""
    return (
        f"Level {SNAPSHOT}: round {number} wanted {_named(wanted)}, which another partition had. "
        f"{NEXT_STEP}"
    )


def _age(stamp: Stamp) -> tuple[int, int]:
    """Both grow along the progress topic. A later holder of the lease may go on from an older batch
    if Kafka lost some: its rows are the newer ones."""
    return (stamp.epoch, stamp.batch)


def _is_none(stamp: Stamp) -> bool:
    return stamp.batch in UNLABELLED


def _named(stamp: Stamp) -> str:
    if _is_none(stamp):
        return "rows between two batches"
    return f"batch {stamp.batch} (lease epoch {stamp.epoch})"


def _listed(partitions: Sequence[int]) -> str:
    named = ", ".join(map(str, partitions[:_NAMED_MAX]))
    return f"{'s'[: len(partitions) > 1]} {named}{', …' if len(partitions) > _NAMED_MAX else ''}"
