"""Bugs put into read level `session` on purpose: the judge must catch each of them."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from standpipe.client.core.session import ClientSession
from standpipe.control.routing import session as decisions
from standpipe.control.routing.session import SessionVerdict, Stamp, Wanted
from standpipe.model import NO_BATCH
from standpipe.node.worker.pull import session_read
from standpipe.node.worker.pull.session_read import SessionRead
from standpipe.session_token import SeenBatch, SessionToken, TableKey

from . import session_world
from .runner import Plant, replacing
from .session_world import PARTITIONS, SessionWorld


def _accept(*_: Any, **__: Any) -> None:
    """Whatever it is."""


def answer_from_an_older_replica() -> list[Plant]:
    """Nobody holds the rows against the token."""
    return [(SessionRead, "check", _accept), (SessionRead, "check_answer", _accept)]


def trust_an_older_release() -> list[Plant]:
    """Its answer names no lease epoch, and is taken."""
    return [(SessionRead, "check_answer", _accept)]


def compare_with_the_wrong_partition() -> list[Plant]:
    """The rows of one partition are judged by the meta of another."""

    def wrong(self: SessionWorld, meta: Any, generation: int, number: int, node: str) -> Any:
        other = (number + 1) % PARTITIONS
        return self.replicas[generation, other, node].meta()

    return [(SessionWorld, "judged_of", wrong), (SessionRead, "check_answer", _accept)]


def wake_a_waiter_early() -> list[Plant]:
    """Any new page ends the wait, and the rows are not judged again."""

    def make(wait: Any) -> Any:
        def early(self: SessionWorld, session: SessionRead, *rest: Any) -> Any:
            known = session_read.KnownToken(
                session.known.before,
                Wanted(),
                session.known.source,
                session.known.cluster,
                session.known.files,
            )
            return wait(self, SessionRead(known, session.arrived_boot_ms), *rest)

        return early

    return [replacing(SessionWorld, "_wait", make)]


def token_from_the_page() -> list[Plant]:
    """The page was read before the rows, and names an older batch."""

    def stamped(self: SessionWorld, fresh: Any, shown: Any, meta: Any) -> Any:
        batch = None if shown.batch == NO_BATCH else shown.batch
        return replace(fresh, batch=batch, lease_epoch=shown.lease_epoch)

    return [(SessionWorld, "stamped", stamped)]


def judge_by_the_page() -> list[Plant]:
    """The rows of a store that was replaced are older than the page says."""

    def make(check: Any) -> Any:
        def lax(self: SessionRead, shown: Any, rows: Any, now_ms: int) -> None:
            check(self, shown, replace(rows, batch=shown.batch), now_ms)

        return lax

    def stamped(self: SessionWorld, fresh: Any, shown: Any, meta: Any) -> Any:
        return replace(fresh, batch=shown.batch, lease_epoch=shown.lease_epoch)

    return [
        replacing(SessionRead, "check", make),
        (SessionWorld, "stamped", stamped),
        (session_world, "may_judge", lambda *_: True),
    ]


def accept_rows_of_no_batch() -> list[Plant]:
    """After a gap that compaction left, they are labelled with the batch before it."""

    def make(meta: Any) -> Any:
        def labelled(self: Any) -> Any:
            found = meta(self)
            if found.batch != NO_BATCH or not self.applied:
                return found
            return replace(found, batch=self.commits[self.applied - 1].batch)

        return labelled

    return [replacing(session_world.Replica, "meta", make)]


def ignore_the_generation() -> list[Plant]:
    """Batches of two generations are compared."""

    def make(wanted_of: Any) -> Any:
        def careless(token: SessionToken, source: Any, cluster: str, others: Any = ()) -> Wanted:
            mark = token.marks.get(TableKey(cluster, source.table_id))
            return Wanted() if mark is None else Wanted(mark)

        return careless

    return [replacing(session_read, "wanted_of", make)]


def answer_with_an_older_map() -> list[Plant]:
    """A node that has not heard of the switch takes a newer generation's token for none."""

    def make(wanted_of: Any) -> Any:
        def careless(token: SessionToken, source: Any, cluster: str, others: Any = ()) -> Wanted:
            mark = token.marks.get(TableKey(cluster, source.table_id))
            if mark is not None and mark.generation > source.generation:
                return Wanted()
            return wanted_of(token, source, cluster, others)

        return careless

    return [replacing(session_read, "wanted_of", make)]


def believe_an_old_end() -> list[Plant]:
    """Kafka was asked before the read arrived."""
    return [(SessionRead, "_is_confirmed", lambda self, page, now: page.confirmed_boot_ms > 0)]


def read_the_page_after_the_rows() -> list[Plant]:
    """Its confirmation is of a later batch."""

    def check(self: SessionRead, shown: Any, rows: Any, now_ms: int) -> None:
        stamp = Stamp(rows.batch, rows.lease_epoch)
        is_current = self._is_confirmed(shown, now_ms)
        self._refuse(stamp, self.wanted.verdict(stamp, is_current=is_current))

    return [
        (SessionWorld, "page_of", lambda self, before, replica: replica.page),
        (SessionRead, "check", check),
        (session_world, "may_judge", lambda *_: True),
    ]


def token_of_the_loser() -> list[Plant]:
    """The race's loser, at another replica, gives the stamp."""

    def loser(self: SessionWorld, fresh: Any, generation: int, number: int) -> Stamp:
        metas = [
            replica.meta()
            for (of, part, _), replica in self.replicas.items()
            if (of, part) == (generation, number)
        ]
        stamps = [Stamp(one.batch, one.lease_epoch) for one in metas if one.batch != NO_BATCH]
        return min(stamps)

    return [(SessionWorld, "seen_of", loser)]


def minimum_of_the_parts() -> list[Plant]:
    """The oldest part of an answer makes its token."""

    def make(token_after: Any) -> Any:
        def least(token: Any, source: Any, cluster: str, seen: Any) -> Any:
            return token_after(token, source, cluster, [min(seen)] if seen else [])

        return least

    return [replacing(session_read, "token_after", make)]


def forget_what_was_seen_before() -> list[Plant]:
    """The answer's token names the answer's batch only, and the client keeps that one."""

    def make(token_after: Any) -> Any:
        def fresh(token: Any, source: Any, cluster: str, seen: Any) -> Any:
            return token_after(SessionToken(), source, cluster, seen)

        return fresh

    return [replacing(session_read, "token_after", make), keep_the_last_token()[0]]


def keep_the_last_token() -> list[Plant]:
    """A client with several reads in flight keeps the token that came last."""

    def saw(self: ClientSession, token: str) -> None:
        self._texts = {token}

    return [(ClientSession, "saw", saw)]


def one_batch_too_few() -> list[Plant]:
    """The batch before the one that was seen is enough."""

    def make(verdict: Any) -> Any:
        def lax(self: Wanted, stamp: Stamp, *, is_current: bool) -> SessionVerdict:
            mark = self.mark
            if mark is not None and stamp.batch != NO_BATCH:
                mark = SeenBatch(mark.generation, max(mark.batch - 1, 0), mark.epoch)
            return verdict(Wanted(mark, self.after_switch), stamp, is_current=is_current)

        return lax

    return [replacing(decisions.Wanted, "verdict", make)]


PLANTS = (
    answer_from_an_older_replica,
    trust_an_older_release,
    compare_with_the_wrong_partition,
    wake_a_waiter_early,
    token_from_the_page,
    judge_by_the_page,
    accept_rows_of_no_batch,
    ignore_the_generation,
    answer_with_an_older_map,
    believe_an_old_end,
    read_the_page_after_the_rows,
    token_of_the_loser,
    minimum_of_the_parts,
    forget_what_was_seen_before,
    keep_the_last_token,
    one_batch_too_few,
)
