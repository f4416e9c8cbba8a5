"""Bugs put into the sessions of push queries on purpose: the judge must catch each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from standpipe.client.core.exchange import Operation, Pause
from standpipe.client.core.push import RESET, PushReader, _Broken
from standpipe.client.core.session import ClientSession
from standpipe.control.routing import session as decisions
from standpipe.data.commit import committed as commits
from standpipe.data.commit.committed import Committed
from standpipe.data.query.push_seen import Seen
from standpipe.node.worker.pull import session_read
from standpipe.node.worker.pull.session_read import KnownToken
from standpipe.node.worker.push import push_session
from standpipe.node.worker.push.push_query import PushAnswer
from standpipe.node.worker.push.push_session import PushSession
from standpipe.session_token import FollowedTable, SeenBatch, SessionToken, TableKey

from .runner import Plant, replacing


def _with_positions(change: Any) -> list[Plant]:
    """The token of a push query has other positions than the query."""

    def make(token: Any) -> Any:
        def wrong(self: PushSession, positions: Mapping[int, int], *given: Any) -> str:
            return token(self, change(positions), *given)

        return wrong

    return [replacing(PushSession, "token", make)]


def one_record_too_far() -> list[Plant]:
    """As if the position were that of the last record shown."""
    return _with_positions(lambda places: {each: at + 1 for each, at in places.items()})


def one_record_too_few() -> list[Plant]:
    """The offset of the last record shown, not of the next."""
    return _with_positions(lambda places: {each: max(at - 1, 0) for each, at in places.items()})


def position_of_the_wrong_partition() -> list[Plant]:
    """They are counted from 1."""
    return _with_positions(
        lambda places: {each: places[(each + 1) % len(places)] for each in places}
    )


def the_furthest_partition_counts() -> list[Plant]:
    """One number for all of them."""
    return _with_positions(lambda places: dict.fromkeys(places, max(places.values())))


def begin_where_the_request_says() -> list[Plant]:
    """The token is checked, and not gone by."""

    def make(starts: Any) -> Any:
        def ignored(self: PushSession, *given: Any) -> None:
            starts(self, *given)

        return ignored

    return [replacing(PushSession, "starts", make)]


def begin_behind_the_reached_batch() -> list[Plant]:
    """As if all of the newest batch had been shown, of which something was."""

    def make(starts: Any) -> Any:
        def whole(followed: FollowedTable, there: Any) -> dict[int, int]:
            return starts(replace(followed, whole=followed.newest or followed.whole), there)

        return whole

    return [replacing(push_session, "starts_of_table", make)]


def positions_alone_count() -> list[Plant]:
    """What reads have shown since is shown again."""

    def make(starts: Any) -> Any:
        def alone(followed: FollowedTable, there: Any) -> dict[int, int]:
            return starts(replace(followed, whole=None) if followed.positions else followed, there)

        return alone

    return [replacing(push_session, "starts_of_table", make)]


def the_newest_part_of_a_read_counts() -> list[Plant]:
    """What the other parts have yet to show is left out."""

    def make(token_after: Any) -> Any:
        def newest(token: Any, source: Any, cluster: str, seen: Any) -> Any:
            return token_after(token, source, cluster, [max(seen)] if seen else [])

        return newest

    return [replacing(session_read, "token_after", make)]


def the_mark_of_a_read_counts() -> list[Plant]:
    """A token that names the oldest part of a read is taken for one that does not."""

    def followed_of(self: SessionToken, table: TableKey) -> FollowedTable | None:
        mark, followed = self.marks.get(table), self.followed.get(table)
        if mark is None:
            return followed
        return replace(followed or FollowedTable(mark.generation), whole=mark)

    return [(SessionToken, "followed_of", followed_of)]


def begin_one_batch_early() -> list[Plant]:
    """Before the batch that a read has shown."""

    def make(ends_of: Any) -> Any:
        def early(self: Committed, batch: int, lease_epoch: int) -> dict[int, int] | None:
            return ends_of(self, max(batch - 1, 0), lease_epoch)

        return early

    return [replacing(Committed, "ends_of", make)]


def ignore_the_lease_epoch() -> list[Plant]:
    """A batch that the next holder of the lease commits again counts as seen."""

    def end_of(targets: Any, batch: int, lease_epoch: int) -> int | None:
        ends = [target.end for target in targets if target.commit.batch <= batch]
        return ends[-1] if ends else None

    return [(commits, "_end_of", end_of)]


def no_batch_for_reads() -> list[Plant]:
    """A read after the push query knows nothing of its rows."""
    return [(Committed, "reached", lambda self, positions: None)]


def the_oldest_batch_for_reads() -> list[Plant]:
    """Of the partition that is furthest behind."""

    def make(reached: Any) -> Any:
        def least(self: Committed, positions: Mapping[int, int]) -> tuple[int, int] | None:
            found = [reached(self, {each: at}) for each, at in positions.items()]
            return min((one for one in found if one is not None), default=None)

        return least

    return [replacing(Committed, "reached", make)]


def reads_take_no_notice_of_push_queries() -> list[Plant]:
    """Only what reads have shown counts for reads."""
    return [(SessionToken, "seen", property(lambda self: self.marks))]


def the_token_comes_before_its_rows() -> list[Plant]:
    """A connection that breaks between them takes the rows away."""

    def make(step: Any) -> Any:
        def early(self: PushAnswer) -> bytes | None:
            said = step(self)
            return self._tokens() + said if said and b'{"row"' in said else said

        return early

    return [replacing(PushAnswer, "step", make)]


def go_on_where_the_session_is() -> list[Plant]:
    """The client asks the next node with what its reads have seen meanwhile."""

    def make(request: Any) -> Any:
        def merged(self: PushReader, address: str) -> Any:
            assert self.session is not None
            self.token = self.token and self.session.token
            return request(self, address)

        return merged

    return [replacing(PushReader, "_request", make)]


def keep_rows_of_a_broken_connection() -> list[Plant]:
    """The next node shows them again."""

    def run(self: PushReader) -> Operation[None]:
        assert self.session is not None
        self._heard_s = self.clock()
        if self.properties.get(RESET) != "earliest":
            self.token = self.session.token
        while True:
            try:
                yield from self._answer()
            except _Broken as broken:
                yield Pause(self._pause(str(broken)))
            else:
                return

    return [(PushReader, "run", run)]


def the_session_is_ahead_of_its_rows() -> list[Plant]:
    """A caller that leaves between two rows of a flush never gets the second."""
    return [(SessionToken, "for_reads", lambda self: self)]


def the_session_is_behind_its_rows() -> list[Plant]:
    """A read beside the first row of a flush may be older than it."""
    return [(SessionToken, "for_reads", lambda self: SessionToken())]


def keep_the_last_token() -> list[Plant]:
    """A client with several answers on their way keeps the one that came last."""

    def saw(self: ClientSession, token: str) -> None:
        self._texts = {token}

    return [(ClientSession, "saw", saw)]


def a_read_forgets_the_push_query() -> list[Plant]:
    """Its token names what it has shown itself, and the batch that it had to be newer than."""

    def make(token: Any) -> Any:
        def alone(self: KnownToken, stamps: Any) -> str:
            after = SessionToken.parse(token(self, stamps))
            return SessionToken(after.marks).text()

        return alone

    return [replacing(KnownToken, "token", make), keep_the_last_token()[0]]


def show_what_is_not_committed() -> list[Plant]:
    """Whatever lies below the committed end."""
    return [(Committed, "shows", lambda self, partition, offset, headers: True)]


def show_what_a_repair_wrote_again() -> list[Plant]:
    """As if it were a change."""
    return [(Seen, "has", lambda self, partition, repeated, now_ms: False)]


def one_batch_too_few_for_reads() -> list[Plant]:
    """The batch before the one that was pushed is enough."""

    def make(wanted_of: Any) -> Any:
        def lax(token: SessionToken, *given: Any) -> decisions.Wanted:
            wanted = wanted_of(token, *given)
            mark = wanted.mark
            if mark is None:
                return wanted
            less = SeenBatch(mark.generation, max(mark.batch - 1, 0), mark.epoch)
            return replace(wanted, mark=less)

        return lax

    return [replacing(session_read, "wanted_of", make)]


def rows_before_an_error_have_no_token() -> list[Plant]:
    """The node ends at once, and the client delivers what came before."""

    def make(hand_over_rest: Any) -> Any:
        def rest(self: PushReader) -> Operation[None]:
            yield from self._hand_over()

        return rest

    def failed(self: PushAnswer, error: Any) -> bytes:
        return self.form.failed(error)

    return [replacing(PushReader, "_hand_over_rest", make), (PushAnswer, "failed", failed)]


PUSH_PLANTS = (
    one_record_too_far,
    one_record_too_few,
    position_of_the_wrong_partition,
    the_furthest_partition_counts,
    begin_where_the_request_says,
    begin_behind_the_reached_batch,
    positions_alone_count,
    the_newest_part_of_a_read_counts,
    the_mark_of_a_read_counts,
    begin_one_batch_early,
    ignore_the_lease_epoch,
    no_batch_for_reads,
    the_oldest_batch_for_reads,
    reads_take_no_notice_of_push_queries,
    the_token_comes_before_its_rows,
    go_on_where_the_session_is,
    keep_rows_of_a_broken_connection,
    the_session_is_ahead_of_its_rows,
    the_session_is_behind_its_rows,
    keep_the_last_token,
    a_read_forgets_the_push_query,
    show_what_is_not_committed,
    show_what_a_repair_wrote_again,
    one_batch_too_few_for_reads,
    rows_before_an_error_have_no_token,
)
