"""Reads at level `snapshot`: the rounds of one answer, and the checks of the rows of each part.

    of_one_batch              asks for all parts, then for those that are behind, until they agree
    SnapshotRead.check        this node's rows, by the meta of their transaction
    SnapshotRead.check_answer rows that a peer gave, which has checked them itself
    SnapshotRead.is_due       whether a page says that the rows should be looked at again

The node that was asked compares the parts; the node that has the rows says which batch they are of
and lease epoch, and waits for the batch that a forward names. A peer of an older release refuses
the level, since the client's own body names it; the answer of one that does not say the lease epoch
is refused here. Only the answer that is used counts: the stamp of a hedge's loser goes with its
rows.

Not here: what is asked next (`control.routing.snapshot`), the replicas of a partition and their
order (`node.worker.pull.slow_path`), waiting (`node.worker.pull.session_waits`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from standpipe.adapters.metrics import Metrics
from standpipe.control.routing.session import SessionVerdict, Stamp
from standpipe.control.routing.snapshot import (
    ROUNDS_MAX,
    NextRound,
    differing,
    is_reached,
    lack,
    next_round,
    unreached,
)
from standpipe.data.replica.positions import StoreMeta
from standpipe.errors import NoReplica
from standpipe.freshness import Freshness
from standpipe.model import ReplicaStatus
from standpipe.node.worker.pull.forward import ForwardRefused, PartitionAnswer
from standpipe.node.worker.pull.refusals import Unanswered

NO_SNAPSHOTS: Final = (
    "Level snapshot: the peer's release does not say which batch its rows are of and lease epoch."
)

#: The parts at these places, each of the wanted batch or a later one (None: of any), in so many ms.
#: Raises Unanswered.
Ask = Callable[[Sequence[int], Stamp | None, int], Awaitable[list[PartitionAnswer]]]


@dataclass(frozen=True)
class SnapshotRead:
    """The read of one part. `wanted`: the batch that another part shows; None: any batch."""

    wanted: Stamp | None = None

    def check(self, rows: StoreMeta) -> None:
        """Raises ForwardRefused if the rows cannot be a part of the answer."""
        why = lack(self.wanted, stamp_in(rows))
        if why is not None:
            raise ForwardRefused(why, session=SessionVerdict.BEHIND)

    def is_due(self, page: ReplicaStatus | None) -> bool:
        """Whether rows that are read now would end the wait, one way or the other."""
        if page is None or not page.state.answers:
            return True  # for the reader to say why
        return is_reached(self.wanted, Stamp(page.batch, page.lease_epoch))

    def check_answer(self, fresh: Freshness) -> None:
        """Raises ForwardRefused if a peer's answer does not say that its rows may be a part."""
        if fresh.batch is None or fresh.lease_epoch is None:
            raise ForwardRefused(NO_SNAPSHOTS)
        why = lack(self.wanted, Stamp(fresh.batch, fresh.lease_epoch))
        if why is not None:
            raise ForwardRefused(why, session=SessionVerdict.BEHIND)


def is_one_batch(metas: Sequence[StoreMeta], wanted: Stamp | None = None) -> bool:
    """Whether rows with these metas are an answer at level `snapshot`; `wanted`: or the part of one
    that is to be of this batch or a later one."""
    stamp = stamp_in(metas[0])
    if len(metas) > 1 and any(stamp_in(each) != stamp for each in metas):
        return False
    return is_reached(wanted, stamp)


def stamp_in(rows: StoreMeta) -> Stamp:
    """Of rows that were read in the transaction with this meta."""
    return Stamp(rows.batch, rows.lease_epoch)


async def of_one_batch(
    ask: Ask,
    partitions: Sequence[int],
    limit_ms: int,
    dropped: Callable[[PartitionAnswer], None],
    metrics: Metrics,
) -> list[PartitionAnswer]:
    """All parts, of one batch. `partitions`: that of each part; `limit_ms`: for all rounds;
    `dropped`: called with each part that was read again, and with all of them on an error.

    Raises Unanswered if a part is not answered in time, NoReplica if the parts do not meet.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + limit_ms / 1000
    parts = await ask(range(len(partitions)), None, limit_ms)
    try:
        number = 1
        while (again := next_round([part.stamps[0] for part in parts])) is not None:
            number += 1
            if number > ROUNDS_MAX:
                raise NoReplica(differing(_by_partition(partitions, parts)))
            left_ms = max(1, int(1000 * (until_s - loop.time())))
            newer = await _asked_again(ask, again, number, left_ms)
            for place, part in zip(again.behind, newer, strict=True):
                dropped(parts[place])
                parts[place] = part
    except BaseException as error:
        for part in parts:
            dropped(part)
        parts.clear()  # the error's traceback refers to this frame: it must not keep the rows
        if isinstance(error, Unanswered | NoReplica):
            metrics.count("standpipe_snapshot_reads", "refused")
        raise
    metrics.count("standpipe_snapshot_reads", str(number))
    return parts


async def _asked_again(
    ask: Ask, again: NextRound, number: int, left_ms: int
) -> list[PartitionAnswer]:
    """The parts of round `number`. Raises Unanswered that says what was wanted."""
    try:
        return await ask(again.behind, again.wanted, left_ms)
    except Unanswered as error:
        error.note = unreached(again.wanted, number)
        raise


def _by_partition(
    partitions: Sequence[int], parts: Sequence[PartitionAnswer]
) -> dict[int, list[Stamp]]:
    found: dict[int, list[Stamp]] = {}
    for partition, part in zip(partitions, parts, strict=True):
        found.setdefault(partition, []).extend(part.stamps)
    return found
