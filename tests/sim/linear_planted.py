"""Bugs put into read level `linearizable` on purpose: the judge must catch each of them."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from standpipe.data.replica import barrier as barriers
from standpipe.data.replica.applied_progress import AppliedProgress
from standpipe.data.replica.barrier import Barrier
from standpipe.model import NO_BATCH, BatchId
from standpipe.node.batched import Shared
from standpipe.node.worker.pull.linearizable import Barriers, LinearRead

from . import linear_world
from .linear_world import LinearReplica, LinearWorld
from .runner import Plant, replacing


def end_read_before_arrival() -> list[Plant]:
    """The barrier of the read before is used once more."""

    def make(appended: Any) -> Any:
        async def stale(self: Barriers, limit_ms: int) -> Barrier:
            kept: Any = self
            before = getattr(kept, "kept", None)
            kept.kept = await appended(self, limit_ms)
            return before or kept.kept

        return stale

    return [replacing(Barriers, "_appended", make)]


def end_from_a_deposed_broker() -> list[Plant]:
    """An end offset is asked for, and nothing appended: the broker tells an old one."""

    def ended(self: LinearWorld) -> int:
        return max(1, len(self.topic) - self.random.choice([0, 0, 6]))

    return [(LinearWorld, "appended", ended)]


def barrier_shared_after_it_was_sent() -> list[Plant]:
    """Who comes while one is in flight takes that one."""

    def make(answer: Any) -> Any:
        async def shared(self: Any) -> Any:
            under_way = self._under_way
            if under_way is not None and not under_way.done():
                return await asyncio.shield(under_way)
            return await answer(self)

        return shared

    return [replacing(Shared, "answer", make)]


def wait_skipped() -> list[Plant]:
    """Nobody holds the rows against the barrier."""
    return [(LinearRead, "check", lambda *_: None)]


def read_progress_taken_for_applied() -> list[Plant]:
    """The page says how far progress is read, whatever the rows show."""

    def note(self: AppliedProgress, read_up_to: int, *_: Any) -> None:
        self.end = read_up_to

    return [(AppliedProgress, "note", note)]


def target_before_the_newest() -> list[Plant]:
    """What was read is paired with a target that the rows show already."""

    def make(note: Any) -> Any:
        def early(
            self: AppliedProgress, read_up_to: int, newest: Any, shown: Any, topic_id: str
        ) -> None:
            note(self, read_up_to, shown if newest is not None else None, shown, topic_id)

        return early

    return [replacing(AppliedProgress, "note", make)]


def barrier_told_once_it_is_read() -> list[Plant]:
    """An early page says that the rows have all below the newest barrier, which they may lack."""

    def make(is_awaited: Any) -> Any:
        def hasty(self: AppliedProgress, barrier_end: int) -> bool:
            self.end = max(self.end, barrier_end)
            return bool(is_awaited(self, barrier_end))

        return hasty

    return [replacing(AppliedProgress, "is_awaited", make)]


def topic_id_ignored() -> list[Plant]:
    """The offset of a barrier is compared with that of a topic that was deleted."""
    return [(Barrier, "is_of_other_topic", lambda *_: False)]


def pairs_kept_for_another_topic() -> list[Plant]:
    """What was found in a topic is told of the next one, of which as much is read."""

    def make(note: Any) -> Any:
        def keeps(
            self: AppliedProgress, read_up_to: int, newest: Any, shown: Any, topic_id: str
        ) -> None:
            end, pairs = self.end, tuple(self._pairs)
            note(self, read_up_to, newest, shown, topic_id)
            self.end = max(self.end, end)
            self._pairs.extend(pairs)

        return keeps

    return [replacing(AppliedProgress, "note", make)]


def page_read_after_the_rows() -> list[Plant]:
    """It has got on meanwhile, and the rows that were read have not."""

    def page_of(self: LinearWorld, _: Any, replica: LinearReplica) -> Any:
        return replica.page

    return [
        (LinearWorld, "page_of", page_of),
        (linear_world, "may_judge", lambda *_: True),
        (barriers, "_place", lambda _: (0, 0, 0)),
    ]


def rows_older_than_their_page() -> list[Plant]:
    """Of a store that was replaced by an older copy."""
    return [
        (linear_world, "may_judge", lambda *_: True),
        (barriers, "_place", lambda _: (0, 0, 0)),
    ]


def accept_rows_of_no_batch() -> list[Plant]:
    """A gap: the page is of before, and the rows stand between two batches."""

    def make(check: Any) -> Any:
        def lax(self: LinearRead, page: Any, rows: Any) -> None:
            check(
                self, page, replace(rows, batch=BatchId(9**9)) if rows.batch == NO_BATCH else rows
            )

        return lax

    return [
        replacing(LinearRead, "check", make),
        (linear_world, "may_judge", lambda *_: True),
    ]


def map_not_awaited() -> list[Plant]:
    """The read index is asked for, and the map is used as it is."""

    async def at_once(*_: Any) -> None:
        return None

    return [(Barriers, "_caught_up", at_once)]


LINEAR_PLANTS = (
    end_read_before_arrival,
    end_from_a_deposed_broker,
    barrier_shared_after_it_was_sent,
    wait_skipped,
    read_progress_taken_for_applied,
    target_before_the_newest,
    barrier_told_once_it_is_read,
    topic_id_ignored,
    pairs_kept_for_another_topic,
    page_read_after_the_rows,
    rows_older_than_their_page,
    accept_rows_of_no_batch,
    map_not_awaited,
)
